#include "tests/analyze/campaign.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 3, TOKENS = 13, FIRST_TOKENS = 1, DIVERGING_TOKEN = 2 };
#define STEP_NS 1000000000 /* from start to start: requests come one after the other */

static const char *const plan_format =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"demo\", \"title\": \"Known times\","
    " \"source\": {\"kind\": \"engine\", \"target\": \"target\", \"drafter\": \"drafter\", \"dtype\": \"float32\"},"
    " \"methods\": [\"auto\", \"linear\", \"ddtree\"], \"budgets\": [8, 16], \"blocks\": %d, \"seed\": 1,"
    " \"workloads\": [{\"name\": \"code\", \"prompts\": \"code.jsonl\", \"count\": 3, \"max_new_tokens\": 13,"
    " \"ignore_eos\": true}, {\"name\": \"maths\", \"prompts\": \"maths.jsonl\", \"count\": 3, \"max_new_tokens\": 13,"
    " \"ignore_eos\": true}],"
    " \"headline\": {\"comparisons\": [[\"b16\", \"auto\"], [\"b16\", \"linear\"]], \"alpha\": 0.05}, \"rules\": %s}";

static void assert_done(int result, const struct error *error)
{
    if (result)
        fail_msg("%s", error->message);
}

void campaign_open(struct campaign *campaign, int blocks, const char *rules)
{
    struct error error = {0};
    *campaign = (struct campaign){.parent = fixture_make_folder()};
    campaign->folder = file_join(campaign->parent, "demo");
    assert_done(file_make_folder(campaign->folder, &error), &error);
    char *path = file_join(campaign->folder, "plan.json"), *text = xformat(plan_format, blocks, rules);
    fixture_write(path, text, strlen(text));
    assert_done(plan_read(path, &campaign->plan, &error), &error);
    free(text);
    free(path);
}

/* --- attempts ----------------------------------------------------------------------------------------------------- */

static void set_rounds(struct sample *sample, bool plain, int prompt, bool others, int too_many)
{
    static const int of_trees[PROMPTS][3] = {{4, 4, 5}, {4, 5, 4}, {6, 7}};
    sample->rounds = plain ? TOKENS - FIRST_TOKENS : prompt == PROMPTS ? 2 : 3;
    sample->accepted = xcalloc((size_t)(sample->rounds + too_many), sizeof *sample->accepted);
    for (int i = 0; i < sample->rounds; i++)
        sample->accepted[i] = plain ? 1 : of_trees[others && prompt == 1 ? 1 : prompt - 1][i];
    for (int i = 0; i < too_many; i++)
        sample->accepted[sample->rounds++] = 1;
}

static void set_tokens(struct sample *sample, float margin, bool diverges, bool repetitive)
{
    sample->tokens = TOKENS;
    sample->first_tokens = FIRST_TOKENS;
    sample->token_ids = xcalloc(TOKENS, sizeof *sample->token_ids);
    sample->margins = xcalloc(TOKENS, sizeof *sample->margins);
    for (int i = 0; i < TOKENS; i++) {
        sample->token_ids[i] = 100 + (repetitive ? i % 2 : i);
        sample->margins[i] = margin > 0 ? margin : 2;
    }
    if (diverges)
        sample->token_ids[DIVERGING_TOKEN] = 7;
}

static void set_times(struct sample *sample, bool plain, double tpot_ns, int64_t start_ns)
{
    double tokens = plain ? TOKENS - FIRST_TOKENS : CAMPAIGN_TOKENS_COMMITTED;
    sample->start_ns = start_ns;
    sample->ttft_ns = CAMPAIGN_TTFT_NS;
    sample->decode_ns = (int64_t)(tpot_ns * tokens);
    sample->end_ns = sample->start_ns + sample->ttft_ns + sample->decode_ns;
    sample->stages_ns[STAGE_VERIFY] = sample->decode_ns * 6 / 10;
    if (!plain) {
        sample->stages_ns[STAGE_DRAFT] = sample->decode_ns * 2 / 10;
        sample->stages_ns[STAGE_COMMIT] = sample->decode_ns / 10;
    }
}

