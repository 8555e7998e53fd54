#include "render/table_layout.h"
#include "render/tables.h"

#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct summary summary;

static char *make(tables_fill *fill, const char *name, bool csv)
{
    struct table table;
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    assert_non_null(out);
    table_init(&table, name);
    fill(&table, &summary);
    table_drop_empty(&table);
    if (csv)
        table_put_csv(out, &table);
    else
        table_put_latex(out, &table, &summary);
    table_free(&table);
    fclose(out);
    return bytes;
}

static char *latex(tables_fill *fill)
{
    return make(fill, "any", false);
}

/* The line of a table that begins with `beginning`. free() it. */
static char *row(const char *table, const char *beginning)
{
    char *start = xformat("\n%s", beginning);
    const char *at = strstr(table, start);
    assert_non_null(at);
    char *line = xformat("%.*s", (int)strcspn(at + 1, "\r\n"), at + 1);
    free(start);
    return line;
}

static void test_the_headline_table_has_values_intervals_and_reasons(void **state)
{
    (void)state;
    char *table = latex(tables_fill_speedup), *last = row(table, "b64 &"), *best = row(table, "b8 &");
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
    char *table = latex(tables_fill_absolute), *gone = row(strstr(table, "\\itshape prose"), "b64 &");
    assert_non_null(
        strstr(gone, "b64 & \\multicolumn{2}{l}{---\\,{\\scriptsize INCOMPLETE}} & \\multicolumn{2}{l}{---}"));
    assert_null(strstr(gone, "0"));
    free(gone);
    free(table);
    table = latex(tables_fill_record);
    gone = row(table, "b64 &");
    assert_non_null(strstr(gone, "& 0/6; 12 (12)"));
    free(gone);
    free(table);
}

static void test_every_block_is_listed_or_has_its_reason(void **state)
{
    (void)state;
    char *table = latex(tables_fill_blocks), *dropped = row(table, "b8 over auto & code");
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
    char *table = latex(tables_fill_exclusions), *marks = latex(tables_fill_marks);
    assert_non_null(
        strstr(table, "WITHDRAWN & a backup ran at 50\\% load \\& nobody\\_\\allowbreak{}noticed \\{until\\}"));
    assert_non_null(strstr(table, "& 2026-11-29 18:01:07Z & user \\\\"));
    assert_null(strstr(table, "REPETITION"));
    assert_non_null(strstr(marks, "REPETITION & suspect & prose & 12 &"));
    assert_non_null(strstr(marks, "saw 0.125, limit 0.1"));
    free(table);
    free(marks);
}

static void test_provenance_has_every_leaf_and_short_hashes(void **state)
{
    (void)state;
    char *table = latex(tables_fill_provenance);
    assert_non_null(strstr(table, "source.drafter.block\\_size & 16 "));
    char *head = xformat("131 lines, head %.12s\\textellipsis{}", summary.runs[0].ledger_head);
    assert_non_null(strstr(table, head));
    free(head);
    free(table);
}

static void test_provenance_says_how_gpus_were_set(void **state)
{
    (void)state;
    json_t *gpus = json_pack(
        "[{s:{s:s, s:i, s:i, s:s, s:i, s:b}, s:[s, s], s:i}, {s:{s:s, s:i, s:i, s:s, s:b}, s:[s], s:i}, {s:{s:n}}]",
        "settings", "name", "NVIDIA H200", "application_clock_mhz", 1980, "default_application_clock_mhz", 1980,
        "clocks", "default", "power_limit_w", 700, "persistence", 1, "uuids", "GPU-1", "GPU-2", "attempts", 5,
        "settings", "name", "NVIDIA H200", "application_clock_mhz", 1500, "default_application_clock_mhz", 1980,
        "clocks", "set", "persistence", 0, "uuids", "GPU-1", "attempts", 1, "settings", "clocks");
    assert_non_null(gpus);
    summary.gpus = gpus;
    char *table = make(tables_fill_provenance, "any", true);
    assert_non_null(strstr(table, "2 × NVIDIA H200 in 5 attempts: application clock 1980 MHz, the default; power limit "
                                  "700 W; persistence on"));
    assert_non_null(strstr(
        table, "1 × NVIDIA H200 in 1 attempt: application clock 1500 MHz, set (default 1980 MHz); persistence off"));
    assert_non_null(strstr(table, "0 × GPU in 0 attempts: clocks not told"));
    free(table);
    summary.gpus = NULL;
    json_decref(gpus);
}

