#include "render/figures.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"
#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

static char *folder;
static struct fonts *fonts;

static char *write_figures(const struct summary *summary, const char *name)
{
    struct error error = {0};
    char *inner = file_join(folder, name);
    assert_int_equal(file_make_folder(inner, &error), 0);
    if (figures_write(summary, fonts, inner, &error))
        fail_msg("%s", error.message);
    return inner;
}

static char *figure_path(const char *inner, int figure, const char *ending)
{
    return xformat("%s/%s.%s", inner, figures_table[figure].name, ending);
}

static void test_every_figure_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *first = write_figures(&summary, "first"), *second = write_figures(&summary, "second");
    assert_int_equal(figures_count, 4);
    for (int i = 0; i < figures_count; i++)
        for (int j = 0; j < 2; j++) {
            struct error error = {0};
            char one[FILE_HASH_SIZE], other[FILE_HASH_SIZE];
            char *path = figure_path(first, i, j ? "png" : "pdf"), *again = figure_path(second, i, j ? "png" : "pdf");
            assert_int_equal(file_hash(path, one, &error), 0);
            assert_int_equal(file_hash(again, other, &error), 0);
            assert_string_equal(one, other);
            free(path);
            free(again);
        }
    free(first);
    free(second);
    summary_free(&summary);
}

static void test_figures_say_what_is_missing_and_carry_the_date_of_the_summary(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *inner = write_figures(&summary, "text");
    for (int i = 0; i < figures_count; i++) {
        char *path = figure_path(inner, i, "pdf");
        char *text = example_run("pdftotext '%s' -", path), *facts = example_run("TZ=UTC pdfinfo -isodates '%s'", path);
        assert_non_null(strstr(text, "prose"));
        if (strcmp(figures_table[i].name, "budget") != 0)
            assert_non_null(strstr(text, "INCOMPLETE"));
        assert_non_null(strstr(facts, "2026-11-29T18:02:44"));
        char *fonts_used = example_run("pdffonts '%s'", path);
        assert_non_null(strstr(fonts_used, "LMRoman10-Regular"));
        assert_null(strstr(fonts_used, "Type 3"));
        free(fonts_used);
        free(text);
        free(facts);
        free(path);
    }
    free(inner);
    summary_free(&summary);
}

static void test_a_figure_without_data_is_not_left_behind(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *inner = write_figures(&summary, "stale");
    char *budget = figure_path(inner, 1, "pdf");
    assert_string_equal(figures_table[1].name, "budget");
    assert_true(file_exists(budget));
    for (int i = 0; i < summary.arm_count; i++)
        summary.arms[i].method = "auto";
    free(write_figures(&summary, "stale"));
    assert_false(file_exists(budget));
    free(budget);
    free(inner);
    summary_free(&summary);
}

static int begin(void **state)
{
    (void)state;
    struct error error = {0};
    folder = fixture_make_folder();
    fonts = fonts_open(&error);
    return fonts ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    fonts_close(fonts);
    fixture_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_figure_twice_gives_the_same_bytes),
        cmocka_unit_test(test_figures_say_what_is_missing_and_carry_the_date_of_the_summary),
        cmocka_unit_test(test_a_figure_without_data_is_not_left_behind),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
