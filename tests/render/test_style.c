#include "render/style.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

static void write_style(const char *text)
{
    char *path = file_join(fixture_folder, "style.json");
    fixture_write(path, text, strlen(text));
    free(path);
}

static void test_the_templates_style_is_the_default(void **state)
{
    (void)state;
    struct error error = {0};
    struct style shipped, standard;
    assert_int_equal(style_read("templates", &shipped, &error), 0);
    assert_int_equal(style_read("tests/render", &standard, &error), 0); /* where there is none */
    assert_float_equal(shipped.size_pt, standard.size_pt, 0);
    assert_float_equal(shipped.report_width_in, standard.report_width_in, 0);
    assert_float_equal(shipped.one_column_in, standard.one_column_in, 0);
    assert_float_equal(shipped.two_columns_in, standard.two_columns_in, 0);
    assert_float_equal(shipped.height_in, standard.height_in, 0);
    for (int i = 0; i < FONT_COUNT; i++)
        assert_string_equal(shipped.font_files[i], standard.font_files[i]);
    style_free(&shipped);
    style_free(&standard);
}

static void test_what_is_given_counts_and_the_rest_stays(void **state)
{
    (void)state;
    struct error error = {0};
    struct style style;
    write_style("{\"schema\": \"cleanslate.style/1\", \"size_pt\": 10, \"text_font\": \"/fonts/mine.otf\"}");
    assert_int_equal(style_read(fixture_folder, &style, &error), 0);
    assert_float_equal(style.size_pt, 10, 0);
    assert_string_equal(style.font_files[FONT_TEXT], "/fonts/mine.otf");
    assert_float_equal(style.one_column_in, 3.3, 0);
    style_free(&style);
}

static void check_refused(const char *text, const char *expected)
{
    struct error error = {0};
    struct style style;
    write_style(text);
    assert_int_equal(style_read(fixture_folder, &style, &error), -1);
    if (!strstr(error.message, expected))
        fail_msg("\"%s\" does not hold \"%s\"", error.message, expected);
}

static void test_mistakes_are_named(void **state)
{
    (void)state;
    check_refused("{\"schema\": \"cleanslate.style/1\", \"size\": 10}", "\"size\"");
    check_refused("{\"schema\": \"cleanslate.style/2\"}", "\"cleanslate.style/2\" is not \"cleanslate.style/1\"");
    check_refused("{\"schema\": \"cleanslate.style/1\", \"size_pt\": 1}", "\"size_pt\" is 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_templates_style_is_the_default),
        cmocka_unit_test(test_what_is_given_counts_and_the_rest_stays),
        cmocka_unit_test(test_mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
