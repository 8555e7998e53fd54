/* Two runs side by side: what changed of their speedups, and what cannot be said. */
#include "analyze/versus.h"

#include "collect/base/json.h"
#include "tests/analyze/checks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Three blocks in which auto takes `base`, b16 a `speedup`th of it with 10% more, 10% less and no noise, linear half.
 */
static json_t *summarise(double base, double speedup)
{
    static const double noise[] = {0, 0.1, -0.1};
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        const double tree = base / speedup * exp(noise[block - 1]);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, base, base});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", block, 1, base / 2, base / 2});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, tree, tree});
    }
    json_t *summary = check_build(&campaign);
    campaign_close(&campaign);
    return summary;
}

static const json_t *find(const json_t *versus, const char *arm, const char *workload)
{
    return check_find(versus, "cells", arm, "tp1-auto", workload);
}

/* The second run is twice as slow throughout, which says nothing; b16's speedup fell from 4 to 3. Variances are equal:
 * 4 degrees of freedom, standard error .1 sqrt(2 / 3). */
static void test_only_ratios_are_compared(void **state)
{
    (void)state;
    json_t *before = summarise(4e6, 4), *after = summarise(8e6, 3), *versus = versus_make(before, after);
    const json_t *cell = find(versus, "tp1-b16", "code");
    const double half = 2.776445 * 0.1 * sqrt(2.0 / 3);
    check_number(json_object_get(cell, "before"), "value", 4);
    check_number(json_object_get(cell, "after"), "value", 3);
    check_interval(cell, "change", 0.75, 0.75 * exp(-half), 0.75 * exp(half));
    check_number(json_object_get(cell, "change"), "n", 6);
    assert_string_equal(json_string_value(json_object_get(cell, "verdict")), "no difference shown");
    const json_t *rates = json_object_get(cell, "tokens_per_s"), *simultaneous = json_object_get(cell, "simultaneous");
    assert_true(json_number_value(json_object_get(simultaneous, "low")) < 0.75 * exp(-half));
    check_number(json_object_get(rates, "before"), "value", 1000);
    check_number(json_object_get(rates, "after"), "value", 375);
    assert_true(json_is_false(json_object_get(rates, "covered")));
    check_null(cell, "missing");
    cell = find(versus, "tp1-linear", "maths");
    check_interval(cell, "change", 1, 1, 1);
    assert_string_equal(json_string_value(json_object_get(cell, "verdict")), "equal");
    check_number(json_object_get(find(versus, "tp1-b16", NULL), "change"), "value", 0.75);
    json_decref(versus);
    json_decref(before);
    json_decref(after);
}

static void check_marks(const json_t *object, size_t count, const char *rule)
{
    const json_t *marks = json_object_get(object, "marks");
    assert_int_equal(json_array_size(marks), count);
    if (count)
        assert_string_equal(json_string_value(json_array_get(marks, 0)), rule);
}

/* What is suspect in either run makes their quotient suspect; once. */
static void test_marks_are_those_of_both(void **state)
{
    (void)state;
    for (int which = 1; which <= 3; which++) {
        json_t *both[] = {summarise(4e6, 4), summarise(4e6, 3)};
        for (int i = 0; i < 2; i++) {
            const json_t *comparison = check_find(both[i], "comparisons", "tp1-b16", "tp1-auto", "code");
            if (which >> i & 1) {
                json_append(json_object_get(comparison, "marks"), json_string("DRIFT"));
                json_append(json_object_get(check_cell(both[i], "tp1-b16", "code"), "marks"),
                            json_string("COLD_FIRST"));
            }
        }
        json_t *versus = versus_make(both[0], both[1]);
        const json_t *cell = find(versus, "tp1-b16", "code"), *other = find(versus, "tp1-linear", "code");
        check_marks(cell, 1, "DRIFT");
        check_marks(json_object_get(cell, "tokens_per_s"), 1, "COLD_FIRST");
        check_marks(other, 0, NULL);
        json_decref(versus);
        json_decref(both[0]);
        json_decref(both[1]);
    }
}

static void test_what_is_not_of_both_has_a_reason(void **state)
{
    (void)state;
    json_t *before = summarise(4e6, 4), *after = summarise(4e6, 4);
    json_t *workload = json_array_get(json_object_get(json_object_get(before, "plan"), "workloads"), 0);
    json_set(workload, "prompts_sha256", json_string("of other prompts"));
    json_t *versus = versus_make(before, after);
    static const char *const workloads[] = {"code", NULL};
    for (int i = 0; i < 2; i++) {
        const json_t *cell = find(versus, "tp1-b16", workloads[i]);
        check_null(cell, "change");
        check_null(cell, "verdict");
        assert_string_equal(json_string_value(json_object_get(json_object_get(cell, "missing"), "rule")),
                            "FINGERPRINT");
    }
    check_null(find(versus, "tp1-b16", "maths"), "missing");
    const json_t *cell = find(versus, "tp1-b8", "maths"); /* was measured in neither */
    check_null(cell, "change");
    assert_string_equal(json_string_value(json_object_get(json_object_get(cell, "missing"), "rule")), "NOT_MEASURED");
    json_decref(versus);
    json_decref(before);
    json_decref(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_ratios_are_compared),
        cmocka_unit_test(test_marks_are_those_of_both),
        cmocka_unit_test(test_what_is_not_of_both_has_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
