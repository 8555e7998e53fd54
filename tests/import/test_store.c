/* `collect import` and the run that it fills: what is refused, what is not taken twice, and what the record says. */
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/record/run.h"
#include "tests/collect/call.h"
#include "tests/collect/run_folder.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILES "tests/fuzz/corpus/import/"

/* Calls with these arguments behind --runs; expects the exit code, and the text in what it says. */
static void call(command_function *command, int exit_code, const char *text, const char *const *arguments)
{
    const char *all[16] = {"--runs", fixture_folder};
    char *said;
    int count = 2;
    while (*arguments)
        all[count++] = *arguments++;
    all[count] = NULL;
    int got = call_command(fixture_folder, command, all, &said);
    if (got != exit_code || !strstr(said, text))
        fail_msg("exit code %d: %s", got, said);
    free(said);
}

#define CALL(command, exit_code, text, ...) call(command, exit_code, text, (const char *const[]){__VA_ARGS__, NULL})

static void read_run(const char *name, struct run *run)
{
    char *path = file_join(fixture_folder, name);
    struct error error = {0};
    if (run_read(path, NULL, run, &error))
        fail_msg("%s", error.message);
    free(path);
}

static int count_actions(const struct run *run, const char *action)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(run->ledger.lines); i++)
        count +=
            strcmp(json_string_value(json_object_get(json_array_get(run->ledger.lines, i), "action")), action) == 0;
    return count;
}

static const json_t *find_action(const struct run *run, const char *action)
{
    for (size_t i = 0; i < json_array_size(run->ledger.lines); i++) {
        const json_t *line = json_array_get(run->ledger.lines, i);
        if (strcmp(json_string_value(json_object_get(line, "action")), action) == 0)
            return line;
    }
    fail_msg("the ledger has no %s", action);
    return NULL;
}

/* --- arms --------------------------------------------------------------------------------------------------------- */

static void what_a_file_leaves_open_must_be_said(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_FAILURE,
         "does not say on how many ranks it ran, or whether it drafted, or how many requests it had at a time",
         FILES "aiperf-records.jsonl");
    CALL(command_import, EXIT_CODE_FAILURE, "does not say how many requests it had at a time", "--as", "tp4",
         FILES "timing.json", FILES "acceptance_rate.json");
    CALL(command_import, EXIT_CODE_FAILURE, "ran on 2 ranks by its own words, not on the 4 of --as", "--as", "tp4",
         FILES "sglang-auto.jsonl");
    CALL(command_import, EXIT_CODE_FAILURE, "decodes plainly by its own words", "--as", "tp2-b16",
         FILES "sglang-auto.jsonl");
    CALL(command_import, EXIT_CODE_USAGE, "--as is \"b16\"; it must be", "--as", "b16", FILES "sglang-auto.jsonl");
    CALL(command_import, EXIT_CODE_FAILURE, "name them in one call", FILES "synthetic_acceptance_rates.json");
    CALL(command_import, EXIT_CODE_FAILURE, "is of no known format; known are SGLang bench_serving, ",
         FILES "odd.jsonl");
    CALL(command_import, EXIT_CODE_FAILURE, "--run: \"name\" is \"../x\"", "--run", "../x", FILES "lucebox.csv", "--as",
         "tp1");
}

/* That it drafts the file shows, by a path or a tree it does not. */
static void a_person_may_say_more(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_OK, "r/tp1-b16/1-1, 4 requests", "--run", "r", "--as", "tp1-b16",
         FILES "spec-bench-draft.jsonl");
    CALL(command_import, EXIT_CODE_OK, "r/tp4-auto-c8/1-1", "--run", "r", "--as", "tp4-auto-c8", "--workload",
         "my prompts", FILES "aiperf-records.jsonl");
    struct run run;
    read_run("r", &run);
    assert_string_equal(run.attempts[1].attempt.workloads[0].name, "my-prompts");
    run_free(&run);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static void nothing_is_stored_of_a_call_that_fails(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_FAILURE, "odd.jsonl: is of no known format", FILES "vllm-appended.jsonl",
         FILES "odd.jsonl");
    char *path = file_join(fixture_folder, "imported");
    assert_false(file_exists(path));
    free(path);
}

static void the_ledger_names_each_source(void **state)
{
    (void)state;
    char hash[FILE_HASH_SIZE];
    struct error error = {0};
    struct run run;
    CALL(command_import, EXIT_CODE_OK, "tp8-linear-c4/1-1", FILES "inferencex-raw.json",
         FILES "inferencex-aggregated.json");
    read_run("imported", &run);
    const json_t *line = find_action(&run, "import"), *also = json_object_get(line, "also");
    assert_string_equal(json_string_value(json_object_get(line, "attempt")), "imported/tp8-linear-c4/1-1");
    file_hash(FILES "inferencex-raw.json", hash, &error);
    assert_string_equal(json_string_value(json_object_get(line, "sha256")), hash);
    file_hash(FILES "inferencex-aggregated.json", hash, &error);
    assert_string_equal(json_string_value(json_object_get(json_array_get(also, 0), "sha256")), hash);
    assert_int_equal(count_actions(&run, "begin"), 1);
    assert_int_equal(count_actions(&run, "end"), 1);
    assert_int_equal(count_actions(&run, "verdict"), 2);
    run_free(&run);
    CALL(command_status, EXIT_CODE_OK, "files hold", "--verify", "imported");
}