static void test_workloads_say_their_context(void **state)
{
    (void)state;
    summary.workloads[0].context_tokens = 4096;
    char *table = latex(tables_fill_workloads), *first = row(table, "code &"), *other = row(table, "maths &");
    assert_non_null(strstr(first, "& filled to 4096 &"));
    assert_non_null(strstr(other, "& as they are &"));
    free(other);
    free(first);
    free(table);
}

/* The text between separators of one row. */
static char *field(const char *line, int index)
{
    for (; index > 0; index--) {
        line = strchr(line, ',');
        assert_non_null(line);
        line++;
    }
    return xformat("%.*s", (int)strcspn(line, ","), line);
}

static void test_csv_has_the_numbers_that_are_printed(void **state)
{
    (void)state;
    char *csv = make(tables_fill_speedup, "speedup", true), *printed = latex(tables_fill_speedup);
    assert_int_equal(strncmp(csv, "arm,code,code_low,code_high,code_note,maths,", 44), 0);
    for (int arm = 1; arm < summary.arm_count; arm++) {
        char *start = xformat("%s,", summary.arms[arm].label), *line = row(csv, start);
        char *name = xformat("%s &", summary.arms[arm].label), *of_print = row(printed, name);
        for (int i = 0; i <= summary.workload_count; i++) {
            char *value = field(line, 1 + 4 * i), *low = field(line, 2 + 4 * i), *high = field(line, 3 + 4 * i);
            char *expected = value[0] ? xformat("%.3f & [%.3f, %.3f]", atof(value), atof(low), atof(high))
                                      : xstrdup("---\\,{\\scriptsize INCOMPLETE}");
            assert_non_null(strstr(of_print, expected));
            free(expected);
            free(high);
            free(low);
            free(value);
        }
        free(of_print);
        free(name);
        free(line);
        free(start);
    }
    assert_non_null(strstr(csv, ",,,INCOMPLETE"));
    assert_non_null(strstr(csv, ",REPETITION"));
    free(printed);
    free(csv);
}

/* Whatever stands in the interval: what is missing is missing in every form, and never zero. */
static void test_csv_has_nothing_where_a_number_is_missing(void **state)
{
    (void)state;
    const struct interval missing[] = {
        {0}, {.value = NAN, .low = NAN, .high = NAN}, {.value = 1.5, .low = 1, .high = 2}};
    for (int i = 0; i < 3; i++) {
        struct table table;
        char *bytes = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&bytes, &size);
        table_init(&table, "any");
        table_add_column(&table, COLUMN_INTERVAL, "r", "r");
        table_add_row(&table, NULL);
        table_put_interval(&table, &missing[i], NULL, "THROTTLED");
        table_put_csv(out, &table);
        fclose(out);
        assert_string_equal(bytes, "r,r_low,r_high,r_note\r\n,,,THROTTLED\r\n");
        table_free(&table);
        free(bytes);
    }
}

