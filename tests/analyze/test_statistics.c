/* Statistics against published examples, and against values that follow from a definition by hand. */
#include "analyze/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* Student (1908): additional hours of sleep by two drugs, the same ten patients. */
static const double drug_1[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
static const double drug_2[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

static void sleep_gain(double gain[10])
{
    for (int i = 0; i < 10; i++)
        gain[i] = drug_2[i] - drug_1[i];
}

static void assert_near(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%.9g is not within %g of %.9g", actual, tolerance, expected);
}

static void assert_interval(struct interval interval, double value, double low, double high, double tolerance)
{
    assert_near(interval.value, value, tolerance);
    assert_near(interval.low, low, tolerance);
    assert_near(interval.high, high, tolerance);
}

static void assert_point(struct interval interval, double value)
{
    assert_near(interval.value, value, 1e-12);
    assert_true(isnan(interval.low) && isnan(interval.high));
}

static void test_t_critical(void **state)
{
    (void)state;
    assert_near(statistics_t_critical(5, 0.05), 2.571, 5e-4); /* printed tables */
    assert_near(statistics_t_critical(2, 0.05), 4.303, 5e-4);
    assert_near(statistics_t_critical(9, 0.01), 3.250, 5e-4);
    assert_near(statistics_t_critical(5, 0.05 / 4), 3.81, 5e-3); /* four comparisons of six blocks */
    assert_near(statistics_t_critical(5, 0.05 / 20), 5.60, 5e-3);
}

static void test_mean_interval_of_sleep_data(void **state)
{
    (void)state;
    double gain[10];
    sleep_gain(gain);
    struct interval interval = statistics_mean_interval(gain, 10, 0.05);
    assert_interval(interval, 1.58, 0.7001142, 2.4598858, 1e-6);
    assert_int_equal(interval.count, 10);
    assert_near(statistics_mean_p(gain, 10), 0.002833, 5e-7);
    assert_near(statistics_mean_above_p(gain, 10), 0.002833 / 2, 5e-7);
    assert_interval(statistics_log_interval(gain, 10, 0.05), exp(1.58), exp(0.7001142), exp(2.4598858), 1e-5);
}

static void test_mean_of_too_few(void **state)
{
    (void)state;
    assert_point(statistics_mean_interval((double[]){3}, 1, 0.05), 3);
    assert_point(statistics_log_interval((double[]){0}, 1, 0.05), 1);
    assert_point(statistics_log_interval((double[]){-400, 400}, 2, 0.05), 1);
    assert_true(isnan(statistics_mean_interval(NULL, 0, 0.05).value));
    assert_true(isnan(statistics_mean_p((double[]){3}, 1)));
}

static void test_mean_without_spread(void **state)
{
    (void)state;
    assert_interval(statistics_mean_interval((double[]){2, 2, 2}, 3, 0.05), 2, 2, 2, 0);
    assert_true(statistics_mean_p((double[]){2, 2, 2}, 3) == 0);
    assert_true(statistics_mean_p((double[]){0, 0, 0}, 3) == 1);
    assert_true(statistics_mean_above_p((double[]){-2, -2, -2}, 3) == 1);
}

static void test_sign_flip(void **state)
{
    (void)state;
    /* Fisher (1935) on Darwin's maize: 1726 of the 32768 sign patterns lie at least as far out as the plants did. */
    static const double maize[] = {49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48};
    assert_near(statistics_sign_flip_p(maize, COUNT(maize)), 1726.0 / 32768, 1e-12);
    assert_near(statistics_sign_flip_p((double[]){.1, .2, .3, .4, .5, .6}, 6), 0.03125, 1e-12);
    assert_near(statistics_sign_flip_p((double[]){1, -1}, 2), 1, 1e-12);
    assert_true(isnan(statistics_sign_flip_p(NULL, 0)));
    assert_true(isnan(statistics_sign_flip_p(maize, STATISTICS_SIGN_FLIP_MAXIMUM + 1)));
}

static void test_quantile_interval(void **state)
{
    (void)state;
    static const double ten[] = {10, 1, 9, 2, 8, 3, 7, 4, 6, 5};
    assert_interval(statistics_quantile_interval(ten, 10, 0.5, 0.05), 5.5, 2, 9, 1e-12); /* .97852, printed tables */
    /* Smallest and largest of six enclose the median with 1 - 2/64 = .96875; of five with 1 - 2/32 only. */
    assert_interval(statistics_quantile_interval(ten, 6, 0.5, 0.05), 5.5, 1, 10, 1e-12);
    assert_true(isnan(statistics_quantile_interval(ten, 6, 0.5, 1 - 0.96876).low));
    assert_true(isnan(statistics_quantile_interval(ten, 5, 0.5, 0.05).low));
    assert_true(isnan(statistics_quantile_interval(ten, 10, 0.99, 0.05).high));
    assert_true(isnan(statistics_quantile_interval(ten, 0, 0.5, 0.05).value));
}

/* Ranks of 95% intervals for a median, as textbooks print them. */
static void test_median_ranks_of_tables(void **state)
{
    (void)state;
    static const int ranks[][3] = {{6, 1, 6},   {7, 1, 7},   {8, 1, 8},   {9, 2, 8},
                                   {12, 3, 10}, {15, 4, 12}, {17, 5, 13}, {20, 6, 15}};
    for (int i = 0; i < COUNT(ranks); i++) {
        double values[20];
        for (int j = 0; j < ranks[i][0]; j++)
            values[j] = j + 1;
        struct interval interval = statistics_quantile_interval(values, ranks[i][0], 0.5, 0.05);
        assert_near(interval.low, ranks[i][1], 0);
        assert_near(interval.high, ranks[i][2], 0);
    }
    /* The R package statpsych 1.6, ci.median in its manual; Snedecor and Cochran, Statistical Methods. */
    static const double y[] = {30.2, 20.4, 15.1, 10.2, 10.5, 60.8, 20.8, 25.0, 20.7, 30.9,
                               10.8, 5.1,  50.9, 40.0, 20.9, 10.8, 0,    20.5, 50.8};
    assert_interval(statistics_quantile_interval(y, COUNT(y), 0.5, 0.05), 20.7, 10.8, 30.9, 1e-9);
}

/* The largest of 59 exceeds a 95th percentile, of 299 a 99th, with 95% (Wilks 1941), and of one fewer with less. */
static void test_largest_value_as_a_limit(void **state)
{
    (void)state;
    static const struct {
        double q;
        int count;
    } cases[] = {{0.9, 29}, {0.95, 59}, {0.99, 299}};
    double values[299];
    for (int i = 0; i < 299; i++)
        values[i] = i + 1;
    for (int i = 0; i < COUNT(cases); i++) {
        struct interval interval = statistics_quantile_interval(values, cases[i].count, cases[i].q, 0.05);
        assert_near(interval.high, cases[i].count, 0);
        assert_true(interval.low < interval.value && interval.value < interval.high);
        assert_true(isnan(statistics_quantile_interval(values, cases[i].count - 1, cases[i].q, 0.05).high));
        assert_true(isnan(statistics_quantile_interval(values, cases[i].count - 1, 1 - cases[i].q, 0.05).low));
    }
}

static void test_welch_of_sleep_data(void **state)
{
    (void)state;
    /* Taken as unpaired: t = 1.8608 on 17.776 degrees of freedom. */
    struct interval interval = statistics_welch_log_interval(drug_2, 10, drug_1, 10, 0.05);
    assert_interval(interval, exp(1.58), exp(-0.2054832), exp(3.3654832), 1e-5);
    assert_int_equal(interval.count, 20);
    assert_point(statistics_welch_log_interval(drug_2, 1, drug_1, 10, 0.05), exp(1.9 - 0.75));
}

/* A limit r of Fieller's interval is where Student's test of above - r below = 0 is just met. */
static double fieller_t(const double *above, const double *below, int count, double r)
{
    double difference[16], sum = 0, squares = 0;
    for (int i = 0; i < count; i++)
        sum += difference[i] = above[i] - r * below[i];
    for (int i = 0; i < count; i++)
        squares += pow(difference[i] - sum / count, 2);
    return sum / count / sqrt(squares / (count - 1) / count);
}

static void test_fieller(void **state)
{
    (void)state;
    static const double above[] = {20.3, 21.1, 19.8, 20.9, 20.4, 22.0}, below[] = {10.1, 10.6, 10.2, 10.3, 9.9, 10.9};
    struct interval interval = statistics_fieller_interval(above, below, 6, 0.05);
    assert_near(interval.value, 124.5 / 62.0, 1e-12);
    assert_near(fieller_t(above, below, 6, interval.low), 2.570582, 1e-6);
    assert_near(fieller_t(above, below, 6, interval.high), -2.570582, 1e-6);
}

/* 14 (standard error 3) over 7 (2), uncorrelated, 10 degrees of freedom: the limits that DCSTATS (DCPROGS, after
 * Colquhoun's FIELLER) prints and tests. Pairs with these moments lie on an ellipse. */
static void test_fieller_of_dcstats(void **state)
{
    (void)state;
    double above[11], below[11];
    for (int i = 0; i < 11; i++) {
        const double scale = sqrt(11 * 10 / 5.5), angle = 2 * M_PI * i / 11;
        above[i] = 14 + 3 * scale * cos(angle);
        below[i] = 7 + 2 * scale * sin(angle);
    }
    assert_interval(statistics_fieller_interval(above, below, 11, 0.05), 2, 0.889734, 5.836045, 1e-4);
}

static void test_fieller_unbounded(void **state)
{
    (void)state;
    static const double above[] = {2, 3, 4}, around_zero[] = {-1, 2, 0.5};
    struct interval interval = statistics_fieller_interval(above, around_zero, 3, 0.05);
    assert_near(interval.value, 6, 1e-12);
    assert_true(isinf(interval.low) && interval.low < 0);
    assert_true(isinf(interval.high) && interval.high > 0);
    assert_point(statistics_fieller_interval(above, (double[]){4}, 1, 0.05), 0.5);
}

/* Paired ratio of means with a delta method on its logarithm, as the R package statpsych 1.6 prints it in its manual
 * (ci.ratio.mean.ps; Bonett and Price 2020). */
static void test_ratio_interval_of_statpsych(void **state)
{
    (void)state;
    static const double above[] = {3.3, 3.6, 3.0, 3.1, 3.9, 4.2, 3.5, 3.3};
    static const double below[] = {3.0, 3.1, 2.7, 2.6, 3.2, 3.8, 3.2, 3.0};
    assert_interval(statistics_ratio_interval(above, below, 8, 0, 0.05), 1.134146, 1.09417, 1.175583, 1e-6);
}

static void test_ratio_interval_above_a_floor(void **state)
{
    (void)state;
    /* r = 12 / 6, 1 above the floor; residuals 0, -1, 1; standard error sqrt(2 / 2 / 3) / 2; t(2) = 4.302653. */
    struct interval interval = statistics_ratio_interval((double[]){2, 3, 7}, (double[]){1, 2, 3}, 3, 1, 0.05);
    double half = 4.302653 * sqrt(1.0 / 3) / 2;
    assert_interval(interval, 2, 1 + exp(-half), 1 + exp(half), 1e-5);
    assert_point(statistics_ratio_interval((double[]){3}, (double[]){2}, 1, 1, 0.05), 1.5);
    assert_interval(statistics_ratio_interval((double[]){4, 7}, (double[]){4, 7}, 2, 1, 0.05), 1, 1, 1, 0);
    assert_point(statistics_ratio_interval((double[]){1, 3}, (double[]){2, 2}, 2, 1, 0.05), 1);
}

static struct interval crossed(const double *logs, int rows, int columns, double alpha)
{
    const struct statistics_table table = {logs, rows};
    return statistics_crossed_log_interval(&table, 1, columns, alpha);
}

static void test_crossed_interval(void **state)
{
    (void)state;
    /* Rows alone differ: the interval is Student's for the three row means. And the same of columns. */
    static const double rows[] = {1, 1, 2, 2, 4, 4}, columns[] = {1, 2, 4, 1, 2, 4};
    struct interval of_means = statistics_log_interval((double[]){1, 2, 4}, 3, 0.05);
    assert_interval(crossed(rows, 3, 2, 0.05), of_means.value, of_means.low, of_means.high, 1e-6);
    assert_interval(crossed(columns, 2, 3, 0.05), of_means.value, of_means.low, of_means.high, 1e-6);
    /* Additive, no error: mean squares 8 of 1 and 2 of 1 degree; variance 10 / 4, degrees 10^2 / (8^2 + 2^2). */
    static const double both[] = {0, 1.414213562373095, 2.82842712474619, 4.242640687119286};
    double centre = 1.5 * sqrt(2), half = statistics_t_critical(100.0 / 68, 0.5) * sqrt(2.5);
    assert_interval(crossed(both, 2, 2, 0.5), exp(centre), exp(centre - half), exp(centre + half), 1e-6);
    assert_point(crossed(rows, 1, 2, 0.05), exp(1));
    assert_interval(crossed((double[]){3, 3, 3, 3}, 2, 2, 0.05), exp(3), exp(3), exp(3), 1e-9);
}

/* Tables whose rows differ by the same: half of each one's variance over a quarter, twice; degrees 2^2 / (1 + 1). What
 * all columns share counts once, not once a table. */
static void test_crossed_interval_over_tables(void **state)
{
    (void)state;
    static const double a[] = {0, 0, 2, 2}, b[] = {10, 10, 12, 12};
    const struct statistics_table rows[] = {{a, 2}, {b, 2}};
    double half = statistics_t_critical(2, 0.05) * sqrt(0.5);
    assert_interval(statistics_crossed_log_interval(rows, 2, 2, 0.05), exp(6), exp(6 - half), exp(6 + half), 1e-3);
    static const double c[] = {1, 2, 4, 1, 2, 4};
    const struct statistics_table columns[] = {{c, 2}, {c, 2}};
    struct interval of_means = statistics_log_interval((double[]){1, 2, 4}, 3, 0.05);
    assert_interval(statistics_crossed_log_interval(columns, 2, 3, 0.05), of_means.value, of_means.low, of_means.high,
                    1e-6);
    assert_true(isnan(statistics_crossed_log_interval(NULL, 0, 3, 0.05).value));
}

/* A design whose third column is twice its second, and values on the line 2 + 3 x. */
static void test_fit(void **state)
{
    (void)state;
    static const double design[] = {1, 0, 0, 1, 1, 2, 1, 2, 4, 1, 3, 6}, weights[] = {1, 2, 3, 4};
    bool kept[3];
    statistics_independent(design, weights, 4, 3, kept);
    assert_true(kept[0] && kept[1]);
    assert_false(kept[2]);
    static const double line[] = {1, 0, 1, 1, 1, 2, 1, 3}, values[] = {2, 5, 8, 11};
    double coefficients[2];
    assert_true(statistics_fit(line, values, weights, 4, 2, coefficients));
    assert_near(coefficients[0], 2, 1e-9);
    assert_near(coefficients[1], 3, 1e-9);
    /* One constant: the weighted mean. */
    assert_true(statistics_fit((double[]){1, 1}, (double[]){1, 4}, (double[]){1, 2}, 2, 1, coefficients));
    assert_near(coefficients[0], 3, 1e-12);
    assert_false(statistics_fit(line, values, weights, 1, 2, coefficients));
}

static void test_holm(void **state)
{
    (void)state;
    double adjusted[4];
    statistics_holm((double[]){0.01, 0.04, 0.03, 0.005}, 4, adjusted);
    assert_near(adjusted[0], 0.03, 1e-12);
    assert_near(adjusted[1], 0.06, 1e-12); /* not below that of .03 */
    assert_near(adjusted[2], 0.06, 1e-12);
    assert_near(adjusted[3], 0.02, 1e-12);
    statistics_holm((double[]){0.02, NAN, 0.6}, 3, adjusted);
    assert_near(adjusted[0], 0.06, 1e-12);
    assert_true(isnan(adjusted[1]));
    assert_near(adjusted[2], 1, 1e-12);
    statistics_holm(NULL, 0, NULL);
}

/* Benjamini and Hochberg (1995), their example: 15 tests of thrombolysis. At .05 their procedure rejects the four
 * smallest, Bonferroni's three. */
static void test_benjamini_hochberg(void **state)
{
    (void)state;
    static const double p[] = {.0001, .0004, .0019, .0095, .0201, .0278, .0298, .0344,
                               .0459, .3240, .4262, .5719, .6528, .7590, 1};
    double adjusted[COUNT(p)], family[COUNT(p)];
    statistics_benjamini_hochberg(p, COUNT(p), adjusted);
    assert_near(adjusted[3], .0095 * 15 / 4, 1e-12);
    for (int i = 0; i < COUNT(p); i++)
        assert_int_equal(adjusted[i] <= .05, i < 4);
    statistics_holm(p, COUNT(p), family);
    for (int i = 0; i < COUNT(p); i++)
        assert_int_equal(family[i] <= .05, i < 3);
    statistics_benjamini_hochberg((double[]){.04, NAN, .03}, 3, adjusted);
    assert_near(adjusted[0], .04, 1e-12);
    assert_true(isnan(adjusted[1]));
    assert_near(adjusted[2], .04, 1e-12);
    statistics_benjamini_hochberg(NULL, 0, NULL);
}

static void test_outliers(void **state)
{
    (void)state;
    /* Median 3.5, deviations .5 .5 1.5 1.5 2.5 96.5: their median 1.5, times 1.4826, times 3.5 is 7.78. */
    bool outliers[6];
    statistics_outliers((double[]){1, 2, 3, 4, 5, 100}, 6, outliers);
    for (int i = 0; i < 6; i++)
        assert_int_equal(outliers[i], i == 5);
    statistics_outliers((double[]){1, 2, 3, 4, 5, 11.2}, 6, outliers);
    assert_false(outliers[5]);
    statistics_outliers((double[]){1, 2, 3, 4, 100}, 5, outliers);
    assert_false(outliers[4]);
    statistics_outliers((double[]){2, 2, 2, 2, 2, 3}, 6, outliers);
    assert_false(outliers[5]);
}

static void test_unbeaten(void **state)
{
    (void)state;
    /* The first two alternate, the third is clearly behind, the fourth has too few blocks to be judged. */
    static const double logs[] = {.50, .52, .49, .51, .51, .49, .50, .52, .30, .31, .29, .30, .90, .91, NAN, NAN};
    bool unbeaten[4];
    statistics_unbeaten(logs, 4, 4, 3, 0.05, unbeaten);
    assert_true(unbeaten[0] && unbeaten[1]);
    assert_false(unbeaten[2] || unbeaten[3]);
    statistics_unbeaten(logs, 1, 4, 3, 0.05, unbeaten);
    assert_true(unbeaten[0]);
}

static void test_spearman(void **state)
{
    (void)state;
    /* Intelligence and hours of television, an example of many textbooks: rho = -29/165, p = 0.627188. */
    static const double x[] = {106, 100, 86, 101, 99, 103, 97, 113, 112, 110};
    static const double y[] = {7, 27, 2, 50, 28, 29, 20, 12, 6, 17};
    assert_near(statistics_spearman_p(x, y, 10, 1), 0.627188, 1e-6);
    static const double ties[] = {1, 2, 2, 3}, rising[] = {1, 2, 3, 4}, same[] = {5, 5, 5, 5};
    /* Ranks 1, 2.5, 2.5, 4: rho = sqrt(0.9), t = sqrt(18), and for 2 degrees of freedom p = 1 - t / sqrt(2 + t^2). */
    assert_near(statistics_spearman_p(ties, rising, 4, 1), 1 - sqrt(18.0 / 20), 1e-9);
    /* With a degree less p is that of Cauchy's distribution: 1 - 2 atan(t) / pi, t = 3. */
    assert_near(statistics_spearman_p(ties, rising, 4, 2), 1 - 2 * atan(3) / M_PI, 1e-9);
    assert_true(statistics_spearman_p(rising, rising, 4, 1) < 1e-6);
    assert_true(isnan(statistics_spearman_p(rising, same, 4, 1)));
    assert_true(isnan(statistics_spearman_p(rising, ties, 4, 3)));
}

/* Worked by hand: of six rising values S = 15 and its variance 6 5 17 / 18; of 1, 2, 2, 3 they are 5 and (4 3 13 - 2 1
 * 9) / 18; of both together 20 and 36. z is less by 1 for continuity. */
static void test_trend(void **state)
{
    (void)state;
    static const double values[] = {1, 2, 3, 4, 5, 6, 101, 102, 102, 103}, same[] = {5, 5, 5, 5};
    assert_near(statistics_trend_p(values, (const int[]){6}, 1), 0.00853492041, 1e-9);    /* z = 14 / sqrt(28.33) */
    assert_near(statistics_trend_p(values + 6, (const int[]){4}, 1), 0.148561775, 1e-9);  /* z = 4 / sqrt(7.667) */
    assert_near(statistics_trend_p(values, (const int[]){6, 4}, 2), 0.00154196957, 1e-9); /* z = 19 / 6 */
    assert_near(statistics_trend_p((const double[]){1, 2, 2, 1}, (const int[]){2, 2}, 2), 1, 1e-12);
    assert_true(isnan(statistics_trend_p(same, (const int[]){4}, 1)));
    assert_true(isnan(statistics_trend_p(same, NULL, 0)));
}

static void test_slope(void **state)
{
    (void)state;
    static const double values[] = {1, 3, 2, 4};
    assert_near(statistics_slope(values, 4), 0.8, 1e-12); /* sum of (x - 1.5) y = 4, of squares 5 */
    assert_true(isnan(statistics_slope(values, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_t_critical),
        cmocka_unit_test(test_mean_interval_of_sleep_data),
        cmocka_unit_test(test_mean_of_too_few),
        cmocka_unit_test(test_mean_without_spread),
        cmocka_unit_test(test_sign_flip),
        cmocka_unit_test(test_quantile_interval),
        cmocka_unit_test(test_median_ranks_of_tables),
        cmocka_unit_test(test_largest_value_as_a_limit),
        cmocka_unit_test(test_welch_of_sleep_data),
        cmocka_unit_test(test_fieller),
        cmocka_unit_test(test_fieller_of_dcstats),
        cmocka_unit_test(test_fieller_unbounded),
        cmocka_unit_test(test_ratio_interval_of_statpsych),
        cmocka_unit_test(test_ratio_interval_above_a_floor),
        cmocka_unit_test(test_crossed_interval),
        cmocka_unit_test(test_crossed_interval_over_tables),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_holm),
        cmocka_unit_test(test_benjamini_hochberg),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_unbeaten),
        cmocka_unit_test(test_spearman),
        cmocka_unit_test(test_trend),
        cmocka_unit_test(test_slope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
