#include "tests/server/measured.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/server/source.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char prompts_text[] = "{\"id\": \"p0\", \"text\": \"one\"}\n";

static char *make_plan(const struct measured *measured, const struct arm *arm, const char *source, const char *limits)
{
    const bool tree = arm->method == METHOD_DDTREE;
    char *prompts = file_join(measured->folder, "p.jsonl");
    char *budgets = tree ? xformat("'budgets': [%d],", arm->budget) : xstrdup("");
    char *text =
        xformat("{'schema': 'cleanslate.plan/1', 'name': 'm', 'source': %s, 'methods': ['%s'], %s 'blocks': 1,"
                " 'tensor_parallel': [%d], 'concurrency': [%d], 'limits': {%s},"
                " 'workloads': [{'name': 'code', 'prompts': '%s', 'max_new_tokens': 8, 'ignore_eos': true}]}",
                source, method_names[arm->method], budgets, arm->tensor_parallel, arm->concurrency, limits, prompts);
    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    fixture_write(prompts, prompts_text, strlen(prompts_text));
    free(prompts);
    free(budgets);
    return text;
}

void measured_open(struct measured *measured, const char *arm, const char *source, const char *limits)
{
    struct arm parsed;
    *measured = (struct measured){.folder = fixture_make_folder()};
    assert_true(arm_parse(arm, &parsed));
    char *text = make_plan(measured, &parsed, source, limits), *path = file_join(measured->folder, "plan.json");
    fixture_write(path, text, strlen(text));
    if (plan_read(path, &measured->plan, &measured->error) ||
        !(measured->source = server_source_open(&measured->plan, &measured->error)))
        fail_msg("%s", measured->error.message);
    free(text);
    free(path);
}

struct receipt {
    struct measured *measured;
    struct attempt_writer *writer;
    struct error error;
};

static int on_sample(void *context, struct sample *sample)
{
    struct receipt *receipt = context;
    receipt->measured->delivered++;
    int result = attempt_writer_add(receipt->writer, sample_to_json(sample), &receipt->error);
    sample_free(sample);
    return result;
}

static json_t *make_header(struct measured *measured, const char *arm)
{
    json_t *header = fixture_header(arm, 1, 1), *source = json_object_get(header, "source");
    json_object_del(json_object_get(header, "workloads"), "maths");
    json_object_clear(source);
    json_set(source, "kind", json_string("server"));
    json_set(header, "server", measured->source->class->inform(measured->source));
    return header;
}

static void make_requests(const struct measured *measured, struct request *requests, int count)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    for (int i = 0; i < count; i++)
        requests[i] = (struct request){.workload = "code",
                                       .prompt_id = names[i % 8],
                                       .text = names[i % 8],
                                       .max_new_tokens = 8,
                                       .limit_s = measured->plan.request_limit_s,
                                       .ignore_eos = true};
}

void measured_load(struct measured *measured, const char *arm)
{
    struct arm parsed;
    char *log = file_join(measured->folder, "logs/server.log");
    json_t *memory = NULL;
    assert_true(arm_parse(arm, &parsed));
    measured->loaded = measured->source->class->load(measured->source, &parsed, log, &memory, &measured->error);
    free(log);
}

/* The end line of what came of it. */
static void end_attempt(const struct measured *measured, struct attempt_writer *writer)
{
    static const char *const codes[] = {
        [SOURCE_SERVER_DIED] = "SERVER_DIED", [SOURCE_OUT_OF_MEMORY] = "OUT_OF_MEMORY", [SOURCE_SILENT] = "SILENT"};
    const int failed = measured->loaded ? measured->loaded : measured->ran;
    struct error error = {0};
    struct observed observed;
    char hash[FILE_HASH_SIZE];
    observed_init(&observed);
    assert_int_equal(measured->source->class->observe(measured->source, &observed, &error), 0);
    const struct attempt_end end = {.status = failed ? "failed" : "complete",
                                    .error_code = failed ? codes[failed] : NULL,
                                    .error_message = failed ? measured->error.message : NULL,
                                    .observed = &observed};
    assert_int_equal(attempt_writer_end(writer, &end, hash, &error), 0);
    observed_free(&observed);
}

void measured_send(struct measured *measured, const char *arm, int count)
{
    struct arm parsed;
    struct error error = {0};
    struct request *requests = xcalloc((size_t)count, sizeof *requests);
    char *path = file_join(measured->folder, "attempt.jsonl");
    assert_true(arm_parse(arm, &parsed));
    make_requests(measured, requests, count);
    struct receipt receipt = {measured, attempt_writer_open(path, make_header(measured, arm), &error), {{0}}};
    assert_non_null(receipt.writer);
    if (!measured->loaded)
        measured->ran = measured->source->class->run(measured->source, requests, count, parsed.concurrency, on_sample,
                                                     &receipt, &measured->error);
    end_attempt(measured, receipt.writer);
    if (attempt_read(path, &measured->attempt, &error))
        fail_msg("%s", error.message);
    rule_judge_attempt(&measured->attempt, NULL, &measured->verdicts);
    free(requests);
    free(path);
}

void measured_run(struct measured *measured, const char *arm, int count)
{
    measured_load(measured, arm);
    measured_send(measured, arm, count);
}

void measured_close(struct measured *measured)
{
    source_close(measured->source);
    verdicts_free(&measured->verdicts);
    attempt_free(&measured->attempt);
    plan_free(&measured->plan);
    fixture_remove_folder(measured->folder);
}

static bool is_listed(const char *rules, const char *id)
{
    size_t length = strlen(id);
    for (const char *at = rules; (at = strstr(at, id)); at += length)
        if ((at == rules || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

void measured_expect(const struct measured *measured, const char *rules)
{
    int listed = 0, found = 0;
    for (const char *at = rules; *at; at += strspn(at, " "), listed++)
        at += strcspn(at, " ");
    for (int i = 0; i < measured->verdicts.count; i++) {
        const struct verdict *verdict = &measured->verdicts.items[i];
        if (!is_listed(rules, rule_table[verdict->rule].id))
            fail_msg("not expected: %s: %s", rule_table[verdict->rule].id, verdict->detail);
        found++;
    }
    if (found != listed)
        fail_msg("%d of the rules \"%s\" fired", found, rules);
}
