/* Coverage of the intervals, by simulation with fixed seeds: how often an interval of level 95% holds the truth.
 *
 * Times are log-normal. A debug build simulates less; its bounds are wider by what Monte Carlo error then adds. */
#include "analyze/statistics.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRIALS_FULL 20000
#ifdef CLEANSLATE_DEBUG
#define TRIALS 5000
#else
#define TRIALS TRIALS_FULL
#endif

#define ALPHA 0.05
#define BLOCKS_MAXIMUM 10
#define PROMPTS 10
#define ARMS 6

static const int block_counts[] = {3, 5, 6, 10};
static const double speedup = 2;

/* What one launch of two arms in each of `blocks` blocks looks like. */
struct campaign {
    int blocks;
    double noise;        /* coefficient of variation of a time */
    double block_effect; /* that of what both arms of a block share */
    double stall_rate, stall;
};

/* Times per token in log: baseline and arm. */
struct times {
    double baseline[BLOCKS_MAXIMUM], arm[BLOCKS_MAXIMUM], log_ratio[BLOCKS_MAXIMUM];
};

typedef struct interval estimator(const gsl_rng *random, const struct campaign *campaign);

static double noisy(const gsl_rng *random, const struct campaign *campaign)
{
    double stall = gsl_rng_uniform(random) < campaign->stall_rate ? log1p(campaign->stall) : 0;
    return gsl_ran_gaussian_ziggurat(random, campaign->noise) + stall;
}

static struct times simulate(const gsl_rng *random, const struct campaign *campaign)
{
    struct times times = {0};
    for (int i = 0; i < campaign->blocks; i++) {
        double shared = gsl_ran_gaussian_ziggurat(random, campaign->block_effect);
        times.baseline[i] = log(speedup) + shared + noisy(random, campaign);
        times.arm[i] = shared + noisy(random, campaign);
        times.log_ratio[i] = times.baseline[i] - times.arm[i];
    }
    return times;
}

static struct interval estimate_log_t(const gsl_rng *random, const struct campaign *campaign)
{
    struct times times = simulate(random, campaign);
    return statistics_log_interval(times.log_ratio, campaign->blocks, ALPHA);
}

static struct interval estimate_welch(const gsl_rng *random, const struct campaign *campaign)
{
    struct times times = simulate(random, campaign);
    return statistics_welch_log_interval(times.baseline, campaign->blocks, times.arm, campaign->blocks, ALPHA);
}

static struct interval estimate_fieller(const gsl_rng *random, const struct campaign *campaign)
{
    struct times times = simulate(random, campaign);
    for (int i = 0; i < campaign->blocks; i++) {
        times.baseline[i] = exp(times.baseline[i]);
        times.arm[i] = exp(times.arm[i]);
    }
    return statistics_fieller_interval(times.baseline, times.arm, campaign->blocks, ALPHA);
}

/* Prompts differ in their speedup by 5%; `block_effect` is what blocks do to the ratio itself. */
static struct interval estimate_crossed(const gsl_rng *random, const struct campaign *campaign)
{
    double logs[PROMPTS * BLOCKS_MAXIMUM], of_block[BLOCKS_MAXIMUM];
    for (int j = 0; j < campaign->blocks; j++)
        of_block[j] = gsl_ran_gaussian_ziggurat(random, campaign->block_effect);
    for (int i = 0; i < PROMPTS; i++) {
        double of_prompt = gsl_ran_gaussian_ziggurat(random, 0.05);
        for (int j = 0; j < campaign->blocks; j++)
            logs[i * campaign->blocks + j] = log(speedup) + of_prompt + of_block[j] + noisy(random, campaign);
    }
    return statistics_crossed_log_interval(logs, PROMPTS, campaign->blocks, ALPHA);
}

