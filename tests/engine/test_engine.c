/* The engine as its users see it: what it refuses, where it stops, what the audit finds, and that methods agree. */
#include "collect/engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TARGET "data/models/demo/target"
#define DRAFTER "data/models/demo/drafter"

static const struct sampling greedy = {.top_p = 1};
static const struct arm arm_auto = {1, METHOD_AUTO, 0, 1}, arm_linear = {1, METHOD_LINEAR, 0, 1};

static struct engine *open_engine(const char *dtype)
{
    struct error error = {0};
    struct engine *engine = engine_open(TARGET, DRAFTER, dtype, "cpu", &error);
    assert_string_equal(error.message, "");
    return engine;
}

static void load(struct engine *engine, const struct arm *arm, int positions)
{
    struct error error = {0};
    json_t *memory = NULL;
    assert_int_equal(engine_load(engine, arm, &greedy, positions, &memory, &error), 0);
    json_decref(memory);
}

static int *encode(const struct engine *engine, const char *text, int *count)
{
    struct error error = {0};
    int *ids = NULL;
    *count = engine_encode(engine, text, &ids, &error);
    assert_true(*count > 0);
    return ids;
}

static void run(struct engine *engine, const char *text, int tokens, bool ignore_eos, struct sample *sample)
{
    int count, *ids = encode(engine, text, &count);
    sample_init(sample);
    sample->asked_tokens = tokens;
    sample->asked_ignore_eos = ignore_eos;
    engine_run(engine, &(struct engine_request){ids, count, 0, 0, sample}, 1);
    free(ids);
}

static void stops_at_the_limit_in_the_middle_of_a_round(void **state)
{
    (void)state;
    struct engine *engine = open_engine("float32");
    const char *prompt = "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n";
    struct sample whole, cut;
    load(engine, &arm_linear, 200);
    run(engine, prompt, 64, true, &whole);
    for (int tokens = 1; tokens <= 64; tokens += 9) {
        run(engine, prompt, tokens, true, &cut);
        assert_int_equal(cut.tokens, tokens);
        assert_int_equal(cut.finish, FINISH_LENGTH);
        assert_memory_equal(cut.token_ids, whole.token_ids, (size_t)tokens * sizeof(int));
        int committed = cut.first_tokens;
        for (int i = 0; i < cut.rounds; i++)
            committed += cut.accepted[i];
        assert_true(committed >= tokens && (cut.rounds == 0 || committed - cut.accepted[cut.rounds - 1] < tokens));
        sample_free(&cut);
    }
    sample_free(&whole);
    engine_close(engine);
}

/* The demo model ends its answers to questions with its end token: with and without ignoring it, and with either
 * method, the output up to it is the same. */
static void stops_at_the_end_token_unless_told_not_to(void **state)
{
    (void)state;
    const char *prompt = "Question: Ben has 12 apples and buys 9 more. How many apples does Ben have now?\nAnswer:";
    const struct arm *arms[] = {&arm_auto, &arm_linear};
    struct engine *engine = open_engine("float32");
    struct sample stopped[2], ignored;
    for (int i = 0; i < 2; i++) {
        load(engine, arms[i], 600);
        run(engine, prompt, 400, false, &stopped[i]);
    }
    run(engine, prompt, 400, true, &ignored);
    assert_int_equal(ignored.tokens, 400);
    assert_int_equal(stopped[0].tokens, stopped[1].tokens);
    assert_int_equal(stopped[0].finish, stopped[1].finish);
    assert_memory_equal(stopped[0].token_ids, ignored.token_ids, (size_t)stopped[0].tokens * sizeof(int));
    assert_memory_equal(stopped[1].token_ids, ignored.token_ids, (size_t)stopped[1].tokens * sizeof(int));
    int end = 0;
    while (end < 400 && ignored.token_ids[end] != 0)
        end++;
    assert_int_equal(stopped[0].tokens, end < 400 ? end + 1 : 400);
    assert_int_equal(stopped[0].finish, end < 400 ? FINISH_STOP : FINISH_LENGTH);
    sample_free(&stopped[0]);
    sample_free(&stopped[1]);
    sample_free(&ignored);
    engine_close(engine);
}

