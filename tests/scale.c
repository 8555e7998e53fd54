#include "tests/scale.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { TOKENS_ROUND = 3, CUT_OFF_EVERY = 7, STEP_S = 4, REQUEST_STEP_NS = 1000000 };

#define FIRST_STARTED 1772366400 /* 2026-03-01T12:00:00Z */

static const char plan_format[] =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"scale\", \"source\": {\"kind\": \"engine\", \"target\": \"t\","
    " \"drafter\": \"d\", \"dtype\": \"float32\"}, \"methods\": [\"auto\", \"linear\", \"ddtree\"],"
    " \"budgets\": [4, 8, 12, 15, 16, 24, 32, 64], \"blocks\": %d, \"workloads\": ["
    " {\"name\": \"code\", \"prompts\": \"code.jsonl\", \"count\": %d, \"max_new_tokens\": %d, \"ignore_eos\": true},"
    " {\"name\": \"maths\", \"prompts\": \"maths.jsonl\", \"count\": %d, \"max_new_tokens\": %d, \"ignore_eos\": "
    "true}]}";

/* --- attempts ----------------------------------------------------------------------------------------------------- */

int scale_prompts(const struct plan *plan, int workload)
{
    return plan->workloads[workload].count;
}

bool scale_is_measured(const struct plan *plan, int block, int prompt)
{
    return !plan->tuning_blocks || (prompt % 2 == 1) == (block <= plan->tuning_blocks);
}

static void put_json(FILE *out, json_t *line)
{
    json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(line);
}

static void put_samples(FILE *out, const struct plan *plan, const struct attempt_place *place, int workload,
                        const struct scale_source *source)
{
    const struct plan_workload *settings = &plan->workloads[workload];
    int count = scale_prompts(plan, workload);
    struct sample *samples = xcalloc((size_t)count, sizeof *samples);
    for (int i = 0; i < count; i++) {
        char *prompt = xformat("%s-%d", settings->name, i + 1);
        sample_init(&samples[i]);
        samples[i].workload = name_keep(settings->name);
        samples[i].prompt = name_keep(prompt);
        free(prompt);
        samples[i].asked_tokens = settings->max_new_tokens;
        samples[i].asked_ignore_eos = settings->ignore_eos;
    }
    source->fill(plan, place, workload, samples);
    for (int i = 0; i < count; i++) {
        if (scale_is_measured(plan, place->block, i))
            put_json(out, sample_to_json(&samples[i]));
        sample_free(&samples[i]);
    }
    free(samples);
}

static json_t *make_workloads(const struct plan *plan, const char *arm, int block)
{
    const char *part = block <= plan->tuning_blocks ? "tuning" : "reported";
    json_t *workloads = json_object();
    for (int w = 0; w < plan->workload_count; w++) {
        char *compare = xformat("%s-%s", plan->workloads[w].name, part), *cell = xformat("%s-%s", arm, compare);
        json_set(workloads, plan->workloads[w].name,
                 json_pack("{s:s, s:s}", "cell_hash", cell, "compare_hash", compare));
        free(compare);
        free(cell);
    }
    return workloads;
}

