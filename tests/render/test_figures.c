#include "render/figures.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"
#include "tests/render/example.h"
#include "tests/render/large.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <cairo.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static char *folder;
static struct fonts *fonts;
static struct style style;

static char *write_figures(const struct summary *summary, double width_in, const char *name)
{
    struct error error = {0};
    char *inner = file_join(folder, name);
    assert_int_equal(file_make_folder(inner, &error), 0);
    if (figures_write(summary, &style, fonts, width_in, inner, &error))
        fail_msg("%s", error.message);
    return inner;
}

static char *figure_path(const char *inner, const char *name, const char *ending)
{
    return xformat("%s/%s.%s", inner, name, ending);
}

static bool exists(const char *inner, const char *name)
{
    char *path = figure_path(inner, name, "pdf");
    bool found = file_exists(path);
    free(path);
    return found;
}

static void check_same(const char *first, const char *second, const char *name, const char *ending)
{
    struct error error = {0};
    char one[FILE_HASH_SIZE], other[FILE_HASH_SIZE];
    char *path = figure_path(first, name, ending), *again = figure_path(second, name, ending);
    assert_int_equal(file_hash(path, one, &error), 0);
    assert_int_equal(file_hash(again, other, &error), 0);
    assert_string_equal(one, other);
    free(path);
    free(again);
}

static void read_large(struct summary *summary, int arms, int workloads)
{
    struct error error = {0};
    char *path = file_join(folder, "large.json");
    large_write(path, arms, workloads);
    if (summary_read(path, summary, &error))
        fail_msg("%s", error.message);
    free(path);
}

static void test_every_figure_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    struct summary summary;
    read_large(&summary, 12, 2);
    char *first = write_figures(&summary, style.report_width_in, "first"),
         *second = write_figures(&summary, style.report_width_in, "second");
    for (int i = 0; i < figures_count; i++) {
        check_same(first, second, figures_table[i]->name, "pdf");
        check_same(first, second, figures_table[i]->name, "png");
    }
    free(first);
    free(second);
    summary_free(&summary);
}

