/* Coverage of what looks at several factors, arms or comparisons: crossed prompts and blocks, clusters, a model's
 * terms, families, the best of many, the pooled test of drift. */
#include "tests/analyze/coverage.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PROMPTS 10
#define ARMS 6
#define ROUNDS 40
#define TAU 1.3

/* Prompts differ in their COVERAGE_SPEEDUP by 5%; `block_effect` is what blocks do to the ratio itself. */
static struct interval estimate_crossed(const gsl_rng *random, const struct simulated *simulated)
{
    double logs[PROMPTS * COVERAGE_BLOCKS], of_block[COVERAGE_BLOCKS];
    for (int j = 0; j < simulated->blocks; j++)
        of_block[j] = gsl_ran_gaussian_ziggurat(random, simulated->block_effect);
    for (int i = 0; i < PROMPTS; i++) {
        double of_prompt = gsl_ran_gaussian_ziggurat(random, 0.05);
        for (int j = 0; j < simulated->blocks; j++)
            logs[i * simulated->blocks + j] =
                log(COVERAGE_SPEEDUP) + of_prompt + of_block[j] + coverage_noise(random, simulated);
    }
    const struct statistics_table table = {logs, PROMPTS};
    return statistics_crossed_log_interval(&table, 1, simulated->blocks, COVERAGE_ALPHA);
}

/* The same in two workloads that share their blocks' effects. */
static struct interval estimate_crossed_workloads(const gsl_rng *random, const struct simulated *simulated)
{
    double logs[2][PROMPTS * COVERAGE_BLOCKS], of_block[COVERAGE_BLOCKS];
    const struct statistics_table tables[] = {{logs[0], PROMPTS}, {logs[1], PROMPTS / 2}};
    for (int j = 0; j < simulated->blocks; j++)
        of_block[j] = gsl_ran_gaussian_ziggurat(random, simulated->block_effect);
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < tables[w].rows; i++) {
            double of_prompt = gsl_ran_gaussian_ziggurat(random, 0.03);
            for (int j = 0; j < simulated->blocks; j++)
                logs[w][i * simulated->blocks + j] = log(COVERAGE_SPEEDUP) + (w ? 0.1 : -0.1) + of_prompt +
                                                     of_block[j] + coverage_noise(random, simulated);
        }
    return statistics_crossed_log_interval(tables, 2, simulated->blocks, COVERAGE_ALPHA);
}

static void test_crossed(void **state)
{
    (void)state;
    coverage_check_counts("crossed", estimate_crossed, 0.01, 0.935, 0.965);
}

static void test_crossed_workloads(void **state)
{
    (void)state;
    coverage_check_counts("crossed, two workloads", estimate_crossed_workloads, 0.01, 0.935, 0.965);
}

/* What ROUNDS rounds of each prompt commit, whose expectations differ by half of what they have above 1; `blocks` is
 * the number of prompts. */
static struct interval estimate_tau(const gsl_rng *random, const struct simulated *simulated)
{
    double accepted[COVERAGE_BLOCKS], rounds[COVERAGE_BLOCKS];
    for (int i = 0; i < simulated->blocks; i++) {
        const double spread = 0.5,
                     excess = (TAU - 1) * exp(gsl_ran_gaussian_ziggurat(random, spread) - spread * spread / 2);
        rounds[i] = ROUNDS;
        accepted[i] = ROUNDS + gsl_ran_binomial(random, fmin(excess / 15, 1), ROUNDS * 15);
    }
    return statistics_ratio_interval(accepted, rounds, simulated->blocks, 1, COVERAGE_ALPHA);
}

static void test_tau(void **state)
{
    (void)state;
    for (int prompts = 4; prompts <= COVERAGE_BLOCKS; prompts += 2) {
        struct simulated simulated = {.blocks = prompts};
        coverage_assert("tau by clusters", prompts, coverage_of(estimate_tau, &simulated, TAU), 0.935, 0.965);
    }
}

/* The terms of the time of a round by blocks, each with its own fit: six arms of 1 to 65 nodes. The slope is looked at.
 */
static struct interval estimate_slope(const gsl_rng *random, const struct simulated *simulated)
{
    static const double nodes[] = {1, 9, 16, 17, 33, 65};
    double slopes[COVERAGE_BLOCKS];
    for (int j = 0; j < simulated->blocks; j++) {
        double shared = gsl_ran_gaussian_ziggurat(random, simulated->block_effect), design[12], values[6], weights[6];
        for (int i = 0; i < 6; i++) {
            design[2 * i] = 1;
            design[2 * i + 1] = nodes[i];
            values[i] = (10 + COVERAGE_SPEEDUP * nodes[i]) * exp(shared + coverage_noise(random, simulated));
            weights[i] = 1 / (values[i] * values[i]);
        }
        double coefficients[2];
        statistics_fit(design, values, weights, 6, 2, coefficients);
        slopes[j] = coefficients[1];
    }
    return statistics_mean_interval(slopes, simulated->blocks, COVERAGE_ALPHA);
}

