#include "collect/campaign.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/interrupt.h"
#include "collect/record/run.h"
#include "collect/session.h"
#include "tests/collect/fake_source.h"
#include "tests/record/fixture.h"

#include <fcntl.h>
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

enum { PROMPTS = 2, REQUESTS = PROMPTS + 1 /* warm-up */ };

static const char plan_text[] =
    "{'schema': 'cleanslate.plan/1', 'name': 'trial', 'source': {'kind': 'engine', 'target': 't', 'drafter': 'd'},"
    " 'methods': ['auto', 'linear', 'ddtree'], 'budgets': [8, 16], 'blocks': 2, 'seed': 3,"
    " 'workloads': [{'name': 'code', 'prompts': 'FOLDER/code.jsonl', 'max_new_tokens': 16}]}";

/* A folder with prompts, a source, and what the last campaign answered and said. */
struct bench {
    char *folder;
    struct fake_source source;
    struct plan plan;
    struct error error;
    int result;
    char *said;
};

/* The plan with `changes` (JSON with ' for ") in place of its own values. */
static void read_plan(struct bench *bench, const char *changes)
{
    char *text = xformat("[%s, %s]", plan_text, changes), *path = file_join(bench->folder, "trial.json");
    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    json_t *both = json_loads(text, 0, NULL), *plan = json_array_get(both, 0);
    assert_non_null(both);
    json_object_update(plan, json_array_get(both, 1));
    size_t i;
    json_t *workload;
    json_array_foreach(json_object_get(plan, "workloads"), i, workload)
    {
        const char *name = strrchr(json_string_value(json_object_get(workload, "prompts")), '/') + 1;
        char *prompts = file_join(bench->folder, name);
        json_set(workload, "prompts", json_string(prompts));
        free(prompts);
    }
    assert_int_equal(json_dump_file(plan, path, 0), 0);
    json_decref(both);
    plan_free(&bench->plan);
    if (plan_read(path, &bench->plan, &bench->error))
        fail_msg("%s", bench->error.message);
    free(text);
    free(path);
}

static void write_prompts(const struct bench *bench, const char *name)
{
    static const char text[] = "{\"id\": \"one\", \"text\": \"first\"}\n{\"id\": \"two\", \"text\": \"second\"}\n";
    char *path = file_join(bench->folder, name);
    fixture_write(path, text, strlen(text));
    free(path);
}

static int set_up(void **state)
{
    struct bench *bench = xcalloc(1, sizeof *bench);
    bench->folder = fixture_make_folder();
    fake_source_init(&bench->source);
    write_prompts(bench, "code.jsonl");
    write_prompts(bench, "maths.jsonl");
    read_plan(bench, "{}");
    *state = bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    plan_free(&bench->plan);
    fixture_remove_folder(bench->folder);
    free(bench->said);
    free(bench);
    return 0;
}

static void campaign(struct bench *bench, const bool *only)
{
    char *path = file_join(bench->folder, "said.txt"), *runs = file_join(bench->folder, "runs");
    struct campaign_options options = {.runs = runs, .only = only};
    bench->error = (struct error){0};
    bench->source.loads = bench->source.requests = 0;
    fflush(stderr);
    int terminal = dup(STDERR_FILENO), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    dup2(file, STDERR_FILENO);
    bench->result = campaign_run(&bench->plan, &bench->source.base, &options, &bench->error);
    fflush(stderr);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    close(file);
    free(bench->said);
    bench->said = fixture_read(path, NULL);
    free(path);
    free(runs);
}

static void expect_success(struct bench *bench)
{
    campaign(bench, NULL);
    if (bench->result)
        fail_msg("%d: %s", bench->result, bench->error.message);
}

static char *run_folder(const struct bench *bench)
{
    return xformat("%s/runs/trial", bench->folder);
}

static void read_run(const struct bench *bench, struct run *run)
{
    struct error error = {0};
    char *folder = run_folder(bench);
    if (run_read(folder, NULL, run, &error))
        fail_msg("%s", error.message);
    free(folder);
}

