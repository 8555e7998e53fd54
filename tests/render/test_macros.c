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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_spelled_in_letters),
        cmocka_unit_test(test_every_macro_has_a_name_of_its_own),
        cmocka_unit_test(test_extensions_stand_beside_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
