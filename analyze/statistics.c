#include "analyze/statistics.h"

#include "collect/base/error.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_math.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct interval point(double value, int count)
{
    return (struct interval){value, NAN, NAN, count};
}

static struct interval around(double value, double half_width, int count)
{
    return (struct interval){value, value - half_width, value + half_width, count};
}

/* Limits beyond 1e130 say nothing, and what is made of several would leave what a double can hold: they are none. */
static struct interval exponential(struct interval logs)
{
    const double furthest = 300;
    bool held = logs.low > -furthest && logs.high < furthest;
    return (struct interval){exp(logs.value), held ? exp(logs.low) : NAN, held ? exp(logs.high) : NAN, logs.count};
}

static double mean(const double *values, int count)
{
    return count > 0 ? gsl_stats_mean(values, 1, (size_t)count) : NAN;
}

/* Of the mean, squared standard error. */
static double mean_variance(const double *values, int count)
{
    return gsl_stats_variance(values, 1, (size_t)count) / count;
}

double statistics_t_critical(double degrees, double alpha)
{
    return gsl_cdf_tdist_Qinv(alpha / 2, degrees);
}

/* --- one sample --------------------------------------------------------------------------------------------------- */

struct interval statistics_mean_interval(const double *values, int count, double alpha)
{
    double centre = mean(values, count);
    if (count < 2)
        return point(centre, count);
    return around(centre, statistics_t_critical(count - 1, alpha) * sqrt(mean_variance(values, count)), count);
}

struct interval statistics_log_interval(const double *logs, int count, double alpha)
{
    return exponential(statistics_mean_interval(logs, count, alpha));
}

double statistics_mean_above_p(const double *values, int count)
{
    if (count < 2)
        return NAN;
    double centre = mean(values, count), error = sqrt(mean_variance(values, count));
    if (error == 0)
        return centre > 0 ? 0 : 1;
    return gsl_cdf_tdist_Q(centre / error, count - 1);
}

double statistics_mean_p(const double *values, int count)
{
    if (count < 2)
        return NAN;
    double centre = mean(values, count), error = sqrt(mean_variance(values, count));
    if (error == 0)
        return centre == 0 ? 1 : 0;
    return 2 * gsl_cdf_tdist_Q(fabs(centre) / error, count - 1);
}

double statistics_spearman_p(const double *x, const double *y, int count, int means)
{
    const int degrees = count - 1 - means;
    if (degrees < 1)
        return NAN;
    double *work = xcalloc(2 * (size_t)count, sizeof *work);
    const double rho = gsl_stats_spearman(x, 1, y, 1, (size_t)count, work);
    free(work);
    const double rest = fmax(1 - rho * rho, 0);
    return isnan(rho) ? NAN : 2 * gsl_cdf_tdist_Q(fabs(rho) * sqrt(degrees / rest), degrees);
}

double statistics_slope(const double *values, int count)
{
    if (count < 2)
        return NAN;
    double *indices = xcalloc((size_t)count, sizeof *indices), intercept, slope, c00, c01, c11, squares;
    for (int i = 0; i < count; i++)
        indices[i] = i;
    gsl_fit_linear(indices, 1, values, 1, (size_t)count, &intercept, &slope, &c00, &c01, &c11, &squares);
    free(indices);
    return slope;
}

double statistics_sign_flip_p(const double *values, int count)
{
    if (count < 1 || count > STATISTICS_SIGN_FLIP_MAXIMUM)
        return NAN;
    double observed = 0, largest = 0;
    for (int i = 0; i < count; i++) {
        observed += values[i];
        largest += fabs(values[i]);
    }
    double reach = fabs(observed) - 1e-12 * largest; /* sums of the same numbers in another order count as equal */
    unsigned patterns = 1u << count, as_far = 0;
    for (unsigned pattern = 0; pattern < patterns; pattern++) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += pattern >> i & 1 ? -values[i] : values[i];
        as_far += fabs(sum) >= reach;
    }
    return (double)as_far / patterns;
}

struct interval statistics_quantile_interval(const double *values, int count, double q, double alpha)
{
    if (count < 1)
        return point(NAN, count);
    double *sorted = xmalloc((size_t)count * sizeof *sorted);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    gsl_sort(sorted, 1, (size_t)count);
    struct interval quantile = point(gsl_stats_quantile_from_sorted_data(sorted, 1, (size_t)count, q), count);
    /* With B of the values below the quantile, B binomial: the l-th value lies above it if B < l, the u-th below it if
     * B >= u. */
    int low = 0, high = count;
    while (low < count && gsl_cdf_binomial_P((unsigned)low, q, (unsigned)count) <= alpha / 2)
        low++;
    while (high > 0 && gsl_cdf_binomial_Q((unsigned)high - 1, q, (unsigned)count) <= alpha / 2)
        high--;
    if (low >= 1 && high < count) {
        quantile.low = sorted[low - 1];
        quantile.high = sorted[high];
    }
    free(sorted);
    return quantile;
}

/* --- two samples -------------------------------------------------------------------------------------------------- */

struct interval statistics_welch_log_interval(const double *logs_a, int count_a, const double *logs_b, int count_b,
                                              double alpha)
{
    double difference = mean(logs_a, count_a) - mean(logs_b, count_b);
    if (count_a < 2 || count_b < 2)
        return exponential(point(difference, count_a + count_b));
    double a = mean_variance(logs_a, count_a), b = mean_variance(logs_b, count_b);
    if (a + b == 0)
        return exponential(around(difference, 0, count_a + count_b));
    double degrees = gsl_pow_2(a + b) / (gsl_pow_2(a) / (count_a - 1) + gsl_pow_2(b) / (count_b - 1));
    return exponential(around(difference, statistics_t_critical(degrees, alpha) * sqrt(a + b), count_a + count_b));
}

