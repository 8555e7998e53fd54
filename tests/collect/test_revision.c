/* collect invalidate, reinstate and purge: what they change, what they refuse, and what the ledger has of it. */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/record/run.h"
#include "tests/collect/call.h"
#include "tests/collect/run_folder.h"
#include "tests/record/fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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

/* Calls the command on the runs of this test; the arguments end with NULL. Answers its exit code. */
static int call(command_function *command, const char *const *arguments)
{
    const char *all[16] = {"--runs", folder};
    for (int i = 0; arguments[i]; i++)
        all[2 + i] = arguments[i];
    free(said);
    return call_command(folder, command, all, &said);
}

#define CALL(command, ...) call(command, (const char *const[]){__VA_ARGS__, NULL})

static json_t *last_line(void)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_read(run_folder, &ledger, &error), 0);
    assert_int_equal(ledger.broken_at, 0);
    json_t *line = json_incref(json_array_get(ledger.lines, json_array_size(ledger.lines) - 1));
    ledger_close(&ledger);
    return line;
}

static size_t count_lines(void)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_read(run_folder, &ledger, &error), 0);
    size_t count = json_array_size(ledger.lines);
    ledger_close(&ledger);
    return count;
}

static bool is_there(const char *name)
{
    char *path = run_folder_path(run_folder, name);
    bool there = file_exists(path);
    free(path);
    return there;
}

static void assert_text(const json_t *object, const char *key, const char *expected)
{
    assert_string_equal(json_string_value(json_object_get(object, key)), expected);
}

static void wrong_calls_change_nothing(void **state)
{
    (void)state;
    static const struct {
        command_function *command;
        const char *arguments[8];
        int exit_code;
        const char *said; /* a part of it */
    } cases[] = {
        {command_invalidate, {"tiny", "tp1-b8/1-1"}, 2, "missing --reason; usage: collect invalidate"},
        {command_invalidate, {"tiny", "--reason", "heat"}, 2, "too few arguments"},
        {command_invalidate, {"tiny", "tp1-b8/1-1", "--reason", " \t"}, 2, "--reason is empty"},
        {command_invalidate, {"none", "tp1-b8/1-1", "--reason", "heat"}, 1, "none: no run is here"},
        {command_invalidate,
         {"tiny", "b8", "--reason", "heat"},
         1,
         "\"b8\" is no attempt of tiny; attempts are called"},
        {command_invalidate, {"tiny", "demo/tp1-b8/1-1", "--reason", "heat"}, 1, "is no attempt of tiny"},
        {command_invalidate, {"tiny", "tp1-b8/9-1", "--reason", "heat"}, 1, "tiny: has no attempt tp1-b8/9-1"},
        {command_invalidate, {"tiny", "tp1-b8/1-1", "tp1-b8/9-1", "--reason", "heat"}, 1, "has no attempt tp1-b8/9-1"},
        {command_invalidate, {"tiny", "tp1-b8/1-1", "tiny/tp1-b8/1-1", "--reason", "heat"}, 1, "is named twice"},
        {command_reinstate, {"tiny"}, 2, "too few arguments"},
        {command_reinstate, {"tiny", "tp1-b8/1-1"}, 1, "demo/tp1-b8/1-1: was not withdrawn"},
        {command_reinstate, {"tiny", "tp1-b8/2-1"}, 1, "what a rule or a purge took cannot be reinstated"},
        {command_purge, {"none"}, 1, "none: no run is here"},
        {command_purge, {"--yes", "tiny", "tp1-b8/1-1"}, 1, "demo/tp1-b8/1-1: counts; only what is invalid"},
        {command_purge, {"--yes", "tiny", "tp1-b8/2-1", "tp1-b8/1-1"}, 1, "demo/tp1-b8/1-1: counts"},
    };
    size_t before = count_lines();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(call(cases[i].command, cases[i].arguments), cases[i].exit_code);
        if (!strstr(said, cases[i].said))
            fail_msg("said: %s", said);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    }
    assert_int_equal(count_lines(), before);
    assert_true(is_there("tp1-b8/2-1"));
}

