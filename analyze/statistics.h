/* Statistics over plain arrays of double: intervals, tests, and corrections for several of them. Pure functions on GSL;
 * they know nothing of attempts, and own no memory that outlives the call.
 *
 * `alpha` is two-sided: 0.05 asks for a 95% interval. What cannot be computed is NaN, never 0: an interval without
 * limits is a point. A positive quantity is compared on its logarithm, so that a speedup and its inverse are treated
 * alike. */
#ifndef ANALYZE_STATISTICS_H
#define ANALYZE_STATISTICS_H

#include <stdbool.h>

struct interval {
    double value, low, high; /* NaN where missing; infinite where unbounded */
    int count;               /* observations behind it */
};

/* The quantile of Student's t that a two-sided interval at level 1 - alpha needs. For simultaneous intervals of m
 * comparisons give alpha / m (Bonferroni: valid under any dependence). */
double statistics_t_critical(double degrees, double alpha);

/* --- one sample --------------------------------------------------------------------------------------------------- */

/* Student's interval for a mean: mean +- t s / sqrt(n). Assumes independent values, near normal. A point for n < 2. */
struct interval statistics_mean_interval(const double *values, int count, double alpha);

/* exp of the interval above, of values that are logarithms: paired log-t when they are log ratios of what one block
 * measured. Assumes independent blocks; what is shared inside a block cancels. The value is a geometric mean. A point
 * where a limit would lie beyond 1e130 or its inverse, here and wherever else limits are exponentials. */
struct interval statistics_log_interval(const double *logs, int count, double alpha);

/* Two-sided p of Student's test that the mean is 0. NaN for n < 2. */
double statistics_mean_p(const double *values, int count);

/* One-sided p of Student's test that the mean is at most 0. NaN for n < 2. */
double statistics_mean_above_p(const double *values, int count);

/* Two-sided p that x and y have no monotone relation: Spearman's rank correlation (1904), ties by mean ranks, and
 * Student's t for rho sqrt(f / (1 - rho^2)) with f = n - 1 - means degrees of freedom, an approximation. `means`: how
 * many were taken out of y, 1 where it is as it was observed. NaN where no degree is left, or x or y is constant. */
double statistics_spearman_p(const double *x, const double *y, int count, int means);

/* Two-sided p that no series has a trend, whatever their levels: Kendall's S (pairs that rise less pairs that fall) of
 * each series in its order, added up, over the root of the added variances, those of ties less; near normal, corrected
 * for continuity (Mann 1945; Hirsch, Slack and Smith 1982, who call it seasonal). `values` has the series one behind
 * the other. NaN where no two values of a series differ. */
double statistics_trend_p(const double *values, const int *lengths, int series);

/* The slope of the least squares line of values over their indices; NaN for n < 2. */
double statistics_slope(const double *values, int count);

#define STATISTICS_SIGN_FLIP_MAXIMUM 20

/* Exact two-sided p of the sign-flip test (Fisher's randomisation test for pairs): the share of all 2^n sign patterns
 * whose sum is at least as far from 0. Assumes only that each difference is symmetric around 0 if there is no effect.
 * NaN outside 1 to STATISTICS_SIGN_FLIP_MAXIMUM values. */
double statistics_sign_flip_p(const double *values, int count);

/* Interval for the quantile q from order statistics: each limit is passed with at most alpha / 2 by the binomial
 * distribution; where the largest or smallest value alone leaves more than that, but less than alpha, the other limit
 * has the rest. Assumes independent values and no shape. A point where n is too small for both limits (a median needs
 * 6, a 99th percentile 299). */
struct interval statistics_quantile_interval(const double *values, int count, double q, double alpha);

/* --- two samples -------------------------------------------------------------------------------------------------- */

/* Welch's interval on logarithms: exp(mean a - mean b) for unpaired samples of unequal variance (Welch 1947),
 * Satterthwaite degrees of freedom. Assumes independence within and between the samples. A point where either has fewer
 * than 2. */
struct interval statistics_welch_log_interval(const double *logs_a, int count_a, const double *logs_b, int count_b,
                                              double alpha);

/* Fieller's interval (1954) for mean(above) / mean(below) of pairs that may be correlated. Assumes near normal pairs.
 * Where the mean of `below` cannot be told from 0, the limits are infinite: no finite interval has the level. */
struct interval statistics_fieller_interval(const double *above, const double *below, int count, double alpha);

/* Ratio estimator for clusters (Cochran, Sampling Techniques, chapter 6): r = sum(above) / sum(below), its variance
 * from the residuals above_i - r below_i of whole clusters, t on n - 1, on the logarithm of what r has above `floor`,
 * the least that it can be: so no limit lies below that. Assumes independent clusters; within one anything may depend
 * on anything. */
struct interval statistics_ratio_interval(const double *above, const double *below, int count, double floor,
                                          double alpha);

/* --- two factors, and models -------------------------------------------------------------------------------------- */

/* A complete table of logarithms, row by row. */
struct statistics_table {
    const double *logs;
    int rows;
};

/* exp of the equally weighted mean of tables' means. Rows (prompts) are of one table, columns (blocks) the same in all,
 * both random and crossed; tables (workloads) are fixed. For one table the variance is (MS_rows + MS_columns -
 * MS_error) / (rows columns); for several, rows and error add up. Satterthwaite degrees of freedom; never below the
 * larger main term, which then brings its own. Assumes additive, near normal effects. A point where a factor has fewer
 * than 2 levels. */
struct interval statistics_crossed_log_interval(const struct statistics_table *tables, int count, int columns,
                                                double alpha);

/* Which columns of the design (count x terms, row by row) say something that those kept before them do not, rows
 * weighted. */
void statistics_independent(const double *design, const double *weights, int count, int terms, bool *kept);

/* Weighted least squares of values[count] on the columns of the design, by singular values: coefficients[terms]. False
 * where there are fewer values than terms. */
bool statistics_fit(const double *design, const double *values, const double *weights, int count, int terms,
                    double *coefficients);

/* --- many comparisons --------------------------------------------------------------------------------------------- */

/* Holm's step-down adjustment (1979), valid under any dependence. A p that is NaN stays NaN, and counts as a member of
 * the family. */
void statistics_holm(const double *p, int count, double *adjusted);

/* Which of `arms` are beaten by none: the set holds the best with probability 1 - alpha. `logs` is arms x blocks,
 * larger is better, NaN where missing. Arm b beats a where the paired one-sided test over the blocks they share has p <
 * alpha / (K - 1), K the number of arms in the race: those with at least `minimum` blocks. */
void statistics_unbeaten(const double *logs, int arms, int blocks, int minimum, double alpha, bool *unbeaten);

/* Benjamini and Hochberg's adjustment (1995): calling all below q significant, at most a share q of the calls is false
 * in the mean, where the tests are independent or positively dependent. A p that is NaN stays NaN and is no test. */
void statistics_benjamini_hochberg(const double *p, int count, double *adjusted);

/* Which values lie further from the median than 3.5 median absolute deviations, scaled to the normal's (Iglewicz and
 * Hoaglin 1993). None of fewer than 6. */
void statistics_outliers(const double *values, int count, bool *outliers);

#endif
