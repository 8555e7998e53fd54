/* Campaigns that are cut off, and runs of which a person or an accident took something. */
#include "collect/campaign.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/interrupt.h"
#include "tests/collect/bench.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* --- interruptions ---------------------------------------------------------------------------------------------- */

static void exit_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        _exit(9);
}

static void kill_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        raise(SIGKILL);
}

/* What only a broken machine gets wrong, such as a GPU that hangs: with and without what runs at exit. */
static void break_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        die("GPU 1 has not answered");
}

static void break_off_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        die_at_once("GPU 1 has not answered");
}

/* To the process, as a terminal and `kill` send it, and not to this thread. */
static void send_and_await(int number)
{
    kill(getpid(), number);
    while (!interrupt_seen())
        usleep(1000);
}

static void interrupt_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        send_and_await(SIGINT);
}

static void terminate_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        send_and_await(SIGTERM);
}

/* Runs the campaign in a process of its own, which dies in it. */
static void die_at_request(struct bench *bench, void (*how)(struct fake_source *), int request)
{
    bench->source.on_request = how;
    bench->source.at_request = request;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bench_run(bench, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bench_check_status(bench, status,
                       WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                                           : WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == EXIT_CODE_FAILURE);
    bench->source.on_request = NULL;
}

static void goes_on_after_a_crash(void **state)
{
    struct bench *bench = *state;
    void (*const ways[])(struct fake_source *) = {exit_at_request, kill_at_request};
    int done = 0;
    for (int i = 0; i < 2; i++) {
        die_at_request(bench, ways[i], 2 * BENCH_REQUESTS + 2);
        done += 2;
    }
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 8 - done);
    bench_check_complete(bench);
    struct run run;
    bench_read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8 + 2);
    int incomplete = 0;
    for (int i = 0; i < run.attempt_count; i++)
        incomplete += !run.attempts[i].attempt.complete && !run.attempts[i].attempt.end_status;
    assert_int_equal(incomplete, 2);
    run_free(&run);
}

/* The attempt is ended with the program's last message, and is invalid for that reason. */
static void says_of_what_the_program_died(void **state)
{
    struct bench *bench = *state;
    void (*const ways[])(struct fake_source *) = {break_at_request, break_off_at_request};
    for (int i = 0; i < 2; i++) {
        struct run run;
        int died = 0;
        die_at_request(bench, ways[i], (i + 1) * BENCH_REQUESTS + 2);
        bench_read_run(bench, &run);
        for (int a = 0; a < run.attempt_count; a++) {
            const struct judged *judged = &run.attempts[a];
            if (judged->attempt.complete)
                continue;
            assert_string_equal(judged->attempt.end_status, "failed");
            assert_string_equal(judged->attempt.error_code, "SERVER_DIED");
            assert_int_equal(judged->attempt.sample_count, 1);
            const struct verdict *verdict = NULL;
            for (int v = 0; v < judged->verdicts.count; v++)
                if (judged->verdicts.items[v].rule == RULE_SERVER_DIED)
                    verdict = &judged->verdicts.items[v];
            assert_non_null(verdict);
            assert_int_equal(verdict->level, RULE_INVALID);
            assert_non_null(strstr(verdict->detail, "GPU 1 has not answered"));
            died++;
        }
        assert_int_equal(died, i + 1);
        assert_int_equal(bench_count_lines(&run.ledger, "begin"), bench_count_lines(&run.ledger, "end"));
        run_free(&run);
    }
    bench_expect_success(bench);
    bench_check_complete(bench);
}

/* What is not a result is not counted as a try. */
static void goes_on_after_any_number_of_crashes(void **state)
{
    struct bench *bench = *state;
    for (int i = 0; i < 5; i++)
        die_at_request(bench, kill_at_request, 2);
    bench_expect_success(bench);
    bench_check_complete(bench);
}

