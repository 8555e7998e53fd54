/* What becomes of the three streams of the programs: output that cannot be written is told, and a stream that was
 * closed before the program began takes nothing from any file. */
#include "collect/base/file.h"
#include "tests/collect/run_folder.h"
#include "tests/programs.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The run "tiny", whose attempts are well but for two that were aborted. */
static int set_up(void **state)
{
    programs_set_up(state);
    free(run_folder_make(programs_folder));
    return 0;
}

/* Every call that prints to stdout; each ends with 0 where that can be written. */
static const char *const printing[] = {
    "$bin/collect --help",
    "$bin/collect run --help",
    "$bin/analyze --help",
    "$bin/render --help",
    "$bin/collect plan-name data/plans/demo.json",
    "$bin/collect status --runs $out tiny",
    "$bin/collect status --runs $out --json tiny",
    "$bin/collect status --runs $out --verify tiny",
    "$bin/collect import --runs $out --as tp1 tests/fuzz/corpus/import/llama-bench.json",
    "$bin/render tests/render/summary.json --out $out/report --parts --markdown",
    "$bin/collect invalidate --runs $out tiny tp1-b8/1-1 --reason noise",
    "$bin/collect reinstate --runs $out tiny tp1-b8/1-1",
    "$bin/collect purge --runs $out --yes tiny",
};

/* Half an output must not pass for a whole one. */
static void output_that_cannot_be_written_is_told(void **state)
{
    (void)state;
    static const char *const streams[] = {">/dev/full", ">&-"};
    for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
        if (s) {
            fixture_remove_folder(programs_folder);
            programs_folder = fixture_make_folder();
            free(run_folder_make(programs_folder));
        }
        for (size_t i = 0; i < sizeof printing / sizeof *printing; i++) {
            char *said, *command = xformat("%s %s", printing[i], streams[s]);
            programs_expect(1, command, &said);
            programs_check(strstr(said, "standard output: cannot be written") != NULL, 1, said);
            free(said);
            free(command);
        }
    }
}

/* Nor a file that is larger than files may be: as on a full disk, the program says which, and leaves nothing half. */
static void a_limit_on_files_is_told(void **state)
{
    (void)state;
    static const char *const calls[][2] = {
        {"$bin/collect run --plan data/plans/tiny.json --runs $out/runs", "runs/tiny/attempts/"},
        {"$bin/analyze $out/tiny --out $out/summary.json", "summary.json."},
        {"$bin/render tests/render/summary.json --out $out/report", "report/"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char *said, *command = xformat("ulimit -f 4; %s", calls[i][0]);
        programs_expect(1, command, &said);
        programs_check(strstr(said, calls[i][1]) && strstr(said, ": File too large"), 1, said);
        free(said);
        free(command);
    }
    programs_must("test ! -e $out/summary.json && test -z \"$(find $out -name '*.tmp')\"");
}

/* What a wrong call or a failure says, and its exit code, stay. */
static void what_failed_before_stays_what_it_was(void **state)
{
    (void)state;
    char *said;
    programs_expect(2, "$bin/collect status >/dev/full", &said);
    free(said);
    programs_expect(1, "$bin/collect status --runs $out absent >/dev/full", &said);
    assert_non_null(strstr(said, "no run is here"));
    assert_null(strstr(said, "standard output"));
    free(said);
    programs_must("$bin/analyze $out/tiny --out $out/summary.json >&-");
}

/* Whichever of them are closed: a file that the program opens would take the number, and what is said stand in it. */
static void closed_streams_put_nothing_into_files(void **state)
{
    (void)state;
    for (int closed = 0; closed < 8; closed++) {
        char *said, *command = xformat("$bin/collect invalidate --runs $out tiny tp1-b8/1-1 --reason noise %s %s %s;"
                                       "$bin/collect reinstate --runs $out tiny tp1-b8/1-1 %s %s %s;"
                                       "$bin/collect reinstate --runs $out tiny tp1-b8/1-1 %s %s %s; true",
                                       closed & 1 ? "<&-" : "", closed & 2 ? ">&-" : "", closed & 4 ? "2>&-" : "",
                                       closed & 1 ? "<&-" : "", closed & 2 ? ">&-" : "", closed & 4 ? "2>&-" : "",
                                       closed & 1 ? "<&-" : "", closed & 2 ? ">&-" : "", closed & 4 ? "2>&-" : "");
        programs_must(command);
        programs_must("test \"$(wc -l <$out/tiny/lock)\" = 1 && grep -q '^{\"boot_id\".*}$' $out/tiny/lock");
        char *lines = xformat("test \"$(grep -c '^{.*}$' $out/tiny/ledger.jsonl)\" = %d && "
                              "test \"$(wc -l <$out/tiny/ledger.jsonl)\" = %d && "
                              "$bin/collect status --runs $out --verify tiny",
                              10 + 2 * (closed + 1), 10 + 2 * (closed + 1));
        programs_expect(0, lines, &said);
        free(said);
        free(lines);
        free(command);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, programs_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(output_that_cannot_be_written_is_told),
        TEST(a_limit_on_files_is_told),
        TEST(what_failed_before_stays_what_it_was),
        TEST(closed_streams_put_nothing_into_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