/* By its bytes, or, where a log has grown or the other form comes later, by its times. */
static void nothing_is_imported_twice(void **state)
{
    (void)state;
    struct run run;
    CALL(command_import, EXIT_CODE_OK, "tp8-linear-c4/1-1", FILES "inferencex-raw.json", "--as", "tp8-linear");
    CALL(command_import, EXIT_CODE_OK, "inferencex-aggregated.json: is imported/tp8-linear-c4/1-1 already",
         FILES "inferencex-aggregated.json");
    CALL(command_import, EXIT_CODE_OK, "inferencex-raw.json: is imported/tp8-linear-c4/1-1 already", "--as",
         "tp8-linear", FILES "inferencex-raw.json");
    read_run("imported", &run);
    assert_int_equal(run.attempt_count, 1);
    assert_int_equal(count_actions(&run, "import"), 3);
    run_free(&run);
}

/* Repeats are blocks; another workload of the same arm is a try beside them. */
static void repeats_fill_blocks(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_OK, "tp4-linear-c4/2-1", "--run", "r", FILES "vllm-appended.jsonl");
    CALL(command_import, EXIT_CODE_OK, "tp4-linear-c4/1-2", "--run", "r", "--as", "tp4-linear-c4", "--workload",
         "other", FILES "aiperf-records.jsonl");
}

static void imports_do_not_displace_what_was_measured(void **state)
{
    (void)state;
    char *run = run_folder_make(fixture_folder);
    CALL(command_import, EXIT_CODE_FAILURE, "tp1-linear is measured in", "--run", "tiny", "--as", "tp1", "--workload",
         "code", FILES "jetspec-dflash.jsonl");
    CALL(command_import, EXIT_CODE_OK, "tiny/tp1-linear/", "--run", "tiny", "--as", "tp1", "--workload", "elsewhere",
         FILES "jetspec-dflash.jsonl");
    CALL(command_status, EXIT_CODE_OK, "tp1-linear", "tiny");
    free(run);
}

/* One arm on a workload that no file of the other speaks of is not missing there. */
static void status_shows_what_there_is(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_OK, "r/tp1-linear/1-1", "--run", "r", "--as", "tp1", FILES "specforge-dflash.json");
    CALL(command_import, EXIT_CODE_OK, "r/tp4-linear-c4/2-1", "--run", "r", FILES "vllm-appended.jsonl");
    CALL(command_status, EXIT_CODE_OK,
         "block              1   2\n"
         "tp1-linear         ~   .\n"
         "tp4-linear-c4      +   +\n",
         "r");
}

static void an_import_can_be_withdrawn(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_OK, "r/tp2-auto-c4/1-1", "--run", "r", FILES "sglang-auto.jsonl");
    CALL(command_invalidate, EXIT_CODE_OK, "withdrawn", "r", "tp2-auto-c4/1-1", "--reason", "the wrong model");
    CALL(command_status, EXIT_CODE_OK, "WITHDRAWN: the wrong model", "r");
}

static void nothing_is_measured_by_a_plan_of_imports(void **state)
{
    (void)state;
    CALL(command_import, EXIT_CODE_OK, "r/tp2-auto-c4/1-1", "--run", "r", FILES "sglang-auto.jsonl");
    char *plan = file_join(fixture_folder, "r/plan.json");
    CALL(command_run, EXIT_CODE_FAILURE, "is the plan of imports, which measures nothing", "--plan", plan);
    free(plan);
}

/* The file's end is missing: the lines that are whole are kept, and where it breaks off is said. */
static void a_cut_file_is_marked(void **state)
{
    (void)state;
    size_t size;
    struct run run;
    char *text = fixture_read(FILES "jetspec-auto.jsonl", &size), *path = file_join(fixture_folder, "cut.jsonl");
    fixture_write(path, text, size - 40);
    CALL(command_import, EXIT_CODE_OK, "suspect  SOURCE_DAMAGED: cut off: 1; the first at byte ", "--run", "r", "--as",
         "tp1", path);
    read_run("r", &run);
    assert_int_equal(run.attempts[0].attempt.sample_count, 1);
    run_free(&run);
    free(text);
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_file_leaves_open_must_be_said),
        TEST(a_person_may_say_more),
        TEST(nothing_is_stored_of_a_call_that_fails),
        TEST(the_ledger_names_each_source),
        TEST(nothing_is_imported_twice),
        TEST(repeats_fill_blocks),
        TEST(imports_do_not_displace_what_was_measured),
        TEST(status_shows_what_there_is),
        TEST(an_import_can_be_withdrawn),
        TEST(nothing_is_measured_by_a_plan_of_imports),
        TEST(a_cut_file_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
