/* How far a token is from being the choice: nothing for the choice, no more than what logits are off by where they are,
 * and much for a mistake. An audit goes by it. */
#include "collect/engine/sample.h"

#include "tests/engine/sample_scene.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static int indices[TOKENS];
static float values[TOKENS];
static const struct sample_scratch scratch = {indices, values};

static void regret_is_zero_for_the_choice_and_positive_elsewhere(void **state)
{
    (void)state;
    float logits[TOKENS];
    fill_logits(logits);
    static const struct sampling cases[] = {{0, 0, 1, 0}, {0.7f, 0, 1, 1}, {1, 5, 1, 2}, {1, 0, 0.8f, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int position = 0; position < 50; position++) {
            struct choice choice = sample_choose(logits, TOKENS, &cases[i], position, &scratch);
            double least = INFINITY;
            for (int token = 0; token < TOKENS; token++) {
                double regret = sample_regret(logits, TOKENS, &cases[i], position, token, &scratch);
                assert_true(token == choice.token ? regret == 0 : regret > 0);
                if (token != choice.token && regret < least)
                    least = regret;
            }
            /* the margin is the runner-up's regret, where a filter hides none that would come before it */
            if (cases[i].top_k == 0 && cases[i].top_p == 1)
                assert_float_equal(choice.margin, least, 2e-5);
        }
}

/* Rows with a flat tail, with steps of equal logits, and without either: what is left in turns on last bits there. */
static void fill_shape(float *logits, int count, int shape, const gsl_rng *random)
{
    for (int i = 0; i < count; i++) {
        float value = (float)gsl_ran_gaussian(random, 2);
        logits[i] = shape == 0 ? value : shape == 1 ? (i < 4 ? 6 + value : 0) : roundf(value);
    }
}

/* Where no logit is off by more than so much, what is chosen is off by no more than twice that, for filters too: a
 * token that they leave in or out by a hair's breadth may be chosen or not. */
static void regret_is_no_more_than_what_logits_are_off_by(void **state)
{
    (void)state;
    static const struct sampling cases[] = {{0, 0, 1, 0},        {0.7f, 0, 1, 1},   {1, 5, 1, 2},
                                            {0.7f, 0, 0.95f, 3}, {1, 0, 0.5f, 4},   {1.5f, 0, 0.999f, 5},
                                            {1, 20, 0.9f, 6},    {0.4f, 3, 0.8f, 7}};
    static const double errors[] = {1e-6, 0.01, 0.1};
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    int others = 0;
    for (int trial = 0; trial < 9000; trial++) {
        const struct sampling *sampling = &cases[trial % (sizeof cases / sizeof *cases)];
        const double error = errors[trial / 8 % 3];
        float logits[TOKENS], off[TOKENS];
        fill_shape(logits, TOKENS, trial % 3, random);
        for (int i = 0; i < TOKENS; i++)
            off[i] = logits[i] + (float)gsl_ran_flat(random, -error, error);
        int token = sample_choose(off, TOKENS, sampling, trial, &scratch).token;
        others += token != sample_choose(logits, TOKENS, sampling, trial, &scratch).token;
        double regret = sample_regret(logits, TOKENS, sampling, trial, token, &scratch);
        if (!(regret >= 0 && regret <= 2 * error + 1e-5))
            fail_msg("trial %d: a regret of %g where logits are off by %g", trial, regret, error);
    }
    assert_true(others > 100);
    gsl_rng_free(random);
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Of equal logits `left` are left by top-k, and of these a share by top-p: the least by which those that score more
 * than the token by more than that can be out all at once, and the others have that share. */
static double equal_regret(const struct sampling *sampling, int left, int position, int token)
{
    static const float logits[TOKENS];
    double leads[TOKENS + 1], odds = (double)sampling->top_p / (1 - (double)sampling->top_p), least = INFINITY;
    double score = (double)noisy(logits, sampling, position, token), t = (double)sampling->temperature;
    for (int i = 0; i < TOKENS; i++)
        leads[i] = ((double)noisy(logits, sampling, position, i) - score) * t;
    qsort(leads, TOKENS, sizeof *leads, compare_doubles);
    leads[TOKENS] = INFINITY;
    for (int beside = 1; beside <= TOKENS && least == INFINITY; beside++) {
        double share = beside >= left ? 0 : sampling->top_p < 1 ? t * log(odds * (left - beside) / beside) : INFINITY;
        double by = fmax(fmax(leads[beside - 1], beside == TOKENS ? 0 : share), 0);
        least = by < leads[beside] ? by : INFINITY;
    }
    return least;
}

/* Each of them alone could be out by the last bits of a sum; that all are takes what leaves the others alone. */
static void regret_is_of_all_that_score_more_at_once(void **state)
{
    (void)state;
    static const struct sampling cases[] = {{1, 20, 1, 0}, {1, 0, 0.5f, 1}, {0.7f, 0, 0.9f, 2}, {2, 20, 0.5f, 3}};
    static const float logits[TOKENS];
    int large = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int position = 0; position < 20; position++) {
            int choice = sample_choose(logits, TOKENS, &cases[i], position, &scratch).token;
            for (int token = 0; token < TOKENS; token++) {
                double expected = equal_regret(&cases[i], cases[i].top_k ? cases[i].top_k : TOKENS, position, token);
                double regret = sample_regret(logits, TOKENS, &cases[i], position, token, &scratch);
                assert_float_equal(regret, token == choice ? 0 : expected, 1e-5);
                large += expected > 0.5;
            }
        }
    assert_true(large > 1000);
}

/* What stands in a row by mistake is as far off as without filters, or as the edge is that it lies behind. */
static void regret_of_a_mistake_is_large(void **state)
{
    (void)state;
    static const float logits[] = {6, 5, 0, -1, -2};
    static const struct sampling cases[] = {{1, 2, 1, 0}, {1, 0, 0.9f, 0}, {1, 3, 0.9f, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int position = 0; position < 100; position++)
            for (int token = 2; token < 5; token++)
                assert_true(sample_regret(logits, 5, &cases[i], position, token, &scratch) > 1);
}

/* What is no number lies below nothing: an audit must not take it for agreement. */
static void regret_of_what_is_no_number_is_none(void **state)
{
    (void)state;
    static const struct sampling cases[] = {{0, 0, 1, 0}, {0.7f, 0, 1, 1}, {1, 2, 1, 2}, {1, 0, 0.8f, 3}};
    static const float rows[][4] = {{NAN, NAN, NAN, NAN}, {1, NAN, 3, 2}, {1, 5, INFINITY, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
            assert_in_range(sample_choose(rows[row], 4, &cases[i], 0, &scratch).token, 0, 3);
            assert_true(isnan(sample_regret(rows[row], 4, &cases[i], 0, 1, &scratch)));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regret_is_zero_for_the_choice_and_positive_elsewhere),
        cmocka_unit_test(regret_is_no_more_than_what_logits_are_off_by),
        cmocka_unit_test(regret_is_of_all_that_score_more_at_once),
        cmocka_unit_test(regret_of_a_mistake_is_large),
        cmocka_unit_test(regret_of_what_is_no_number_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
