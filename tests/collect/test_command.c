#include "collect/command.h"

#include "collect/base/error.h"
#include "collect/base/file.h"
#include "tests/collect/call.h"
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

static void answers_wrong_calls_with_one_line(void **state)
{
    (void)state;
    static const struct {
        command_function *run;
        const char *arguments[5];
        int exit_code;
        const char *said;
    } cases[] = {
        {command_run, {NULL}, 2, "missing --plan; usage: collect run --plan FILE [options]\n"},
        {command_run,
         {"--plan", "data/plans/tiny.json", "--device", "gpu"},
         2,
         "--device is \"gpu\"; it must be auto, cpu or cuda\n"},
        {command_run,
         {"--plan", "data/plans/tiny.json", "--only", "tp1-auto,b16"},
         2,
         "--only: the plan has no arm \"b16\"; arms have names like tp1-b16\n"},
        {command_run,
         {"--plan", "data/plans/tiny.json", "--only", "tp1-b32"},
         2,
         "--only: the plan has no arm \"tp1-b32\"; arms have names like tp1-b16\n"},
        {command_run,
         {"--plan", "data/plans/tiny.json", "--only", ","},
         2,
         "--only names no arm; give some, or leave it out\n"},
        {command_run,
         {"--plan", "data/plans/none.json"},
         1,
         "data/plans/none.json: cannot open: No such file or directory\n"},
        {command_status, {NULL}, 2, "too few arguments; usage: collect status [--runs DIR] [--json] [--verify] NAME\n"},
        {command_status,
         {"--runs", "data/plans", "none"},
         1,
         "data/plans/none: no run is here (no plan.json); `collect run` makes one\n"},
        {command_plan_name,
         {"data/plans/none.json"},
         1,
         "data/plans/none.json: cannot open: No such file or directory\n"},
        {command_plan_name, {"data/plans/tiny.json"}, 0, "tiny\n"},
    };
    char *folder = fixture_make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said;
        assert_int_equal(call_command(folder, cases[i].run, cases[i].arguments, &said), cases[i].exit_code);
        assert_string_equal(said, cases[i].said);
        free(said);
    }
    fixture_remove_folder(folder);
}

static void add_attempt(const char *folder, const char *arm, int block, const char *status)
{
    struct error error = {0};
    char *attempts = xformat("%s/tiny/attempts/%s", folder, arm), *path = xformat("%s/%d-1.jsonl", attempts, block);
    assert_int_equal(file_make_folder(attempts, &error), 0);
    fixture_attempt(path, fixture_header(arm, block, 1), status);
    free(attempts);
    free(path);
}

/* Before anything of the plan is kept; of a run that has kept it already everything can still be said. */
static void takes_no_secret_into_a_run_folder(void **state)
{
    (void)state;
    static const char plan[] =
        "{\"schema\": \"cleanslate.plan/1\", \"name\": \"tiny\", \"methods\": [\"auto\"], \"blocks\": 2,"
        " \"source\": {\"kind\": \"server\", \"dialect\": \"vllm\", \"url\": \"http://127.0.0.1:0\","
        " \"launch\": {\"argv\": [\"vllm\", \"--api-key\", \"sk-1\"]}},"
        " \"workloads\": [{\"name\": \"code\", \"prompts\": \"p.jsonl\", \"max_new_tokens\": 8}]}";
    char *folder = fixture_make_folder(), *run = file_join(folder, "tiny"), *path = file_join(folder, "mine.json"),
         *said;
    fixture_write(path, plan, strlen(plan));
    const char *measure[] = {"--plan", path, "--runs", folder, NULL}, *check[] = {path, NULL};
    assert_int_equal(call_command(folder, command_run, measure, &said), 1);
    assert_non_null(strstr(said, "an argument is the value of \"--api-key\""));
    free(said);
    assert_int_equal(call_command(folder, command_plan_name, check, &said), 1);
    free(said);
    assert_int_equal(access(run, F_OK), -1);
    add_attempt(folder, "tp1-auto", 1, "complete");
    char *kept = file_join(run, "plan.json");
    fixture_write(kept, plan, strlen(plan));
    fixture_enter(run);
    const char *show[] = {"--runs", folder, "tiny", NULL};
    assert_int_equal(call_command(folder, command_status, show, &said), 0);
    free(said);
    free(kept);
    free(path);
    free(run);
    fixture_remove_folder(folder);
}

static void shows_arms_by_blocks_and_what_is_wrong(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *said;
    add_attempt(folder, "tp1-linear", 1, "complete");
    add_attempt(folder, "tp1-linear", 2, NULL);
    add_attempt(folder, "tp1-b16", 3, "aborted");
    size_t size;
    char *plan = fixture_read("data/plans/tiny.json", &size), *path = xformat("%s/tiny/plan.json", folder);
    fixture_write(path, plan, size);
    char *run = file_join(folder, "tiny");
    fixture_enter(run);
    const char *arguments[] = {"--runs", folder, "tiny", NULL};
    assert_int_equal(call_command(folder, command_status, arguments, &said), 0);
    assert_non_null(strstr(said, "tiny: A small plan for tests; 3 attempts\n"));
    assert_non_null(strstr(said, "\nblock              1   2   3\n"
                                 "tp1-auto           .   .   .\n"
                                 "tp1-linear         +   x   .\n"
                                 "tp1-b8             .   .   .\n"
                                 "tp1-b16            .   .   x\n"));
    assert_non_null(strstr(said, "/2-1  invalid  INCOMPLETE: no end line after "));
    assert_non_null(strstr(said, "/3-1  invalid  INCOMPLETE: ended as \"aborted\" after "));
    assert_non_null(strstr(said, "\nledger: 5 lines, head "));
    free(said);
    free(run);
    free(plan);
    free(path);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_wrong_calls_with_one_line),
        cmocka_unit_test(takes_no_secret_into_a_run_folder),
        cmocka_unit_test(shows_arms_by_blocks_and_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
