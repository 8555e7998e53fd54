/* End to end: from the example to a PDF whose numbers are read back from its text. */
#include "render/report.h"

#include "collect/base/file.h"
#include "render/pdflatex.h"
#include "render/template.h"
#include "tests/record/fixture.h"
#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *make_report(const char *path, const char *name)
{
    struct error error = {0};
    struct summary summary;
    char *out = file_join(fixture_folder, name);
    if (summary_read(path, &summary, &error) || report_write(&summary, "templates", out, &error) ||
        report_typeset(&summary, out, &error))
        fail_msg("%s", error.message);
    summary_free(&summary);
    return out;
}

static void check_number(const char *text, double value, int decimals)
{
    char *number = xformat("%.*f", decimals, value);
    if (!strstr(text, number))
        fail_msg("%s is not in the report", number);
    free(number);
}

static void check_numbers(const char *text)
{
    struct summary summary;
    example_read(&summary);
    for (int i = 0; i < summary.comparison_count; i++) {
        const struct comparison *comparison = &summary.comparisons[i];
        if (!comparison->speedup.present)
            continue;
        check_number(text, comparison->speedup.value, 3);
        check_number(text, comparison->speedup.low, 3);
        check_number(text, comparison->speedup.high, 3);
    }
    for (int i = 0; i < summary.cell_count; i++)
        if (summary.cells[i].tokens_per_s.present) {
            check_number(text, summary.cells[i].tokens_per_s.value, 1);
            check_number(text, summary.cells[i].tau.value, 2);
        }
    assert_non_null(strstr(text, summary.runs[0].ledger_head));
    summary_free(&summary);
}

static void test_the_report_holds_the_numbers_of_the_summary(void **state)
{
    (void)state;
    char *out = make_report(EXAMPLE_PATH, "example");
    char *text = example_run("pdftotext -layout '%s/report.pdf' -", out);
    check_numbers(text);
    assert_non_null(strstr(text, "INCOMPLETE"));
    assert_non_null(strstr(text, "U+65E5U+672C"));
    char *pages = example_run("pdfinfo '%s/report.pdf' | sed -n 's/^Pages: *//p'", out);
    assert_in_range(atoi(pages), 4, 12);
    char *overfull = example_run("grep -c 'Overfull .hbox' '%s/report.log' || true", out);
    assert_int_equal(atoi(overfull), 0);
    free(overfull);
    free(pages);
    free(text);
    free(out);
}

static void test_the_same_summary_gives_the_same_report(void **state)
{
    (void)state;
    char *one = make_report(EXAMPLE_PATH, "one"), *other = make_report(EXAMPLE_PATH, "other");
    static const char *const names[] = {"report.pdf", "report.tex", "macros.tex", "tables/speedup.tex",
                                        "figures/speedup.pdf"};
    for (int i = 0; i < 5; i++) {
        struct error error = {0};
        char first[FILE_HASH_SIZE], second[FILE_HASH_SIZE];
        char *path = file_join(one, names[i]), *again = file_join(other, names[i]);
        assert_int_equal(file_hash(path, first, &error), 0);
        assert_int_equal(file_hash(again, second, &error), 0);
        assert_string_equal(first, second);
        free(path);
        free(again);
    }
    free(one);
    free(other);
}

static void test_hostile_names_are_typeset(void **state)
{
    (void)state;
    char *path = file_join(fixture_folder, "hostile.json");
    example_write_hostile(path);
    char *out = make_report(path, "hostile"), *text = example_run("pdftotext -layout '%s/report.pdf' -", out);
    assert_non_null(strstr(text, "50% of a_b & {c} \\ ~ ^ # $"));
    assert_non_null(strstr(text, "[2em]"));
    free(text);
    free(out);
    free(path);
}

/* Whatever has no data is not there, and nothing refers to it. */
static void test_no_text_refers_to_what_is_not_there(void **state)
{
    (void)state;
    char *out = make_report(EXAMPLE_PATH, "references");
    char *undefined = example_run("grep -c 'undefined' '%s/report.log' || true", out);
    char *text = example_run("pdftotext -layout '%s/report.pdf' -", out);
    assert_int_equal(atoi(undefined), 0);
    assert_null(strstr(text, "??"));
    assert_null(strstr(text, "Ranks\n"));
    assert_null(strstr(text, "Pareto"));
    char *joined = example_run("pdftotext '%s/report.pdf' - | tr -s '[:space:]' ' '", out);
    assert_non_null(strstr(joined, "attempts excluded at least in part (INCOMPLETE, WITHDRAWN)"));
    free(joined);
    free(text);
    free(undefined);
    free(out);
}

