#include "render/abstract.h"
#include "render/macros.h"

#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *text, const char *expected)
{
    char *name = macros_spell(text);
    assert_string_equal(name, expected);
    free(name);
}

static void test_names_are_spelled_in_letters(void **state)
{
    (void)state;
    check("auto", "Auto");
    check("b16", "BSixteen");
    check("b64", "BSixtyFour");
    check("tp4-b1024-c8", "TpFourBOneThousandTwentyFourCEight");
    check("b100", "BOneHundred");
    check("long context", "LongContext");
    check("日本", "");
    check("0123456789", "ZeroOneTwoThreeFourFiveSixSevenEightNine");
}

/* Answers the end of the macro's name at `line`, which must be letters alone. */
static size_t name_length(const char *line)
{
    static const char begin[] = "\\newcommand{\\";
    assert_int_equal(strncmp(line, begin, sizeof begin - 1), 0);
    size_t length = sizeof begin - 1;
    while (isalpha((unsigned char)line[length]))
        length++;
    assert_int_equal(line[length], '}');
    return length;
}

static void check_names(const char *text)
{
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        size_t length = name_length(line);
        char *beginning = xformat("%.*s}", (int)length, line);
        const char *first = strstr(text, beginning);
        assert_ptr_equal(first, line); /* defined once */
        free(beginning);
    }
}

static void test_every_macro_has_a_name_of_its_own(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *text = example_put(macros_put, &summary);
    check_names(text);
    assert_non_null(strstr(text, "\\newcommand{\\SpeedupBSixteenOverAuto}{\\num{"));
    assert_non_null(strstr(text, "\\newcommand{\\SpeedupBSixteenOverLinearOnCodeLow}{\\num{"));
    assert_non_null(strstr(text, "\\newcommand{\\SpeedupBSixtyFourOverAutoOnProse}{---}"));
    free(text);
    summary.workloads[1].name = "co-de"; /* spelled like none */
    summary.workloads[0].name = "co de"; /* spelled like the other */
    summary.workloads[2].name = "日本";  /* no letters */
    text = example_put(macros_put, &summary);
    check_names(text);
    free(text);
    summary_free(&summary);
}

static void check_extended(const json_t *extended_from, const char *expected)
{
    struct summary summary;
    example_read(&summary);
    summary.extended_from = extended_from;
    char *text = example_put(macros_put, &summary);
    check_names(text);
    if (!strstr(text, expected))
        fail_msg("%s", text);
    free(text);
    summary_free(&summary);
}

static void test_extensions_stand_beside_n(void **state)
{
    (void)state;
    json_t *once = json_pack("[i]", 6), *twice = json_pack("[i, i]", 6, 12);
    check_extended(NULL, "\\newcommand{\\Extended}{}\n\\newcommand{\\IfExtended}[1]{}\n");
    check_extended(once, "\\newcommand{\\Extended}{, extended after $n$~=~6}\n\\newcommand{\\IfExtended}[1]{#1}\n");
    check_extended(twice, "\\newcommand{\\Extended}{, extended after $n$~=~6 and 12}\n");
    json_decref(once);
    json_decref(twice);
}

/* One verdict on a pair, a workload or a metric makes an attempt one of them. */
static void test_what_is_excluded_in_part_is_not_said_to_be_excluded(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *text = example_put(macros_put, &summary);
    assert_non_null(strstr(text, "\\newcommand{\\Excluded}{4 of 52 attempts excluded at least in part ("));
    assert_non_null(strstr(text, "{\\AttemptsInvalid{} are invalid at least in part}"));
    free(text);
    summary_free(&summary);
}

static double printed(const char *text, const char *ending)
{
    char *begin = xformat("\\newcommand{\\SpeedupBSixteenOverAuto%s}{\\num{", ending);
    const char *at = strstr(text, begin);
    assert_non_null(at);
    const double value = strtod(at + strlen(begin), NULL);
    free(begin);
    return value;
}