/* Each attempt begins at its own nanosecond: equal times would make it a copy. */
static int64_t own_start(const struct campaign_attempt *attempt)
{
    const int last_letter = attempt->arm[strlen(attempt->arm) - 1];
    return 1000000 * (int64_t)attempt->block + 1000 * attempt->try_number + last_letter;
}

static json_t *make_sample(const struct campaign_attempt *attempt, const char *workload, int prompt, double tpot_ns)
{
    bool plain = strstr(attempt->arm, "auto") != NULL, code = strcmp(workload, "code") == 0;
    const int64_t start_ns = own_start(attempt) + STEP_NS * (int64_t)(2 * prompt + !code);
    char *id = xformat("%s-%d", workload, prompt);
    struct sample sample;
    sample_init(&sample);
    sample.workload = name_keep(workload);
    sample.prompt = name_keep(id);
    free(id);
    sample.asked_tokens = TOKENS;
    sample.asked_ignore_eos = true;
    sample.prompt_tokens = 20;
    sample.ok = !(code && prompt == attempt->failed_prompt);
    if (sample.ok) {
        sample.finish = FINISH_LENGTH;
        set_tokens(&sample, attempt->margin, code && prompt == attempt->diverging_prompt,
                   code && prompt <= attempt->repetitive);
        sample.tokens -= code && prompt == attempt->short_prompt;
        set_rounds(&sample, plain, prompt, attempt->other_rounds, code ? attempt->rounds_too_many : 0);
        set_times(&sample, plain, tpot_ns, start_ns);
    } else {
        sample.error_code = xstrdup("TIMEOUT");
        sample.error_message = xstrdup("no answer");
    }
    json_t *line = sample_to_json(&sample);
    sample_free(&sample);
    return line;
}

static json_t *make_workloads(const struct campaign_attempt *attempt)
{
    const char *const names[] = {attempt->code_tpot_ns ? "code" : NULL, attempt->maths_tpot_ns ? "maths" : NULL};
    json_t *workloads = json_object();
    for (int i = 0; i < 2; i++) {
        if (!names[i])
            continue;
        char *cell = xformat("%s-%s-%s", attempt->arm, names[i], attempt->cell_suffix ? attempt->cell_suffix : "a");
        char *compare = xformat("%s-%s", names[i], attempt->compare_suffix ? attempt->compare_suffix : "a");
        json_set(workloads, names[i], json_pack("{s:s, s:s}", "cell_hash", cell, "compare_hash", compare));
        free(cell);
        free(compare);
    }
    return workloads;
}

static struct attempt_writer *open_writer(const struct campaign *campaign, const struct campaign_attempt *attempt,
                                          int try_number)
{
    struct error error = {0};
    char *folder = xformat("%s/attempts/%s", campaign->folder, attempt->arm);
    char *path = xformat("%s/%d-%d.jsonl", folder, attempt->block, try_number);
    json_t *header = fixture_header(attempt->arm, attempt->block, try_number);
    json_set(header, "plan", json_string("plan.json"));
    json_set(header, "workloads", make_workloads(attempt));
    if (attempt->asked)
        json_set(json_object_get(json_object_get(header, "workloads"), "code"), "max_new_tokens",
                 json_integer(attempt->asked));
    json_set(json_object_get(header, "sampling"), "temperature", json_number(attempt->temperature));
    if (attempt->device)
        json_set(json_object_get(header, "source"), "device", json_string(attempt->device));
    if (attempt->dtype)
        json_set(json_object_get(header, "source"), "dtype", json_string(attempt->dtype));
    json_set(json_object_get(header, "source"), "target",
             json_pack("{s:s, s:s}", "path", attempt->target_path ? attempt->target_path : "t", "sha256", "f"));
    json_set(header, "machine",
             json_pack("{s:s, s:i}", "cpu", attempt->cpu ? attempt->cpu : "a processor", "cores", 2));
    json_t *drafter = json_object_get(json_object_get(header, "source"), "drafter");
    if (attempt->drafter)
        json_set(drafter, "sha256", json_string(attempt->drafter));
    if (attempt->gpu_clock_mhz)
        json_set(header, "gpus",
                 json_pack("[{s:i, s:s, s:s, s:i, s:i}]", "device", 0, "name", "NVIDIA H200", "uuid", "GPU-1",
                           "application_clock_mhz", attempt->gpu_clock_mhz, "default_application_clock_mhz",
                           attempt->gpu_usual_clock_mhz));
    if (attempt->started)
        json_set(header, "started", json_string(attempt->started));
    if (attempt->boot_id)
        json_set(header, "boot_id", json_string(attempt->boot_id));
    assert_done(file_make_folder(folder, &error), &error);
    struct attempt_writer *writer = attempt_writer_open(path, header, &error);
    assert_done(writer ? 0 : -1, &error);
    free(folder);
    free(path);
    return writer;
}