static void test_a_paper_in_two_columns_inputs_figures_and_tables(void **state)
{
    (void)state;
    static const char paper[] =
        "\\documentclass[twocolumn]{article}\n\\usepackage{booktabs,siunitx,array,textcomp,graphicx}\n"
        "\\usepackage[textwidth=6.9in,columnsep=.3in]{geometry}\n"
        "\\usepackage[T1]{fontenc}\n\\newcommand{\\parts}{.}\\input{\\parts/parts}\n\\begin{document}\n"
        "Twice as fast: \\SpeedupBSixteenOverAuto{}.\n"
        "\\begin{figure}\\includegraphics{\\parts/figures/one-column/"
        "speedup}\\caption{\\FigureCaption{speedup}}\\end{figure}\n"
        "\\begin{figure*}\\includegraphics{\\parts/figures/two-columns/"
        "budget}\\caption{\\FigureCaption{budget}}\\end{figure*}\n"
        "\\begin{table*}\\caption{\\TableCaption{speedup}}\\footnotesize\\input{\\parts/tables/speedup}\\end{table*}\n"
        "\\begin{table*}\\caption{\\TableCaption{family}}\\footnotesize\\input{\\parts/tables/family}\\end{table*}\n"
        "\\end{document}\n";
    struct error error = {0};
    struct summary summary;
    char *out = file_join(fixture_folder, "paper"), *path = file_join(out, "paper.tex");
    if (summary_read(EXAMPLE_PATH, &summary, &error) || report_write_parts(&summary, "templates", out, &error))
        fail_msg("%s", error.message);
    fixture_write(path, paper, sizeof paper - 1);
    if (pdflatex_run(out, "paper", 0, &error))
        fail_msg("%s", error.message);
    char *text = example_run("pdftotext -layout '%s/paper.pdf' -", out);
    check_number(text, summary_compare(&summary, 5, "auto", 0)->speedup.value, 3);
    assert_non_null(strstr(text, "INCOMPLETE"));
    char *overfull = example_run("grep -c 'Overfull .hbox' '%s/paper.log' || true", out);
    assert_int_equal(atoi(overfull), 0);
    free(overfull);
    free(text);
    free(path);
    free(out);
    summary_free(&summary);
}

/* Tables that end anywhere on a page, also in its last line, with a place to be left behind them: whatever page a row
 * stands on begins with the table's head. */
static void test_every_page_of_a_table_has_its_head(void **state)
{
    (void)state;
    struct error error = {0};
    char *out = make_report(EXAMPLE_PATH, "rows"), *path = file_join(out, "sections.tex");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int shift = 0; shift < 10; shift++) /* points: as many as a row has */
        for (int rows = 66; rows < 76; rows++) {
            fprintf(file, "\\noindent head above\\vspace*{%dpt}\n", shift);
            fprintf(file, "{\\footnotesize\\begin{generatedpart}{rows}{ll}{head & of %d \\\\}\n", rows);
            for (int row = 1; row <= rows; row++)
                fprintf(file, "row & %d \\\\\n", row);
            fprintf(file, "\\end{generatedpart}\\par}\\room{9}head behind it\\newpage\n");
        }
    assert_int_equal(fclose(file), 0);
    if (pdflatex_run(out, "report", 0, &error))
        fail_msg("%s", error.message);
    char *text = example_run("pdftotext -layout '%s/report.pdf' -", out);
    for (const char *page = strchr(text, '\f'); page && page[1]; page = strchr(page + 1, '\f')) {
        const char *first = page + 1 + strspn(page + 1, " \n");
        if (strncmp(first, "head", 4) != 0)
            fail_msg("a page begins with \"%.40s\"", first);
    }
    free(text);
    free(path);
    free(out);
}

