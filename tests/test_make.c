/* What `make report` and `make figures` hold for new enough. */
#include "collect/base/file.h"
#include "tests/collect/run_folder.h"
#include "tests/programs.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A name that no report has, and make as it is called for that run, without building anything. */
static char *name, *make;

static void make_run(const char *runs)
{
    char *folder = file_join(programs_folder, runs), *run = file_join(folder, name), *made;
    struct error error = {0};
    assert_int_equal(file_make_folder(folder, &error), 0);
    made = run_folder_make(folder);
    assert_int_equal(rename(made, run), 0);
    free(made);
    free(run);
    free(folder);
}

static int set_up(void **state)
{
    programs_set_up(state);
    name = xformat("test-make-%ld", (long)getpid());
    make =
        xformat("unset MAKEFLAGS MAKELEVEL MFLAGS; case $bin in */debug/bin) mode=debug at=out/debug;; *) mode=release "
                "at=out;; esac; make -s CUDA= MODE=$mode -o $at/bin/analyze -o $at/bin/collect -o $at/bin/render");
    make_run("a");
    make_run("b");
    return 0;
}

static int tear_down(void **state)
{
    char *remove = xformat("rm -rf out/reports/%s", name);
    programs_must(remove);
    free(remove);
    free(make);
    free(name);
    return programs_tear_down(state);
}

static void make_file(const char *file, const char *runs)
{
    char *command = xformat("%s NAME=%s RUNS=$out/%s out/reports/%s/%s", make, name, runs, name, file);
    programs_must(command);
    free(command);
}

static void expect_title(const char *title)
{
    char *command = xformat("grep -q '\"title\": *\"%s\"' out/reports/%s/summary.json", title, name);
    programs_must(command);
    free(command);
}

/* Runs of one name in two folders, both older than the report that was made of one of them. */
static void another_run_of_the_name_gets_its_own_summary(void **state)
{
    (void)state;
    programs_must("for i in a b; do sed -i \"s/\\\"title\\\": *\\\"[^\\\"]*/\\\"title\\\": \\\"run $i/\" "
                  "$out/$i/*/plan.json; touch -d 2020-01-01 $out/$i/*/*; done");
    make_file("summary.json", "a");
    expect_title("run a");
    make_file("summary.json", "b");
    expect_title("run b");
    make_file("summary.json", "a");
    expect_title("run a");
}

/* What names the run is asked for each time, and is as old as it was: so is then what was made of it. */
static void the_same_run_makes_nothing_old(void **state)
{
    (void)state;
    char *year = xformat("date -r out/reports/%s/run +%%Y", name), *said;
    char *age = xformat("touch -d 2021-01-01 out/reports/%s/run", name);
    make_file("run", "a");
    programs_must(age);
    make_file("run", "a");
    programs_expect(0, year, &said);
    assert_string_equal(said, "2021\n");
    free(said);
    make_file("run", "b");
    programs_expect(0, year, &said);
    assert_string_not_equal(said, "2021\n");
    free(said);
    free(age);
    free(year);
}

static void figures_of_no_run_are_refused_in_a_line(void **state)
{
    (void)state;
    char *said, *command = xformat("%s figures PLAN=data/plans/tiny.json RUNS=$out/absent", make);
    programs_expect(2, command, &said);
    assert_non_null(strstr(said, "/absent/tiny: holds no run as yet; `make report` measures it"));
    assert_null(strstr(said, "No rule"));
    free(said);
    free(command);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_run_of_the_name_gets_its_own_summary),
        TEST(the_same_run_makes_nothing_old),
        TEST(figures_of_no_run_are_refused_in_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