void campaign_add(struct campaign *campaign, const struct campaign_attempt *attempt)
{
    struct error error = {0};
    char hex[FILE_HASH_SIZE];
    int try_number = attempt->try_number ? attempt->try_number : 1;
    struct attempt_writer *writer = open_writer(campaign, attempt, try_number);
    for (int prompt = 1; prompt <= PROMPTS; prompt++) {
        if (attempt->code_tpot_ns)
            assert_done(attempt_writer_add(writer, make_sample(attempt, "code", prompt, attempt->code_tpot_ns), &error),
                        &error);
        if (attempt->maths_tpot_ns)
            assert_done(
                attempt_writer_add(writer, make_sample(attempt, "maths", prompt, attempt->maths_tpot_ns), &error),
                &error);
    }
    const struct audit audit = {true, 0.0, 2 * PROMPTS * TOKENS};
    if (attempt->torn)
        attempt_writer_abandon(writer);
    else
        assert_done(
            attempt_writer_end(writer, &(struct attempt_end){.status = "complete", .audit = &audit}, hex, &error),
            &error);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

void campaign_read(struct campaign *campaign)
{
    struct error error = {0};
    fixture_enter(campaign->folder);
    assert_done(run_read(campaign->folder, &campaign->plan.rules, &campaign->run, &error), &error);
    cells_init(&campaign->plan, &campaign->run, CELLS_REPORTED, &campaign->cells);
    comparisons_init(&campaign->cells, &campaign->comparisons);
}

void campaign_close(struct campaign *campaign)
{
    if (campaign->run.folder) {
        comparisons_free(&campaign->comparisons);
        cells_free(&campaign->cells);
        run_free(&campaign->run);
    }
    plan_free(&campaign->plan);
    free(campaign->folder);
    fixture_remove_folder(campaign->parent);
}

struct cell *campaign_cell(const struct campaign *campaign, const char *arm, const char *workload)
{
    char name[ARM_NAME_SIZE];
    for (int i = 0; i < campaign->cells.count; i++)
        if (strcmp(arm_name(campaign->cells.items[i].arm, name), arm) == 0 &&
            strcmp(campaign->cells.items[i].workload->name, workload) == 0)
            return &campaign->cells.items[i];
    fail_msg("no cell %s on %s", arm, workload);
    return NULL;
}

const struct comparison *campaign_comparison(const struct campaign *campaign, const char *arm, const char *baseline,
                                             const char *workload)
{
    char of_arm[ARM_NAME_SIZE], of_baseline[ARM_NAME_SIZE];
    for (int i = 0; i < campaign->comparisons.count; i++) {
        const struct comparison *comparison = &campaign->comparisons.items[i];
        bool same_workload = workload ? comparison->workload && strcmp(comparison->workload->name, workload) == 0
                                      : !comparison->workload;
        if (same_workload && strcmp(arm_name(comparison->arm, of_arm), arm) == 0 &&
            strcmp(arm_name(comparison->baseline, of_baseline), baseline) == 0)
            return comparison;
    }
    fail_msg("no comparison of %s with %s", arm, baseline);
    return NULL;
}
