/* collect status --json and --verify. */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/record/ledger.h"
#include "tests/collect/call.h"
#include "tests/collect/run_folder.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder, *run_folder, *said;

static int set_up(void **state)
{
    (void)state;
    folder = fixture_make_folder();
    run_folder = run_folder_make(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(said);
    said = NULL;
    free(run_folder);
    fixture_remove_folder(folder);
    return 0;
}

static int status(const char *option)
{
    const char *const arguments[] = {"--runs", folder, "tiny", "--verify", option, NULL};
    free(said);
    return call_command(folder, command_status, arguments, &said);
}

/* Whoever has the run's folder at hand gives that. */
static void a_path_does_for_a_name(void **state)
{
    (void)state;
    const char *const by_path[] = {run_folder, NULL};
    char *by_name;
    assert_int_equal(status(NULL), 0);
    by_name = xstrdup(said);
    free(said);
    assert_int_equal(call_command(folder, command_status, by_path, &said), 0);
    assert_true(strlen(said) > 0 && strncmp(by_name, said, strlen(said)) == 0);
    free(by_name);
}

static void append(const char *action, json_t *details)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(run_folder, &ledger, &error), 0);
    assert_int_equal(ledger_append(&ledger, LEDGER_COLLECT, action, details, &error), 0);
    ledger_close(&ledger);
}

/* Replaces the first occurrence by a text of the same length. */
static void change(const char *path, const char *from, const char *to)
{
    size_t size;
    char *text = fixture_read(path, &size), *at = strstr(text, from);
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    fixture_write(path, text, size);
    free(text);
}

static void shows_the_run_to_programs(void **state)
{
    (void)state;
    assert_int_equal(status("--json"), 0);
    json_t *object = json_loads(said, 0, NULL);
    assert_non_null(object);
    assert_string_equal(json_string_value(json_object_get(object, "schema")), "cleanslate.status/1");
    assert_int_equal(json_integer_value(json_object_get(object, "attempts")), 5);
    json_t *linear = json_array_get(json_object_get(object, "arms"), 1);
    json_t *expected = json_pack("{s:s, s:[s, s, s]}", "name", "tp1-linear", "blocks", "valid", "valid", "missing");
    assert_true(json_equal(linear, expected));
    json_decref(expected);
    const json_t *verdicts = json_object_get(object, "verdicts"), *verdict = json_array_get(verdicts, 0);
    assert_int_equal(json_array_size(verdicts), 2);
    assert_string_equal(json_string_value(json_object_get(verdict, "attempt")), "demo/tp1-b16/3-1");
    assert_string_equal(json_string_value(json_object_get(verdict, "rule")), "INCOMPLETE");
    assert_string_equal(json_string_value(json_object_get(verdict, "actor")), "rule");
    const json_t *ledger = json_object_get(object, "ledger");
    assert_int_equal(json_integer_value(json_object_get(ledger, "lines")), 10);
    assert_true(json_is_null(json_object_get(ledger, "broken_at")));
    const json_t *verification = json_object_get(object, "verification");
    assert_int_equal(json_integer_value(json_object_get(verification, "files")), 5);
    assert_int_equal(json_array_size(json_object_get(verification, "problems")), 0);
    json_decref(object);
}

/* What files hold may break no line and steer no terminal. */
static void shows_titles_on_one_line(void **state)
{
    (void)state;
    char *path = file_join(run_folder, "plan.json");
    struct error error = {0};
    json_t *plan = json_read_file(path, &error);
    assert_non_null(plan);
    json_set(plan, "title", json_string("one\ntwo\x1B[2J"));
    assert_int_equal(json_dump_file(plan, path, 0), 0);
    assert_int_equal(status(NULL), 0);
    assert_int_equal(strncmp(said, "tiny: one two [2J; 5 attempts\n", 30), 0);
    json_decref(plan);
    free(path);
}

static void what_is_whole_holds(void **state)
{
    (void)state;
    assert_int_equal(status(NULL), 0);
    assert_non_null(strstr(said, "\nverify: 10 lines and 5 files hold\n"));
    append("begin", json_pack("{s:s}", "attempt", "demo/tp1-b16/1-1")); /* a crash before its file was made */
    assert_int_equal(status(NULL), 0);
    assert_non_null(strstr(said, "tiny/tp1-b16/1-1  invalid  VANISHED: it was begun, but has no file"));
}

static void change_number(void)
{
    char *path = run_folder_path(run_folder, "tp1-b8/1-1");
    change(path, "\"decode_ns\":4000", "\"decode_ns\":3000");
    free(path);
}