static void withdraws_and_reinstates(void **state)
{
    (void)state;
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-b8/1-1", "tiny/tp1-linear/2-1", "--reason", "fan off"), 0);
    assert_string_equal(said, "demo/tp1-b8/1-1: withdrawn\ndemo/tp1-linear/2-1: withdrawn\n");
    json_t *line = last_line();
    assert_text(line, "action", "invalidate");
    assert_text(line, "actor", "user");
    assert_text(line, "attempt", "tiny/tp1-linear/2-1");
    assert_text(line, "reason", "fan off");
    json_decref(line);
    assert_int_equal(CALL(command_status, "tiny"), 0);
    assert_non_null(strstr(said, "demo/tp1-b8/1-1  invalid  WITHDRAWN: fan off\n"));
    assert_non_null(strstr(said, "\ntp1-linear         +   x   .\n"));
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-linear/1-1", "tp1-b8/1-1", "--reason", "more"), 1);
    assert_string_equal(said, "demo/tp1-b8/1-1: is withdrawn already (fan off)\n");

    assert_int_equal(CALL(command_reinstate, "tiny", "tp1-linear/2-1"), 0);
    assert_string_equal(said, "demo/tp1-linear/2-1: reinstated\n");
    assert_int_equal(CALL(command_status, "tiny"), 0);
    assert_non_null(strstr(said, "\ntp1-linear         +   +   .\n"));
    assert_int_equal(CALL(command_reinstate, "tiny", "tp1-linear/2-1"), 1);
}

static void reinstates_nothing_that_a_rule_took(void **state)
{
    (void)state;
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-b8/2-1", "--reason", "cut off"), 0);
    assert_int_equal(CALL(command_reinstate, "tiny", "tp1-b8/2-1"), 0);
    assert_int_equal(CALL(command_status, "tiny"), 0);
    assert_non_null(strstr(said, "/2-1  invalid  INCOMPLETE: ended as \"aborted\""));
}

/* Nobody can be asked where the standard input is no terminal, which it is not here. */
static int purge_without_terminal(const char *option)
{
    int input = dup(STDIN_FILENO), null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    int exit_code = option ? CALL(command_purge, "tiny", option) : CALL(command_purge, "tiny");
    dup2(input, STDIN_FILENO);
    close(input);
    close(null);
    return exit_code;
}

static void purges_what_is_invalid_and_nothing_else(void **state)
{
    (void)state;
    size_t before = count_lines();
    assert_int_equal(purge_without_terminal(NULL), 1);
    assert_non_null(strstr(said, "demo/tp1-b8/2-1  INCOMPLETE: ended as \"aborted\""));
    assert_non_null(strstr(said, "this would remove the files of 2 attempts; say --yes where nobody can be asked\n"));
    assert_int_equal(count_lines(), before);
    assert_true(is_there("tp1-b8/2-1"));

    assert_int_equal(purge_without_terminal("--yes"), 0);
    assert_non_null(strstr(said, "demo/tp1-b16/3-1: purged\n"));
    assert_int_equal(count_lines(), before + 2);
    assert_false(is_there("tp1-b8/2-1"));
    assert_false(is_there("tp1-b16/3-1"));
    assert_true(is_there("tp1-b8/1-1"));
    assert_int_equal(CALL(command_status, "tiny"), 0);
    assert_non_null(strstr(said, "tiny/tp1-b8/2-1  invalid  INCOMPLETE: purged; before that INCOMPLETE: ended as"));

    assert_int_equal(purge_without_terminal("--yes"), 0);
    assert_string_equal(said, "nothing to purge: no attempt is invalid in all its workloads\n");
    assert_int_equal(CALL(command_purge, "--yes", "tiny", "tp1-b8/2-1"), 1);
    assert_string_equal(said, "tiny/tp1-b8/2-1: was purged already\n");
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-b8/2-1", "--reason", "late"), 1);
    assert_string_equal(said, "tiny/tp1-b8/2-1: was purged, so nothing is left to withdraw\n");
}

/* Purges with a terminal as the standard input, on which `answer` was typed. */
static void purge_at_terminal(const char *answer)
{
    int input = dup(STDIN_FILENO), terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    assert_int_equal(grantpt(terminal) || unlockpt(terminal), 0);
    int slave = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_int_equal(write(terminal, answer, strlen(answer)), strlen(answer));
    dup2(slave, STDIN_FILENO);
    assert_int_equal(CALL(command_purge, "tiny", "tp1-b8/2-1"), 0);
    dup2(input, STDIN_FILENO);
    close(slave);
    close(terminal);
    close(input);
}