static struct interval estimate_median(const gsl_rng *random, const struct campaign *campaign)
{
    struct times times = simulate(random, campaign);
    for (int i = 0; i < campaign->blocks; i++)
        times.log_ratio[i] = exp(times.log_ratio[i]);
    return statistics_quantile_interval(times.log_ratio, campaign->blocks, 0.5, ALPHA);
}

static double coverage(estimator *estimate, const struct campaign *campaign, double truth)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 20251129);
    int covered = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct interval interval = estimate(random, campaign);
        covered += interval.low <= truth && truth <= interval.high;
    }
    gsl_rng_free(random);
    return (double)covered / TRIALS;
}

static void assert_coverage(const char *what, int blocks, double covered, double least, double most)
{
    double share = 0.95 * 0.05, slack = 4 * (sqrt(share / TRIALS) - sqrt(share / TRIALS_FULL));
    print_message("  %-28s n = %2d  %.4f\n", what, blocks, covered);
    if (!(covered >= least - slack && covered <= most + slack))
        fail_msg("%s, n = %d: coverage %.4f is outside %.3f to %.3f", what, blocks, covered, least - slack,
                 most + slack);
}

/* With 2% noise, without and with 5% that the arms of a block share. */
static void check_all_counts(const char *what, estimator *estimate, double shared, double least, double most)
{
    for (int i = 0; i < 4; i++)
        for (int with = 0; with < 2; with++) {
            struct campaign campaign = {.blocks = block_counts[i], .noise = 0.02, .block_effect = with * shared};
            assert_coverage(what, campaign.blocks, coverage(estimate, &campaign, speedup), least, most);
        }
}

static void test_log_t(void **state)
{
    (void)state;
    check_all_counts("paired log-t", estimate_log_t, 0.05, 0.935, 0.965);
}

static void test_fieller(void **state)
{
    (void)state;
    check_all_counts("Fieller", estimate_fieller, 0.05, 0.935, 0.965);
}

static void test_crossed(void **state)
{
    (void)state;
    check_all_counts("crossed", estimate_crossed, 0.01, 0.935, 0.965);
}

static void test_welch(void **state)
{
    (void)state;
    check_all_counts("Welch on logs", estimate_welch, 0.05, 0.935, 1);
}

static void test_median(void **state)
{
    (void)state;
    for (int blocks = 6; blocks <= BLOCKS_MAXIMUM; blocks += 2) {
        struct campaign campaign = {.blocks = blocks, .noise = 0.02};
        assert_coverage("median, order statistics", blocks, coverage(estimate_median, &campaign, speedup), 0.935, 1);
    }
}

static void test_stalls_in_both_arms(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct campaign campaign = {.blocks = block_counts[i], .noise = 0.02, .stall_rate = 0.1, .stall = 0.08};
        assert_coverage("log-t, stalls in both arms", campaign.blocks, coverage(estimate_log_t, &campaign, speedup),
                        0.94, 1);
    }
}

/* Times of two equal arms that slow down by 6% over the session, five launches each; `position` says when each ran. */
static struct interval estimate_drift(const gsl_rng *random, const struct campaign *campaign, const int position[][2])
{
    double log_ratio[BLOCKS_MAXIMUM];
    double step = 0.06 / (2 * campaign->blocks - 1);
    for (int i = 0; i < campaign->blocks; i++)
        log_ratio[i] = log(speedup) + log1p(position[i][0] * step) - log1p(position[i][1] * step) +
                       noisy(random, campaign) - noisy(random, campaign);
    return statistics_log_interval(log_ratio, campaign->blocks, ALPHA);
}

static struct interval estimate_drift_shuffled(const gsl_rng *random, const struct campaign *campaign)
{
    int position[BLOCKS_MAXIMUM][2];
    for (int i = 0; i < campaign->blocks; i++) {
        position[i][0] = 2 * i + (int)gsl_rng_uniform_int(random, 2);
        position[i][1] = 4 * i + 1 - position[i][0];
    }
    return estimate_drift(random, campaign, position);
}

