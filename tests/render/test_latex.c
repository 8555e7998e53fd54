#include "render/latex.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdlib.h>

static void check(const char *text, const char *expected)
{
    char *escaped = latex_escape(text);
    assert_string_equal(escaped, expected);
    free(escaped);
}

static void test_special_characters_are_escaped(void **state)
{
    (void)state;
    check("\\ { } $ & # _ %", "\\textbackslash{} \\{ \\} \\$ \\& \\# \\_ \\%");
    check("^ ~ < > | \" `", "\\textasciicircum{} \\textasciitilde{} \\textless{} \\textgreater{} \\textbar{} "
                            "\\textquotedbl{} \\textasciigrave{}");
    check("[2em]*", "{[}2em]{*}");
    check("\\input{/etc/passwd}", "\\textbackslash{}input\\{/etc/passwd\\}");
}

static void test_ligatures_do_not_change_the_letters(void **state)
{
    (void)state;
    check("--only ,, ''", "-{}-only ,{}, '{}'");
}

static void test_letters_that_fonts_have_stay(void **state)
{
    (void)state;
    check("plain text 0-9.", "plain text 0-9.");
    check("Grüße, façade, Łódź", "Grüße, façade, Łódź");
    check("τ ≤ 2 × σ", "$\\tau$ $\\le$ 2 \\texttimes{} $\\sigma$");
}

static void test_other_letters_are_named(void **state)
{
    (void)state;
    check("日本", "U+65E5U+672C");
    check("😀", "U+1F600");
    check("\a\x7F", "U+0007U+007F");
    check("a\tb\nc", "a b c");
    check("ħ", "U+0127");
    check("\xFF", "U+FFFD");
}

static void test_missing_is_a_dash(void **state)
{
    (void)state;
    check(NULL, "---");
    check("", "");
}

static char *bytes;
static size_t size;

static FILE *begin(void)
{
    return open_memstream(&bytes, &size);
}

static void check_end(FILE *out, const char *expected)
{
    fclose(out);
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void test_numbers(void **state)
{
    (void)state;
    FILE *out = begin();
    latex_put_range(out, .98, 10.214, 2, 2);
    check_end(out, "\\phantom{0}[0.98, 10.21]");
    out = begin();
    latex_put_range(out, -.625, .738, 2, 1);
    check_end(out, "[$-$0.62, 0.74]");
    out = begin();
    latex_put_range(out, 9943, 10024, 0, 5);
    check_end(out, "\\phantom{0\\,}[9943, 10\\,024]");
    out = begin();
    latex_put_range(out, 12345, 12345678, 0, 8);
    check_end(out, "\\phantom{00\\,0}[12\\,345, 12\\,345\\,678]");
    out = begin();
    latex_put_number(out, -123456.75, 1);
    latex_put_number(out, 9999.6, 0); /* which is printed with five digits */
    check_end(out, "$-$123\\,456.810\\,000");
    out = begin();
    latex_put_p(out, .0004);
    latex_put_p(out, .03125);
    latex_put_p(out, NAN);
    check_end(out, "$<$\\,0.0010.031---");
    assert_int_equal(latex_decimals(9.99), 3);
    assert_int_equal(latex_decimals(10), 2);
    assert_int_equal(latex_decimals(123456), 0);
    assert_int_equal(latex_digits(9.996, 2), 2); /* which is printed as 10.00 */
}

static void test_missing_names_its_rule(void **state)
{
    (void)state;
    FILE *out = begin();
    latex_put_missing(out, &(struct missing){.rule = "OUTPUT_SHORT"});
    check_end(out, "---\\,{\\scriptsize OUTPUT\\_SHORT}");
    out = begin();
    latex_put_missing(out, &(struct missing){0});
    check_end(out, "---");
}

static void test_names_break_but_numbers_do_not(void **state)
{
    (void)state;
    FILE *out = begin();
    latex_put_breakable(out, "code.jsonl: 4.288");
    check_end(out, "code.\\allowbreak{}jsonl:\\allowbreak{} 4.288");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_characters_are_escaped),
        cmocka_unit_test(test_ligatures_do_not_change_the_letters),
        cmocka_unit_test(test_letters_that_fonts_have_stay),
        cmocka_unit_test(test_other_letters_are_named),
        cmocka_unit_test(test_missing_is_a_dash),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_missing_names_its_rule),
        cmocka_unit_test(test_names_break_but_numbers_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