/* Attempts of an arm; block 0: in all blocks. */
static int count_attempts(const struct run *run, const char *name, int block)
{
    struct arm arm;
    int count = 0;
    assert_true(arm_parse(name, &arm));
    for (int i = 0; i < run->attempt_count; i++)
        count += arm_equal(&run->attempts[i].attempt.arm, &arm) && (!block || run->attempts[i].attempt.block == block);
    return count;
}

static int count_lines(const struct ledger *ledger, const char *action)
{
    size_t i;
    const json_t *line;
    int count = 0;
    json_array_foreach(ledger->lines, i, line) count +=
        strcmp(json_string_value(json_object_get(line, "action")), action) == 0;
    return count;
}

/* Every arm, block and workload has an attempt that counts, and shares a session with auto's and linear's. */
static void check_complete(const struct bench *bench)
{
    struct run run;
    struct sessions sessions;
    read_run(bench, &run);
    sessions_init(&run, "", 0, &sessions);
    assert_int_equal(run.ledger.broken_at, 0);
    for (int block = 1; block <= bench->plan.blocks; block++)
        for (int w = 0; w < bench->plan.workload_count; w++)
            for (int a = 0; a < bench->plan.arm_count; a++) {
                const char *workload = bench->plan.workloads[w].name;
                const struct judged *counted = run_counted(&run, &bench->plan.arms[a], block, workload, NULL);
                assert_non_null(counted);
                bool paired[METHOD_COUNT] = {false};
                for (int i = 0; i < run.attempt_count; i++) {
                    const struct attempt *attempt = &run.attempts[i].attempt;
                    if (attempt->block == block && attempt->complete && attempt_find_workload(attempt, workload) &&
                        sessions.of_attempt[i] == sessions.of_attempt[counted - run.attempts])
                        paired[attempt->arm.method] = true;
                }
                assert_true(bench->plan.arms[a].method != METHOD_DDTREE ||
                            (paired[METHOD_AUTO] && paired[METHOD_LINEAR]));
                assert_true(bench->plan.arms[a].method != METHOD_LINEAR || paired[METHOD_AUTO]);
            }
    sessions_free(&sessions);
    run_free(&run);
}

/* As if the machine had been started anew since, which attempts and ledger have always said. */
static void pretend_reboot(const struct bench *bench)
{
    struct run run;
    char *folder = run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    read_run(bench, &run);
    for (int i = 0; i < run.attempt_count; i++) {
        size_t size;
        char *text = fixture_read(run.attempts[i].attempt.path, &size);
        for (char *at = text; (at = strstr(at, run.attempts[i].attempt.boot_id)); at++)
            ++*at;
        fixture_write(run.attempts[i].attempt.path, text, size);
        free(text);
    }
    assert_int_equal(unlink(path), 0);
    fixture_enter(folder);
    run_free(&run);
    free(folder);
    free(path);
}

/* --- a whole campaign ------------------------------------------------------------------------------------------- */

static void measures_every_arm_in_every_block(void **state)
{
    struct bench *bench = *state;
    expect_success(bench);
    assert_int_equal(bench->source.loads, 8);
    assert_int_equal(bench->source.requests, 8 * REQUESTS);
    check_complete(bench);

    struct run run;
    read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8);
    assert_int_equal(count_lines(&run.ledger, "begin"), 8);
    assert_int_equal(count_lines(&run.ledger, "end"), 8);
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        int order[4];
        assert_true(attempt->complete && attempt->audit.done);
        assert_int_equal(attempt->audit.tokens, PROMPTS * 16);
        assert_int_equal(run.attempts[i].verdicts.count, 0);
        plan_arm_order(&bench->plan, attempt->block, order);
        assert_true(arm_equal(&bench->plan.arms[order[attempt->position - 1]], &attempt->arm));
        plan_prompt_order(&bench->plan, attempt->block, "code", PROMPTS, order);
        assert_true(attempt->samples[0].warmup);
        for (int p = 0; p < PROMPTS; p++) {
            assert_false(attempt->samples[1 + p].warmup);
            assert_string_equal(attempt->samples[1 + p].prompt, order[p] ? "two" : "one");
        }
    }
    run_free(&run);
}

