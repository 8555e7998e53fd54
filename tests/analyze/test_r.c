/* The statistics beside R, which many reviewers will use to check them. Needs Rscript (Debian's r-base-core). */
#include "analyze/statistics.h"
#include "collect/base/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 12, NUMBERS_MAXIMUM = 32 };

static const double a[COUNT] = {20.31, 21.12, 19.84, 20.97, 20.45, 22.03, 19.92, 20.66, 21.48, 20.12, 19.73, 21.05};
static const double b[COUNT] = {10.13, 10.62, 10.24, 10.35, 9.91, 10.93, 10.05, 10.17, 10.58, 9.87, 10.02, 10.41};

static int look_for_r(void **state)
{
    static bool found;
    found = system("command -v Rscript >/dev/null") == 0;
    if (!found)
        print_message("SKIPPED: R is not here to compare with; install r-base-core\n");
    *state = &found;
    return 0;
}

static void need_r(const bool *found)
{
    if (!*found)
        skip();
}

static void put_vector(FILE *out, const char *name, const double *values, int count)
{
    fprintf(out, "%s<-c(", name);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%.17g", i ? "," : "", values[i]);
    fprintf(out, ");");
}

/* What R prints for an expression of the vectors a and b: numbers, one a line. */
static int ask(const char *expression, double *numbers)
{
    char *script, line[128];
    size_t size;
    FILE *out = open_memstream(&script, &size);
    put_vector(out, "a", a, COUNT);
    put_vector(out, "b", b, COUNT);
    fprintf(out, "cat(format(c(%s),digits=15,trim=TRUE),sep='\\n')", expression);
    fclose(out);
    char *command = xformat("Rscript --vanilla -e \"%s\"", script);
    FILE *answer = popen(command, "r");
    int count = 0;
    while (count < NUMBERS_MAXIMUM && fgets(line, sizeof line, answer))
        numbers[count++] = strtod(line, NULL);
    assert_int_equal(pclose(answer), 0);
    free(command);
    free(script);
    return count;
}

static void assert_like_r(const char *expression, const double *ours, int count)
{
    double numbers[NUMBERS_MAXIMUM];
    assert_int_equal(ask(expression, numbers), count);
    for (int i = 0; i < count; i++)
        if (!(fabs(ours[i] - numbers[i]) <= 1e-9 * (1 + fabs(numbers[i]))))
            fail_msg("%s: number %d is %.15g here and %.15g in R", expression, i + 1, ours[i], numbers[i]);
}

static void get_log_ratios(double *logs)
{
    for (int i = 0; i < COUNT; i++)
        logs[i] = log(a[i] / b[i]);
}

static void test_student(void **state)
{
    need_r(*state);
    double logs[COUNT];
    get_log_ratios(logs);
    struct interval interval = statistics_log_interval(logs, COUNT, 0.05);
    assert_like_r("exp(t.test(log(a/b))\\$estimate),exp(t.test(log(a/b))\\$conf.int)",
                  (double[]){interval.value, interval.low, interval.high}, 3);
    for (int i = 0; i < COUNT; i++)
        logs[i] -= log(2.02);
    assert_like_r("t.test(log(a/b)-log(2.02))\\$p.value,t.test(log(a/b)-log(2.02),alternative='greater')\\$p.value",
                  (double[]){statistics_mean_p(logs, COUNT), statistics_mean_above_p(logs, COUNT)}, 2);
}

static void test_welch(void **state)
{
    need_r(*state);
    double of_a[COUNT], of_b[COUNT];
    for (int i = 0; i < COUNT; i++) {
        of_a[i] = log(a[i]);
        of_b[i] = log(b[i]);
    }
    struct interval interval = statistics_welch_log_interval(of_a, COUNT, of_b, 7, 0.01);
    assert_like_r("exp(t.test(log(a),log(b[1:7]),conf.level=.99)\\$conf.int)", (double[]){interval.low, interval.high},
                  2);
}

/* Fieller's limits are where the t test of a - r b turns. */
static void test_fieller(void **state)
{
    need_r(*state);
    struct interval interval = statistics_fieller_interval(a, b, COUNT, 0.05);
    char *expression = xformat("t.test(a-%.17g*b)\\$p.value,t.test(a-%.17g*b)\\$p.value", interval.low, interval.high);
    assert_like_r(expression, (double[]){0.05, 0.05}, 2);
    free(expression);
}

static void test_corrections(void **state)
{
    need_r(*state);
    double p[COUNT], holm[COUNT], discoveries[COUNT];
    for (int i = 0; i < COUNT; i++)
        p[i] = pow(a[i] - 19.7, 2) / 60;
    statistics_holm(p, COUNT, holm);
    statistics_benjamini_hochberg(p, COUNT, discoveries);
    assert_like_r("p.adjust((a-19.7)^2/60,'holm')", holm, COUNT);
    assert_like_r("p.adjust((a-19.7)^2/60,'BH')", discoveries, COUNT);
}

static void test_order_statistics(void **state)
{
    need_r(*state);
    struct interval interval = statistics_quantile_interval(a, COUNT, 0.5, 0.05);
    assert_like_r("median(a),sort(a)[qbinom(.025,12,.5)],sort(a)[12-qbinom(.025,12,.5)+1]",
                  (double[]){interval.value, interval.low, interval.high}, 3);
}

static void test_least_squares(void **state)
{
    need_r(*state);
    double design[2 * COUNT], weights[COUNT], coefficients[2];
    for (int i = 0; i < COUNT; i++) {
        design[2 * i] = 1;
        design[2 * i + 1] = b[i];
        weights[i] = 1 / (a[i] * a[i]);
    }
    assert_true(statistics_fit(design, a, weights, COUNT, 2, coefficients));
    assert_like_r("coef(lm(a~b,weights=1/a^2))", coefficients, 2);
}

/* The variance of a crossed table from R's analysis of variance: rows 1 to 4, columns 1 to 3. */
static void test_crossed(void **state)
{
    need_r(*state);
    double logs[COUNT];
    get_log_ratios(logs);
    const struct statistics_table table = {logs, 4};
    struct interval interval = statistics_crossed_log_interval(&table, 1, 3, 0.05);
    const char *expression = "local({m<-anova(lm(log(a/b)~gl(4,3)+factor(rep(1:3,4))))\\$Mean;d<-c(3,2,6);"
                             "s<-m[1]+m[2]-m[3];x<-max(m[1:2]);"
                             "f<-if(s>x)s^2/sum(m^2/d)else d[which.max(m[1:2])];"
                             "mean(log(a/b))+c(-1,1)*qt(.975,f)*sqrt(max(s,x)/12)})";
    assert_like_r(expression, (double[]){log(interval.low), log(interval.high)}, 2);
}

static void test_outliers_by_mad(void **state)
{
    need_r(*state);
    double values[COUNT], ours[COUNT];
    bool outliers[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = pow(a[i] - 20, 3);
    statistics_outliers(values, COUNT, outliers);
    for (int i = 0; i < COUNT; i++)
        ours[i] = outliers[i];
    assert_like_r("1*(abs((a-20)^3-median((a-20)^3))>3.5*mad((a-20)^3))", ours, COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_student),          cmocka_unit_test(test_welch),
        cmocka_unit_test(test_fieller),          cmocka_unit_test(test_corrections),
        cmocka_unit_test(test_order_statistics), cmocka_unit_test(test_least_squares),
        cmocka_unit_test(test_crossed),          cmocka_unit_test(test_outliers_by_mad),
    };
    return cmocka_run_group_tests(tests, look_for_r, NULL);
}