/* Where a page begins with a row, its section is named beside it; and notes stay with the last row. */
static void test_pages_go_on_with_their_section_and_end_with_their_notes(void **state)
{
    (void)state;
    struct error error = {0};
    char *out = make_report(EXAMPLE_PATH, "notes"), *path = file_join(out, "sections.tex");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int rows = 60; rows < 80; rows++) {
        fprintf(file, "{\\footnotesize\\noteroom{2}\\begin{generatedpart}{rows}{ll}{head & of %d \\\\}\n", rows);
        for (int row = 1; row <= rows; row++)
            fprintf(file, "\\within{%s}row & %d \\\\\n", row == 1 ? "" : row < 40 ? "code" : "maths", row);
        fprintf(
            file,
            "\\end{generatedpart}\\begin{generatednotes}note one\\\\note two\\end{generatednotes}\\par}\\newpage\n");
    }
    assert_int_equal(fclose(file), 0);
    if (pdflatex_run(out, "report", 0, &error))
        fail_msg("%s", error.message);
    char *text = example_run("pdftotext -layout '%s/report.pdf' -", out);
    int broken = 0;
    for (const char *page = strchr(text, '\f'); page && page[1]; page = strchr(page + 1, '\f')) {
        const char *first = page + 1 + strspn(page + 1, " \n"), *second = strchr(first, '\n');
        assert_int_equal(strncmp(first, "head", 4), 0);
        second += strspn(second, " \n");
        if (strncmp(second, "row ", 4) == 0)
            assert_int_equal(atoi(second + 3 + strspn(second + 3, " ")), 1);
        else
            assert_int_equal(strncmp(second, "maths", 5), 0);
        broken += strncmp(second, "maths", 5) == 0;
    }
    assert_in_range(broken, 5, 15); /* some tables fill a page, and some go on */
    free(text);
    free(path);
    free(out);
}

static void write_document(const char *name, const char *body)
{
    char *path = xformat("%s/%s.tex", fixture_folder, name);
    char *text = xformat("\\documentclass{article}\n\\begin{document}\n%s\n\\end{document}\n", body);
    fixture_write(path, text, strlen(text));
    free(text);
    free(path);
}

static void check_failure(const char *name, const char *expected)
{
    struct error error = {0};
    assert_int_equal(pdflatex_run(fixture_folder, name, 0, &error), -1);
    if (!strstr(error.message, expected))
        fail_msg("\"%s\" does not hold \"%s\"", error.message, expected);
    assert_null(strchr(error.message, '\n'));
}

static void test_an_error_of_latex_is_told_in_one_line(void **state)
{
    (void)state;
    write_document("broken", "x\n\\nosuchcommand y");
    check_failure("broken", "broken.log: ! Undefined control sequence. l.4 \\nosuchcommand");
    write_document("asking", "\\read-1 to\\answer");
    check_failure("asking", "asking.log: ! ");
}

/* Programs called pdflatex that are not: none at all, and one that the alarm ends. */
static void test_without_pdflatex_the_text_stays(void **state)
{
    (void)state;
    char *path = xstrdup(getenv("PATH")), *programs = file_join(fixture_folder, "programs"),
         *fake = file_join(programs, "pdflatex");
    struct error error = {0};
    assert_int_equal(file_make_folder(programs, &error), 0);
    write_document("lonely", "x");
    setenv("PATH", programs, 1);
    check_failure("lonely", "pdflatex is not installed; run `make deps`");
    static const char script[] = "#!/bin/sh\nkill -ALRM $$\n";
    fixture_write(fake, script, sizeof script - 1);
    chmod(fake, 0755);
    check_failure("lonely", "ran longer than 120 s");
    setenv("PATH", path, 1);
    free(fake);
    free(programs);
    free(path);
}

static void test_a_folder_without_templates_is_named(void **state)
{
    (void)state;
    struct error error = {0}, none = {0};
    assert_int_equal(template_copy_all("tests/render", fixture_folder, &error), -1);
    assert_string_equal(error.message, "tests/render: has no report.tex; give the templates' folder with --templates");
    assert_int_equal(template_copy_all("no/such/folder", fixture_folder, &none), -1);
    assert_non_null(strstr(none.message, "no/such/folder: cannot read the templates"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_report_holds_the_numbers_of_the_summary),
        cmocka_unit_test(test_the_same_summary_gives_the_same_report),
        cmocka_unit_test(test_hostile_names_are_typeset),
        cmocka_unit_test(test_no_text_refers_to_what_is_not_there),
        cmocka_unit_test(test_a_paper_in_two_columns_inputs_figures_and_tables),
        cmocka_unit_test(test_pages_go_on_with_their_section_and_end_with_their_notes),
        cmocka_unit_test(test_every_page_of_a_table_has_its_head),
        cmocka_unit_test(test_an_error_of_latex_is_told_in_one_line),
        cmocka_unit_test(test_without_pdflatex_the_text_stays),
        cmocka_unit_test(test_a_folder_without_templates_is_named),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