static void notes_in_the_ledger_what_the_files_hash_to(void **state)
{
    struct bench *bench = *state;
    expect_success(bench);
    struct run run;
    read_run(bench, &run);
    size_t i;
    const json_t *line;
    json_array_foreach(run.ledger.lines, i, line)
    {
        const json_t *sha256 = json_object_get(line, "sha256");
        const char *id = json_string_value(json_object_get(line, "attempt"));
        if (strcmp(json_string_value(json_object_get(line, "action")), "end") != 0)
            continue;
        const struct attempt *attempt = NULL;
        for (int a = 0; a < run.attempt_count; a++)
            if (strcmp(run.attempts[a].attempt.id, id) == 0)
                attempt = &run.attempts[a].attempt;
        char hash[FILE_HASH_SIZE];
        assert_non_null(attempt);
        assert_int_equal(file_hash(attempt->path, hash, &bench->error), 0);
        assert_string_equal(json_string_value(sha256), hash);
    }
    run_free(&run);
}

static void hashes_tell_cells_and_comparisons_apart(void **state)
{
    struct bench *bench = *state;
    expect_success(bench);
    struct run run;
    read_run(bench, &run);
    for (int i = 0; i < run.attempt_count; i++)
        for (int j = 0; j < run.attempt_count; j++) {
            const struct attempt *a = &run.attempts[i].attempt, *b = &run.attempts[j].attempt;
            assert_string_equal(a->workloads[0].compare_hash, b->workloads[0].compare_hash);
            assert_int_equal(strcmp(a->workloads[0].cell_hash, b->workloads[0].cell_hash) == 0,
                             arm_equal(&a->arm, &b->arm));
        }
    run_free(&run);
}

static void measures_nothing_twice(void **state)
{
    struct bench *bench = *state;
    struct run before, after;
    expect_success(bench);
    read_run(bench, &before);
    read_plan(bench, "{'title': 'Another title', 'rules': {'MIN_BLOCKS': 2}}");
    read_plan(bench, "{}");
    expect_success(bench);
    read_run(bench, &after);
    assert_int_equal(bench->source.loads, 0);
    assert_non_null(strstr(bench->said, "nothing to measure"));
    assert_string_equal(before.ledger.head, after.ledger.head);
    run_free(&before);
    run_free(&after);
}

static void measures_only_the_arms_asked_for_and_their_baselines(void **state)
{
    struct bench *bench = *state;
    const bool only[] = {false, false, false, true};
    struct run run;
    campaign(bench, only);
    assert_int_equal(bench->result, 0);
    read_run(bench, &run);
    assert_int_equal(count_attempts(&run, "tp1-b16", 0), 2);
    assert_int_equal(count_attempts(&run, "tp1-auto", 0), 2);
    assert_int_equal(count_attempts(&run, "tp1-linear", 0), 2);
    assert_int_equal(count_attempts(&run, "tp1-b8", 0), 0);
    run_free(&run);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 2);
    check_complete(bench);
}

static void refuses_prompts_that_do_not_fit(void **state)
{
    struct bench *bench = *state;
    bench->source.context = 21;
    campaign(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_non_null(
        strstr(bench->error.message, "code.jsonl: prompt \"two\": 6 prompt tokens and 16 new ones are more than 21"));
    assert_int_equal(bench->source.loads, 0);
    char *folder = run_folder(bench), *plan = file_join(folder, "plan.json");
    assert_false(file_exists(plan));
    free(folder);
    free(plan);
}

static void asks_for_enough_prompts(void **state)
{
    struct bench *bench = *state;
    read_plan(bench, "{'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16, 'count': 3}]}");
    campaign(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_non_null(strstr(bench->error.message, "code.jsonl: 2 prompts, but workload \"code\" asks for 3"));
}

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

static void interrupt_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        raise(SIGINT);
}

static void terminate_at_request(struct fake_source *source)
{
    if (source->requests == source->at_request)
        raise(SIGTERM);
}

/* Runs the campaign in a process of its own, which dies in it. */
static void die_at_request(struct bench *bench, void (*how)(struct fake_source *), int request)
{
    bench->source.on_request = how;
    bench->source.at_request = request;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        campaign(bench, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 9);
    bench->source.on_request = NULL;
}

static void goes_on_after_a_crash(void **state)
{
    struct bench *bench = *state;
    void (*const ways[])(struct fake_source *) = {exit_at_request, kill_at_request};
    int done = 0;
    for (int i = 0; i < 2; i++) {
        die_at_request(bench, ways[i], 2 * REQUESTS + 2);
        done += 2;
    }
    expect_success(bench);
    assert_int_equal(bench->source.loads, 8 - done);
    check_complete(bench);
    struct run run;
    read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8 + 2);
    int incomplete = 0;
    for (int i = 0; i < run.attempt_count; i++)
        incomplete += !run.attempts[i].attempt.complete && !run.attempts[i].attempt.end_status;
    assert_int_equal(incomplete, 2);
    run_free(&run);
}

