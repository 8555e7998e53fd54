/* Rules together: which of them speak of the same case, and of which part of an attempt. */
#include "collect/record/rule.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_an_overflow_is_also_a_failure(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-linear");
    fixture_fail_sample(&attempt.samples[2], "CONTEXT_OVERFLOW");
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.count, 2);
    assert_int_equal(verdicts.items[0].rule, RULE_CONTEXT_OVERFLOW); /* the reason comes first */
    assert_non_null(strstr(verdicts.items[0].detail, "p2"));
    assert_int_equal(verdicts.items[1].rule, RULE_FAILED_REQUEST);
    assert_non_null(strstr(verdicts.items[1].detail, "p2: CONTEXT_OVERFLOW: first second"));
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

static void test_where_all_fail_no_threshold_helps(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    struct rule_settings settings;
    struct error error = {0};
    rule_settings_read(NULL, "", &settings, &error);
    settings.threshold[RULE_FAILED_REQUEST] = 1;
    fixture_build(&attempt, "tp1-linear");
    for (int i = 0; i < FIXTURE_SAMPLES; i++)
        fixture_fail_sample(&attempt.samples[i], "TIMEOUT");
    rule_judge_attempt(&attempt, &settings, &verdicts);
    assert_int_equal(verdicts.count, 2);
    assert_int_equal(verdicts.items[0].rule, RULE_ALL_FAILED);
    assert_int_equal(verdicts.items[0].level, RULE_INVALID);
    assert_int_equal(verdicts.items[1].rule, RULE_FAILED_REQUEST);
    assert_int_equal(verdicts.items[1].level, RULE_SUSPECT);
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

static void test_a_failure_that_names_an_error_within_an_answer_is_one(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-linear");
    fixture_fail_sample(&attempt.samples[2], "INBAND_ERROR");
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.count, 2);
    assert_int_equal(verdicts.items[0].rule, RULE_INBAND_ERROR);
    assert_int_equal(verdicts.items[1].rule, RULE_FAILED_REQUEST);
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

static void test_a_rule_of_one_workload_leaves_the_others_alone(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-linear");
    attempt.workloads = xrealloc(attempt.workloads, 2, sizeof *attempt.workloads);
    attempt.workloads[attempt.workload_count++] = (struct attempt_workload){"maths", xstrdup("c2"), xstrdup("d2")};
    for (int i = 0; i < FIXTURE_SAMPLES; i += 2)
        attempt.samples[i].workload = "maths";
    fixture_fail_sample(&attempt.samples[2], "TIMEOUT");
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.count, 1);
    assert_string_equal(verdicts.items[0].workload, "maths");
    assert_true(verdicts.items[0].observed == .2);
    assert_int_equal(rule_worst(&verdicts, "maths", RULE_VOIDS_TIMES), RULE_INVALID);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_ALL), RULE_VALID);
    assert_int_equal(rule_worst(&verdicts, NULL, RULE_VOIDS_ALL), RULE_VALID);
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

/* --- the table as CONTRIBUTING.md has it -------------------------------------------------------------------------- */

static char *voids_text(unsigned voids)
{
    static const struct {
        unsigned metric;
        const char *name;
    } metrics[] = {{RULE_VOIDS_TIMES, "times"},           {RULE_VOIDS_TAU, "τ"},           {RULE_VOIDS_TTFT, "TTFT"},
                   {RULE_VOIDS_SPEEDUP, "speedup"},       {RULE_VOIDS_SCALING, "scaling"}, {RULE_VOIDS_ITL, "ITL"},
                   {RULE_VOIDS_THROUGHPUT, "throughput"}, {RULE_VOIDS_PEAK, "peak"}};
    if (voids == RULE_VOIDS_ALL || voids == RULE_VOIDS_NONE)
        return xstrdup(voids ? "all" : "nothing");
    char text[128] = "";
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (voids & metrics[i].metric)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] ? ", " : "", metrics[i].name);
    return xstrdup(text);
}

/* The line's beginning, up to what the rule says in words. */
static char *row_of(const struct rule *rule)
{
    char threshold[64] = "", *voids = voids_text(rule->voids);
    if (!isnan(rule->threshold))
        snprintf(threshold, sizeof threshold, " %g,", rule->threshold);
    if (rule->settable_to > 0)
        snprintf(threshold + strlen(threshold), sizeof threshold - strlen(threshold), " settable to %g",
                 rule->settable_to);
    char *row = xformat("\n| %s | %s | %s | %s |%s | ", rule->id, rule_scope_names[rule->scope], voids,
                        rule_level_names[rule->level], threshold);
    free(voids);
    return row;
}

/* Every rule has its row there, and no row is of a rule that is no more. */
static void test_the_documents_know_every_rule(void **state)
{
    (void)state;
    size_t size;
    int rows = 0;
    char *text = fixture_read("CONTRIBUTING.md", &size), *table = strstr(text, "| rule | scope | voids |");
    assert_non_null(table);
    for (const char *at = table; (at = strstr(at, "\n| ")) && at < strstr(table, "\n\n"); at++)
        rows += at[3] != '-';
    assert_int_equal(rows, RULE_COUNT);
    for (int i = 0; i < RULE_COUNT; i++) {
        char *row = row_of(&rule_table[i]);
        if (!strstr(table, row))
            fail_msg("CONTRIBUTING.md lacks this row: %s", row + 1);
        free(row);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_overflow_is_also_a_failure),
        cmocka_unit_test(test_where_all_fail_no_threshold_helps),
        cmocka_unit_test(test_a_failure_that_names_an_error_within_an_answer_is_one),
        cmocka_unit_test(test_a_rule_of_one_workload_leaves_the_others_alone),
        cmocka_unit_test(test_the_documents_know_every_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
