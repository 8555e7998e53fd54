#include "tests/collect/bench.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/campaign.h"
#include "collect/session.h"
#include "tests/record/fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char plan_text[] =
    "{'schema': 'cleanslate.plan/1', 'name': 'trial', 'source': {'kind': 'engine', 'target': 't', 'drafter': 'd'},"
    " 'methods': ['auto', 'linear', 'ddtree'], 'budgets': [8, 16], 'blocks': 2, 'seed': 3,"
    " 'workloads': [{'name': 'code', 'prompts': 'FOLDER/code.jsonl', 'max_new_tokens': 16}]}";

void bench_read_plan(struct bench *bench, const char *changes)
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

int bench_set_up(void **state)
{
    struct bench *bench = xcalloc(1, sizeof *bench);
    bench->folder = fixture_make_folder();
    fake_source_init(&bench->source);
    write_prompts(bench, "code.jsonl");
    write_prompts(bench, "maths.jsonl");
    bench_read_plan(bench, "{}");
    *state = bench;
    return 0;
}

int bench_tear_down(void **state)
{
    struct bench *bench = *state;
    plan_free(&bench->plan);
    fixture_remove_folder(bench->folder);
    free(bench->said);
    free(bench);
    return 0;
}

void bench_run(struct bench *bench, const bool *only)
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

void bench_expect_success(struct bench *bench)
{
    bench_run(bench, NULL);
    if (bench->result)
        fail_msg("%d: %s", bench->result, bench->error.message);
}

/* The process took `said` with it; the file is there. */
void bench_check_status(const struct bench *bench, int status, bool expected)
{
    if (expected)
        return;
    char *path = file_join(bench->folder, "said.txt");
    fputs(file_exists(path) ? fixture_read(path, NULL) : "nothing\n", stderr);
    fail_msg("%s %d", WIFSIGNALED(status) ? "ended by signal" : "ended with",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

char *bench_run_folder(const struct bench *bench)
{
    return xformat("%s/runs/trial", bench->folder);
}

void bench_read_run(const struct bench *bench, struct run *run)
{
    struct error error = {0};
    char *folder = bench_run_folder(bench);
    if (run_read(folder, NULL, run, &error))
        fail_msg("%s", error.message);
    free(folder);
}

int bench_count_attempts(const struct run *run, const char *name, int block)
{
    struct arm arm;
    int count = 0;
    assert_true(arm_parse(name, &arm));
    for (int i = 0; i < run->attempt_count; i++)
        count += arm_equal(&run->attempts[i].attempt.arm, &arm) && (!block || run->attempts[i].attempt.block == block);
    return count;
}

int bench_count_lines(const struct ledger *ledger, const char *action)
{
    size_t i;
    const json_t *line;
    int count = 0;
    json_array_foreach(ledger->lines, i, line) count +=
        strcmp(json_string_value(json_object_get(line, "action")), action) == 0;
    return count;
}

void bench_check_complete(const struct bench *bench)
{
    struct run run;
    struct sessions sessions;
    bench_read_run(bench, &run);
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

void bench_pretend_reboot(const struct bench *bench)
{
    struct run run;
    char *folder = bench_run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    bench_read_run(bench, &run);
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
