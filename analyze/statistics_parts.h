/* What the files of the statistics share; they alone use it. */
#ifndef ANALYZE_STATISTICS_PARTS_H
#define ANALYZE_STATISTICS_PARTS_H

#include "analyze/statistics.h"

struct interval statistics_point(double value, int count);
struct interval statistics_around(double value, double half_width, int count);

/* exp of all three. Limits beyond 1e130 say nothing, and what is made of several would leave what a double can hold:
 * they are none. */
struct interval statistics_exponential(struct interval logs);

double statistics_mean(const double *values, int count);

/* Of the mean, squared standard error. */
double statistics_mean_variance(const double *values, int count);

#endif