static struct interval estimate_drift_one_after_other(const gsl_rng *random, const struct campaign *campaign)
{
    int position[BLOCKS_MAXIMUM][2];
    for (int i = 0; i < campaign->blocks; i++) {
        position[i][0] = i;
        position[i][1] = campaign->blocks + i;
    }
    return estimate_drift(random, campaign, position);
}

static void test_drift(void **state)
{
    (void)state;
    struct campaign campaign = {.blocks = 5, .noise = 0.01};
    assert_coverage("drift, shuffled blocks", 5, coverage(estimate_drift_shuffled, &campaign, speedup), 0.93, 0.97);
    assert_coverage("drift, AAAAABBBBB (fails)", 5, coverage(estimate_drift_one_after_other, &campaign, speedup), 0,
                    0.2);
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
        int blocks = block_counts[i], all = 0, best = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            double logs[ARMS * BLOCKS_MAXIMUM];
            bool unbeaten[ARMS], hold = true;
            simulate_family(random, blocks, logs);
            for (int arm = 0; arm < ARMS; arm++) {
                struct interval mean = statistics_mean_interval(logs + arm * blocks, blocks, ALPHA / ARMS);
                hold &= mean.low <= 0.01 * arm && 0.01 * arm <= mean.high;
            }
            statistics_unbeaten(logs, ARMS, blocks, 3, ALPHA, unbeaten);
            all += hold;
            best += unbeaten[ARMS - 1];
        }
        assert_coverage("Bonferroni, six comparisons", blocks, (double)all / TRIALS, 0.935, 1);
        assert_coverage("unbeaten holds the best", blocks, (double)best / TRIALS, 0.935, 1);
    }
    gsl_rng_free(random);
}

/* Residuals from arm means over a run of 24 arms in 3 shuffled blocks, with a drift of so much from end to end. */
static double share_of_drifts(gsl_rng *random, double drift)
{
    enum { DRIFT_ARMS = 24, DRIFT_BLOCKS = 3, ATTEMPTS = DRIFT_ARMS * DRIFT_BLOCKS };
    double order[ATTEMPTS], residuals[ATTEMPTS];
    int found = 0;
    for (int trial = 0; trial < TRIALS / 10; trial++) {
        double sums[DRIFT_ARMS] = {0};
        int arms[ATTEMPTS];
        for (int i = 0; i < ATTEMPTS; i++)
            arms[i] = i % DRIFT_ARMS;
        for (int block = 0; block < DRIFT_BLOCKS; block++)
            gsl_ran_shuffle(random, arms + block * DRIFT_ARMS, DRIFT_ARMS, sizeof *arms);
        for (int i = 0; i < ATTEMPTS; i++) {
            order[i] = i;
            residuals[i] = log1p(drift) * i / ATTEMPTS + gsl_ran_gaussian_ziggurat(random, 0.02);
            sums[arms[i]] += residuals[i];
        }
        for (int i = 0; i < ATTEMPTS; i++)
            residuals[i] -= sums[arms[i]] / DRIFT_BLOCKS;
        found += statistics_spearman_p(order, residuals, ATTEMPTS, DRIFT_ARMS) < 0.01;
    }
    return found / (TRIALS / 10.0);
}

static void test_one_pooled_test_of_drift(void **state)
{
    (void)state;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 4);
    assert_coverage("no drift is found where there is none", 72, 1 - share_of_drifts(random, 0), 0.985, 1);
    assert_coverage("a drift of 6% is found", 72, share_of_drifts(random, 0.06), 0.99, 1);
    gsl_rng_free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_t), cmocka_unit_test(test_fieller), cmocka_unit_test(test_crossed),
        cmocka_unit_test(test_welch), cmocka_unit_test(test_median),  cmocka_unit_test(test_stalls_in_both_arms),
        cmocka_unit_test(test_drift), cmocka_unit_test(test_family),  cmocka_unit_test(test_one_pooled_test_of_drift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
