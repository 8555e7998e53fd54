/* A campaign and what persons do to it afterwards, with a fault at every call that changes a file, and killed at random
 * moments. Whatever happens: what was measured well stays and is not measured again, nothing else counts, the same
 * commands go on, and `status --verify` and `analyze` take the folder. */
#include "collect/campaign.h"

#include "analyze/summary.h"
#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/verify.h"
#include "tests/collect/bench.h"
#include "tests/collect/call.h"
#include "tests/fault.h"
#include "tests/record/fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { KILLS = 200, TOKENS_ASKED = 16 };

/* Processes by the hundred, each of which copies the pages that it writes to: what was freed is kept from use by 8 MB
 * of it, in place of 256. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=8";
}

/* --- what is done ------------------------------------------------------------------------------------------------- */

/* A command on the run; *said (may be NULL) receives what it says. */
static int call(const struct bench *bench, command_function *command, const char *const *more, char **said)
{
    char *runs = file_join(bench->folder, "runs"), *heard;
    const char *arguments[8] = {"--runs", runs, "trial"};
    for (int i = 0; more && more[i]; i++)
        arguments[3 + i] = more[i];
    int exit_code = call_command(bench->folder, command, arguments, &heard);
    if (said)
        *said = heard;
    else
        free(heard);
    free(runs);
    return exit_code;
}

/* One block, in which the tree's first try is bad; a plan that grows by one; an attempt withdrawn and reinstated; what
 * is invalid purged. Stops at the first that fails. */
static int do_all(struct bench *bench)
{
    for (int blocks = 1; blocks <= 2; blocks++) {
        bench_read_plan(bench, blocks == 1 ? "{'blocks': 1, 'budgets': [8]}" : "{'blocks': 2, 'budgets': [8]}");
        bench_run(bench, NULL);
        if (bench->result)
            return -1;
    }
    return call(bench, command_invalidate, (const char *[]){"tp1-linear/1-1", "--reason", "heat", NULL}, NULL) ||
           call(bench, command_reinstate, (const char *[]){"tp1-linear/1-1", NULL}, NULL) ||
           call(bench, command_purge, (const char *[]){"--yes", NULL}, NULL);
}

