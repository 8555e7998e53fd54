/* As many requests at a time as a plan may ask for: each has the tokens that it has alone. Skipped where there is no
 * GPU that CUDA can use. */
#include "collect/engine/engine.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { REQUESTS = 64, PROMPTS = 4, TOKENS = 20, POSITIONS = 100 };

static const char *const prompts[PROMPTS] = {
    "def quicksort(items):\n",
    "Question: Mia has 7 marbles and finds 5 more. How many marbles does she have now?\nAnswer:",
    "The configuration file is read when the server starts.",
    "import os\nimport sys\n\n\ndef main():\n",
};
/* Of trees as many rows as are verified together. */
static const char *const arms[] = {"tp1-auto-c64", "tp1-linear-c64", "tp1-b31-c64"};

static void run_arm(struct engine *engine, const char *name, struct sample *samples, int count)
{
    struct arm arm;
    struct error error = {0};
    json_t *memory = NULL;
    struct engine_request requests[REQUESTS];
    int *ids[REQUESTS];
    assert_true(arm_parse(name, &arm));
    assert_int_equal(engine_load(engine, &arm, &(struct sampling){.top_p = 1}, POSITIONS, &memory, &error), 0);
    json_decref(memory);
    for (int i = 0; i < count; i++) {
        sample_init(&samples[i]);
        samples[i].asked_tokens = TOKENS - i % 3;
        samples[i].asked_ignore_eos = true;
        int tokens = engine_encode(engine, prompts[i % PROMPTS], &ids[i], &error);
        assert_true(tokens > 0);
        requests[i] = (struct engine_request){ids[i], tokens, 0, 0, &samples[i]};
    }
    engine_run(engine, requests, count);
    for (int i = 0; i < count; i++)
        free(ids[i]);
}

static void requests_have_the_tokens_that_they_have_alone(void **state)
{
    (void)state;
    if (!gpu_is_usable())
        skip();
    static struct sample alone[REQUESTS], together[REQUESTS];
    struct error error = {0};
    struct engine *engine =
        engine_open("data/models/demo/target", "data/models/demo/drafter", "float32", "cuda", &error);
    assert_string_equal(error.message, "");
    assert_int_equal(engine_keep(engine, kept_folder(), &error), 0);
    run_arm(engine, "tp1-auto", alone, REQUESTS);
    for (int arm = 0; arm < COUNT(arms); arm++) {
        run_arm(engine, arms[arm], together, REQUESTS);
        for (int i = 0; i < REQUESTS; i++) {
            assert_int_equal(together[i].tokens, alone[i].tokens);
            assert_memory_equal(together[i].token_ids, alone[i].token_ids, (size_t)alone[i].tokens * sizeof(int));
            sample_free(&together[i]);
        }
    }
    for (int i = 0; i < REQUESTS; i++)
        sample_free(&alone[i]);
    engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests_have_the_tokens_that_they_have_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