static void measures_side_by_side_again_after_a_reboot(void **state)
{
    struct bench *bench = *state;
    for (int attempts = 1; attempts < 4; attempts++) {
        die_at_request(bench, kill_at_request, attempts * BENCH_REQUESTS + 1);
        bench_pretend_reboot(bench);
    }
    bench_expect_success(bench);
    bench_check_complete(bench);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void ends_with_whole_lines_when_interrupted(void **state)
{
    struct bench *bench = *state;
    void (*const ways[])(struct fake_source *) = {interrupt_at_request, terminate_at_request};
    for (int i = 0; i < 2; i++) {
        bench->source.on_request = ways[i];
        bench->source.at_request = BENCH_REQUESTS + 2;
        bench_run(bench, NULL);
        assert_int_equal(bench->result, CAMPAIGN_INTERRUPTED);
        assert_non_null(strstr(bench->said, "interrupted"));
        struct run run;
        bench_read_run(bench, &run);
        int aborted = 0;
        for (int a = 0; a < run.attempt_count; a++) {
            const struct attempt *attempt = &run.attempts[a].attempt;
            if (!attempt->complete) {
                assert_string_equal(attempt->end_status, "aborted");
                assert_int_equal(attempt->sample_count, 2);
                aborted++;
            }
        }
        assert_int_equal(aborted, i + 1);
        assert_int_equal(bench_count_lines(&run.ledger, "begin"), bench_count_lines(&run.ledger, "end"));
        run_free(&run);
    }
    bench->source.on_request = NULL;
    bench_expect_success(bench);
    bench_check_complete(bench);
}

/* Takes the ledger's last line away, as if the program had ended before it. */
static void cut_last_line(const struct bench *bench)
{
    char *folder = bench_run_folder(bench), *path = file_join(folder, "ledger.jsonl"), *text = fixture_read(path, NULL);
    text[strlen(text) - 1] = '\0';
    assert_non_null(strstr(strrchr(text, '\n'), "\"end\""));
    strrchr(text, '\n')[1] = '\0';
    fixture_write(path, text, strlen(text));
    free(folder);
    free(path);
    free(text);
}

static void notes_an_end_that_the_ledger_missed(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);
    cut_last_line(bench);
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_lines(&run.ledger, "end"), 7);
    run_free(&run);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_lines(&run.ledger, "end"), 8);
    for (int i = 0; i < run.attempt_count; i++)
        assert_int_equal(run.attempts[i].verdicts.count, 0);
    run_free(&run);
}

static void refuses_a_broken_ledger(void **state)
{
    struct bench *bench = *state;
    bench_expect_success(bench);
    char *folder = bench_run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    size_t size;
    char *text = fixture_read(path, &size), *at = strstr(text, "complete");
    *at = 'C';
    fixture_write(path, text, size);
    bench_read_plan(bench, "{'blocks': 3}");
    bench_run(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_int_equal(bench->source.loads, 0);
    assert_non_null(strstr(bench->error.message, "does not follow from the line before"));
    char *after = fixture_read(path, NULL);
    assert_string_equal(after, text);
    free(after);
    free(text);
    free(path);
    free(folder);
}

/* --- what a person or an accident took --------------------------------------------------------------------------- */

static void append_by_user(const struct bench *bench, const char *action, const char *id)
{
    struct ledger ledger;
    struct error error = {0};
    char *folder = bench_run_folder(bench);
    assert_int_equal(ledger_open(folder, &ledger, &error), 0);
    json_t *details = json_pack("{s:s, s:s}", "attempt", id, "reason", "heat");
    assert_int_equal(ledger_append(&ledger, LEDGER_USER, action, details, &error), 0);
    ledger_close(&ledger);
    free(folder);
}

/* The baselines of this session stand beside it already. */
static void measures_again_what_was_withdrawn(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);
    append_by_user(bench, "invalidate", "trial/tp1-b8/2-1");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 1);
    assert_non_null(
        strstr(bench->said, "block 2, tp1-b8: again, since trial/tp1-b8/2-1 was invalid (WITHDRAWN: heat)"));
    bench_check_complete(bench);
    for (int i = 0; i < 2; i++) {
        char *id = xformat("trial/tp1-b8/2-%d", 2 + i);
        append_by_user(bench, "invalidate", id);
        bench_expect_success(bench);
        assert_int_equal(bench->source.loads, i == 0); /* three tries, whoever voided them */
        free(id);
    }
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_attempts(&run, "tp1-b8", 2), 3);
    run_free(&run);
}