/* 64 MiB of weights, whichever way they are told. */
static void test_csv_says_the_unit_of_its_numbers(void **state)
{
    (void)state;
    json_t *memory = json_pack("{s:i, s:i}", "weights_bytes", 64 << 20, "capacity_tokens", 92);
    summary.cells[0].memory = memory;
    char *csv = make(tables_fill_memory, "memory", true), *printed = latex(tables_fill_memory);
    assert_int_equal(strncmp(csv, "arm,weights_mib,weights_mib_note,capacity_tokens\r\n", 50), 0);
    assert_non_null(strstr(csv, "\r\nauto,64,,92\r\n"));
    assert_non_null(strstr(printed, "MiB"));
    summary.cells[0].memory = NULL;
    json_decref(memory);
    free(csv);
    free(printed);
}

static void test_csv_quotes_what_would_split(void **state)
{
    (void)state;
    struct table table;
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    table_init(&table, "any");
    table_add_column(&table, COLUMN_TEXT, "a,b", "head");
    table_add_column(&table, COLUMN_NUMBER, "n", "n");
    table_add_row(&table, NULL);
    table_put_text(&table, "say \"no\", twice");
    table_put_number(&table, NAN);
    table_put_csv(out, &table);
    fclose(out);
    assert_string_equal(bytes, "\"a,b\",n,n_note\r\n\"say \"\"no\"\", twice\",,\r\n");
    table_free(&table);
    free(bytes);
}

static void test_a_wide_table_is_set_in_parts_that_repeat_the_arms(void **state)
{
    (void)state;
    struct table table;
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    table_init(&table, "wide");
    table_add_column(&table, COLUMN_TEXT, "arm", "arm");
    for (int i = 0; i < 24; i++)
        table_add_column(&table, COLUMN_NUMBER, "block", "block");
    table_add_row(&table, NULL);
    table_put_text(&table, "b16");
    for (int i = 0; i < 24; i++)
        table_put_number(&table, 1.25);
    table_put_latex(out, &table, &summary);
    fclose(out);
    int parts = 0, most = 0, least = 24;
    for (const char *at = bytes; (at = strstr(at, "b16 &")); at++, parts++) {
        int columns = 0;
        for (const char *end = at; *end != '\n'; end++)
            columns += *end == '&';
        most = columns > most ? columns : most;
        least = columns < least ? columns : least;
    }
    assert_in_range(parts, 2, 3);
    assert_in_range(most - least, 0, 1); /* no part has what was left over */
    assert_non_null(strstr(bytes, "\\begin{generated}{wide}"));
    assert_non_null(strstr(bytes, "\\begin{generatedpart}{wide}"));
    assert_null(strstr(bytes, "resizebox"));
    table_free(&table);
    free(bytes);
}

/* A page that ends within a section has some rows of it before the break and some behind it; short ones are whole. */
static void test_no_row_of_a_long_table_stands_alone(void **state)
{
    (void)state;
    struct table table;
    char *bytes = NULL, row[40];
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    table_init(&table, "long");
    table_add_column(&table, COLUMN_TEXT, "arm", "arm");
    table_add_column(&table, COLUMN_NUMBER, "n", "n");
    for (int i = 0; i < 60; i++) {
        char *name = xformat("row%d", i);
        table_add_row(&table, i < 30 ? "code" : i < 50 ? "translation into Göttingen" : "prose"); /* 30, 20, 10 rows */
        table_put_text(&table, name);
        table_put_number(&table, i);
        free(name);
    }
    table_put_latex(out, &table, &summary);
    fclose(out);
    for (int i = 0; i < 60; i++) {
        snprintf(row, sizeof row, "row%d & ", i);
        const char *at = strstr(bytes, row);
        assert_non_null(at);
        const bool held = strncmp(strchr(at, '\n') - 3, "\\\\*", 3) == 0;
        const int behind = i < 30 ? 29 - i : i < 50 ? 49 - i : 59 - i;
        assert_int_equal(held, behind > 0 && (i % 30 < 2 || behind < 3 || i >= 50));
        /* Where a page may begin within a section, its name is at hand. */
        char *named = xformat("\n%srow%d & ",
                              i >= 50             ? ""
                              : i == 0 || i == 30 ? "\\within{}"
                              : i < 30            ? "\\within{code}"
                                                  : "\\within{translation in\\textellipsis{}}",
                              i);
        assert_non_null(strstr(bytes, named));
        free(named);
    }
    table_free(&table);
    free(bytes);
}

