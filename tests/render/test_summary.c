#include "render/summary.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"
#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_numbers_are_read_and_what_is_missing_stays_missing(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    assert_int_equal(summary.arm_count, 8);
    assert_int_equal(summary.workload_count, 3);
    assert_int_equal(summary.cell_count, 24);
    assert_true(summary.labels_unique);
    const struct cell *gone = summary_find_cell(&summary, 7, 2);
    assert_string_equal(gone->missing.rule, "INCOMPLETE");
    assert_false(gone->tokens_per_s.present);
    assert_true(isnan(gone->tokens_per_s.value) && isnan(gone->stages_ms[SUMMARY_VERIFY]));
    assert_null(gone->histogram);
    const struct cell *automatic = summary_find_cell(&summary, 0, 0);
    assert_true(isnan(automatic->stages_ms[SUMMARY_DRAFT]));
    assert_float_equal(automatic->tau.value, 1, 0);
    const struct comparison *over_linear = summary_compare(&summary, 5, "linear", SUMMARY_ALL_WORKLOADS);
    assert_true(over_linear->headline && over_linear->speedup.present);
    assert_null(summary_compare(&summary, 0, "auto", 0));
    assert_int_equal(summary_date(&summary), 1795975364); /* 2026-11-29T18:02:44Z */
    summary_free(&summary);
}

static void test_arms_of_several_rank_counts_are_told_apart(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    assert_string_equal(summary_arm_text(&summary, 5), "b16");
    summary.labels_unique = false;
    assert_string_equal(summary_arm_text(&summary, 5), "tp1-b16");
    summary_free(&summary);
}

/* Replaces the first `from` of the example, reads it, and wants one line that holds `expected`. */
static void check_damage(const char *from, const char *to, const char *expected)
{
    struct error error = {0};
    struct summary summary;
    char *folder = fixture_make_folder(), *path = file_join(folder, "summary.json");
    char *text = fixture_read(EXAMPLE_PATH, NULL), *at = strstr(text, from);
    assert_non_null(at);
    char *damaged = xformat("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fixture_write(path, damaged, strlen(damaged));
    assert_int_equal(summary_read(path, &summary, &error), -1);
    if (!strstr(error.message, expected))
        fail_msg("\"%s\" does not hold \"%s\"", error.message, expected);
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    assert_null(strchr(error.message, '\n'));
    free(damaged);
    free(text);
    free(path);
    fixture_remove_folder(folder);
}

static void test_damage_is_told_in_one_line(void **state)
{
    (void)state;
    check_damage("cleanslate.summary/1", "cleanslate.summary/2", "schema \"cleanslate.summary/2\"");
    check_damage("\"blocks_valid\": 6", "\"blocks_valid\": \"six\"",
                 "cells[0]: \"blocks_valid\" must be a whole number");
    check_damage("\"comparisons\":", "\"comparison\":", "\"comparisons\" is missing");
    check_damage("\"arm\": \"tp1-linear\", \"workload\": \"code\"", "\"arm\": \"tp1-liner\", \"workload\": \"code\"",
                 "cells[3]: \"arms\" has no arm \"tp1-liner\"");
    check_damage("\"tokens_per_s\": {\"value\": 1", "\"tokens_per_s\": {\"value\": 9", "outside its own interval");
    check_damage("\"log_ratio\": 0", "\"log_ratio\": \"x\", \"y\": 0",
                 "blocks[0] must have \"block\", from 1 to 1000, and \"log_ratio\"");
    check_damage("\"tokens_per_s\": {\"value\": 1", "\"tokens_per_s\": {\"value\": 1e151, \"x\": 1",
                 "cells[0]: \"tokens_per_s\": \"value\" is 1e+151; it must be from -1e+150 to 1e+150");
    check_damage("\"block\": 1,", "\"block\": 2147483647,", "blocks[0] must have \"block\", from 1 to 1000,");
    check_damage("\"block\": 1,", "\"block\": 0,", "blocks[0] must have \"block\", from 1 to 1000,");
    check_damage("\"plan\": {\"blocks\": 6", "\"plan\": {\"blocks\": 1001",
                 "\"blocks\" is 1001; it must be from 0 to 1000");
    check_damage("\"plan\": {\"blocks\": 6", "\"plan\": {\"extended_from\": [3, 0], \"blocks\": 6",
                 "\"extended_from\"[1] must be an integer from 1 to 1000");
    check_damage("\"plan\": {\"blocks\": 6", "\"plan\": {\"extended_from\": [\"6\"], \"blocks\": 6",
                 "\"extended_from\"[0] must be an integer from 1 to 1000");
    check_damage("\"low\": 1.78014", "\"low\": 5e-324", "comparisons[0]: \"speedup\" and its limits must be above 0");
    check_damage("\"accepted_histogram\": [0", "\"accepted_histogram\": [-1", "must hold counts of rounds");
}

static void test_a_cut_file_is_told_in_one_line(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *path = file_join(folder, "summary.json");
    size_t size;
    char *text = fixture_read(EXAMPLE_PATH, &size);
    for (size_t kept = 0; kept < size - 1; kept += size / 40) {
        struct error error = {0};
        struct summary summary;
        fixture_write(path, text, kept);
        assert_int_equal(summary_read(path, &summary, &error), -1);
        assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
        assert_null(strchr(error.message, '\n'));
    }
    free(text);
    free(path);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_read_and_what_is_missing_stays_missing),
        cmocka_unit_test(test_arms_of_several_rank_counts_are_told_apart),
        cmocka_unit_test(test_damage_is_told_in_one_line),
        cmocka_unit_test(test_a_cut_file_is_told_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
