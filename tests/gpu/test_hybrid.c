/* The tiny hybrid of attention and gated DeltaNet through the engine on a GPU: the CPU's tokens in float32 with any
 * method, number of ranks and of sessions; audits of bfloat16; what repeats; the memory plan. Skipped where there is no
 * GPU that CUDA can use. With an argument only the tests of that name run. */
#include "collect/base/file.h"
#include "collect/engine/backend.h"
#include "collect/engine/engine.h"
#include "tests/engine/hybrid_files.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SHARED "cuda:0,0,0,0" /* ranks share the first GPU */

enum { REQUESTS = 4, TOKENS = 48, PROMPT = 90 };

static const struct sampling greedy = {.top_p = 1};
static char *target_folder, *drafter_folder;
static bool usable;

static void copy(const char *from_folder, const char *name)
{
    size_t size;
    char *from = file_join(from_folder, name), *to = file_join(target_folder, name), *bytes = fixture_read(from, &size);
    fixture_write(to, bytes, size);
    free(bytes);
    free(to);
    free(from);
}

static int make_folders(void **state)
{
    (void)state;
    usable = gpu_backend() != NULL;
    target_folder = fixture_make_folder();
    drafter_folder = fixture_make_folder();
    copy(HYBRID_FOLDER, "config.json");
    copy(HYBRID_FOLDER, "model.safetensors");
    copy("data/models/demo/target", "tokenizer.json");
    hybrid_write_drafter(drafter_folder);
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    fixture_remove_folder(target_folder);
    fixture_remove_folder(drafter_folder);
    return 0;
}

static struct engine *open_engine(const char *dtype, const char *device)
{
    struct error error = {0};
    struct engine *engine = engine_open(target_folder, drafter_folder, dtype, device, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(engine_keep(engine, kept_folder(), &error), 0);
    return engine;
}

struct outputs {
    struct sample samples[REQUESTS];
    double regret;
    json_t *memory;
};

static void run_sampled(struct engine *engine, const char *name, const struct sampling *sampling,
                        struct outputs *outputs)
{
    struct arm arm;
    struct error error = {0};
    struct engine_request requests[REQUESTS];
    int prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37 + 5) % 512;
    *outputs = (struct outputs){.regret = 0};
    assert_true(arm_parse(name, &arm));
    if (engine_load(engine, &arm, sampling, PROMPT + TOKENS, &outputs->memory, &error))
        fail_msg("%s: %s", name, error.message);
    for (int i = 0; i < REQUESTS; i++) {
        struct sample *sample = &outputs->samples[i];
        sample_init(sample);
        sample->asked_tokens = TOKENS - 5 * i;
        sample->asked_ignore_eos = true;
        requests[i] = (struct engine_request){prompt, PROMPT - 23 * i, (uint64_t)i, 0, sample};
    }
    engine_run(engine, requests, REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        double regret = engine_audit(engine, &requests[i]);
        outputs->regret = regret > outputs->regret ? regret : outputs->regret;
    }
}

static void run_arm(struct engine *engine, const char *name, struct outputs *outputs)
{
    run_sampled(engine, name, &greedy, outputs);
}

static void free_outputs(struct outputs *outputs)
{
    json_decref(outputs->memory);
    for (int i = 0; i < REQUESTS; i++)
        sample_free(&outputs->samples[i]);
}

static void assert_same(const char *name, const struct outputs *a, const struct outputs *b)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(a->samples[i].tokens, b->samples[i].tokens);
        if (memcmp(a->samples[i].token_ids, b->samples[i].token_ids, (size_t)a->samples[i].tokens * sizeof(int)) != 0)
            fail_msg("%s, request %d: other tokens", name, i);
    }
}

static const char *const arms[] = {"tp1-auto",    "tp1-linear", "tp1-b16",       "tp1-b64",      "tp1-auto-c3",
                                   "tp1-b300-c2", "tp2-auto",   "tp2-linear-c3", "tp2-b64",      "tp4-auto",
                                   "tp4-auto-c2", "tp4-b8-c2",  "tp1-b130",      "tp1-linear-c4"};