static void test_figures_say_what_is_missing_and_carry_the_date_of_the_summary(void **state)
{
    (void)state;
    static const char *const names[] = {"speedup", "acceptance", "stages"};
    struct summary summary;
    example_read(&summary);
    char *inner = write_figures(&summary, style.report_width_in, "text");
    for (int i = 0; i < 3; i++) {
        char *path = figure_path(inner, names[i], "pdf");
        char *text = example_run("pdftotext '%s' -", path), *facts = example_run("TZ=UTC pdfinfo -isodates '%s'", path);
        assert_non_null(strstr(text, "prose"));
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

static void test_a_workload_without_data_has_no_panel(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    for (int i = 0; i < summary.comparison_count; i++) {
        struct comparison *comparison = &summary.comparisons[i];
        if (comparison->workload < 0 || strcmp(summary.workloads[comparison->workload].name, "prose") != 0)
            continue;
        comparison->speedup.present = comparison->speedup_unpaired.present = false;
        comparison->missing.rule = NULL;
    }
    char *inner = write_figures(&summary, style.report_width_in, "text"), *path = figure_path(inner, "speedup", "pdf");
    char *text = example_run("pdftotext '%s' -", path);
    assert_non_null(strstr(text, "code"));
    assert_null(strstr(text, "prose"));
    free(text);
    free(path);
    free(inner);
    summary_free(&summary);
}

static void test_a_figure_without_data_is_not_drawn_nor_left_behind(void **state)
{
    (void)state;
    struct summary summary;
    read_large(&summary, 24, 6);
    char *inner = write_figures(&summary, style.report_width_in, "stale");
    for (int i = 0; i < figures_count; i++)
        assert_true(exists(inner, figures_table[i]->name));
    assert_true(exists(inner, "speedup-2"));
    summary_free(&summary);
    example_read(&summary); /* without ranks, readings, residuals or other concurrency */
    free(write_figures(&summary, style.report_width_in, "stale"));
    static const char *const gone[] = {"scaling", "devices", "residuals", "throughput", "speedup-2", "budget-2"};
    for (int i = 0; i < 6; i++)
        assert_false(exists(inner, gone[i]));
    assert_true(exists(inner, "budget"));
    for (int i = 0, trees = 0; i < summary.arm_count; i++)
        if (summary.arms[i].budget > 0 && ++trees > 2)
            summary.arms[i].method = "auto"; /* two points make no curve */
    free(write_figures(&summary, style.report_width_in, "stale"));
    assert_false(exists(inner, "budget"));
    free(inner);
    summary_free(&summary);
}

/* --- nothing overlaps, as poppler sees it ------------------------------------------------------------------------- */

struct word {
    double left, top, right, bottom;
    char text[64];
};

/* Boxes of the words, their heights cut down to about that of the letters. */
static int read_words(const char *listing, struct word *words, int capacity)
{
    int count = 0;
    for (const char *at = listing; (at = strstr(at, "<word ")) && count < capacity; at++) {
        struct word *word = &words[count++];
        assert_int_equal(sscanf(at, "<word xMin=\"%lf\" yMin=\"%lf\" xMax=\"%lf\" yMax=\"%lf\">%63[^<]", &word->left,
                                &word->top, &word->right, &word->bottom, word->text),
                         5);
        double height = word->bottom - word->top;
        word->top += .25 * height;
        word->bottom -= .25 * height;
    }
    return count;
}

static bool overlap(const struct word *one, const struct word *other)
{
    return one->left + .3 < other->right && other->left + .3 < one->right && one->top + .3 < other->bottom &&
           other->top + .3 < one->bottom;
}

static void check_words(const char *path)
{
    static struct word words[4000];
    char *listing = example_run("pdftotext -bbox '%s' -", path);
    double width, height;
    assert_int_equal(sscanf(strstr(listing, "<page "), "<page width=\"%lf\" height=\"%lf\"", &width, &height), 2);
    int count = read_words(listing, words, 4000);
    for (int i = 0; i < count; i++) {
        const struct word *word = &words[i];
        if (word->left < -.5 || word->right > width + .5 || word->top < 0 || word->bottom > height)
            fail_msg("%s: \"%s\" at %.1f, %.1f leaves the page", path, word->text, word->left, word->top);
        for (int j = 0; j < i; j++)
            if (overlap(word, &words[j]))
                fail_msg("%s: \"%s\" and \"%s\" overlap at %.1f, %.1f", path, word->text, words[j].text, word->left,
                         word->top);
    }
    free(listing);
}

static void check_figures(const struct summary *summary, double width_in)
{
    char *inner = write_figures(summary, width_in, "boxes");
    for (int i = 0; i < figures_count; i++)
        for (int file = 1; file < 100; file++) {
            char *name = file == 1 ? xstrdup(figures_table[i]->name) : xformat("%s-%d", figures_table[i]->name, file);
            char *path = figure_path(inner, name, "pdf");
            bool found = file_exists(path);
            if (found)
                check_words(path);
            free(path);
            free(name);
            if (!found)
                break;
        }
    free(inner);
}

/* Where the middle of the first word with this text stands, from the left. */
static double find_middle(const struct word *words, int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i].text, text) == 0)
            return (words[i].left + words[i].right) / 2;
    fail_msg("\"%s\" is not in the figure", text);
    return 0;
}

static void test_budgets_stand_at_their_logarithms(void **state)
{
    (void)state;
    static struct word words[1000];
    struct summary summary;
    example_read(&summary);
    char *inner = write_figures(&summary, style.report_width_in, "places"), *path = figure_path(inner, "budget", "pdf");
    char *listing = example_run("pdftotext -bbox '%s' -", path);
    const char *below = strstr(listing, ">16</word>"); /* the first axis of budgets, where y's have no such label */
    assert_non_null(below);
    while (below > listing && strncmp(below, ">8</word>", 9) != 0)
        below--;
    while (below > listing && strncmp(below, "<word ", 6) != 0)
        below--;
    int count = read_words(below, words, 1000);
    double eight = find_middle(words, count, "8"), sixteen = find_middle(words, count, "16"),
           thirty_two = find_middle(words, count, "32"), sixty_four = find_middle(words, count, "64");
    assert_float_equal(sixteen - eight, thirty_two - sixteen, .1);
    assert_float_equal(thirty_two - sixteen, sixty_four - thirty_two, .1);
    assert_true(sixteen > eight + 5);
    free(listing);
    free(path);
    free(inner);
    summary_free(&summary);
}

