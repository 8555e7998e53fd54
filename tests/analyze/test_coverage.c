/* Coverage of the intervals, by simulation with fixed seeds: how often an interval of level 95% holds the truth.
 *
 * Times are log-normal. */
#include "tests/analyze/coverage.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Times per token in log: baseline and arm. */
struct times {
    double baseline[COVERAGE_BLOCKS], arm[COVERAGE_BLOCKS], log_ratio[COVERAGE_BLOCKS];
};

static struct times simulate(const gsl_rng *random, const struct simulated *simulated)
{
    struct times times = {0};
    for (int i = 0; i < simulated->blocks; i++) {
        double shared = gsl_ran_gaussian_ziggurat(random, simulated->block_effect);
        times.baseline[i] = log(COVERAGE_SPEEDUP) + shared + coverage_noise(random, simulated);
        times.arm[i] = shared + coverage_noise(random, simulated);
        times.log_ratio[i] = times.baseline[i] - times.arm[i];
    }
    return times;
}

static struct interval estimate_log_t(const gsl_rng *random, const struct simulated *simulated)
{
    struct times times = simulate(random, simulated);
    return statistics_log_interval(times.log_ratio, simulated->blocks, COVERAGE_ALPHA);
}

static struct interval estimate_welch(const gsl_rng *random, const struct simulated *simulated)
{
    struct times times = simulate(random, simulated);
    return statistics_welch_log_interval(times.baseline, simulated->blocks, times.arm, simulated->blocks,
                                         COVERAGE_ALPHA);
}

static struct interval estimate_fieller(const gsl_rng *random, const struct simulated *simulated)
{
    struct times times = simulate(random, simulated);
    for (int i = 0; i < simulated->blocks; i++) {
        times.baseline[i] = exp(times.baseline[i]);
        times.arm[i] = exp(times.arm[i]);
    }
    return statistics_fieller_interval(times.baseline, times.arm, simulated->blocks, COVERAGE_ALPHA);
}

#define TAIL_COUNT 299

/* Of so many log-normal latencies the 99th percentile. */
static struct interval estimate_tail(const gsl_rng *random, const struct simulated *simulated)
{
    double values[TAIL_COUNT];
    for (int i = 0; i < TAIL_COUNT; i++)
        values[i] = exp(gsl_ran_gaussian_ziggurat(random, simulated->noise));
    return statistics_quantile_interval(values, TAIL_COUNT, 0.99, COVERAGE_ALPHA);
}

static struct interval estimate_median(const gsl_rng *random, const struct simulated *simulated)
{
    struct times times = simulate(random, simulated);
    for (int i = 0; i < simulated->blocks; i++)
        times.log_ratio[i] = exp(times.log_ratio[i]);
    return statistics_quantile_interval(times.log_ratio, simulated->blocks, 0.5, COVERAGE_ALPHA);
}

static void test_log_t(void **state)
{
    (void)state;
    coverage_check_counts("paired log-t", estimate_log_t, 0.05, 0.935, 0.965);
}

static void test_fieller(void **state)
{
    (void)state;
    coverage_check_counts("Fieller", estimate_fieller, 0.05, 0.935, 0.965);
}

static void test_welch(void **state)
{
    (void)state;
    coverage_check_counts("Welch on logs", estimate_welch, 0.05, 0.935, 1);
}

static void test_median(void **state)
{
    (void)state;
    for (int blocks = 6; blocks <= COVERAGE_BLOCKS; blocks += 2) {
        struct simulated simulated = {.blocks = blocks, .noise = 0.02};
        coverage_assert("median, order statistics", blocks, coverage_of(estimate_median, &simulated, COVERAGE_SPEEDUP),
                        0.935, 1);
    }
}

static void test_tail(void **state)
{
    (void)state;
    struct simulated simulated = {.noise = 0.3};
    coverage_assert("99th percentile", TAIL_COUNT, coverage_of(estimate_tail, &simulated, exp(0.3 * 2.326348)), 0.935,
                    1);
}

static void test_stalls_in_both_arms(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct simulated simulated = {.blocks = coverage_counts[i], .noise = 0.02, .stall_rate = 0.1, .stall = 0.08};
        coverage_assert("log-t, stalls in both arms", simulated.blocks,
                        coverage_of(estimate_log_t, &simulated, COVERAGE_SPEEDUP), 0.94, 1);
    }
}

/* In one arm only a stall is an effect that comes and goes: reported, no bar. */
static struct interval estimate_one_stalled(const gsl_rng *random, const struct simulated *simulated)
{
    const struct simulated quiet = {.noise = simulated->noise};
    double log_ratio[COVERAGE_BLOCKS];
    for (int i = 0; i < simulated->blocks; i++)
        log_ratio[i] = log(COVERAGE_SPEEDUP) + coverage_noise(random, &quiet) - coverage_noise(random, simulated);
    return statistics_log_interval(log_ratio, simulated->blocks, COVERAGE_ALPHA);
}

static void test_stalls_in_one_arm(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct simulated simulated = {.blocks = coverage_counts[i], .noise = 0.02, .stall_rate = 0.1, .stall = 0.08};
        const double mean = COVERAGE_SPEEDUP * exp(-0.1 * log1p(0.08));
        coverage_assert("log-t, stalls in one arm", simulated.blocks,
                        coverage_of(estimate_one_stalled, &simulated, mean), 0, 1);
    }
}

/* Times of two equal arms that slow down by 6% over the session, five launches each; `position` says when each ran. */
static struct interval estimate_drift(const gsl_rng *random, const struct simulated *simulated, const int position[][2])
{
    double log_ratio[COVERAGE_BLOCKS];
    double step = 0.06 / (2 * simulated->blocks - 1);
    for (int i = 0; i < simulated->blocks; i++)
        log_ratio[i] = log(COVERAGE_SPEEDUP) + log1p(position[i][0] * step) - log1p(position[i][1] * step) +
                       coverage_noise(random, simulated) - coverage_noise(random, simulated);
    return statistics_log_interval(log_ratio, simulated->blocks, COVERAGE_ALPHA);
}

static struct interval estimate_drift_shuffled(const gsl_rng *random, const struct simulated *simulated)
{
    int position[COVERAGE_BLOCKS][2];
    for (int i = 0; i < simulated->blocks; i++) {
        position[i][0] = 2 * i + (int)gsl_rng_uniform_int(random, 2);
        position[i][1] = 4 * i + 1 - position[i][0];
    }
    return estimate_drift(random, simulated, position);
}

static struct interval estimate_drift_one_after_other(const gsl_rng *random, const struct simulated *simulated)
{
    int position[COVERAGE_BLOCKS][2];
    for (int i = 0; i < simulated->blocks; i++) {
        position[i][0] = i;
        position[i][1] = simulated->blocks + i;
    }
    return estimate_drift(random, simulated, position);
}

static void test_drift(void **state)
{
    (void)state;
    struct simulated simulated = {.blocks = 5, .noise = 0.01};
    coverage_assert("drift, shuffled blocks", 5, coverage_of(estimate_drift_shuffled, &simulated, COVERAGE_SPEEDUP),
                    0.93, 0.97);
    coverage_assert("drift, AAAAABBBBB (fails)", 5,
                    coverage_of(estimate_drift_one_after_other, &simulated, COVERAGE_SPEEDUP), 0, 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_t),
        cmocka_unit_test(test_fieller),
        cmocka_unit_test(test_welch),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_stalls_in_both_arms),
        cmocka_unit_test(test_stalls_in_one_arm),
        cmocka_unit_test(test_drift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
