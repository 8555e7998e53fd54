/* The choice of a token against published values of its generator and against the distribution it must draw from. */
#include "collect/engine/sample.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 60, DRAWS = 50000 };

static int indices[TOKENS];
static float values[TOKENS];
static const struct sample_scratch scratch = {indices, values};

/* Known answers of the Random123 library's own test vectors for philox4x32-10. */
static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[4];
        sample_philox(cases[i].counter, cases[i].key, words);
        assert_memory_equal(words, cases[i].words, sizeof words);
    }
}

static void fill_logits(float *logits)
{
    for (int i = 0; i < TOKENS; i++)
        logits[i] = 4 * sinf((float)(i * i)) - (float)i / 20;
}

/* Draws at positions 0, 1, ... and p of the chi-square statistic against `probabilities`; none may fall where there is
 * no probability. */
static double chi_square_p(const float *logits, const struct sampling *sampling, const double *probabilities)
{
    int counts[TOKENS] = {0};
    for (int position = 0; position < DRAWS; position++)
        counts[sample_choose(logits, TOKENS, sampling, position, &scratch).token]++;
    double statistic = 0, rest_expected = 0, rest_count = 0;
    int cells = 0;
    for (int i = 0; i < TOKENS; i++) {
        double expected = DRAWS * probabilities[i];
        assert_true(expected > 0 || counts[i] == 0);
        if (expected < 5) { /* too few for the test's approximation: one cell for all of them */
            rest_expected += expected;
            rest_count += counts[i];
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rest_expected >= 5) {
        statistic += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
        cells++;
    }
    return gsl_cdf_chisq_Q(statistic, cells - 1);
}

/* The softmax at that temperature over the `kept` likeliest tokens. */
static void softmax(const float *logits, double temperature, const bool *kept, double *probabilities)
{
    double sum = 0;
    for (int i = 0; i < TOKENS; i++) {
        probabilities[i] = kept[i] ? exp((double)logits[i] / temperature) : 0;
        sum += probabilities[i];
    }
    for (int i = 0; i < TOKENS; i++)
        probabilities[i] /= sum;
}

static int tokens_above(const float *logits, int token)
{
    int above = 0;
    for (int i = 0; i < TOKENS; i++)
        above += logits[i] > logits[token] || (i < token && logits[i] == logits[token]);
    return above;
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    static const double temperatures[] = {0.3, 0.7, 1, 2};
    float logits[TOKENS];
    double probabilities[TOKENS];
    bool all[TOKENS];
    memset(all, true, sizeof all);
    fill_logits(logits);
    for (uint64_t i = 0; i < 4; i++) {
        const struct sampling sampling = {(float)temperatures[i], 0, 1, 1000 + i};
        softmax(logits, temperatures[i], all, probabilities);
        assert_true(chi_square_p(logits, &sampling, probabilities) > 0.001);
    }
}

static void top_k_keeps_exactly_k(void **state)
{
    (void)state;
    float logits[TOKENS];
    double probabilities[TOKENS];
    bool kept[TOKENS];
    fill_logits(logits);
    for (int i = 0; i < TOKENS; i += 3)
        logits[i] = roundf(logits[i]); /* ties at the boundary */
    for (int k = 1; k <= TOKENS; k += k < 4 ? 1 : 19) {
        const struct sampling sampling = {1, k, 1, (uint64_t)k};
        for (int i = 0; i < TOKENS; i++)
            kept[i] = tokens_above(logits, i) < k;
        softmax(logits, 1, kept, probabilities);
        assert_true(k == 1 || chi_square_p(logits, &sampling, probabilities) > 0.001);
        for (int position = 0; k == 1 && position < 100; position++)
            assert_int_equal(tokens_above(logits, sample_choose(logits, TOKENS, &sampling, position, &scratch).token),
                             0);
    }
}

/* The smallest set whose probability reaches p: the token that crosses p is in, the next is out. */
static void top_p_keeps_the_smallest_set(void **state)
{
    (void)state;
    static const double levels[] = {1e-6, 0.3, 0.9, 0.999};
    float logits[TOKENS];
    double whole[TOKENS], probabilities[TOKENS];
    bool all[TOKENS], kept[TOKENS];
    memset(all, true, sizeof all);
    fill_logits(logits);
    softmax(logits, 0.7, all, whole);
    for (uint64_t i = 0; i < 4; i++) {
        const struct sampling sampling = {0.7f, 0, (float)levels[i], 7 + i};
        int count = 0;
        for (int t = 0; t < TOKENS; t++) {
            double before = 0;
            for (int other = 0; other < TOKENS; other++)
                before += tokens_above(logits, other) < tokens_above(logits, t) ? whole[other] : 0;
            kept[t] = before < levels[i];
            count += kept[t];
        }
        softmax(logits, 0.7, kept, probabilities);
        assert_true(count == 1 || chi_square_p(logits, &sampling, probabilities) > 0.001);
        for (int position = 0; count == 1 && position < 100; position++)
            assert_int_equal(tokens_above(logits, sample_choose(logits, TOKENS, &sampling, position, &scratch).token),
                             0);
    }
}

/* top_p is of what top_k has left. */
static void top_p_follows_top_k(void **state)
{
    (void)state;
    const float logits[4] = {logf(4), logf(3), logf(2), logf(1)};
    const struct sampling sampling = {1, 2, 0.5f, 3}; /* of the two likeliest, 4/7 and 3/7, the first reaches 0.5 */
    for (int position = 0; position < 200; position++)
        assert_int_equal(sample_choose(logits, 4, &sampling, position, &scratch).token, 0);
}

static void noise_differs_by_stream_position_and_token_alone(void **state)
{
    (void)state;
    const float flat[8] = {0};
    struct sampling first = {1, 0, 1, 5}, second = {1, 0, 1, 6};
    int same = 0, differs = 0;
    for (int position = 0; position < 400; position++) {
        int token = sample_choose(flat, 8, &first, position, &scratch).token;
        assert_int_equal(sample_choose(flat, 8, &first, position, &scratch).token, token);
        same += sample_choose(flat, 8, &second, position, &scratch).token == token;
        differs += sample_choose(flat, 8, &first, position + 1, &scratch).token != token;
    }
    assert_in_range(same, 20, 90); /* one in eight by chance */
    assert_in_range(differs, 310, 380);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_p_keeps_the_smallest_set),
        cmocka_unit_test(top_p_follows_top_k),
        cmocka_unit_test(noise_differs_by_stream_position_and_token_alone),
        cmocka_unit_test(regret_is_zero_for_the_choice_and_positive_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
