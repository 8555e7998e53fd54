#include "render/fonts.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

static struct fonts *fonts;

static void check(const char *text, const char *expected)
{
    char *printable = fonts_printable(fonts, text);
    assert_string_equal(printable, expected);
    free(printable);
}

static void test_text_comes_from_the_text_font(void **state)
{
    (void)state;
    unsigned long glyph;
    for (uint32_t point = ' '; point < 0x7F; point++) {
        assert_int_equal(fonts_find(fonts, point, &glyph), FONT_TEXT);
        assert_true(glyph > 0);
    }
    check("speedup over auto, Größe — …", "speedup over auto, Größe — …");
}

static void test_symbols_come_from_the_mathematical_font(void **state)
{
    (void)state;
    unsigned long glyph;
    assert_int_equal(fonts_find(fonts, 0x3C4, &glyph), FONT_SYMBOLS);  /* tau */
    assert_int_equal(fonts_find(fonts, 0x2264, &glyph), FONT_SYMBOLS); /* less than or equal */
    check("τ ≤ 2", "τ ≤ 2");
}

static void test_letters_without_a_glyph_are_named(void **state)
{
    (void)state;
    unsigned long glyph;
    assert_int_equal(fonts_find(fonts, 0x65E5, &glyph), -1);
    assert_int_equal(fonts_find(fonts, 0x200B, &glyph), -1); /* a blank of no width */
    check("日本", "U+65E5U+672C");
    check("a😀b", "aU+1F600b");
    check("x\u200By\n", "xU+200ByU+000A");
    check("\xC3(", "U+FFFD(");
}

static void test_a_font_that_is_not_there_is_named(void **state)
{
    (void)state;
    const char *const files[FONT_COUNT] = {"lm/lmroman10-regular.otf", "/no/such/font.otf"};
    struct error error = {0};
    assert_null(fonts_open(files, &error));
    assert_non_null(strstr(error.message, "/no/such/font.otf: there is no such font"));
    assert_non_null(strstr(error.message, "install fonts-lmodern"));
}

static int open_fonts(void **state)
{
    (void)state;
    const char *const files[FONT_COUNT] = {"lm/lmroman10-regular.otf", "lm-math/latinmodern-math.otf"};
    struct error error = {0};
    fonts = fonts_open(files, &error);
    return fonts ? 0 : -1;
}

static int close_fonts(void **state)
{
    (void)state;
    fonts_close(fonts);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_comes_from_the_text_font),
        cmocka_unit_test(test_symbols_come_from_the_mathematical_font),
        cmocka_unit_test(test_letters_without_a_glyph_are_named),
        cmocka_unit_test(test_a_font_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, open_fonts, close_fonts);
}