static void check_tokens(const struct sampling *sampling, const char *const *names, size_t count)
{
    struct engine *cpu = open_engine("float32", "cpu"), *gpu = open_engine("float32", SHARED);
    struct outputs expected, outputs;
    run_sampled(cpu, "tp1-auto", sampling, &expected);
    for (size_t i = 0; i < count; i++) {
        run_sampled(gpu, names[i], sampling, &outputs);
        assert_same(names[i], &expected, &outputs);
        if (!(outputs.regret < 1e-3))
            fail_msg("%s: regret %g", names[i], outputs.regret);
        free_outputs(&outputs);
    }
    free_outputs(&expected);
    engine_close(gpu);
    engine_close(cpu);
}

static void float32_gives_the_cpus_tokens(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_tokens(&greedy, arms, sizeof arms / sizeof *arms);
}

/* Then steps of `auto` do not run ahead, which would move the states. */
static void float32_gives_the_cpus_tokens_under_top_k(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const char *const own[] = {"tp1-auto", "tp1-auto-c3", "tp1-b16", "tp2-auto", "tp2-linear-c3"};
    check_tokens(&(struct sampling){0.7f, 20, 0.95f, 0}, own, sizeof own / sizeof *own);
}

/* Logits are of size 4, and roundings move them by some tenths (tests/engine/test_hybrid.c). */
static void bfloat16_passes_its_audit(void **state)
{
    (void)state;
    if (!usable)
        skip();
    struct engine *engine = open_engine("bfloat16", SHARED);
    double worst = 0;
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        struct outputs outputs;
        run_arm(engine, arms[i], &outputs);
        worst = outputs.regret > worst ? outputs.regret : worst;
        if (!(outputs.regret < 0.5))
            fail_msg("%s: regret %g", arms[i], outputs.regret);
        free_outputs(&outputs);
    }
    print_message("bfloat16: largest regret %.2g\n", worst);
    engine_close(engine);
}

/* As long as products are computed as they were: by what is kept. */
static void a_run_repeats_itself_bit_by_bit(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const char *const repeated[] = {"tp1-auto", "tp1-b64-c3"};
    struct engine *engine = open_engine("bfloat16", "cuda");
    for (int a = 0; a < 2; a++) {
        struct outputs first, again;
        run_arm(engine, repeated[a], &first);
        run_arm(engine, repeated[a], &again);
        assert_same(repeated[a], &first, &again);
        for (int i = 0; i < REQUESTS; i++)
            assert_memory_equal(first.samples[i].margins, again.samples[i].margins,
                                (size_t)first.samples[i].tokens * sizeof(float));
        free_outputs(&first);
        free_outputs(&again);
    }
    engine_close(engine);
}

/* Per session 6 layers of 12 heads of 32 x 32 floats and 3 rows of 640 channels; per node one such row, 24 floats. */
static void the_memory_plan_has_states(void **state)
{
    (void)state;
    if (!usable)
        skip();
    struct engine *engine = open_engine("float32", SHARED);
    struct outputs outputs;
    struct arm arm = {.tensor_parallel = 1, .method = METHOD_AUTO, .concurrency = 100000000};
    struct error error = {0};
    json_t *memory = NULL;
    run_arm(engine, "tp2-b16-c3", &outputs);
    assert_int_equal(json_integer_value(json_object_get(outputs.memory, "state_bytes")),
                     3 * 6 * 4 * (12 * 32 * 32 + 3 * 640));
    assert_int_equal(json_integer_value(json_object_get(outputs.memory, "node_bytes")), 6 * 4 * (640 + 24));
    free_outputs(&outputs);
    assert_int_equal(engine_load(engine, &arm, &greedy, 100, &memory, &error), -1);
    assert_true(strlen(error.message) > 0);
    engine_close(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_gives_the_cpus_tokens), cmocka_unit_test(float32_gives_the_cpus_tokens_under_top_k),
        cmocka_unit_test(bfloat16_passes_its_audit),     cmocka_unit_test(a_run_repeats_itself_bit_by_bit),
        cmocka_unit_test(the_memory_plan_has_states),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
