#include "render/tables.h"

#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

static struct summary summary;

/* The line of a table that begins with `beginning`. free() it. */
static char *row(const char *table, const char *beginning)
{
    char *start = xformat("\n%s", beginning);
    const char *at = strstr(table, start);
    assert_non_null(at);
    char *line = xformat("%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    free(start);
    return line;
}

static void test_the_headline_table_has_values_intervals_and_reasons(void **state)
{
    (void)state;
    char *table = example_put(tables_put_speedup, &summary), *last = row(table, "b64 &"), *best = row(table, "b8 &");
    const struct interval *speedup = &summary_compare(&summary, 7, "auto", 0)->speedup;
    char *value = xformat("b64 & %.3f & [%.3f, %.3f]", speedup->value, speedup->low, speedup->high);
    assert_int_equal(strncmp(last, value, strlen(value)), 0);
    assert_non_null(strstr(last, "& \\multicolumn{2}{l}{---\\,{\\scriptsize INCOMPLETE}} & \\multicolumn{2}{l}{---"));
    assert_null(strstr(last, "0.000"));
    assert_non_null(strstr(best, "& \\best "));
    assert_non_null(strstr(table, "]\\textsuperscript{a}")); /* the suspect cell, and its explanation: */
    assert_non_null(strstr(table, "\\textsuperscript{a}REPETITION: Over 10\\% of auto's outputs"));
    assert_null(strstr(table, "\nauto &"));
    free(value);
    free(best);
    free(last);
    free(table);
}

static void test_absolute_numbers_are_never_zero_where_they_are_missing(void **state)
{
    (void)state;
    char *table = example_put(tables_put_absolute, &summary), *gone = row(strstr(table, "\\itshape prose"), "b64 &");
    assert_string_equal(gone, "b64 & \\multicolumn{8}{l}{---\\,{\\scriptsize INCOMPLETE}} & 0/6 & 12 (12) \\\\");
    free(gone);
    summary.cells[0].ttft_ms.present = false;
    free(table);
    table = example_put(tables_put_absolute, &summary);
    gone = row(table, "auto &");
    assert_non_null(strstr(gone, " & {---} &"));
    free(gone);
    free(table);
}

static void test_every_block_is_listed_or_has_its_reason(void **state)
{
    (void)state;
    char *table = example_put(tables_put_blocks, &summary), *dropped = row(table, "b8 over auto & code");
    assert_non_null(strstr(dropped, "& {---\\textsuperscript{a}} &"));
    const json_t *block = json_array_get(summary_compare(&summary, 2, "auto", 0)->blocks, 0);
    char *value = xformat("code & %.3f &", json_number_value(json_object_get(block, "log_ratio")));
    assert_non_null(strstr(dropped, value));
    free(value);
    free(dropped);
    free(table);
}

static void test_exclusions_say_what_why_when_and_by_whom(void **state)
{
    (void)state;
    char *table = example_put(tables_put_exclusions, &summary), *marks = example_put(tables_put_marks, &summary);
    assert_non_null(
        strstr(table, "WITHDRAWN & a backup ran at 50\\% load \\& nobody\\_\\allowbreak{}noticed \\{until\\}"));
    assert_non_null(strstr(table, "& 2026-11-29 18:01:07Z & user"));
    assert_null(strstr(table, "REPETITION"));
    assert_non_null(strstr(marks, "REPETITION & suspect & prose & 12 &"));
    assert_non_null(strstr(marks, "saw 0.125, limit 0.1"));
    free(table);
    free(marks);
    summary.verdict_count = 0;
    table = example_put(tables_put_exclusions, &summary);
    assert_non_null(strstr(table, "No exclusions."));
    assert_null(strstr(table, "longtable"));
    free(table);
}

static void test_sentences_have_macros_for_numbers(void **state)
{
    (void)state;
    char *text = example_put(tables_put_sentences, &summary);
    assert_non_null(strstr(text, "\\textbf{\\SpeedupBSixteenOverAuto{}} times as fast as \\textbf{auto}"));
    assert_non_null(strstr(text, "[\\SpeedupBSixteenOverLinearSimultaneousLow{}, "));
    assert_null(strstr(text, "On code"));
    assert_null(strstr(text, "Extended"));
    free(text);
    json_t *extended = json_pack("[i]", 3);
    summary.extended_from = extended;
    text = example_put(tables_put_sentences, &summary);
    assert_non_null(strstr(text, "N{}$ blocks\\Extended{}, "));
    json_decref(extended);
    free(text);
    for (int i = 0; i < summary.comparison_count; i++)
        summary.comparisons[i].headline = false;
    text = example_put(tables_put_sentences, &summary);
    assert_string_equal(text, "The plan names no headline comparison.\n");
    free(text);
}

static void test_provenance_has_every_leaf_and_short_hashes(void **state)
{
    (void)state;
    char *table = example_put(tables_put_provenance, &summary);
    assert_non_null(strstr(table, "source.\\allowbreak{}drafter.\\allowbreak{}block\\_\\allowbreak{}size & 16 "));
    char *head = xformat("131 lines, head \\texttt{%.12s\\textellipsis{}}", summary.runs[0].ledger_head);
    assert_non_null(strstr(table, head));
    free(head);
    free(table);
}

static void test_markdown(void **state)
{
    (void)state;
    char *table = example_put(tables_put_markdown, &summary), *last = row(table, "| b64 |");
    assert_int_equal(strncmp(table, "| speedup over auto | code | maths | prose | all workloads |\n|:--|", 66), 0);
    assert_non_null(strstr(last, "| — INCOMPLETE | — INCOMPLETE |"));
    free(last);
    free(table);
}

static int begin(void **state)
{
    (void)state;
    example_read(&summary);
    return 0;
}

static int end(void **state)
{
    (void)state;
    summary_free(&summary);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_headline_table_has_values_intervals_and_reasons, begin, end),
        cmocka_unit_test_setup_teardown(test_absolute_numbers_are_never_zero_where_they_are_missing, begin, end),
        cmocka_unit_test_setup_teardown(test_every_block_is_listed_or_has_its_reason, begin, end),
        cmocka_unit_test_setup_teardown(test_exclusions_say_what_why_when_and_by_whom, begin, end),
        cmocka_unit_test_setup_teardown(test_sentences_have_macros_for_numbers, begin, end),
        cmocka_unit_test_setup_teardown(test_provenance_has_every_leaf_and_short_hashes, begin, end),
        cmocka_unit_test_setup_teardown(test_markdown, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