static struct comparison *find_headline(struct summary *summary)
{
    struct comparison *found = NULL;
    for (int i = 0; i < summary->comparison_count && !found; i++) {
        char *name = macros_comparison_name(summary, &summary->comparisons[i]);
        found = strcmp(name, "SpeedupBSixteenOverAuto") == 0 ? &summary->comparisons[i] : NULL;
        free(name);
    }
    assert_non_null(found);
    return found;
}

/* What excludes 1 excludes it in print, and no interval is without a width there; however narrow it is, and however
 * near to 1. */
static void test_limits_print_what_the_verdict_says(void **state)
{
    (void)state;
    static const double centres[] = {.0123, .5, .9, .999, .9996, 1.0004, 1.001, 1.004, 1.6, 12.5};
    static const double widths[] = {.0002, .002, .01, .05};
    for (size_t i = 0; i < sizeof centres / sizeof *centres; i++)
        for (size_t j = 0; j < sizeof widths / sizeof *widths; j++) {
            struct summary summary;
            example_read(&summary);
            struct comparison *comparison = find_headline(&summary);
            const double value = centres[i], low = value * (1 - widths[j]), high = value * (1 + widths[j]);
            comparison->speedup = (struct interval){.present = true, .value = value, .low = low, .high = high, .n = 6};
            comparison->simultaneous.low = low;
            comparison->simultaneous.high = high;
            char *text = example_put(macros_put, &summary);
            const double printed_low = printed(text, "SimultaneousLow"), printed_high = printed(text, "High");
            if (printed(text, "") <= 0 || (low > 1 && printed_low <= 1) || (high < 1 && printed_high >= 1) ||
                (widths[j] >= .002 && value > .1 && printed_low >= printed_high))
                fail_msg("%g [%g, %g] is printed as %g [%g, %g]", value, low, high, printed(text, ""), printed_low,
                         printed_high);
            free(text);
            summary_free(&summary);
        }
}

/* The text without the line that has the ledgers' heads. free() it. */
static char *put_without_heads(void (*put)(FILE *out, const struct summary *summary), const struct summary *summary)
{
    char *text = example_put(put, summary), *heads = strstr(text, "\\newcommand{\\LedgerHeads}");
    if (heads)
        memmove(heads, strchr(heads, '\n'), strlen(strchr(heads, '\n')) + 1);
    return text;
}

/* Its attempts, sessions, exclusions and times are not those of the run that is reported. */
static void test_a_run_before_changes_no_count(void **state)
{
    (void)state;
    void (*const puts[])(FILE * out, const struct summary *summary) = {macros_put, abstract_put};
    for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
        struct summary summary;
        example_read(&summary);
        const int64_t date = summary_date(&summary);
        char *alone = put_without_heads(puts[i], &summary);
        summary.runs = xrealloc(summary.runs, 2, sizeof *summary.runs);
        summary.runs[summary.run_count++] = (struct summary_run){.name = "before",
                                                                 .ledger_head = "abcdef",
                                                                 .first_started = "2039-01-01T00:00:00Z",
                                                                 .last_started = "2039-01-02T00:00:00Z",
                                                                 .ledger_lines = 7,
                                                                 .sessions = 3,
                                                                 .attempts = 99,
                                                                 .attempts_invalid = 50};
        char *beside = put_without_heads(puts[i], &summary), *whole = example_put(macros_put, &summary);
        assert_string_equal(alone, beside);
        assert_true(summary_date(&summary) == date);
        assert_non_null(strstr(whole, "of the run before \\num{7} lines, head \\texttt{abcdef}"));
        free(whole);
        free(alone);
        free(beside);
        summary_free(&summary);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_spelled_in_letters),
        cmocka_unit_test(test_every_macro_has_a_name_of_its_own),
        cmocka_unit_test(test_extensions_stand_beside_n),
        cmocka_unit_test(test_what_is_excluded_in_part_is_not_said_to_be_excluded),
        cmocka_unit_test(test_limits_print_what_the_verdict_says),
        cmocka_unit_test(test_a_run_before_changes_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
