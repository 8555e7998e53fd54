/* One choice of a token everywhere: whatever the method, the budget, the number of ranks and of sessions in flight,
 * float32 gives the same tokens, drawn or not. */
#include "collect/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS = 4, TOKENS = 32 };

static const char *const prompts[PROMPTS] = {
    "def quicksort(items):\n",
    "Question: Mia has 7 marbles and finds 5 more. How many marbles does she have now?\nAnswer:",
    "The configuration file is read when the server starts.",
    "import os\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser(description=__doc__)\n    "
    "parser.add_argument(\n",
};

struct outputs {
    struct sample samples[PROMPTS];
};

static struct engine *engine;

static int open_engine(void **state)
{
    struct error error = {0};
    (void)state;
    engine = engine_open("data/models/demo/target", "data/models/demo/drafter", "float32", "cpu", &error);
    return engine ? 0 : -1;
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(engine);
    return 0;
}

static void free_outputs(struct outputs *outputs)
{
    for (int i = 0; i < PROMPTS; i++)
        sample_free(&outputs->samples[i]);
}

static void run_arm(const char *name, const struct sampling *sampling, struct outputs *outputs)
{
    struct arm arm;
    struct error error = {0};
    json_t *memory = NULL;
    struct engine_request requests[PROMPTS];
    int *ids[PROMPTS];
    assert_true(arm_parse(name, &arm));
    assert_int_equal(engine_load(engine, &arm, sampling, 200, &memory, &error), 0);
    json_decref(memory);
    for (int i = 0; i < PROMPTS; i++) {
        struct sample *sample = &outputs->samples[i];
        sample_init(sample);
        sample->asked_tokens = TOKENS - 5 * i; /* sessions end at different rounds */
        sample->asked_ignore_eos = true;
        int count = engine_encode(engine, prompts[i], &ids[i], &error);
        assert_true(count > 0);
        requests[i] = (struct engine_request){ids[i], count, 77 + (uint64_t)i, 0, sample};
    }
    engine_run(engine, requests, PROMPTS);
    for (int i = 0; i < PROMPTS; i++) {
        assert_true(engine_audit(engine, &requests[i]) < 1e-3);
        free(ids[i]);
    }
}

static void compare(const char *name, const struct sampling *sampling, const struct outputs *expected)
{
    struct outputs outputs;
    run_arm(name, sampling, &outputs);
    for (int i = 0; i < PROMPTS; i++) {
        assert_int_equal(outputs.samples[i].tokens, expected->samples[i].tokens);
        if (memcmp(outputs.samples[i].token_ids, expected->samples[i].token_ids,
                   (size_t)expected->samples[i].tokens * sizeof(int)) != 0)
            fail_msg("%s, prompt %d, temperature %g: other tokens than tp1-auto's", name, i,
                     (double)sampling->temperature);
    }
    free_outputs(&outputs);
}

static const char *const arms[] = {
    "tp1-linear", "tp1-b8", "tp1-b64",     "tp2-auto",    "tp2-linear",    "tp2-b16",    "tp4-b16",
    "tp8-auto",   "tp8-b8", "tp1-auto-c4", "tp1-auto-c3", "tp1-linear-c2", "tp1-b16-c4", "tp2-b16-c3",
};

/* Of every `step`-th arm. */
static void check_arms(const struct sampling *sampling, size_t step)
{
    struct outputs expected;
    run_arm("tp1-auto", sampling, &expected);
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i += step)
        compare(arms[i], sampling, &expected);
    for (int i = 0; i < PROMPTS; i++)
        for (int t = 0; t < expected.samples[i].tokens; t++)
            assert_in_range(expected.samples[i].token_ids[t], 0, 4095);
    free_outputs(&expected);
}

static void greedy_tokens_are_the_same_in_every_arm(void **state)
{
    (void)state;
    check_arms(&(struct sampling){0, 0, 1, 0}, 1);
}

static void drawn_tokens_are_the_same_in_every_arm(void **state)
{
    (void)state;
    check_arms(&(struct sampling){0.7f, 0, 1, 0}, 1);
    check_arms(&(struct sampling){1, 0, 1, 0}, 1);
    check_arms(&(struct sampling){1, 40, 0.95f, 0}, 2);
}

static void drawn_tokens_differ_from_greedy_ones_and_by_stream(void **state)
{
    (void)state;
    struct outputs greedy, drawn;
    run_arm("tp1-auto", &(struct sampling){0, 0, 1, 0}, &greedy);
    run_arm("tp1-auto", &(struct sampling){1, 0, 1, 0}, &drawn);
    int differ = 0;
    for (int i = 0; i < PROMPTS; i++)
        differ += memcmp(greedy.samples[i].token_ids, drawn.samples[i].token_ids,
                         (size_t)greedy.samples[i].tokens * sizeof(int)) != 0;
    assert_true(differ >= 3);
    free_outputs(&greedy);
    free_outputs(&drawn);
}

/* Of four sessions, those that are decoding while another is admitted wait for it, and it is written down; of those
 * that waited for nobody that is known as well. */
static void waiting_for_admissions_is_recorded(void **state)
{
    (void)state;
    struct outputs together, alone;
    const struct sampling greedy = {0, 0, 1, 0};
    run_arm("tp1-linear-c4", &greedy, &together);
    run_arm("tp1-linear", &greedy, &alone);
    assert_true(together.samples[0].stall_ns > 0);
    assert_true(together.samples[0].stall_ns >= together.samples[1].ttft_ns);
    assert_int_equal(together.samples[PROMPTS - 1].stall_ns, 0); /* the last to be admitted */
    for (int i = 0; i < PROMPTS; i++)
        assert_int_equal(alone.samples[i].stall_ns, 0);
    free_outputs(&together);
    free_outputs(&alone);
}

static void sizes_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"tp3-auto", "tp16-auto", "tp5-linear"};
    for (int i = 0; i < 3; i++) {
        struct arm arm;
        struct error error = {0};
        json_t *memory = NULL;
        assert_true(arm_parse(refused[i], &arm));
        assert_int_equal(engine_load(engine, &arm, &(struct sampling){0, 0, 1, 0}, 100, &memory, &error), -1);
        assert_non_null(strstr(error.message, "do not divide over"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_the_same_in_every_arm),
        cmocka_unit_test(drawn_tokens_are_the_same_in_every_arm),
        cmocka_unit_test(drawn_tokens_differ_from_greedy_ones_and_by_stream),
        cmocka_unit_test(waiting_for_admissions_is_recorded),
        cmocka_unit_test(sizes_that_do_not_divide_are_refused),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