static void format_time(int number, char *text, size_t size)
{
    const time_t time = FIRST_STARTED + (time_t)STEP_S * number;
    struct tm parts;
    gmtime_r(&time, &parts);
    strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static void put_header(FILE *out, const struct plan *plan, const struct attempt_place *place, const char *started)
{
    char arm[ARM_NAME_SIZE], name[PLACE_NAME_SIZE];
    json_t *header = fixture_header(arm_name(&place->arm, arm), place->block, place->try_number);
    char *id = xformat("%s/%s", plan->name, place_name(place, name));
    json_set(header, "type", json_string("attempt"));
    json_set(header, "schema", json_string(ATTEMPT_SCHEMA));
    json_set(header, "id", json_string(id));
    json_set(header, "started", json_string(started));
    json_set(header, "workloads", make_workloads(plan, arm, place->block));
    put_json(out, header);
    free(id);
}

/* Writes the attempt and answers the hash of its file in hex. */
static void write_attempt(const char *run, const struct plan *plan, const struct attempt_place *place, bool whole,
                          const char *started, const struct scale_source *source, char *hex)
{
    char *path = place_path(run, place), *bytes;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    put_header(out, plan, place, started);
    for (int workload = 0; workload < plan->workload_count; workload++)
        put_samples(out, plan, place, workload, source);
    json_t *end = json_pack("{s:s, s:s}", "type", "end", "status", whole ? "complete" : "aborted");
    if (source->finish)
        json_set(end, "audit", json_pack("{s:f, s:i}", "regret_max", source->finish(plan, place, out), "tokens", 1000));
    put_json(out, end);
    fclose(out);
    fixture_write(path, bytes, size);
    file_hash_bytes(bytes, size, hex);
    free(bytes);
    free(path);
}

/* --- the ledger --------------------------------------------------------------------------------------------------- */

struct chain {
    FILE *out;
    int lines, attempts;
    char head[FILE_HASH_SIZE];
};

/* `details`: the keys behind the action's, as JSON. */
static void put_line(struct chain *chain, const char *action, const char *time, const char *attempt,
                     const char *details)
{
    char *line = xformat("{\"seq\":%d,\"prev\":\"%s\",\"time\":\"%s\",\"actor\":\"collect\",\"action\":\"%s\","
                         "\"attempt\":\"%s\"%s}",
                         ++chain->lines, chain->head, time, action, attempt, details);
    fprintf(chain->out, "%s\n", line);
    file_hash_bytes(line, strlen(line), chain->head);
    free(line);
}

static void add_attempt(const char *run, const struct plan *plan, const struct attempt_place *place, bool whole,
                        const struct scale_source *source, struct chain *chain)
{
    char hex[FILE_HASH_SIZE], started[32], name[PLACE_NAME_SIZE];
    format_time(chain->attempts++, started, sizeof started);
    write_attempt(run, plan, place, whole, started, source, hex);
    char *id = xformat("%s/%s", plan->name, place_name(place, name));
    char *end = xformat(",\"status\":\"%s\",\"sha256\":\"%s\"", whole ? "complete" : "aborted", hex);
    put_line(chain, "begin", started, id, "");
    put_line(chain, "end", started, id, end);
    free(end);
    free(id);
}

static void add_blocks(const char *run, const struct plan *plan, const struct scale_source *source, struct chain *chain)
{
    int *order = xcalloc((size_t)plan->arm_count, sizeof *order);
    for (int block = 1; block <= plan_block_count(plan); block++) {
        plan_arm_order(plan, block, order);
        for (int i = 0; i < plan->arm_count; i++) {
            struct attempt_place place = {plan->arms[order[i]], block, 1};
            const int tries = source->count_tries(plan, &place);
            for (; place.try_number <= tries; place.try_number++)
                add_attempt(run, plan, &place, place.try_number == tries, source, chain);
        }
    }
    free(order);
}

static void read_plan(const char *run, const char *text, struct plan *plan)
{
    struct error error = {0};
    char *path = file_join(run, "plan.json");
    assert_int_equal(file_make_folder(run, &error), 0);
    fixture_write(path, text, strlen(text));
    if (plan_read(path, plan, &error))
        fail_msg("%s", error.message);
    free(path);
    for (int i = 0; i < plan->arm_count; i++) {
        char name[ARM_NAME_SIZE], *home = xformat("%s/attempts/%s", run, arm_name(&plan->arms[i], name));
        assert_int_equal(file_make_folder(home, &error), 0);
        free(home);
    }
}

int scale_write(const char *run, const char *text, const struct scale_source *source)
{
    struct plan plan = {0};
    read_plan(run, text, &plan);
    char *ledger = file_join(run, "ledger.jsonl");
    struct chain chain = {.out = fopen(ledger, "w")};
    assert_non_null(chain.out);
    memset(chain.head, '0', FILE_HASH_SIZE - 1);
    add_blocks(run, &plan, source, &chain);
    fclose(chain.out);
    free(ledger);
    plan_free(&plan);
    return chain.attempts;
}

/* --- a run that costs --------------------------------------------------------------------------------------------- */

static int count_tries(const struct plan *plan, const struct attempt_place *place)
{
    int arm = 0;
    while (!arm_equal(&plan->arms[arm], &place->arm))
        arm++;
    return place->arm.method != METHOD_DDTREE || (place->block + arm) % CUT_OFF_EVERY ? 1 : 2;
}

/* `number`: of the request within its attempt. The output ends with a round. */
static void fill_sample(const struct attempt_place *place, int number, struct sample *sample)
{
    const bool plain = place->arm.method == METHOD_AUTO;
    const int tokens = sample->asked_tokens;
    sample->ok = true;
    sample->tokens = tokens;
    sample->first_tokens = 1;
    sample->finish = FINISH_LENGTH;
    sample->prompt_tokens = 20;
    sample->token_ids = xcalloc((size_t)tokens, sizeof *sample->token_ids);
    sample->margins = xcalloc((size_t)tokens, sizeof *sample->margins);
    for (int i = 0; i < tokens; i++) {
        sample->token_ids[i] = 100 + i;
        sample->margins[i] = (float)(1 + (i * 7919 + number) % 1000) / 97.0F;
    }
    sample->rounds = plain ? tokens - 1 : (tokens - 1) / TOKENS_ROUND;
    sample->accepted = xcalloc((size_t)sample->rounds, sizeof *sample->accepted);
    for (int i = 0; i < sample->rounds; i++)
        sample->accepted[i] = plain ? 1 : TOKENS_ROUND;
    sample->ttft_ns = 5000;
    sample->decode_ns = 100000 - 1000 * place->arm.budget + 100 * place->block + 10 * number;
    sample->start_ns = REQUEST_STEP_NS * (int64_t)number + 1 + place->arm.method + 10 * place->arm.budget +
                       1000 * place->try_number + place->block; /* equal times would make it a copy */
    sample->end_ns = sample->start_ns + sample->ttft_ns + sample->decode_ns;
}

static void fill(const struct plan *plan, const struct attempt_place *place, int workload, struct sample *samples)
{
    for (int i = 0; i < scale_prompts(plan, workload); i++)
        fill_sample(place, workload * scale_prompts(plan, workload) + i, &samples[i]);
}

int scale_make(const char *run, int blocks, int prompts, int tokens)
{
    const struct scale_source source = {count_tries, fill, NULL};
    char *plan = xformat(plan_format, blocks, prompts, tokens, prompts, tokens);
    const int attempts = scale_write(run, plan, &source);
    free(plan);
    return attempts;
}
