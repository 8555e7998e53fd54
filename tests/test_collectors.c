/* The program `collect` while it measures: interrupted, beside another collector, and when its model goes away. */
#include "tests/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Starts a campaign in the background, waits until `what` is in a file of its run, does `then`, and ends as it does. */
static int begin_and(const char *plan, const char *what, const char *where, const char *then, char **said)
{
    char command[2048];
    snprintf(command, sizeof command,
             "$bin/collect run --plan \"%s\" --runs \"$out/runs\" & pid=$!; "
             "until grep -qs '%s' \"$out\"/runs/tiny/%s; do kill -0 $pid || exit 9; sleep 0.02; done; %s; wait $pid",
             plan, what, where, then);
    return programs_shell(command, said);
}

/* Every attempt has its end, and nothing in the record contradicts another. */
static void check_record(void)
{
    programs_must(
        "for file in \"$out\"/runs/tiny/attempts/*/*.jsonl; do tail -n 1 \"$file\" | grep -q '\"type\":\"end\"' "
        "|| exit 1; done");
    programs_must("$bin/collect status --runs \"$out/runs\" --verify tiny");
    programs_must("$bin/analyze \"$out/runs/tiny\" --out \"$out/summary.json\"");
}

static void check_goes_on(const char *plan)
{
    char command[1024];
    snprintf(command, sizeof command, "$bin/collect run --plan \"%s\" --runs \"$out/runs\"", plan);
    programs_must(command);
    check_record();
    programs_must("! $bin/collect status --runs \"$out/runs\" --json tiny | grep -E '^ *\"(missing|invalid)\",?$'");
}

static void an_interrupted_one_ends_its_lines(void **state)
{
    (void)state;
    char *said;
    const int status = begin_and("data/plans/tiny.json", "sample", "attempts/*/*.jsonl", "kill -INT $pid", &said);
    programs_check(status == 130, status, said);
    assert_non_null(strstr(said, "tiny: interrupted; the same command goes on from here"));
    free(said);
    check_record();
    programs_must("! grep -q '\"status\":\"failed\"' \"$out/runs/tiny/ledger.jsonl\"");
    check_goes_on("data/plans/tiny.json");
}

static void a_second_one_is_refused(void **state)
{
    (void)state;
    char *said, host[256];
    const int status =
        begin_and("data/plans/tiny.json", "sample", "attempts/*/*.jsonl",
                  "$bin/collect run --plan data/plans/tiny.json --runs \"$out/runs\" >\"$out/second\" 2>&1; "
                  "echo \"second: $?, first: $pid.\" >>\"$out/second\"; "
                  "$bin/collect purge --yes --runs \"$out/runs\" tiny >\"$out/third\" 2>&1 && exit 8; "
                  "kill -INT $pid",
                  &said);
    programs_check(status == 130, status, said);
    free(said);
    assert_int_equal(gethostname(host, sizeof host), 0);
    programs_expect(0, "cat \"$out/second\"", &said);
    long pid = strtol(strstr(said, "first: ") + strlen("first: "), NULL, 10);
    char expected[512];
    snprintf(expected, sizeof expected, "runs/tiny/lock: held by process %ld on %s (boot ", pid, host);
    if (!strstr(said, expected) || !strstr(said, "second: 1,"))
        fail_msg("%s", said);
    free(said);
    programs_must("grep -q 'held by process' \"$out/third\"");
    check_record();
    check_goes_on("data/plans/tiny.json");
}

/* Gone after the first attempt: whether the campaign can go on without it or not, nothing is lost by it. */
static void a_model_that_vanishes_costs_nothing(void **state)
{
    (void)state;
    char *said;
    programs_must("mkdir \"$out/model\"; cp -r data/models/demo/target data/models/demo/drafter \"$out/model\"; "
                  "sed \"s|data/models/demo|$out/model|g\" data/plans/tiny.json >\"$out/plan.json\"");
    char *plan = "$out/plan.json";
    int status = begin_and(plan, "\"action\":\"end\"", "ledger.jsonl", "mv \"$out/model\" \"$out/gone\"", &said);
    programs_check(status == 0 || (status == 1 && strstr(said, "model/") && strstr(said, "cannot")), status, said);
    free(said);
    check_record();
    programs_expect(1, "$bin/collect run --plan \"$out/plan.json\" --runs \"$out/runs\"", &said);
    assert_non_null(strstr(said, "model/target/config.json: cannot open"));
    free(said);
    programs_must("mv \"$out/gone\" \"$out/model\"");
    check_goes_on(plan);
}

/* As a reboot leaves it: the memory disk is empty, and the plan asks for more. */
static void a_staged_model_comes_back(void **state)
{
    (void)state;
    char *said;
    programs_must(
        "sed -e \"s|\\\"target\\\": .*|\\\"target\\\": \\\"$out/m\\\",|\" -e 's|\"blocks\": 3|\"blocks\": 1|' "
        "-e \"s|^{|{\\\"stage\\\": [{\\\"original\\\": \\\"data/models/demo/target\\\", \\\"folder\\\": "
        "\\\"$out/m\\\"}],|\" data/plans/tiny.json >\"$out/plan.json\"");
    programs_must("$bin/collect run --plan \"$out/plan.json\" --runs \"$out/runs\" 2>\"$out/first\"");
    programs_must("grep -q 'copying model.safetensors, 18.9 MB, from data/models/demo/target' \"$out/first\"");
    programs_must("rm -r \"$out/m\"; sed -i 's|\"blocks\": 1|\"blocks\": 2|' \"$out/plan.json\"");
    programs_expect(0, "$bin/collect run --plan \"$out/plan.json\" --runs \"$out/runs\"", &said);
    assert_non_null(strstr(said, "copying model.safetensors"));
    assert_null(strstr(said, "begin anew")); /* it is the same model */
    free(said);
    check_record();
    programs_must("test $(grep -c '\"action\":\"stage\"' \"$out/runs/tiny/ledger.jsonl\") = 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_interrupted_one_ends_its_lines, programs_set_up, programs_tear_down),
        cmocka_unit_test_setup_teardown(a_second_one_is_refused, programs_set_up, programs_tear_down),
        cmocka_unit_test_setup_teardown(a_staged_model_comes_back, programs_set_up, programs_tear_down),
        cmocka_unit_test_setup_teardown(a_model_that_vanishes_costs_nothing, programs_set_up, programs_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