static void remove_file(void)
{
    char *path = run_folder_path(run_folder, "tp1-b8/1-1");
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void put_a_folder_in_its_place(void)
{
    char *path = run_folder_path(run_folder, "tp1-b8/1-1");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
}

static void put_a_pipe_in_its_place(void)
{
    char *path = run_folder_path(run_folder, "tp1-b8/1-1");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    free(path);
}

static void add_file(void)
{
    char *path = run_folder_path(run_folder, "tp1-b8/1-2");
    fixture_attempt(path, fixture_header("tp1-b8", 1, 2), "complete");
    free(path);
}

static void change_line(void)
{
    char *path = file_join(run_folder, "ledger.jsonl");
    change(path, "\"complete\"", "\"Complete\"");
    free(path);
}

/* The chain holds, but the tail is gone. */
static void cut_tail(void)
{
    char *path = file_join(run_folder, "ledger.jsonl"), *text = fixture_read(path, NULL);
    for (int lines = 0; lines < 2; lines++) {
        text[strlen(text) - 1] = '\0';
        strrchr(text, '\n')[1] = '\0';
    }
    fixture_write(path, text, strlen(text));
    free(path);
    free(text);
}

static void carry_other_count(void)
{
    append("begin",
           json_pack("{s:s, s:i, s:s}", "attempt", "demo/tp1-b16/1-1", "ledger_lines", 11, "ledger_head", "0"));
}

static void carry_other_head(void)
{
    append("begin",
           json_pack("{s:s, s:i, s:s}", "attempt", "demo/tp1-b16/1-1", "ledger_lines", 10, "ledger_head", "0"));
}

static void amend_with_another_plan(void)
{
    append("amend", json_pack("{s:s, s:s}", "plan", "plan.json", "sha256", "0"));
}

static void amend_without_plan(void)
{
    append("amend", json_pack("{s:s, s:s}", "plan", "plan-2.json", "sha256", "0"));
}

static void measure_without_plan(void)
{
    amend_without_plan();
    append("begin", json_pack("{s:s}", "attempt", "demo/tp1-b8/1-2"));
    char *path = run_folder_path(run_folder, "tp1-b8/1-2");
    json_t *header = fixture_header("tp1-b8", 1, 2);
    json_set(header, "plan", json_string("plan-2.json"));
    fixture_attempt(path, header, NULL);
    free(path);
}

static void leave_a_purged_file(void)
{
    append("purge", json_pack("{s:s}", "attempt", "demo/tp1-b8/2-1"));
}

static void leave_an_end_out(void)
{
    append("begin", json_pack("{s:s}", "attempt", "demo/tp1-b8/1-2"));
    add_file();
}

/* A crash between the ledger's line and the plan's file, and one more. */
static void a_plan_that_was_noted_and_never_written_takes_nothing(void **state)
{
    (void)state;
    amend_without_plan();
    assert_int_equal(status(NULL), 0);
    char *path = file_join(run_folder, "plan-2.json"), *from = file_join(run_folder, "plan.json"), hash[FILE_HASH_SIZE];
    char *text = fixture_read(from, NULL);
    fixture_write(path, text, strlen(text));
    file_hash_bytes(text, strlen(text), hash);
    assert_int_equal(status(NULL), 1); /* it is not the one that was noted */
    append("amend", json_pack("{s:s, s:s}", "plan", "plan-2.json", "sha256", hash));
    assert_int_equal(status(NULL), 0);
    free(text);
    free(from);
    free(path);
}

static void what_was_changed_does_not_hold(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(void);
        const char *said;
    } cases[] = {
        {change_number, "verify: demo/tp1-b8/1-1: TAMPERED: its SHA-256 is "},
        {remove_file, "tp1-b8/1-1: VANISHED: it ended as \"complete\", but its file is gone\n"},
        {put_a_folder_in_its_place, "tp1-b8/1-1: TAMPERED: its file cannot be read; its SHA-256 was "},
        {put_a_pipe_in_its_place, "tp1-b8/1-1: TAMPERED: its file cannot be read; its SHA-256 was "},
        {add_file, "verify: demo/tp1-b8/1-2: TAMPERED: the ledger has no begin for it\n"},
        {change_line, "does not follow from the line before\n"},
        {cut_tail, "TAMPERED: the ledger has no begin for it\n"},
        {carry_other_count, "ledger.jsonl:11: carries another head or count than the lines before it have\n"},
        {carry_other_head, "ledger.jsonl:11: carries another head or count than the lines before it have\n"},
        {amend_with_another_plan, "plan.json: is not the plan that the ledger noted; restore it from a copy\n"},
        {measure_without_plan, "plan-2.json: is gone, and attempts were measured under it\n"},
        {leave_a_purged_file, "tp1-b8/2-1.jsonl: was purged, but is still there; `collect purge` removes it\n"},
        {leave_an_end_out, "demo/tp1-b8/1-2: has ended, but the ledger has no hash of it; `collect run` notes it\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].damage();
        if (status(NULL) != 1 || !strstr(said, cases[i].said) || !strstr(said, "/tiny: 1 thing does not hold\n"))
            fail_msg("case %zu said: %s", i, said);
        tear_down(NULL);
        set_up(NULL);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_path_does_for_a_name),
        TEST(shows_the_run_to_programs),
        TEST(shows_titles_on_one_line),
        TEST(what_is_whole_holds),
        TEST(a_plan_that_was_noted_and_never_written_takes_nothing),
        TEST(what_was_changed_does_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
