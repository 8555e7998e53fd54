/* A real server: llama-server with the demo model as GGUF, once without a drafter and once with DFlash, whose addresses
 * CLEANSLATE_LLAMA_AUTO and CLEANSLATE_LLAMA_LINEAR hold. The engine decodes the same prompts: acceptance must agree.
 */
#include "collect/base/file.h"
#include "collect/campaign.h"
#include "collect/record/run.h"
#include "collect/source.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TAU_TOLERANCE 0.15 /* outputs part at near ties, and acceptance with them */

static const char plan_format[] =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"%s\", \"source\": %s, \"methods\": [\"auto\", \"linear\"],"
    " \"blocks\": 1, \"workloads\": ["
    "{\"name\": \"code\", \"prompts\": \"data/prompts/code.jsonl\", \"count\": 4, \"max_new_tokens\": 64,"
    " \"ignore_eos\": true},"
    "{\"name\": \"maths\", \"prompts\": \"data/prompts/maths.jsonl\", \"count\": 4, \"max_new_tokens\": 64,"
    " \"ignore_eos\": true}]}";

/* Measures the plan of that name and source in the folder, and reads what came of it. */
static void measure(const char *folder, const char *name, const char *source_json, struct run *run)
{
    struct plan plan;
    struct error error = {0};
    char *text = xformat(plan_format, name, source_json), *path = file_join(folder, "plan.json");
    char *run_folder = file_join(folder, name);
    fixture_write(path, text, strlen(text));
    if (plan_read(path, &plan, &error))
        fail_msg("%s", error.message);
    struct source *source = source_open(&plan, NULL, &error);
    struct campaign_options options = {.runs = folder};
    if (!source || campaign_run(&plan, source, &options, &error))
        fail_msg("%s", error.message);
    source_close(source);
    assert_int_equal(run_read(run_folder, NULL, run, &error), 0);
    plan_free(&plan);
    free(run_folder);
    free(path);
    free(text);
}

/* Tokens a round, over all answers of the arm's attempt, which must count. */
static double find_tau(const struct run *run, const char *arm)
{
    double tokens = 0, rounds = 0;
    for (int i = 0; i < run->attempt_count; i++) {
        const struct judged *judged = &run->attempts[i];
        if (strcmp(judged->arm, arm) != 0)
            continue;
        for (int j = 0; j < judged->verdicts.count; j++)
            print_message("%s: %s: %s\n", arm, rule_table[judged->verdicts.items[j].rule].id,
                          judged->verdicts.items[j].detail);
        assert_false(run_is_void(judged, "code") || run_is_void(judged, "maths"));
        for (int j = 0; j < judged->attempt.sample_count; j++) {
            const struct sample *sample = &judged->attempt.samples[j];
            assert_true(sample->ok && sample->tokens == 64 && sample->token_ids);
            tokens += sample->warmup ? 0 : sample->tokens - sample->first_tokens;
            rounds += sample->warmup ? 0 : sample->rounds;
        }
    }
    return tokens / rounds;
}

static void acceptance_agrees_with_the_engine(void **state)
{
    (void)state;
    const char *plain = getenv("CLEANSLATE_LLAMA_AUTO"), *drafting = getenv("CLEANSLATE_LLAMA_LINEAR");
    if (!plain || !drafting) {
        print_message("SKIPPED: no llama-server; CLEANSLATE_LLAMA_AUTO and CLEANSLATE_LLAMA_LINEAR must hold the "
                      "addresses of one without and one with a DFlash drafter\n");
        skip();
    }
    struct run served, decoded;
    char *folder = fixture_make_folder();
    char *source = xformat("{\"kind\": \"server\", \"dialect\": \"llama\", \"url\": {\"auto\": \"%s\", \"linear\": "
                           "\"%s\"}}",
                           plain, drafting);
    measure(folder, "served", source, &served);
    measure(folder, "decoded",
            "{\"kind\": \"engine\", \"target\": \"data/models/demo/target\", \"drafter\": "
            "\"data/models/demo/drafter\", \"device\": \"cpu\"}",
            &decoded);
    const double of_server = find_tau(&served, "tp1-linear"), of_engine = find_tau(&decoded, "tp1-linear");
    print_message("acceptance length: llama-server %.3f, engine %.3f\n", of_server, of_engine);
    assert_float_equal(find_tau(&served, "tp1-auto"), 1, 0);
    assert_true(fabs(of_server / of_engine - 1) < TAU_TOLERANCE);
    run_free(&served);
    run_free(&decoded);
    free(source);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(acceptance_agrees_with_the_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