static void asks_on_a_terminal(void **state)
{
    (void)state;
    purge_at_terminal("n\n");
    assert_non_null(strstr(said, "Remove the files of 1 attempt? The ledger keeps their sums and verdicts. [y/N] "));
    assert_non_null(strstr(said, "nothing was removed\n"));
    assert_true(is_there("tp1-b8/2-1"));
    purge_at_terminal("y\n");
    assert_false(is_there("tp1-b8/2-1"));
}

/* The fixture's sample of each workload: 9 tokens, 1 of them first, in 3 rounds that committed 9; 500 and 4000 ns. */
static void keeps_sums_and_verdicts(void **state)
{
    (void)state;
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-b8/1-1", "--reason", "fan off"), 0);
    assert_int_equal(CALL(command_purge, "--yes", "tiny", "tp1-b8/1-1"), 0);
    assert_string_equal(said, "demo/tp1-b8/1-1  WITHDRAWN: fan off\ndemo/tp1-b8/1-1: purged\n");
    json_t *line = last_line();
    assert_text(line, "action", "purge");
    assert_text(line, "attempt", "tiny/tp1-b8/1-1");
    assert_text(line, "started", "2026-03-01T12:00:00Z");
    const json_t *verdict = json_array_get(json_object_get(line, "verdicts"), 0);
    assert_text(verdict, "rule", "WITHDRAWN");
    assert_text(verdict, "detail", "fan off");
    json_t *expected =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "cell_hash", "c1", "samples", 1, "failed", 0,
                  "tokens", 9, "first_tokens", 1, "ttft_ns", 500, "decode_ns", 4000, "rounds", 3, "accepted", 9);
    assert_true(json_equal(json_object_get(json_object_get(line, "workloads"), "code"), expected));
    json_decref(expected);
    json_decref(line);
}

/* As if the program had been ended between the ledger's line and the removal. */
static void finishes_a_purge_that_was_cut_off(void **state)
{
    (void)state;
    size_t size;
    char *path = run_folder_path(run_folder, "tp1-b8/2-1"), *text = fixture_read(path, &size);
    assert_int_equal(CALL(command_purge, "--yes", "tiny", "tp1-b8/2-1"), 0);
    fixture_write(path, text, size);
    size_t lines = count_lines();
    assert_int_equal(CALL(command_purge, "--yes", "tiny", "tp1-b16/3-1"), 0);
    assert_non_null(strstr(said, "tiny/tp1-b8/2-1: was purged before, and its file is removed now\n"));
    assert_false(file_exists(path));
    assert_int_equal(count_lines(), lines + 1);
    free(text);
    free(path);
}

static void waits_for_nobody(void **state)
{
    (void)state;
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(run_folder, &ledger, &error), 0);
    char *holder = xformat("held by process %ld on ", (long)getpid());
    static command_function *const commands[] = {command_invalidate, command_reinstate, command_purge};
    for (int i = 0; i < 3; i++) {
        const char *const arguments[] = {"tiny", "tp1-b8/2-1",
                                         i == 0   ? "--reason"
                                         : i == 1 ? NULL
                                                  : "--yes",
                                         i == 0 ? "heat" : NULL, NULL};
        assert_int_equal(call(commands[i], arguments), 1);
        assert_non_null(strstr(said, holder));
    }
    assert_int_equal(CALL(command_status, "tiny"), 0);
    free(holder);
    ledger_close(&ledger);
}

static void appends_nothing_to_a_broken_chain(void **state)
{
    (void)state;
    char *path = file_join(run_folder, "ledger.jsonl"), *text, *at;
    size_t size;
    text = fixture_read(path, &size);
    at = strstr(text, "complete");
    *at = 'C';
    fixture_write(path, text, size);
    assert_int_equal(CALL(command_invalidate, "tiny", "tp1-b8/1-1", "--reason", "heat"), 1);
    assert_non_null(strstr(said, "ledger.jsonl:"));
    assert_non_null(strstr(said, "does not follow from the line before"));
    char *after = fixture_read(path, NULL);
    assert_string_equal(after, text);
    free(after);
    free(text);
    free(path);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wrong_calls_change_nothing),
        TEST(withdraws_and_reinstates),
        TEST(reinstates_nothing_that_a_rule_took),
        TEST(purges_what_is_invalid_and_nothing_else),
        TEST(asks_on_a_terminal),
        TEST(keeps_sums_and_verdicts),
        TEST(finishes_a_purge_that_was_cut_off),
        TEST(waits_for_nobody),
        TEST(appends_nothing_to_a_broken_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