static void audit_passes_honest_outputs_and_finds_a_forged_token(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        double limit;
    } modes[] = {{"float32", 1e-3}, {"bfloat16", 0.2}};
    const char *prompt = "class Stack:\n    \"\"\"A stack on a list.\"\"\"\n";
    for (int m = 0; m < 2; m++) {
        struct engine *engine = open_engine(modes[m].dtype);
        struct arm arm = {1, METHOD_DDTREE, 16, 1};
        struct sample sample;
        load(engine, &arm, 200);
        run(engine, prompt, 100, true, &sample);
        int count, *ids = encode(engine, prompt, &count);
        double honest = engine_audit(engine, &(struct engine_request){ids, count, 0, 0, &sample});
        assert_true(honest < modes[m].limit);
        for (int at = 0; at < sample.tokens; at += 33) {
            int kept = sample.token_ids[at];
            sample.token_ids[at] = (kept + 1500) % 4096;
            assert_true(engine_audit(engine, &(struct engine_request){ids, count, 0, 0, &sample}) > 0.5);
            sample.token_ids[at] = kept;
        }
        assert_true(engine_audit(engine, &(struct engine_request){ids, count, 0, 0, &sample}) == honest);
        free(ids);
        sample_free(&sample);
        engine_close(engine);
    }
}

/* The largest budget: more rows than a slice of logits may have, and every prefix of two slots. */
static void budget_1024_gives_autos_tokens(void **state)
{
    (void)state;
    struct engine *engine = open_engine("float32");
    const struct arm wide = {1, METHOD_DDTREE, ARM_BUDGET_MAXIMUM, 1};
    struct sample expected, sample;
    load(engine, &arm_auto, 100);
    run(engine, "import os\n", 24, true, &expected);
    load(engine, &wide, 100);
    run(engine, "import os\n", 24, true, &sample);
    assert_int_equal(sample.tokens, 24);
    assert_memory_equal(sample.token_ids, expected.token_ids, 24 * sizeof(int));
    sample_free(&sample);
    sample_free(&expected);
    engine_close(engine);
}

static void repeated_runs_are_bit_identical(void **state)
{
    (void)state;
    struct engine *engine = open_engine("bfloat16");
    const struct arm arm = {1, METHOD_DDTREE, 32, 1};
    struct sample first, again;
    load(engine, &arm, 200);
    run(engine, "def binary_search(items, wanted):\n", 64, true, &first);
    run(engine, "import this\n", 20, true, &again); /* something else in between */
    sample_free(&again);
    run(engine, "def binary_search(items, wanted):\n", 64, true, &again);
    assert_memory_equal(first.token_ids, again.token_ids, 64 * sizeof(int));
    assert_memory_equal(first.margins, again.margins, 64 * sizeof(float));
    assert_int_equal(first.rounds, again.rounds);
    assert_memory_equal(first.accepted, again.accepted, (size_t)first.rounds * sizeof(int));
    sample_free(&first);
    sample_free(&again);
    engine_close(engine);
}

static void a_request_that_takes_too_long_is_an_error(void **state)
{
    (void)state;
    struct engine *engine = open_engine("float32");
    struct sample sample;
    load(engine, &arm_auto, 600);
    int count, *ids = encode(engine, "import os\n", &count);
    sample_init(&sample);
    sample.asked_tokens = 500;
    sample.asked_ignore_eos = true;
    engine_run(engine, &(struct engine_request){ids, count, 0, 1, &sample}, 1); /* one nanosecond */
    assert_false(sample.ok);
    assert_string_equal(sample.error_code, "TIMEOUT");
    assert_true(sample.tokens < 500);
    sample_free(&sample);
    run(engine, "import os\n", 20, true, &sample); /* and the next is none the worse */
    assert_true(sample.ok && sample.tokens == 20);
    sample_free(&sample);
    free(ids);
    engine_close(engine);
}

static void says_what_it_cannot_open(void **state)
{
    (void)state;
    static const struct {
        const char *target, *drafter, *device, *says;
    } cases[] = {
        {"tests/golden", NULL, "cpu", "tests/golden/config.json"},
        {TARGET, TARGET, "cpu", "block_size"},
        {DRAFTER, NULL, "cpu", "dflash_config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        assert_null(engine_open(cases[i].target, cases[i].drafter, "float32", cases[i].device, &error));
        assert_non_null(strstr(error.message, cases[i].says));
        assert_null(strchr(error.message, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_the_limit_in_the_middle_of_a_round),
        cmocka_unit_test(stops_at_the_end_token_unless_told_not_to),
        cmocka_unit_test(audit_passes_honest_outputs_and_finds_a_forged_token),
        cmocka_unit_test(budget_1024_gives_autos_tokens),
        cmocka_unit_test(repeated_runs_are_bit_identical),
        cmocka_unit_test(a_request_that_takes_too_long_is_an_error),
        cmocka_unit_test(says_what_it_cannot_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