/* In a process of its own; its status as waitpid() has it. An error must be told in a line. */
static int do_all_apart(struct bench *bench, enum fault_kind kind, int at)
{
    char *runs = file_join(bench->folder, "runs");
    fault_set(&(struct fault){runs, kind, at});
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int result = do_all(bench);
        const char *message = bench->error.message;
        if (bench->result < 0 && (!message[0] || strchr(message, '\n') || !strstr(message, bench->folder)))
            _exit(99);
        _exit(result ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    fault_set(NULL);
    free(runs);
    return status;
}

/* --- what must hold ----------------------------------------------------------------------------------------------- */

/* The files of attempts as they were. */
struct snapshot {
    struct run run;
    char **texts; /* attempt_count; NULL: no file */
    char *ledger;
};

static char *read_ledger(const struct bench *bench)
{
    char *folder = bench_run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    char *text = file_exists(path) ? fixture_read(path, NULL) : xstrdup("");
    free(folder);
    free(path);
    return text;
}

static void take(const struct bench *bench, struct snapshot *snapshot)
{
    bench_read_run(bench, &snapshot->run);
    snapshot->ledger = read_ledger(bench);
    snapshot->texts = xcalloc((size_t)snapshot->run.attempt_count, sizeof(char *));
    for (int i = 0; i < snapshot->run.attempt_count; i++) {
        const char *path = snapshot->run.attempts[i].attempt.path;
        snapshot->texts[i] = file_exists(path) ? fixture_read(path, NULL) : NULL;
    }
}

static void drop(struct snapshot *snapshot)
{
    for (int i = 0; i < snapshot->run.attempt_count; i++)
        free(snapshot->texts[i]);
    free(snapshot->texts);
    free(snapshot->ledger);
    run_free(&snapshot->run);
}

static bool is_well(const struct judged *judged)
{
    return judged->attempt.complete && judged->attempt.sample_count == BENCH_REQUESTS && !run_is_all_void(judged);
}

/* What counts is whole and in order. */
static void check_counted(const struct bench *bench, const struct run *run)
{
    for (int a = 0; a < bench->plan.arm_count; a++)
        for (int block = 1; block <= 2; block++) {
            const struct judged *counted = run_counted(run, &bench->plan.arms[a], block, "code", NULL);
            if (!counted)
                continue;
            assert_true(is_well(counted));
            for (int i = 0; i < BENCH_REQUESTS; i++)
                assert_true(counted->attempt.samples[i].ok && counted->attempt.samples[i].tokens == TOKENS_ASKED);
        }
}

static void check_analyze(const struct bench *bench)
{
    struct run run;
    struct error error = {0};
    bench_read_run(bench, &run);
    json_t *summary = summary_build(&run, &bench->plan, &error);
    if (!summary)
        fail_msg("%s", error.message);
    json_decref(summary);
    run_free(&run);
}

/* Nothing that was there has changed, but for what was invalid and is purged; what was well still is, and nothing was
 * measured beside it. */
static void check_kept(const struct snapshot *before, const struct run *after)
{
    for (int i = 0; i < before->run.attempt_count; i++) {
        const struct judged *judged = &before->run.attempts[i];
        const struct attempt_place place = {judged->attempt.arm, judged->attempt.block, judged->attempt.try_number};
        const struct judged *now = run_find(after, &place);
        assert_non_null(now);
        if (before->texts[i] && !now->purged) {
            char *text = fixture_read(now->attempt.path, NULL);
            assert_string_equal(text, before->texts[i]);
            free(text);
        }
        if (is_well(judged))
            assert_true(is_well(now) || history_is_withdrawn(run_history(after, &now->attempt)));
    }
    for (int i = 1; i < after->attempt_count; i++) {
        const struct attempt *former = &after->attempts[i - 1].attempt, *next = &after->attempts[i].attempt;
        assert_false(is_well(&after->attempts[i - 1]) && is_well(&after->attempts[i]) &&
                     arm_equal(&former->arm, &next->arm) && former->block == next->block);
    }
}

static void check_verified(const struct bench *bench)
{
    char *said;
    if (call(bench, command_status, (const char *[]){"--verify", NULL}, &said) != 0)
        fail_msg("%s", said);
    free(said);
}

/* Whatever was left, the commands are given again, without a fault. */
static void check_goes_on(struct bench *bench)
{
    struct snapshot before = {0};
    struct run after;
    char *folder = bench_run_folder(bench);
    const bool begun = file_exists(folder);
    if (begun) {
        take(bench, &before);
        check_counted(bench, &before.run);
        check_analyze(bench);
    }
    bench->source.bad_attempts = 0;
    bench_read_plan(bench, "{'blocks': 2, 'budgets': [8]}");
    bench_expect_success(bench);
    assert_int_equal(call(bench, command_purge, (const char *[]){"--yes", NULL}, NULL), 0);
    bench_read_run(bench, &after);
    check_counted(bench, &after);
    bench_check_complete(bench);
    if (begun) {
        check_kept(&before, &after);
        char *ledger = read_ledger(bench);
        assert_memory_equal(ledger, before.ledger, strlen(before.ledger));
        free(ledger);
        drop(&before);
    }
    run_free(&after);
    check_verified(bench);
    check_analyze(bench);
    free(folder);
}

/* --- at every call ------------------------------------------------------------------------------------------------ */

static struct bench *make_bench(void)
{
    void *state;
    bench_set_up(&state);
    struct bench *bench = state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 1;
    return bench;
}

static void end_bench(struct bench *bench)
{
    void *state = bench;
    bench_tear_down(&state);
}

static int count_calls(enum fault_kind kind)
{
    struct bench *bench = make_bench();
    const int status = do_all_apart(bench, FAULT_NONE, 0), calls = fault_calls(kind);
    bench_check_status(bench, status, WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_goes_on(bench);
    assert_int_equal(bench->source.loads, 0);
    end_bench(bench);
    return calls;
}

/* A full disk may come after the last write. */
static bool is_expected(enum fault_kind kind, int status)
{
    if (kind == FAULT_KILL || kind == FAULT_TEAR)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return WIFEXITED(status) && (WEXITSTATUS(status) == 1 || (kind == FAULT_FULL && WEXITSTATUS(status) == 0));
}

static void try_every_call(enum fault_kind kind)
{
    const int calls = count_calls(kind);
    assert_true(calls > 20);
    for (int at = 1; at <= calls; at++) {
        struct bench *bench = make_bench();
        const int status = do_all_apart(bench, kind, at);
        if (!is_expected(kind, status))
            print_error("call %d of %d\n", at, calls);
        bench_check_status(bench, status, is_expected(kind, status));
        check_goes_on(bench);
        end_bench(bench);
    }
    print_message("%d calls\n", calls);
}

static void killed_before_every_call(void **state)
{
    (void)state;
    try_every_call(FAULT_KILL);
}

static void killed_in_the_middle_of_every_write(void **state)
{
    (void)state;
    try_every_call(FAULT_TEAR);
}

static void disk_full_from_every_call_on(void **state)
{
    (void)state;
    try_every_call(FAULT_FULL);
}

static void read_only_from_every_call_on(void **state)
{
    (void)state;
    try_every_call(FAULT_READ_ONLY);
}

static void denied_from_every_call_on(void **state)
{
    (void)state;
    try_every_call(FAULT_DENIED);
}

static void unsynced_from_every_call_on(void **state)
{
    (void)state;
    try_every_call(FAULT_UNSYNCED);
}

/* --- at random moments -------------------------------------------------------------------------------------------- */

/* Starts it all, and kills it some time within `limit_us`, if it lasts so long. Whether it was killed. */
static bool kill_within(struct bench *bench, long limit_us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        do_all(bench);
        _exit(0);
    }
    usleep((useconds_t)(random() % limit_us));
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bench_check_status(bench, status, WIFEXITED(status) || WTERMSIG(status) == SIGKILL);
    return WIFSIGNALED(status);
}

/* So many times in one run, which goes on each time from where it was killed. */
static int kill_again_and_again(int times, long limit_us)
{
    struct bench *bench = make_bench();
    char *folder = bench_run_folder(bench);
    int killed = 0;
    for (int i = 0; i < times; i++, bench->source.bad_attempts = 0) {
        struct snapshot before = {0};
        struct run after;
        const bool begun = file_exists(folder);
        if (begun)
            take(bench, &before);
        killed += kill_within(bench, limit_us);
        if (!begun)
            continue;
        bench_read_run(bench, &after);
        check_counted(bench, &after);
        check_kept(&before, &after);
        run_free(&after);
        drop(&before);
    }
    check_goes_on(bench);
    free(folder);
    end_bench(bench);
    return killed;
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    struct bench *bench = make_bench();
    const int64_t start_ns = clock_now_ns();
    do_all_apart(bench, FAULT_NONE, 0);
    const long limit_us = (long)((clock_now_ns() - start_ns) / 1000);
    end_bench(bench);
    srandom(5);
    for (int killed = 0, runs = 0; killed < KILLS; runs++) {
        assert_true(runs < KILLS);
        killed += kill_again_and_again(1 + runs % 8, limit_us);
    }
}

/* --- clocks ------------------------------------------------------------------------------------------------------- */

/* What a jump tears apart is measured side by side again, and then there is an end of it. */
static void check_with_clock(int at, int64_t jump_s, int64_t more_s)
{
    struct bench *bench = make_bench();
    fault_set_clock(at, jump_s, more_s);
    assert_int_equal(do_all(bench), 0);
    fault_set_clock(0, 0, 0);
    bench_expect_success(bench);
    bench_check_complete(bench);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    check_verified(bench);
    check_analyze(bench);
    end_bench(bench);
}

static void clocks_that_jump(void **state)
{
    (void)state;
    const int64_t jumps_s[] = {7200, 2 * 86400, -2 * 86400};
    struct bench *bench = make_bench();
    fault_set_clock(0, 0, 0);
    assert_int_equal(do_all(bench), 0);
    const int readings = fault_clock_readings();
    end_bench(bench);
    for (int at = 1; at <= readings; at += 3)
        for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++)
            check_with_clock(at, jumps_s[i], 0);
}

/* Each attempt is a session of its own, as far as anyone can tell. */
static void a_clock_that_runs_mad(void **state)
{
    (void)state;
    struct bench *bench = make_bench();
    struct run run;
    fault_set_clock(1, 0, 13 * 3600);
    if (do_all(bench))
        fail_msg("%s", bench->error.message);
    fault_set_clock(0, 0, 0);
    bench_read_run(bench, &run);
    assert_true(run.attempt_count < 30);
    run_free(&run);
    check_verified(bench);
    check_analyze(bench);
    end_bench(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_before_every_call),     cmocka_unit_test(killed_in_the_middle_of_every_write),
        cmocka_unit_test(disk_full_from_every_call_on), cmocka_unit_test(read_only_from_every_call_on),
        cmocka_unit_test(denied_from_every_call_on),    cmocka_unit_test(unsynced_from_every_call_on),
        cmocka_unit_test(killed_at_random_moments),     cmocka_unit_test(clocks_that_jump),
        cmocka_unit_test(a_clock_that_runs_mad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
