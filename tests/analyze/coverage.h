/* Coverage of intervals by simulation: how often an interval of level 95% holds the truth. Seeds are fixed. */
#ifndef TESTS_ANALYZE_COVERAGE_H
#define TESTS_ANALYZE_COVERAGE_H

#include "analyze/statistics.h"

#include <gsl/gsl_rng.h>

/* A debug build simulates less; its bounds are wider by what Monte Carlo error then adds. */
#define COVERAGE_TRIALS_FULL 20000
#ifdef CLEANSLATE_DEBUG
#define COVERAGE_TRIALS 5000
#else
#define COVERAGE_TRIALS COVERAGE_TRIALS_FULL
#endif

#define COVERAGE_ALPHA 0.05
#define COVERAGE_SPEEDUP 2.0 /* the truth */
#define COVERAGE_BLOCKS 10   /* the most */
#define COVERAGE_COUNTS 4
extern const int coverage_counts[COVERAGE_COUNTS]; /* of blocks that are tried */

/* What one launch of two arms in each of `blocks` blocks looks like. */
struct simulated {
    int blocks;
    double noise;        /* coefficient of variation of a time */
    double block_effect; /* that of what both arms of a block share */
    double stall_rate, stall;
};

typedef struct interval estimator(const gsl_rng *random, const struct simulated *simulated);

/* The logarithm of what noise and stalls make of a time. */
double coverage_noise(const gsl_rng *random, const struct simulated *simulated);

/* Share of the trials whose interval holds the truth. */
double coverage_of(estimator *estimate, const struct simulated *simulated, double truth);

/* Prints it, and fails the test outside `least` to `most`. */
void coverage_assert(const char *what, int count, double covered, double least, double most);

/* With 2% noise, without and with so much that the arms of a block share, for all counts. */
void coverage_check_counts(const char *what, estimator *estimate, double shared, double least, double most);

#endif