static void refuse_plan(struct bench *bench, const char *changes, const char *message)
{
    bench_read_plan(bench, changes);
    bench_run(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_non_null(strstr(bench->error.message, message));
    bench->error = (struct error){0};
}

/* What counts stays in the plan, unless a person withdraws it, which is reported. */
static void keeps_in_the_plan_what_counts(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench, "{'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16},"
                           " {'name': 'maths', 'prompts': '/maths.jsonl', 'max_new_tokens': 16}]}");
    bench_expect_success(bench);
    refuse_plan(bench, "{}", "leaves out workload \"maths\", of which trial/tp1-auto/1-1 counts; restore it");
    const char *fewer =
        "{'budgets': [16], 'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16},"
        " {'name': 'maths', 'prompts': '/maths.jsonl', 'max_new_tokens': 16}]}";
    refuse_plan(bench, fewer, "leaves out arm \"tp1-b8\", of which trial/tp1-b8/1-1 counts; restore it");
    append_by_user(bench, "invalidate", "trial/tp1-b8/1-1");
    refuse_plan(bench, fewer, "leaves out arm \"tp1-b8\", of which trial/tp1-b8/2-1 counts; restore it");
    append_by_user(bench, "invalidate", "trial/tp1-b8/2-1");
    bench_read_plan(bench, fewer);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

/* Three tries, whoever takes their files away. */
static void gives_no_tries_for_files_removed(void **state)
{
    struct bench *bench = *state;
    bench_expect_success(bench);
    char *folder = bench_run_folder(bench);
    for (int i = 1; i <= 3; i++) {
        char *path = xformat("%s/attempts/tp1-b8/1-%d.jsonl", folder, i), *id = xformat("trial/tp1-b8/1-%d", i);
        if (i == 2)
            append_by_user(bench, "purge", id);
        assert_int_equal(unlink(path), 0);
        bench_expect_success(bench);
        assert_int_equal(bench->source.loads, i < 3);
        free(path);
        free(id);
    }
    free(folder);
}

/* Who purges says that the cause is gone. */
static void measures_again_what_was_hopeless_and_purged(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 2;
    bench->source.bad_error_code = "CONTEXT_OVERFLOW";
    bench_expect_success(bench);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    append_by_user(bench, "purge", "trial/tp1-b8/1-1");
    append_by_user(bench, "purge", "trial/tp1-b8/2-1");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 2);
    bench_check_complete(bench);
}

static void measures_again_what_vanished(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);
    char *folder = bench_run_folder(bench), *path = xformat("%s/attempts/tp1-linear/1-1.jsonl", folder);
    assert_int_equal(unlink(path), 0);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 1);
    bench_check_complete(bench);
    bench_read_run(bench, &run);
    assert_non_null(
        strstr(bench->said, "block 1, tp1-linear: again, since trial/tp1-linear/1-1 was invalid (VANISHED"));
    assert_int_equal(bench_count_attempts(&run, "tp1-linear", 1), 2); /* the number of the first is not used again */
    run_free(&run);
    free(path);
    free(folder);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, bench_set_up, bench_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(goes_on_after_a_crash),
        TEST(says_of_what_the_program_died),
        TEST(goes_on_after_any_number_of_crashes),
        TEST(measures_side_by_side_again_after_a_reboot),
        TEST(ends_with_whole_lines_when_interrupted),
        TEST(notes_an_end_that_the_ledger_missed),
        TEST(refuses_a_broken_ledger),
        TEST(measures_again_what_was_withdrawn),
        TEST(keeps_in_the_plan_what_counts),
        TEST(gives_no_tries_for_files_removed),
        TEST(measures_again_what_was_hopeless_and_purged),
        TEST(measures_again_what_vanished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