/* What is not a result is not counted as a try. */
static void goes_on_after_any_number_of_crashes(void **state)
{
    struct bench *bench = *state;
    for (int i = 0; i < 5; i++)
        die_at_request(bench, kill_at_request, 2);
    expect_success(bench);
    check_complete(bench);
}

static void measures_side_by_side_again_after_a_reboot(void **state)
{
    struct bench *bench = *state;
    for (int attempts = 1; attempts < 4; attempts++) {
        die_at_request(bench, kill_at_request, attempts * REQUESTS + 1);
        pretend_reboot(bench);
    }
    expect_success(bench);
    check_complete(bench);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void ends_with_whole_lines_when_interrupted(void **state)
{
    struct bench *bench = *state;
    void (*const ways[])(struct fake_source *) = {interrupt_at_request, terminate_at_request};
    for (int i = 0; i < 2; i++) {
        bench->source.on_request = ways[i];
        bench->source.at_request = REQUESTS + 2;
        campaign(bench, NULL);
        assert_int_equal(bench->result, CAMPAIGN_INTERRUPTED);
        assert_non_null(strstr(bench->said, "interrupted"));
        struct run run;
        read_run(bench, &run);
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
        assert_int_equal(count_lines(&run.ledger, "begin"), count_lines(&run.ledger, "end"));
        run_free(&run);
    }
    bench->source.on_request = NULL;
    expect_success(bench);
    check_complete(bench);
}

/* Takes the ledger's last line away, as if the program had ended before it. */
static void cut_last_line(const struct bench *bench)
{
    char *folder = run_folder(bench), *path = file_join(folder, "ledger.jsonl"), *text = fixture_read(path, NULL);
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
    expect_success(bench);
    cut_last_line(bench);
    read_run(bench, &run);
    assert_int_equal(count_lines(&run.ledger, "end"), 7);
    run_free(&run);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    read_run(bench, &run);
    assert_int_equal(count_lines(&run.ledger, "end"), 8);
    for (int i = 0; i < run.attempt_count; i++)
        assert_int_equal(run.attempts[i].verdicts.count, 0);
    run_free(&run);
}

static void refuses_a_broken_ledger(void **state)
{
    struct bench *bench = *state;
    expect_success(bench);
    char *folder = run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    size_t size;
    char *text = fixture_read(path, &size), *at = strstr(text, "complete");
    *at = 'C';
    fixture_write(path, text, size);
    read_plan(bench, "{'blocks': 3}");
    campaign(bench, NULL);
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
    char *folder = run_folder(bench);
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
    expect_success(bench);
    append_by_user(bench, "invalidate", "trial/tp1-b8/2-1");
    expect_success(bench);
    assert_int_equal(bench->source.loads, 1);
    assert_non_null(
        strstr(bench->said, "block 2, tp1-b8: again, since trial/tp1-b8/2-1 was invalid (WITHDRAWN: heat)"));
    check_complete(bench);
    for (int i = 0; i < 2; i++) {
        char *id = xformat("trial/tp1-b8/2-%d", 2 + i);
        append_by_user(bench, "invalidate", id);
        expect_success(bench);
        assert_int_equal(bench->source.loads, i == 0); /* three tries, whoever voided them */
        free(id);
    }
    read_run(bench, &run);
    assert_int_equal(count_attempts(&run, "tp1-b8", 2), 3);
    run_free(&run);
}

/* Three tries, whoever takes their files away. */
static void gives_no_tries_for_files_removed(void **state)
{
    struct bench *bench = *state;
    expect_success(bench);
    char *folder = run_folder(bench);
    for (int i = 1; i <= 3; i++) {
        char *path = xformat("%s/attempts/tp1-b8/1-%d.jsonl", folder, i), *id = xformat("trial/tp1-b8/1-%d", i);
        if (i == 2)
            append_by_user(bench, "purge", id);
        assert_int_equal(unlink(path), 0);
        expect_success(bench);
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
    expect_success(bench);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    append_by_user(bench, "purge", "trial/tp1-b8/1-1");
    append_by_user(bench, "purge", "trial/tp1-b8/2-1");
    expect_success(bench);
    assert_int_equal(bench->source.loads, 2);
    check_complete(bench);
}

static void measures_again_what_vanished(void **state)
{
    struct bench *bench = *state;
    struct run run;
    expect_success(bench);
    char *folder = run_folder(bench), *path = xformat("%s/attempts/tp1-linear/1-1.jsonl", folder);
    assert_int_equal(unlink(path), 0);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 1);
    check_complete(bench);
    read_run(bench, &run);
    assert_non_null(
        strstr(bench->said, "block 1, tp1-linear: again, since trial/tp1-linear/1-1 was invalid (VANISHED"));
    assert_int_equal(count_attempts(&run, "tp1-linear", 1), 2); /* the number of the first is not used again */
    run_free(&run);
    free(path);
    free(folder);
}

/* --- invalid attempts ------------------------------------------------------------------------------------------- */

static void tries_invalid_attempts_twice_more(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 1000;
    expect_success(bench);
    struct run run;
    read_run(bench, &run);
    for (int block = 1; block <= 2; block++) {
        assert_int_equal(count_attempts(&run, "tp1-b8", block), 3);
        assert_int_equal(count_attempts(&run, "tp1-auto", block), 1);
    }
    assert_int_equal(count_lines(&run.ledger, "verdict"), 6);
    assert_non_null(strstr(bench->said, "again, since trial/tp1-b8/1-1 was invalid (OUTPUT_SHORT: "));
    assert_non_null(strstr(bench->said, "2 given up after invalid attempts"));
    run_free(&run);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void keeps_the_first_valid_try(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 2;
    expect_success(bench);
    check_complete(bench);
    struct run run;
    read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8 + 2);
    assert_int_equal(count_attempts(&run, "tp1-b8", 1), 3);
    assert_int_equal(count_attempts(&run, "tp1-b8", 2), 1);
    run_free(&run);
}

static void does_not_try_again_what_must_fail_again(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 1000;
    bench->source.bad_error_code = "CONTEXT_OVERFLOW";
    expect_success(bench);
    struct run run;
    read_run(bench, &run);
    assert_int_equal(count_attempts(&run, "tp1-b8", 0), 2);
    run_free(&run);
}

/* --- plans that grow, settings that change ---------------------------------------------------------------------- */

static void measures_only_what_a_plan_grew_by(void **state)
{
    struct bench *bench = *state;
    struct run run;
    expect_success(bench);

    read_plan(bench, "{'blocks': 3}");
    expect_success(bench);
    assert_int_equal(bench->source.loads, 4);
    read_run(bench, &run);
    assert_int_equal(count_lines(&run.ledger, "amend"), 1);
    size_t i;
    const json_t *line;
    json_array_foreach(run.ledger.lines, i, line)
    {
        bool amends = strcmp(json_string_value(json_object_get(line, "action")), "amend") == 0;
        assert_int_equal(json_integer_value(json_object_get(line, "blocks_before")), amends ? 2 : 0);
        assert_int_equal(json_integer_value(json_object_get(line, "blocks")), amends ? 3 : 0);
    }
    run_free(&run);

    read_plan(bench, "{'blocks': 3, 'budgets': [8, 12, 16]}");
    expect_success(bench);
    assert_int_equal(bench->source.loads, 3);

    read_plan(bench, "{'blocks': 3, 'budgets': [8, 12, 16], 'workloads':"
                     " [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16},"
                     "  {'name': 'maths', 'prompts': '/maths.jsonl', 'max_new_tokens': 16}]}");
    expect_success(bench);
    assert_int_equal(bench->source.loads, 15);
    assert_int_equal(bench->source.requests, 15 * REQUESTS);
    check_complete(bench);

    char *folder = run_folder(bench), *plan = file_join(folder, "plan-4.json");
    assert_true(file_exists(plan));
    free(folder);
    free(plan);
}

/* Which comparisons are the headline is settled before anything was seen. */
static void keeps_the_headline_once_measuring_has_begun(void **state)
{
    struct bench *bench = *state;
    read_plan(bench, "{'headline': {'comparisons': [['b8', 'auto']]}}");
    expect_success(bench);
    read_plan(bench, "{'headline': {'comparisons': [['linear', 'auto']]}}");
    campaign(bench, NULL);
    assert_non_null(strstr(bench->error.message, "\"headline\" differs"));
    bench->error = (struct error){0};
    read_plan(bench, "{'headline': {'comparisons': [['b8', 'auto']]}, 'blocks': 3}");
    expect_success(bench);
}

static void measures_baselines_again_in_a_new_session(void **state)
{
    struct bench *bench = *state;
    struct run run;
    expect_success(bench);
    pretend_reboot(bench);
    read_plan(bench, "{'budgets': [8, 12, 16]}");
    expect_success(bench);
    assert_non_null(strstr(bench->said, "block 1, tp1-auto: again, to stand beside the other arms in one session"));
    assert_null(strstr(bench->said, "tp1-b12: again"));
    read_run(bench, &run);
    for (int block = 1; block <= 2; block++) {
        assert_int_equal(count_attempts(&run, "tp1-auto", block), 2);
        assert_int_equal(count_attempts(&run, "tp1-linear", block), 2);
        assert_int_equal(count_attempts(&run, "tp1-b8", block), 1);
        assert_int_equal(count_attempts(&run, "tp1-b12", block), 1);
    }
    run_free(&run);
    check_complete(bench);
    expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void begins_new_cells_where_a_setting_changed(void **state)
{
    struct bench *bench = *state;
    struct run run;
    expect_success(bench);
    read_plan(bench, "{'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 20}]}");
    bench->source.weights = "4567";
    expect_success(bench);
    assert_int_equal(bench->source.loads, 8);
    assert_non_null(strstr(bench->said, "4 of 4 cells begin anew, since these changed: workload, source;"));
    read_run(bench, &run);
    assert_int_equal(run.attempt_count, 16);
    run_free(&run);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(measures_every_arm_in_every_block),
        TEST(notes_in_the_ledger_what_the_files_hash_to),
        TEST(hashes_tell_cells_and_comparisons_apart),
        TEST(measures_nothing_twice),
        TEST(measures_only_the_arms_asked_for_and_their_baselines),
        TEST(refuses_prompts_that_do_not_fit),
        TEST(asks_for_enough_prompts),
        TEST(goes_on_after_a_crash),
        TEST(goes_on_after_any_number_of_crashes),
        TEST(measures_side_by_side_again_after_a_reboot),
        TEST(ends_with_whole_lines_when_interrupted),
        TEST(notes_an_end_that_the_ledger_missed),
        TEST(refuses_a_broken_ledger),
        TEST(measures_again_what_was_withdrawn),
        TEST(measures_again_what_vanished),
        TEST(gives_no_tries_for_files_removed),
        TEST(measures_again_what_was_hopeless_and_purged),
        TEST(tries_invalid_attempts_twice_more),
        TEST(keeps_the_first_valid_try),
        TEST(does_not_try_again_what_must_fail_again),
        TEST(measures_only_what_a_plan_grew_by),
        TEST(keeps_the_headline_once_measuring_has_begun),
        TEST(measures_baselines_again_in_a_new_session),
        TEST(begins_new_cells_where_a_setting_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