static void test_model_of_a_round(void **state)
{
    (void)state;
    coverage_check_counts("slope of a model", estimate_slope, 0.05, 0.935, 0.965);
}

/* Six arms over one baseline: all Bonferroni intervals hold at once; and the set of the unbeaten holds the best. */
static void simulate_family(const gsl_rng *random, int blocks, double *logs)
{
    for (int j = 0; j < blocks; j++) {
        double baseline = gsl_ran_gaussian_ziggurat(random, 0.02);
        for (int i = 0; i < ARMS; i++)
            logs[i * blocks + j] = 0.01 * i + baseline - gsl_ran_gaussian_ziggurat(random, 0.02);
    }
}

static void test_family(void **state)
{
    (void)state;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 3);
    for (int i = 0; i < 4; i++) {
        int blocks = coverage_counts[i], all = 0, best = 0;
        for (int trial = 0; trial < COVERAGE_TRIALS; trial++) {
            double logs[ARMS * COVERAGE_BLOCKS];
            bool unbeaten[ARMS], hold = true;
            simulate_family(random, blocks, logs);
            for (int arm = 0; arm < ARMS; arm++) {
                struct interval mean = statistics_mean_interval(logs + arm * blocks, blocks, COVERAGE_ALPHA / ARMS);
                hold &= mean.low <= 0.01 * arm && 0.01 * arm <= mean.high;
            }
            statistics_unbeaten(logs, ARMS, blocks, 3, COVERAGE_ALPHA, unbeaten);
            all += hold;
            best += unbeaten[ARMS - 1];
        }
        coverage_assert("Bonferroni, six comparisons", blocks, (double)all / COVERAGE_TRIALS, 0.935, 1);
        coverage_assert("unbeaten holds the best", blocks, (double)best / COVERAGE_TRIALS, 0.935, 1);
    }
    gsl_rng_free(random);
}

/* Six equal budgets: the best of those reported, with its own interval and with Bonferroni's over all; and the best of
 * three blocks that are not reported. The mean of logarithms says how far the choice inflates. */
static void test_best_budget(void **state)
{
    (void)state;
    enum { TUNING = 3, REPORTED = 6 };
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 5);
    int naive = 0, bound = 0, tuned = 0;
    double inflated = 0, honest = 0;
    for (int trial = 0; trial < COVERAGE_TRIALS; trial++) {
        double logs[ARMS][TUNING + REPORTED], best[2] = {-1, -1};
        int chosen[2] = {0};
        for (int arm = 0; arm < ARMS; arm++) {
            for (int i = 0; i < TUNING + REPORTED; i++)
                logs[arm][i] = gsl_ran_gaussian_ziggurat(random, 0.02);
            const double means[] = {statistics_mean_interval(logs[arm], TUNING, COVERAGE_ALPHA).value,
                                    statistics_mean_interval(logs[arm] + TUNING, REPORTED, COVERAGE_ALPHA).value};
            for (int i = 0; i < 2; i++)
                if (means[i] > best[i]) {
                    best[i] = means[i];
                    chosen[i] = arm;
                }
        }
        struct interval own = statistics_mean_interval(logs[chosen[1]] + TUNING, REPORTED, COVERAGE_ALPHA);
        struct interval over_all = statistics_mean_interval(logs[chosen[1]] + TUNING, REPORTED, COVERAGE_ALPHA / ARMS);
        struct interval by_tuning = statistics_mean_interval(logs[chosen[0]] + TUNING, REPORTED, COVERAGE_ALPHA);
        naive += own.low <= 0 && 0 <= own.high;
        bound += over_all.low <= 0 && 0 <= over_all.high;
        tuned += by_tuning.low <= 0 && 0 <= by_tuning.high;
        inflated += own.value / COVERAGE_TRIALS;
        honest += by_tuning.value / COVERAGE_TRIALS;
    }
    coverage_assert("best budget, chosen on it (fails)", REPORTED, (double)naive / COVERAGE_TRIALS, 0, 0.93);
    coverage_assert("best budget, Bonferroni", REPORTED, (double)bound / COVERAGE_TRIALS, 0.935, 1);
    coverage_assert("best budget, by tuning blocks", REPORTED, (double)tuned / COVERAGE_TRIALS, 0.935, 0.965);
    print_message("  inflation %.2f %%, by tuning blocks %.2f %%\n", 100 * inflated, 100 * honest);
    assert_true(inflated > 0.005 && fabs(honest) < 0.0005);
    gsl_rng_free(random);
}