/* However long one text is and however short the other. */
static void test_wrapped_columns_stay_within_the_line(void **state)
{
    (void)state;
    for (int length = 30; length < 3000; length *= 3) {
        struct table table;
        struct table_layout layouts[4];
        char *longer = xformat("%0*d", length, 7);
        table_init(&table, "wrapped");
        table_add_column(&table, COLUMN_TEXT, "rule", "rule");
        table_add_column(&table, COLUMN_TEXT, "attempt", "attempt");
        table_add_column(&table, COLUMN_TEXT, "level", "level");
        table_add_column(&table, COLUMN_TEXT, "seen", "what was seen");
        table_add_row(&table, NULL);
        table_put_text(&table, "SPEC_METRICS_MISSING");
        table_put_text(&table, "imported/tp1-linear-c4");
        table_put_text(&table, "suspect, FINGERPRINTED, on a long workload");
        table_put_text(&table, longer);
        table_lay_out(&table, layouts);
        assert_int_equal(table_part_end(&table, layouts, table.repeated), 4);
        table_wrap_part(&table, layouts, table.repeated, 4);
        double width = 0;
        for (int i = 0; i < 4; i++)
            width += layouts[i].width;
        assert_true(width < 453);
        assert_true(layouts[0].width >= TABLE_COLUMN_SPACE + table_text_width("MISSING"));
        assert_true(layouts[2].width >= TABLE_COLUMN_SPACE + table_text_width("FINGERPRINTED"));
        table_free(&table);
        free(longer);
    }
}

/* What decimals a column of these numbers has. */
static int decimals(int count, const double *values)
{
    struct table table;
    table_init(&table, "any");
    table_add_column(&table, COLUMN_NUMBER, "n", "n");
    for (int i = 0; i < count; i++) {
        table_add_row(&table, NULL);
        table_put_number(&table, values[i]);
    }
    int found = table_decimals(&table, 0);
    table_free(&table);
    return found;
}

static void test_decimals_show_small_numbers_beside_large_ones(void **state)
{
    (void)state;
    assert_int_equal(decimals(2, (double[]){1.7, 2.3}), 2);
    assert_int_equal(decimals(2, (double[]){1234, 5678}), 0);
    assert_int_equal(decimals(2, (double[]){.5, 5000}), 2); /* over four decades, 0.5 does not become 1 */
    assert_int_equal(decimals(2, (double[]){.0123, 2}), 3);
}

/* What decimals a column has that holds this interval beside one of 1.2 to 1.4. */
static int interval_decimals(int format, double low, double high)
{
    struct table table;
    table_init(&table, "any");
    table_add_alike(&table, COLUMN_LIMITS, "n", "n", format);
    table_add_row(&table, NULL);
    table_put_limits(&table, 1.2, 1.4);
    table_add_row(&table, NULL);
    table_put_limits(&table, low, high);
    const int found = table_decimals(&table, 0);
    table_free(&table);
    return found;
}

static void test_a_ratio_that_excludes_1_does_not_print_as_1(void **state)
{
    (void)state;
    assert_int_equal(interval_decimals(TABLE_RATIOS, 1.006, 1.1), 2);
    assert_int_equal(interval_decimals(TABLE_RATIOS, 1.004, 1.1), 3);
    assert_int_equal(interval_decimals(TABLE_RATIOS, .9, .996), 3);
    assert_int_equal(interval_decimals(TABLE_RATIOS, .996, 1.1), 2);   /* 1 is in it */
    assert_int_equal(interval_decimals(TABLE_RATIOS, 1.0001, 1.1), 3); /* and no more, for all others' sake */
    assert_int_equal(interval_decimals(1, 1.004, 1.1), 2);             /* of milliseconds 1 is nothing */
}