struct interval statistics_fieller_interval(const double *above, const double *below, int count, double alpha)
{
    double y = mean(above, count), x = mean(below, count);
    if (count < 2)
        return point(y / x, count);
    double t2 = gsl_pow_2(statistics_t_critical(count - 1, alpha));
    double covariance = gsl_stats_covariance_m(above, 1, below, 1, (size_t)count, y, x) / count;
    /* The ratios r with (y - r x)^2 <= t^2 var(y - r x): a r^2 - 2 b r + c <= 0. */
    double a = x * x - t2 * mean_variance(below, count);
    double b = x * y - t2 * covariance;
    double c = y * y - t2 * mean_variance(above, count);
    if (a <= 0)
        return (struct interval){y / x, -INFINITY, INFINITY, count};
    double root = sqrt(fmax(b * b - a * c, 0));
    return (struct interval){y / x, (b - root) / a, (b + root) / a, count};
}

struct interval statistics_ratio_interval(const double *above, const double *below, int count, double alpha)
{
    double y = mean(above, count), x = mean(below, count), ratio = y / x;
    if (count < 2)
        return point(ratio, count);
    double squares = 0;
    for (int i = 0; i < count; i++)
        squares += gsl_pow_2(above[i] - ratio * below[i]);
    double error = sqrt(squares / (count - 1) / count) / x;
    return around(ratio, statistics_t_critical(count - 1, alpha) * error, count);
}

/* Mean squares of a two-way table without replication. */
struct mean_squares {
    double rows, columns, error;
};

static struct mean_squares table_mean_squares(const double *table, int rows, int columns)
{
    double *row_means = xmalloc((size_t)rows * sizeof *row_means);
    double *column_means = xmalloc((size_t)columns * sizeof *column_means);
    for (int i = 0; i < rows; i++)
        row_means[i] = mean(table + (size_t)i * columns, columns);
    for (int j = 0; j < columns; j++)
        column_means[j] = gsl_stats_mean(table + j, (size_t)columns, (size_t)rows);
    double centre = mean(row_means, rows), squares = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            squares += gsl_pow_2(table[(size_t)i * columns + j] - row_means[i] - column_means[j] + centre);
    struct mean_squares result = {
        .rows = columns * gsl_stats_variance(row_means, 1, (size_t)rows),
        .columns = rows * gsl_stats_variance(column_means, 1, (size_t)columns),
        .error = squares / ((rows - 1.0) * (columns - 1.0)),
    };
    free(row_means);
    free(column_means);
    return result;
}

struct interval statistics_crossed_log_interval(const double *logs, int rows, int columns, double alpha)
{
    int count = rows * columns;
    double centre = mean(logs, count);
    if (rows < 2 || columns < 2)
        return exponential(point(centre, count));
    struct mean_squares ms = table_mean_squares(logs, rows, columns);
    double sum = ms.rows + ms.columns - ms.error, larger = fmax(ms.rows, ms.columns);
    double degrees = ms.rows > ms.columns ? rows - 1 : columns - 1;
    if (sum > larger)
        degrees = gsl_pow_2(sum) / (gsl_pow_2(ms.rows) / (rows - 1) + gsl_pow_2(ms.columns) / (columns - 1) +
                                    gsl_pow_2(ms.error) / ((rows - 1.0) * (columns - 1.0)));
    double variance = fmax(sum, larger) / count;
    return exponential(around(centre, statistics_t_critical(degrees, alpha) * sqrt(variance), count));
}

/* --- many comparisons --------------------------------------------------------------------------------------------- */

void statistics_holm(const double *p, int count, double *adjusted)
{
    double *known = xmalloc((size_t)(count + 1) * sizeof *known);
    size_t *order = xmalloc((size_t)(count + 1) * sizeof *order);
    for (int i = 0; i < count; i++)
        known[i] = isnan(p[i]) ? 1 : p[i];
    gsl_sort_index(order, known, 1, (size_t)count);
    double running = 0;
    for (int rank = 0; rank < count; rank++) {
        running = fmax(running, fmin(1, (count - rank) * known[order[rank]]));
        adjusted[order[rank]] = isnan(p[order[rank]]) ? NAN : running;
    }
    free(known);
    free(order);
}

static int count_present(const double *values, int count)
{
    int present = 0;
    for (int i = 0; i < count; i++)
        present += !isnan(values[i]);
    return present;
}

/* p of "b is not better than a" over the blocks that both have; NaN where they share fewer than `minimum`. */
static double paired_above_p(const double *b, const double *a, int blocks, int minimum, double *differences)
{
    int shared = 0;
    for (int i = 0; i < blocks; i++)
        if (!isnan(a[i]) && !isnan(b[i]))
            differences[shared++] = b[i] - a[i];
    return shared >= minimum ? statistics_mean_above_p(differences, shared) : NAN;
}

void statistics_unbeaten(const double *logs, int arms, int blocks, int minimum, double alpha, bool *unbeaten)
{
    double *differences = xmalloc((size_t)(blocks + 1) * sizeof *differences);
    int racing = 0;
    for (int a = 0; a < arms; a++) {
        unbeaten[a] = count_present(logs + (size_t)a * blocks, blocks) >= minimum;
        racing += unbeaten[a];
    }
    for (int a = 0; a < arms; a++)
        for (int b = 0; b < arms && unbeaten[a]; b++)
            if (b != a && count_present(logs + (size_t)b * blocks, blocks) >= minimum &&
                paired_above_p(logs + (size_t)b * blocks, logs + (size_t)a * blocks, blocks, minimum, differences) <
                    alpha / (racing - 1))
                unbeaten[a] = false;
    free(differences);
}