/* Half of 20 comparisons differ: the share of false calls among all at .05. */
static void test_false_discoveries(void **state)
{
    (void)state;
    enum { TESTS = 20 };
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 6);
    double share = 0;
    for (int trial = 0; trial < COVERAGE_TRIALS / 10; trial++) {
        double p[TESTS], adjusted[TESTS];
        int called = 0, wrong = 0;
        for (int i = 0; i < TESTS; i++) {
            double logs[6];
            for (int j = 0; j < 6; j++)
                logs[j] = (i % 2 ? 0.03 : 0) + gsl_ran_gaussian_ziggurat(random, 0.02);
            p[i] = statistics_mean_p(logs, 6);
        }
        statistics_benjamini_hochberg(p, TESTS, adjusted);
        for (int i = 0; i < TESTS; i++) {
            called += adjusted[i] <= 0.05;
            wrong += adjusted[i] <= 0.05 && i % 2 == 0;
        }
        share += called ? (double)wrong / called / (COVERAGE_TRIALS / 10.0) : 0;
    }
    print_message("  Benjamini-Hochberg: %.3f of the calls are false\n", share);
    assert_true(share > 0.01 && share < 0.05);
    gsl_rng_free(random);
}

/* Residuals from arm means over a run of 24 arms in 3 shuffled blocks, with a drift of so much from end to end, and so
 * much by which blocks differ without any order. */
static double share_of_drifts(gsl_rng *random, double drift, double block_effect)
{
    enum { DRIFT_ARMS = 24, DRIFT_BLOCKS = 3, ATTEMPTS = DRIFT_ARMS * DRIFT_BLOCKS };
    double order[ATTEMPTS], residuals[ATTEMPTS];
    int found = 0;
    for (int trial = 0; trial < COVERAGE_TRIALS / 10; trial++) {
        double sums[DRIFT_ARMS] = {0}, shared = 0;
        int arms[ATTEMPTS];
        for (int i = 0; i < ATTEMPTS; i++)
            arms[i] = i % DRIFT_ARMS;
        for (int block = 0; block < DRIFT_BLOCKS; block++)
            gsl_ran_shuffle(random, arms + block * DRIFT_ARMS, DRIFT_ARMS, sizeof *arms);
        for (int i = 0; i < ATTEMPTS; i++) {
            if (i % DRIFT_ARMS == 0)
                shared = gsl_ran_gaussian_ziggurat(random, block_effect);
            order[i] = i;
            residuals[i] = log1p(drift) * i / ATTEMPTS + shared + gsl_ran_gaussian_ziggurat(random, 0.02);
            sums[arms[i]] += residuals[i];
        }
        for (int i = 0; i < ATTEMPTS; i++)
            residuals[i] -= sums[arms[i]] / DRIFT_BLOCKS;
        found += statistics_spearman_p(order, residuals, ATTEMPTS, DRIFT_ARMS) < 0.01;
    }
    return found / (COVERAGE_TRIALS / 10.0);
}

static void test_one_pooled_test_of_drift(void **state)
{
    (void)state;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 4);
    coverage_assert("no drift is found where there is none", 72, 1 - share_of_drifts(random, 0, 0), 0.985, 1);
    coverage_assert("a drift of 6% is found", 72, share_of_drifts(random, 0.06, 0), 0.99, 1);
    /* What blocks share is no drift, but looks like one: reported, no bar. */
    coverage_assert("none, but blocks differ by 1%", 72, share_of_drifts(random, 0, 0.01), 0, 1);
    gsl_rng_free(random);
}

/* 9 settings of 3 repeats, one setting after the other, each of which changes by so much from its first to its last. */
static double share_of_trends(gsl_rng *random, double change)
{
    enum { SETTINGS = 9, REPEATS = 3 };
    double values[SETTINGS * REPEATS];
    int lengths[SETTINGS], found = 0;
    for (int trial = 0; trial < COVERAGE_TRIALS; trial++) {
        for (int i = 0; i < SETTINGS * REPEATS; i++) {
            const double along = (i % REPEATS) / (REPEATS - 1.);
            values[i] = i / REPEATS + log1p(change) * along + gsl_ran_gaussian_ziggurat(random, 0.02);
            lengths[i / REPEATS] = REPEATS;
        }
        found += statistics_trend_p(values, lengths, SETTINGS) < 0.01;
    }
    return found / (double)COVERAGE_TRIALS;
}

static void test_one_pooled_test_of_repeats(void **state)
{
    (void)state;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 5);
    coverage_assert("no trend is found where there is none", 27, 1 - share_of_trends(random, 0), 0.99, 1);
    coverage_assert("a trend of 8% in each setting is found", 27, share_of_trends(random, 0.08), 0.95, 1);
    gsl_rng_free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crossed),
        cmocka_unit_test(test_crossed_workloads),
        cmocka_unit_test(test_tau),
        cmocka_unit_test(test_model_of_a_round),
        cmocka_unit_test(test_family),
        cmocka_unit_test(test_best_budget),
        cmocka_unit_test(test_false_discoveries),
        cmocka_unit_test(test_one_pooled_test_of_drift),
        cmocka_unit_test(test_one_pooled_test_of_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
