#include "tests/analyze/coverage.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

const int coverage_counts[COVERAGE_COUNTS] = {3, 5, 6, 10};

double coverage_noise(const gsl_rng *random, const struct simulated *simulated)
{
    double stall = gsl_rng_uniform(random) < simulated->stall_rate ? log1p(simulated->stall) : 0;
    return gsl_ran_gaussian_ziggurat(random, simulated->noise) + stall;
}

double coverage_of(estimator *estimate, const struct simulated *simulated, double truth)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(random, 20251129);
    int covered = 0;
    for (int trial = 0; trial < COVERAGE_TRIALS; trial++) {
        struct interval interval = estimate(random, simulated);
        covered += interval.low <= truth && truth <= interval.high;
    }
    gsl_rng_free(random);
    return (double)covered / COVERAGE_TRIALS;
}

void coverage_assert(const char *what, int count, double covered, double least, double most)
{
    double share = 0.95 * 0.05, slack = 4 * (sqrt(share / COVERAGE_TRIALS) - sqrt(share / COVERAGE_TRIALS_FULL));
    print_message("  %-34s n = %3d  %.4f\n", what, count, covered);
    if (!(covered >= least - slack && covered <= most + slack))
        fail_msg("%s, n = %d: coverage %.4f is outside %.3f to %.3f", what, count, covered, least - slack,
                 most + slack);
}

void coverage_check_counts(const char *what, estimator *estimate, double shared, double least, double most)
{
    for (int i = 0; i < COVERAGE_COUNTS; i++)
        for (int with = 0; with < 2; with++) {
            struct simulated simulated = {.blocks = coverage_counts[i], .noise = 0.02, .block_effect = with * shared};
            coverage_assert(what, simulated.blocks, coverage_of(estimate, &simulated, COVERAGE_SPEEDUP), least, most);
        }
}