/* Stretches of white in a line of the picture, between two places in points. */
static int count_gaps(const char *path, double page_width, double left, double right, double y)
{
    cairo_surface_t *picture = cairo_image_surface_create_from_png(path);
    const double scale = cairo_image_surface_get_width(picture) / page_width;
    const unsigned char *line =
        cairo_image_surface_get_data(picture) + (int)(y * scale) * cairo_image_surface_get_stride(picture);
    int gaps = 0;
    bool was_white = true;
    for (int x = (int)(left * scale); x < (int)(right * scale); x++) {
        uint32_t pixel;
        memcpy(&pixel, line + 4 * x, sizeof pixel);
        const bool white = (pixel & 0xFFFFFF) == 0xFFFFFF;
        gaps += white && !was_white;
        was_white = white;
    }
    cairo_surface_destroy(picture);
    return gaps;
}

/* Seven arms on a narrow sheet, none significant and all suspect: what stands behind a value stays in its cell, and
 * trees are called by their names. */
static void test_narrow_cells_of_the_heat_map_stay_apart(void **state)
{
    (void)state;
    static struct word words[200];
    struct summary summary;
    double width, height;
    example_read(&summary);
    json_t *marks = json_pack("[s]", "REPETITION");
    for (int i = 0; i < summary.comparison_count; i++) {
        summary.comparisons[i].speedup = (struct interval){true, 1.05, 1, 1.1, 6, "blocks"};
        summary.comparisons[i].p = .5;
        summary.comparisons[i].p_bh = NAN;
        summary.comparisons[i].marks = marks;
    }
    char *inner = write_figures(&summary, 2.2, "narrow"), *path = figure_path(inner, "heat", "pdf");
    char *picture = figure_path(inner, "heat", "png"), *listing = example_run("pdftotext -bbox '%s' -", path);
    assert_int_equal(sscanf(strstr(listing, "<page "), "<page width=\"%lf\" height=\"%lf\"", &width, &height), 2);
    const int count = read_words(listing, words, 200);
    static const char *const trees[] = {"b8", "b12", "b15", "b16", "b32", "b64"};
    for (int i = 0; i < 6; i++)
        find_middle(words, count, trees[i]);
    const struct word *value = words;
    while (strcmp(value->text, "1.05*") != 0)
        assert_true(++value < words + count);
    assert_int_equal(count_gaps(picture, width, value->left, width - 1, (value->top + value->bottom) / 2), 7);
    free(listing);
    free(picture);
    free(path);
    free(inner);
    json_decref(marks);
    summary_free(&summary);
}

static void test_nothing_overlaps(void **state)
{
    (void)state;
    const struct {
        int arms, workloads;
        double width_in;
    } cases[] = {{2, 1, style.report_width_in},
                 {24, 12, style.report_width_in},
                 {24, 2, style.one_column_in},
                 {4, 12, style.two_columns_in}};
    for (int i = 0; i < 4; i++) {
        struct summary summary;
        read_large(&summary, cases[i].arms, cases[i].workloads);
        check_figures(&summary, cases[i].width_in);
        summary_free(&summary);
    }
}

static void test_figures_are_as_wide_as_the_paper_wants(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    char *inner = write_figures(&summary, 3.3, "narrow"), *path = figure_path(inner, "speedup", "pdf");
    char *facts = example_run("pdfinfo '%s'", path);
    assert_non_null(strstr(facts, "237.6 x "));
    free(facts);
    free(path);
    free(inner);
    summary_free(&summary);
}

static int begin(void **state)
{
    (void)state;
    struct error error = {0};
    folder = fixture_make_folder();
    if (!style_read("templates", &style, &error))
        fonts = fonts_open(style.font_files, &error);
    return fonts ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    fonts_close(fonts);
    style_free(&style);
    fixture_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_figure_twice_gives_the_same_bytes),
        cmocka_unit_test(test_figures_say_what_is_missing_and_carry_the_date_of_the_summary),
        cmocka_unit_test(test_a_workload_without_data_has_no_panel),
        cmocka_unit_test(test_a_figure_without_data_is_not_drawn_nor_left_behind),
        cmocka_unit_test(test_budgets_stand_at_their_logarithms),
        cmocka_unit_test(test_narrow_cells_of_the_heat_map_stay_apart),
        cmocka_unit_test(test_nothing_overlaps),
        cmocka_unit_test(test_figures_are_as_wide_as_the_paper_wants),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
