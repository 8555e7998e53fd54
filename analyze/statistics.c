#include "analyze/statistics_parts.h"

#include "collect/base/error.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_math.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct interval statistics_point(double value, int count)
{
    return (struct interval){value, NAN, NAN, count};
}

struct interval statistics_around(double value, double half_width, int count)
{
    return (struct interval){value, value - half_width, value + half_width, count};
}

struct interval statistics_exponential(struct interval logs)
{
    const double furthest = 300;
    bool held = logs.low > -furthest && logs.high < furthest;
    return (struct interval){exp(logs.value), held ? exp(logs.low) : NAN, held ? exp(logs.high) : NAN, logs.count};
}

double statistics_mean(const double *values, int count)
{
    return count > 0 ? gsl_stats_mean(values, 1, (size_t)count) : NAN;
}

double statistics_mean_variance(const double *values, int count)
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
    double centre = statistics_mean(values, count);
    if (count < 2)
        return statistics_point(centre, count);
    return statistics_around(
        centre, statistics_t_critical(count - 1, alpha) * sqrt(statistics_mean_variance(values, count)), count);
}

struct interval statistics_log_interval(const double *logs, int count, double alpha)
{
    return statistics_exponential(statistics_mean_interval(logs, count, alpha));
}

double statistics_mean_above_p(const double *values, int count)
{
    if (count < 2)
        return NAN;
    double centre = statistics_mean(values, count), error = sqrt(statistics_mean_variance(values, count));
    if (error == 0)
        return centre > 0 ? 0 : 1;
    return gsl_cdf_tdist_Q(centre / error, count - 1);
}

double statistics_mean_p(const double *values, int count)
{
    if (count < 2)
        return NAN;
    double centre = statistics_mean(values, count), error = sqrt(statistics_mean_variance(values, count));
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

/* Adds to S and to 18 times its variance, both whole numbers; ties' share is spread over the values that are tied. */
static void add_series(const double *values, int count, double *s, double *variance_18)
{
    *variance_18 += count * (count - 1.0) * (2.0 * count + 5);
    for (int i = 0; i < count; i++) {
        int tied = 0;
        for (int j = 0; j < count; j++) {
            tied += values[j] == values[i];
            *s += j > i ? (values[j] > values[i]) - (values[j] < values[i]) : 0;
        }
        *variance_18 -= (tied - 1.0) * (2.0 * tied + 5);
    }
}

double statistics_trend_p(const double *values, const int *lengths, int series)
{
    double s = 0, variance_18 = 0;
    for (int i = 0; i < series; values += lengths[i++])
        add_series(values, lengths[i], &s, &variance_18);
    return variance_18 > 0 ? 2 * gsl_cdf_ugaussian_Q(fmax(fabs(s) - 1, 0) / sqrt(variance_18 / 18)) : NAN;
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

/* What each tail may hold: half of alpha, or what the smallest or largest value leaves at least, and the rest. */
struct tails {
    double low, high;
};

static struct tails divide_tails(double q, int count, double alpha)
{
    const double least_low = gsl_cdf_binomial_P(0, q, (unsigned)count);
    const double least_high = gsl_cdf_binomial_Q((unsigned)count - 1, q, (unsigned)count);
    struct tails tails = {fmax(alpha / 2, least_low), fmax(alpha / 2, least_high)};
    if (least_low > least_high)
        tails.high = alpha - tails.low;
    else
        tails.low = alpha - tails.high;
    return tails;
}

struct interval statistics_quantile_interval(const double *values, int count, double q, double alpha)
{
    if (count < 1)
        return statistics_point(NAN, count);
    double *sorted = xmalloc((size_t)count * sizeof *sorted);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    gsl_sort(sorted, 1, (size_t)count);
    struct interval quantile =
        statistics_point(gsl_stats_quantile_from_sorted_data(sorted, 1, (size_t)count, q), count);
    /* With B of the values below the quantile, B binomial: the l-th value lies above it if B < l, the u-th below it if
     * B >= u. */
    const struct tails tails = divide_tails(q, count, alpha);
    int low = 0, high = count;
    while (low < count && gsl_cdf_binomial_P((unsigned)low, q, (unsigned)count) <= tails.low)
        low++;
    while (high > 0 && gsl_cdf_binomial_Q((unsigned)high - 1, q, (unsigned)count) <= tails.high)
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
    double difference = statistics_mean(logs_a, count_a) - statistics_mean(logs_b, count_b);
    if (count_a < 2 || count_b < 2)
        return statistics_exponential(statistics_point(difference, count_a + count_b));
    double a = statistics_mean_variance(logs_a, count_a), b = statistics_mean_variance(logs_b, count_b);
    if (a + b == 0)
        return statistics_exponential(statistics_around(difference, 0, count_a + count_b));
    double degrees = gsl_pow_2(a + b) / (gsl_pow_2(a) / (count_a - 1) + gsl_pow_2(b) / (count_b - 1));
    return statistics_exponential(
        statistics_around(difference, statistics_t_critical(degrees, alpha) * sqrt(a + b), count_a + count_b));
}

struct interval statistics_fieller_interval(const double *above, const double *below, int count, double alpha)
{
    double y = statistics_mean(above, count), x = statistics_mean(below, count);
    if (count < 2)
        return statistics_point(y / x, count);
    double t2 = gsl_pow_2(statistics_t_critical(count - 1, alpha));
    double covariance = gsl_stats_covariance_m(above, 1, below, 1, (size_t)count, y, x) / count;
    /* The ratios r with (y - r x)^2 <= t^2 var(y - r x): a r^2 - 2 b r + c <= 0. */
    double a = x * x - t2 * statistics_mean_variance(below, count);
    double b = x * y - t2 * covariance;
    double c = y * y - t2 * statistics_mean_variance(above, count);
    if (a <= 0)
        return (struct interval){y / x, -INFINITY, INFINITY, count};
    double root = sqrt(fmax(b * b - a * c, 0));
    return (struct interval){y / x, (b - root) / a, (b + root) / a, count};
}

struct interval statistics_ratio_interval(const double *above, const double *below, int count, double floor,
                                          double alpha)
{
    double y = statistics_mean(above, count), x = statistics_mean(below, count), ratio = y / x, squares = 0;
    if (count < 2)
        return statistics_point(ratio, count);
    for (int i = 0; i < count; i++)
        squares += gsl_pow_2(above[i] - ratio * below[i]);
    const double error = sqrt(squares / (count - 1) / count) / x, excess = ratio - floor;
    if (!(excess > 0))
        return excess == 0 && error == 0 ? statistics_around(ratio, 0, count) : statistics_point(ratio, count);
    struct interval interval = statistics_exponential(
        statistics_around(log(excess), statistics_t_critical(count - 1, alpha) * error / excess, count));
    return (struct interval){ratio, floor + interval.low, floor + interval.high, count};
}