static void test_two_runs_are_compared_by_ratios_and_times_are_not_judged(void **state)
{
    (void)state;
    const struct versus_cell cells[2] = {
        {.arm = 5,
         .baseline = 0,
         .workload = 0,
         .before = {true, 1.9, 1.8, 2, 6, "blocks"},
         .after = {true, 2.1, 2, 2.2, 6, "blocks"},
         .change = {true, 1.11, 1.05, 1.16, 12, "unpaired blocks"},
         .tokens_before = {true, 100, 99, 101, 6, "blocks"},
         .tokens_after = {true, 140, 139, 141, 6, "blocks"},
         .simultaneous = {1.02, 1.2},
         .verdict = "faster"},
        {.arm = 5, .baseline = 1, .workload = 0, .simultaneous = {NAN, NAN}, .missing = {"MIN_BLOCKS", NULL}},
    };
    free(summary.versus.cells);
    summary.versus = (struct versus){true, "old", "new", xcalloc(2, sizeof *cells), 2};
    memcpy(summary.versus.cells, cells, sizeof cells);
    char *table = latex(tables_fill_versus), *first = row(table, "b16 over auto &"),
         *lost = row(table, "b16 over linear &");
    char *times = latex(tables_fill_versus_times);
    assert_non_null(
        strstr(first, "code & 1.90 & [1.80, 2.00] & 2.10 & [2.00, 2.20] & 1.11 & [1.05, 1.16] & [1.02, 1.20]"));
    assert_non_null(strstr(first, "& faster"));
    assert_non_null(strstr(lost, "---\\,{\\scriptsize MIN\\_BLOCKS}"));
    assert_non_null(strstr(times, "b16 & 100.0 & \\phantom{0}[99.0, 101.0] & 140.0 & [139.0, 141.0]"));
    assert_null(strstr(times, "faster"));
    free(times);
    free(lost);
    free(first);
    free(table);
}

static void test_markdown(void **state)
{
    (void)state;
    char *table = example_put(tables_put_markdown, &summary), *last = row(table, "| b64 |");
    assert_int_equal(strncmp(table, "| comparison | workload | speedup, pointwise | simultaneous |", 61), 0);
    assert_non_null(strstr(table, "\n|  | code | maths | prose | all workloads |\n|:--|"));
    assert_non_null(strstr(table, summary.runs[0].ledger_head));
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
        cmocka_unit_test_setup_teardown(test_provenance_has_every_leaf_and_short_hashes, begin, end),
        cmocka_unit_test_setup_teardown(test_provenance_says_how_gpus_were_set, begin, end),
        cmocka_unit_test_setup_teardown(test_workloads_say_their_context, begin, end),
        cmocka_unit_test_setup_teardown(test_csv_has_the_numbers_that_are_printed, begin, end),
        cmocka_unit_test(test_csv_has_nothing_where_a_number_is_missing),
        cmocka_unit_test_setup_teardown(test_csv_says_the_unit_of_its_numbers, begin, end),
        cmocka_unit_test_setup_teardown(test_csv_quotes_what_would_split, begin, end),
        cmocka_unit_test_setup_teardown(test_a_wide_table_is_set_in_parts_that_repeat_the_arms, begin, end),
        cmocka_unit_test_setup_teardown(test_no_row_of_a_long_table_stands_alone, begin, end),
        cmocka_unit_test(test_wrapped_columns_stay_within_the_line),
        cmocka_unit_test_setup_teardown(test_decimals_show_small_numbers_beside_large_ones, begin, end),
        cmocka_unit_test(test_a_ratio_that_excludes_1_does_not_print_as_1),
        cmocka_unit_test_setup_teardown(test_two_runs_are_compared_by_ratios_and_times_are_not_judged, begin, end),
        cmocka_unit_test_setup_teardown(test_markdown, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
