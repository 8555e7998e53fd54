/* What a GPU computed it computes again, to the bit, in a process that starts anew: an attempt is withdrawn, and the
 * run gone on with, which has kept how products are computed. Skipped where there is no GPU that CUDA can use. */
#include "collect/base/file.h"
#include "collect/record/attempt.h"
#include "tests/gpu/gpu.h"
#include "tests/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICE "cuda"

static const char plan[] =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"repeats\", \"source\": {\"kind\": \"engine\", \"target\": "
    "\"data/models/demo/target\", \"drafter\": \"data/models/demo/drafter\", \"dtype\": \"bfloat16\"}, \"methods\": "
    "[\"auto\", \"linear\", \"ddtree\"], \"budgets\": [16, 64], \"concurrency\": [1, 3], \"blocks\": 1, \"workloads\": "
    "[{\"name\": \"maths\", \"prompts\": \"data/prompts/maths.jsonl\", \"count\": 4, \"max_new_tokens\": 64, "
    "\"ignore_eos\": true}]}\n";
static const char *const arms[] = {"tp1-auto",    "tp1-linear",    "tp1-b16",    "tp1-b64",
                                   "tp1-auto-c3", "tp1-linear-c3", "tp1-b16-c3", "tp1-b64-c3"};

static void read_attempt(const char *arm, int try_number, struct attempt *attempt)
{
    struct error error = {0};
    char *path = xformat("%s/runs/repeats/attempts/%s/1-%d.jsonl", programs_folder, arm, try_number);
    if (attempt_read(path, attempt, &error))
        fail_msg("%s", error.message);
    assert_true(attempt->complete);
    free(path);
}

static const struct sample *find_sample(const struct attempt *attempt, const struct sample *like)
{
    for (int i = 0; i < attempt->sample_count; i++)
        if (!attempt->samples[i].warmup && strcmp(attempt->samples[i].prompt, like->prompt) == 0)
            return &attempt->samples[i];
    fail_msg("%s: no sample of %s", attempt->id, like->prompt);
    return NULL;
}

static void check_repeated(const char *arm)
{
    struct attempt first, again;
    int compared = 0;
    read_attempt(arm, 1, &first);
    read_attempt(arm, 2, &again);
    for (int i = 0; i < first.sample_count; i++) {
        const struct sample *a = &first.samples[i], *b = find_sample(&again, a);
        if (a->warmup)
            continue;
        compared++;
        assert_int_equal(a->tokens, b->tokens);
        assert_int_equal(a->rounds, b->rounds);
        assert_memory_equal(a->token_ids, b->token_ids, (size_t)a->tokens * sizeof *a->token_ids);
        assert_memory_equal(a->margins, b->margins, (size_t)a->tokens * sizeof *a->margins);
        if (a->rounds > 0 && a->accepted)
            assert_memory_equal(a->accepted, b->accepted, (size_t)a->rounds * sizeof *a->accepted);
    }
    assert_int_equal(compared, 4);
    attempt_free(&first);
    attempt_free(&again);
}

static void another_process_computes_the_same_bits(void **state)
{
    (void)state;
    if (!gpu_is_usable())
        skip();
    char *path = xformat("%s/plan.json", programs_folder);
    struct error error = {0};
    assert_int_equal(file_write_whole(path, plan, sizeof plan - 1, &error), 0);
    free(path);
    programs_must("$bin/collect run --plan $out/plan.json --runs $out/runs --device " DEVICE);
    for (int i = 0; i < COUNT(arms); i++) {
        char *withdraw = xformat("$bin/collect invalidate --runs $out/runs repeats %s/1-1 --reason again", arms[i]);
        programs_must(withdraw);
        free(withdraw);
    }
    programs_must("$bin/collect run --plan $out/plan.json --runs $out/runs --device " DEVICE);
    for (int i = 0; i < COUNT(arms); i++)
        check_repeated(arms[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_process_computes_the_same_bits)};
    return cmocka_run_group_tests(tests, programs_set_up, programs_tear_down);
}
