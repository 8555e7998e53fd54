#include "tests/scale.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/attempt.h"
#include "collect/record/place.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 3, TOKENS = 13, CUT_OFF_EVERY = 7 };

static const char *const arms[SCALE_ARMS] = {"tp1-auto", "tp1-linear", "tp1-b4",  "tp1-b8",  "tp1-b12",
                                             "tp1-b15",  "tp1-b16",    "tp1-b24", "tp1-b32", "tp1-b64"};

static const char plan_format[] =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"scale\", \"source\": {\"kind\": \"engine\", \"target\": \"t\","
    " \"drafter\": \"d\", \"dtype\": \"float32\"}, \"methods\": [\"auto\", \"linear\", \"ddtree\"],"
    " \"budgets\": [4, 8, 12, 15, 16, 24, 32, 64], \"blocks\": %d, \"workloads\": ["
    " {\"name\": \"code\", \"prompts\": \"code.jsonl\", \"count\": 3, \"max_new_tokens\": 13, \"ignore_eos\": true},"
    " {\"name\": \"maths\", \"prompts\": \"maths.jsonl\", \"count\": 3, \"max_new_tokens\": 13, \"ignore_eos\": "
    "true}]}";

/* --- attempts -------------------------------------------------------------------------------------------------------
 */

static void put_sample(FILE *out, bool plain, const char *workload, int prompt, int64_t start_ns, int64_t decode_ns)
{
    struct sample sample;
    sample_init(&sample);
    sample.workload = xstrdup(workload);
    sample.prompt = xformat("%s-%d", workload, prompt);
    sample.ok = true;
    sample.asked_tokens = sample.tokens = TOKENS;
    sample.asked_ignore_eos = true;
    sample.first_tokens = 1;
    sample.finish = FINISH_LENGTH;
    sample.prompt_tokens = 20;
    sample.token_ids = xcalloc(TOKENS, sizeof *sample.token_ids);
    for (int i = 0; i < TOKENS; i++)
        sample.token_ids[i] = 100 + i;
    sample.rounds = plain ? TOKENS - 1 : 4;
    sample.accepted = xcalloc((size_t)sample.rounds, sizeof *sample.accepted);
    for (int i = 0; i < sample.rounds; i++)
        sample.accepted[i] = plain ? 1 : 3;
    sample.ttft_ns = 5000;
    sample.decode_ns = decode_ns;
    sample.start_ns = start_ns;
    sample.end_ns = start_ns + sample.ttft_ns + decode_ns;
    json_t *line = sample_to_json(&sample);
    json_dumpf(line, out, JSON_COMPACT);
    fputc('\n', out);
    json_decref(line);
    sample_free(&sample);
}

static void put_header(FILE *out, const struct attempt_place *place)
{
    char arm[ARM_NAME_SIZE];
    json_t *header = fixture_header(arm_name(&place->arm, arm), place->block, place->try_number);
    json_set(header, "type", json_string("attempt"));
    json_set(header, "schema", json_string(ATTEMPT_SCHEMA));
    json_t *workloads = json_object_get(header, "workloads");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "maths" : "code";
        char *hash = xformat("%s-%s", arm, name);
        json_set(json_object_get(workloads, name), "cell_hash", json_string(hash));
        free(hash);
    }
    json_dumpf(header, out, JSON_COMPACT);
    fputc('\n', out);
    json_decref(header);
}

/* Writes the attempt and answers the hash of its file in hex. */
static void write_attempt(const char *run, const struct attempt_place *place, bool whole, char *hex)
{
    char *path = place_path(run, place), *bytes;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    put_header(out, place);
    const int64_t start_ns = 1 + place->arm.method + 10 * place->arm.budget + 1000 * place->try_number +
                             1000000 * (int64_t)place->block; /* equal times would make it a copy */
    for (int workload = 0; workload < 2; workload++)
        for (int prompt = 1; prompt <= PROMPTS; prompt++)
            put_sample(out, place->arm.method == METHOD_AUTO, workload ? "maths" : "code", prompt, start_ns,
                       100000 - 1000 * place->arm.budget + 100 * place->block + 10 * prompt);
    fprintf(out, "{\"type\":\"end\",\"status\":\"%s\"}\n", whole ? "complete" : "aborted");
    fclose(out);
    fixture_write(path, bytes, size);
    file_hash_bytes(bytes, size, hex);
    free(bytes);
    free(path);
}

/* --- the ledger -----------------------------------------------------------------------------------------------------
 */

struct chain {
    FILE *out;
    int lines;
    char head[FILE_HASH_SIZE];
};

/* `details`: the keys behind the action's, as JSON. */
static void put_line(struct chain *chain, const char *action, const struct attempt_place *place, const char *details)
{
    char name[PLACE_NAME_SIZE];
    char *line = xformat("{\"seq\":%d,\"prev\":\"%s\",\"time\":\"2026-03-01T12:00:00Z\",\"actor\":\"collect\","
                         "\"action\":\"%s\",\"attempt\":\"scale/%s\"%s}",
                         ++chain->lines, chain->head, action, place_name(place, name), details);
    fprintf(chain->out, "%s\n", line);
    file_hash_bytes(line, strlen(line), chain->head);
    free(line);
}

static void add_attempt(const char *run, const struct attempt_place *place, bool whole, struct chain *chain)
{
    char hex[FILE_HASH_SIZE];
    write_attempt(run, place, whole, hex);
    char *end = xformat(",\"status\":\"%s\",\"sha256\":\"%s\"", whole ? "complete" : "aborted", hex);
    put_line(chain, "begin", place, "");
    put_line(chain, "end", place, end);
    free(end);
}

int scale_make(const char *run, int blocks)
{
    struct error error = {0};
    char *plan = xformat(plan_format, blocks), *plan_path = file_join(run, "plan.json");
    char *ledger = file_join(run, "ledger.jsonl");
    int attempts = 0;
    for (int i = 0; i < SCALE_ARMS; i++) {
        char *home = xformat("%s/attempts/%s", run, arms[i]);
        assert_int_equal(file_make_folder(home, &error), 0);
        free(home);
    }
    struct chain chain = {.out = fopen(ledger, "w")};
    assert_non_null(chain.out);
    memset(chain.head, '0', FILE_HASH_SIZE - 1);
    for (int block = 1; block <= blocks; block++)
        for (int i = 0; i < SCALE_ARMS; i++) {
            struct attempt_place place = {.block = block, .try_number = 1};
            assert_true(arm_parse(arms[i], &place.arm));
            bool whole = place.arm.method != METHOD_DDTREE || (block + i) % CUT_OFF_EVERY;
            add_attempt(run, &place, whole, &chain);
            attempts++;
            if (whole)
                continue;
            place.try_number = 2;
            add_attempt(run, &place, true, &chain);
            attempts++;
        }
    fclose(chain.out);
    fixture_write(plan_path, plan, strlen(plan));
    free(plan);
    free(plan_path);
    free(ledger);
    return attempts;
}
