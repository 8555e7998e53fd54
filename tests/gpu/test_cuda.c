/* The CUDA backend against the CPU's: random models of awkward sizes in float32, operation by operation; drawn tokens;
 * the audit in bfloat16. Skipped where there is no GPU that CUDA can use. With an argument only the tests of that name
 * run. */
#include "collect/base/error.h"
#include "collect/engine/backend.h"
#include "collect/engine/engine.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/sized_models.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TARGET "data/models/demo/target"
#define SHARED "cuda:0,0,0,0,0,0,0,0" /* ranks share the first GPU */
#define DRAFTER "data/models/demo/drafter"
#define LOGIT_TOLERANCE 5e-4 /* float32, sums in another order; logits are of the order of 1 */
#define NODES 41
#define SESSIONS 3
#define CAPACITY 1200
#define WIDTH 24

static const struct backend_class *cuda;

static int find_gpu(void **state)
{
    (void)state;
    cuda = gpu_backend();
    if (cuda)
        gpu_leave_rubbish();
    return 0;
}

static void need_gpu(void)
{
    if (!cuda)
        skip();
}

/* --- random models, operation by operation ---------------------------------------------------------------------- */

/* A hybrid that attends in every second or third layer. */
#define HYBRID(interval, key_heads, heads, key_size, value_size, kernel_size)                                          \
    "{'model_type': 'qwen3_5_text', 'full_attention_interval': " #interval ", 'linear_num_key_heads': " #key_heads     \
    ", 'linear_num_value_heads': " #heads ", 'linear_key_head_dim': " #key_size                                        \
    ", 'linear_value_head_dim': " #value_size ", 'linear_conv_kernel_dim': " #kernel_size "}"
#define SLIDING "'layer_types': ['sliding_attention', 'full_attention'], "
static const struct sizes models[] = {
    {320, 850, 6, 3, 80, 1002, 8, "{}", "{}"},
    {320, 640, 5, 1, 64, 4099, 16, "{" SLIDING "'sliding_window': 9}", "{}"},
    {192, 386, 12, 3, 128, 777, 5, "{" SLIDING "'sliding_window': 40, 'is_causal': false}", "{}"},
    {64, 98, 2, 2, 256, 130, 4, "{}", "{}"},
    {10, 14, 2, 1, 6, 50, 2, "{}", "{}"},
    {70, 34, 33, 1, 10, 202, 16, "{" SLIDING "'sliding_window': 1}", "{}"},
    {320, 640, 6, 1, 256, 1002, 8, "{}", HYBRID(2, 1, 3, 128, 128, 4)},
    {70, 34, 3, 1, 16, 202, 16, "{}", HYBRID(3, 2, 2, 24, 20, 3)},
    {64, 98, 2, 2, 64, 130, 4, "{}", HYBRID(2, 1, 2, 7, 200, 6)},
};

/* One model in both backends. */
struct pair {
    struct model *target, *drafter;
    struct backend_options options;
    struct backend *cpu, *cuda;
    float *expected, *actual; /* [64, the widest of what is inspected] */
};

static void open_pair(const struct sizes *sizes, struct pair *pair)
{
    struct error error = {0};
    char *target = fixture_make_folder(), *drafter = fixture_make_folder();
    sized_models_write(sizes, target, drafter);
    pair->target = model_open_target(target, &error);
    pair->drafter = pair->target ? model_open_drafter(drafter, pair->target, &error) : NULL;
    assert_string_equal(error.message, "");
    pair->options = (struct backend_options){.target = pair->target,
                                             .drafter = pair->drafter,
                                             .dtype = ENGINE_FLOAT32,
                                             .ranks = 1,
                                             .sessions = SESSIONS,
                                             .capacity = CAPACITY,
                                             .nodes = NODES,
                                             .draft_width = WIDTH,
                                             .vocabulary = sizes->vocabulary - 3,
                                             .algorithms = kept_algorithms()};
    pair->cpu = backend_cpu.open(&pair->options, &error);
    pair->cuda = cuda->open(&pair->options, &error);
    assert_string_equal(error.message, "");
    size_t features = (size_t)pair->drafter->feature_count * (size_t)sizes->hidden;
    size_t widest = features > (size_t)sizes->vocabulary ? features : (size_t)sizes->vocabulary;
    pair->expected = xcalloc(SESSIONS * 64 * widest, sizeof(float));
    pair->actual = xcalloc(SESSIONS * 64 * widest, sizeof(float));
    fixture_remove_folder(target);
    fixture_remove_folder(drafter);
}

static void close_pair(struct pair *pair)
{
    backend_cpu.close(pair->cpu);
    cuda->close(pair->cuda);
    model_close(pair->drafter);
    model_close(pair->target);
    free(pair->expected);
    free(pair->actual);
}

static void compare(struct pair *pair, enum inspect_what what, int first, int count)
{
    int width = what == INSPECT_FEATURES ? pair->drafter->feature_count * pair->drafter->hidden_size
                                         : pair->target->vocabulary_size;
    backend_cpu.inspect(pair->cpu, what, first, count, pair->expected);
    cuda->inspect(pair->cuda, what, first, count, pair->actual);
    for (int i = 0; i < count * width; i++)
        if (!(fabsf(pair->actual[i] - pair->expected[i]) <= LOGIT_TOLERANCE * (1 + fabsf(pair->expected[i]))))
            fail_msg("%s: row %d, column %d: %g, where the CPU has %g",
                     what == INSPECT_LOGITS     ? "logits"
                     : what == INSPECT_FEATURES ? "features"
                                                : "draft",
                     first + i / width, i % width, (double)pair->actual[i], (double)pair->expected[i]);
}

/* Margins agree; tokens do unless the margin says that two were near a tie. */
static void compare_choices(const struct choice *expected, const struct choice *actual, int count)
{
    for (int i = 0; i < count; i++) {
        assert_true(fabsf(expected[i].margin - actual[i].margin) < 4 * (float)LOGIT_TOLERANCE);
        if (expected[i].margin > 4 * (float)LOGIT_TOLERANCE)
            assert_int_equal(actual[i].token, expected[i].token);
    }
}

static void extend(struct pair *pair, int session, const int *tokens, int count)
{
    struct choice expected, actual;
    const struct segment segment = {session, count, tokens, NULL};
    backend_cpu.extend(pair->cpu, &segment, 1, &expected);
    cuda->extend(pair->cuda, &segment, 1, &actual);
    compare_choices(&expected, &actual, 1);
}

/* A tree whose node i hangs below node (i - 1) * 2 / 3: branches of many depths. */
static void make_tree(int vocabulary, int seed, int *tokens, int *parents)
{
    for (int i = 0; i < NODES; i++) {
        tokens[i] = (i * 37 + seed) % vocabulary;
        parents[i] = i == 0 ? -1 : (i - 1) * 2 / 3;
    }
}

/* Trees of some sessions, and of each the path to its last node. */
static void check_round(struct pair *pair, const int *sessions, int count)
{
    int tokens[SESSIONS][NODES], parents[SESSIONS][NODES], path[NODES], length = 0;
    struct segment segments[SESSIONS];
    struct kept_path paths[SESSIONS];
    struct choice expected[SESSIONS * NODES], actual[SESSIONS * NODES];
    for (int i = 0; i < count; i++) {
        make_tree(pair->target->vocabulary_size, sessions[i], tokens[i], parents[i]);
        segments[i] = (struct segment){sessions[i], NODES, tokens[i], parents[i]};
    }
    backend_cpu.verify(pair->cpu, segments, count, expected);
    cuda->verify(pair->cuda, segments, count, actual);
    compare_choices(expected, actual, count * NODES);
    compare(pair, INSPECT_LOGITS, 0, count * NODES);
    compare(pair, INSPECT_FEATURES, 0, count * NODES);
    for (int node = NODES - 1; node >= 0; node = parents[0][node])
        length++;
    for (int node = NODES - 1, at = length; node >= 0; node = parents[0][node])
        path[--at] = node;
    for (int i = 0; i < count; i++)
        paths[i] = (struct kept_path){sessions[i], length - i % 2, path}; /* not all the same */
    backend_cpu.commit(pair->cpu, paths, count);
    cuda->commit(pair->cuda, paths, count);
}

static void check_draft(struct pair *pair, const int *sessions, int count)
{
    static int expected_tokens[SESSIONS][16 * WIDTH], actual_tokens[SESSIONS][16 * WIDTH];
    static float expected_values[SESSIONS][16 * WIDTH], actual_values[SESSIONS][16 * WIDTH];
    int block = pair->drafter->block_size, anchors[SESSIONS];
    struct tree_draft expected[SESSIONS], actual[SESSIONS];
    for (int i = 0; i < count; i++) {
        anchors[i] = (i + 1) * 19 % pair->target->vocabulary_size;
        expected[i] = (struct tree_draft){0, WIDTH, expected_tokens[i], expected_values[i]};
        actual[i] = (struct tree_draft){0, WIDTH, actual_tokens[i], actual_values[i]};
    }
    backend_cpu.draft(pair->cpu, sessions, anchors, count, expected);
    cuda->draft(pair->cuda, sessions, anchors, count, actual);
    compare(pair, INSPECT_DRAFT, 0, count * block);
    for (int i = 0; i < count; i++) {
        assert_int_equal(actual[i].slots, expected[i].slots);
        for (int at = 0; at < actual[i].slots * WIDTH; at++)
            assert_true(fabsf(actual_values[i][at] - expected_values[i][at]) <= 2 * (float)LOGIT_TOLERANCE);
    }
}

static void check_model(const struct sizes *sizes)
{
    static const int all[] = {0, 1, 2}, some[] = {2, 0};
    static const int lengths[SESSIONS] = {64, 1, 63};
    struct pair pair;
    int prompt[1000];
    open_pair(sizes, &pair);
    for (int i = 0; i < 1000; i++)
        prompt[i] = (i * i + 7 * i) % sizes->vocabulary;
    for (int i = 0; i < SESSIONS; i++) {
        backend_cpu.reset(pair.cpu, i, &(struct sampling){.top_p = 1});
        cuda->reset(pair.cuda, i, &(struct sampling){.top_p = 1});
        extend(&pair, i, prompt + i, lengths[i]);
        compare(&pair, INSPECT_LOGITS, 0, lengths[i]);
        compare(&pair, INSPECT_FEATURES, 0, lengths[i]);
    }
    for (int round = 0; round < 3; round++) {
        check_draft(&pair, all, SESSIONS);
        check_round(&pair, all, SESSIONS);
        check_draft(&pair, some, 2);
        check_round(&pair, some, 2);
    }
    extend(&pair, 1, prompt, 900); /* more than a chunk */
    check_draft(&pair, all, SESSIONS);
    check_round(&pair, all, SESSIONS);
    close_pair(&pair);
}

static void models_of_awkward_sizes_agree_with_the_cpu(void **state)
{
    (void)state;
    need_gpu();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_model(&models[i]);
}

/* --- the likeliest tokens: every width, with ties ----------------------------------------------------------------- */

/* Each token is at its place by its logit, and none comes twice. The logits are computed again, for one row at a time,
 * and so differ from those that were sorted by rounding. */
#define ROUNDING 2e-5f

static void drafts_of_every_width_are_sorted(void **state)
{
    (void)state;
    need_gpu();
    static const int widths[] = {1, 2, 63, 64, 65, 777, 1024};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        struct error error = {0};
        int width = widths[w], session = 0, anchor = 5, *tokens = xcalloc(16 * 1024, sizeof *tokens);
        float *values = xcalloc(16 * 1024, sizeof *values);
        struct model *target = model_open_target(TARGET, &error),
                     *drafter = model_open_drafter(DRAFTER, target, &error);
        const struct backend_options options = {.target = target,
                                                .drafter = drafter,
                                                .dtype = ENGINE_FLOAT32,
                                                .ranks = 1,
                                                .sessions = 1,
                                                .capacity = 128,
                                                .nodes = 16,
                                                .draft_width = width,
                                                .vocabulary = target->vocabulary_size,
                                                .algorithms = kept_algorithms()};
        struct backend *backend = cuda->open(&options, &error);
        assert_string_equal(error.message, "");
        float *logits = xcalloc((size_t)target->vocabulary_size, sizeof *logits);
        struct tree_draft draft = {0, width, tokens, values};
        struct choice chosen;
        cuda->reset(backend, 0, &(struct sampling){.top_p = 1});
        cuda->extend(backend, &(struct segment){0, 3, (const int[]){10, 20, 30}, NULL}, 1, &chosen);
        cuda->draft(backend, &session, &anchor, 1, &draft);
        for (int slot = 0; slot < draft.slots; slot++) {
            cuda->inspect(backend, INSPECT_DRAFT, slot + 1, 1, logits);
            const int *row = tokens + slot * width;
            int above = 0;
            for (int i = 0; i < target->vocabulary_size; i++)
                above += logits[i] > logits[row[width - 1]] + ROUNDING;
            assert_true(above < width);
            bool *seen = xcalloc((size_t)target->vocabulary_size, sizeof *seen);
            for (int i = 0; i < width; i++) {
                assert_true(i == 0 || logits[row[i]] < logits[row[i - 1]] + ROUNDING);
                assert_false(seen[row[i]]);
                seen[row[i]] = true;
            }
            free(seen);
        }
        cuda->close(backend);
        model_close(drafter);
        model_close(target);
        free(logits);
        free(tokens);
        free(values);
    }
}

/* --- the demo model through the engine --------------------------------------------------------------------------- */

enum { PROMPTS = 4, TOKENS = 48 };

static const char *const prompts[PROMPTS] = {
    "def quicksort(items):\n",
    "Question: Mia has 7 marbles and finds 5 more. How many marbles does she have now?\nAnswer:",
    "The configuration file is read when the server starts.",
    "import os\nimport sys\n\n\ndef main():\n",
};

struct outputs {
    struct sample samples[PROMPTS];
    double regret;
};

static struct engine *open_engine(const char *dtype, const char *device)
{
    struct error error = {0};
    struct engine *engine = engine_open(TARGET, DRAFTER, dtype, device, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(engine_keep(engine, kept_folder(), &error), 0);
    return engine;
}

static void run_arm(struct engine *engine, const char *name, const struct sampling *sampling, struct outputs *outputs)
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
        sample->asked_tokens = TOKENS - 5 * i;
        sample->asked_ignore_eos = true;
        int count = engine_encode(engine, prompts[i], &ids[i], &error);
        assert_true(count > 0);
        requests[i] = (struct engine_request){ids[i], count, 77 + (uint64_t)i, 0, sample};
    }
    engine_run(engine, requests, PROMPTS);
    outputs->regret = 0;
    for (int i = 0; i < PROMPTS; i++) {
        outputs->regret = fmax(outputs->regret, engine_audit(engine, &requests[i]));
        free(ids[i]);
    }
}

static void free_outputs(struct outputs *outputs)
{
    for (int i = 0; i < PROMPTS; i++)
        sample_free(&outputs->samples[i]);
}

static void assert_same_tokens(const char *name, const struct outputs *a, const struct outputs *b)
{
    for (int i = 0; i < PROMPTS; i++) {
        assert_int_equal(a->samples[i].tokens, b->samples[i].tokens);
        if (memcmp(a->samples[i].token_ids, b->samples[i].token_ids, (size_t)a->samples[i].tokens * sizeof(int)) != 0)
            fail_msg("%s, prompt %d: other tokens", name, i);
    }
}

/* Each arm's tokens on the GPU are those of the CPU's plain decoding. */
static void check_tokens(const struct sampling *samplings, size_t sampling_count, const char *const *arms,
                         size_t arm_count)
{
    struct engine *cpu = open_engine("float32", "cpu"), *gpu = open_engine("float32", SHARED);
    for (size_t s = 0; s < sampling_count; s++) {
        struct outputs expected, outputs;
        run_arm(cpu, "tp1-auto", &samplings[s], &expected);
        for (size_t i = 0; i < arm_count; i++) {
            run_arm(gpu, arms[i], &samplings[s], &outputs);
            assert_same_tokens(arms[i], &expected, &outputs);
            assert_true(outputs.regret < 1e-3);
            free_outputs(&outputs);
        }
        free_outputs(&expected);
    }
    engine_close(gpu);
    engine_close(cpu);
}

static void float32_gives_the_cpus_tokens_at_any_temperature(void **state)
{
    (void)state;
    need_gpu();
    static const struct sampling samplings[] = {{0, 0, 1, 0}, {0.7f, 0, 1, 0}, {1, 0, 1, 0}, {1, 40, 0.95f, 0}};
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b16",    "tp1-auto-c4", "tp1-b64-c3",
                                       "tp2-auto", "tp2-linear", "tp4-b16-c2", "tp8-auto-c3", "tp8-b64"};
    check_tokens(samplings, 4, arms, 10);
}

static void float32_gives_the_cpus_tokens_under_top_k_and_top_p(void **state)
{
    (void)state;
    need_gpu();
    static const struct sampling samplings[] = {{0.7f, 20, 1, 0}, {1, 20, 1, 0}, {0.7f, 0, 0.95f, 0}, {1, 0, 0.95f, 0}};
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b16", "tp1-auto-c3", "tp1-b16-c3",
                                       "tp2-auto", "tp2-linear", "tp2-b16", "tp4-b64"};
    check_tokens(samplings, 4, arms, 9);
}

static void bfloat16_passes_the_audit_at_every_budget(void **state)
{
    (void)state;
    need_gpu();
    static const char *const arms[] = {"tp1-auto",  "tp1-linear", "tp1-b8",   "tp1-b64",    "tp1-b256",
                                       "tp1-b1024", "tp1-b32-c4", "tp2-auto", "tp4-b64-c2", "tp8-auto-c2"};
    struct engine *engine = open_engine("bfloat16", SHARED);
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        struct outputs outputs;
        run_arm(engine, arms[i], &(struct sampling){0, 0, 1, 0}, &outputs);
        if (!(outputs.regret < 0.2))
            fail_msg("%s: regret %g", arms[i], outputs.regret);
        free_outputs(&outputs);
    }
    engine_close(engine);
}

/* As long as products are computed as they were: by what is kept. */
static void a_run_repeats_itself_bit_by_bit(void **state)
{
    (void)state;
    need_gpu();
    struct engine *engine = open_engine("bfloat16", "cuda");
    struct outputs first, again;
    run_arm(engine, "tp1-b64-c3", &(struct sampling){0, 0, 1, 0}, &first);
    run_arm(engine, "tp1-b64-c3", &(struct sampling){0, 0, 1, 0}, &again);
    for (int i = 0; i < PROMPTS; i++) {
        const struct sample *a = &first.samples[i], *b = &again.samples[i];
        assert_int_equal(a->tokens, b->tokens);
        assert_int_equal(a->rounds, b->rounds);
        assert_memory_equal(a->token_ids, b->token_ids, (size_t)a->tokens * sizeof(int));
        assert_memory_equal(a->margins, b->margins, (size_t)a->tokens * sizeof(float));
        assert_memory_equal(a->accepted, b->accepted, (size_t)a->rounds * sizeof(int));
    }
    free_outputs(&first);
    free_outputs(&again);
    engine_close(engine);
}

static void says_what_it_cannot_do(void **state)
{
    (void)state;
    need_gpu();
    struct engine *engine = open_engine("bfloat16", "cuda");
    static const struct {
        const char *arm;
        int positions;
        const char *says;
    } cases[] = {{"tp2-auto", 100, "tensor_parallel 2"}, {"tp1-b16-c16", 100 << 20, "tokens would"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arm arm;
        struct error error = {0};
        json_t *memory = NULL;
        assert_true(arm_parse(cases[i].arm, &arm));
        assert_int_equal(engine_load(engine, &arm, &(struct sampling){.top_p = 1}, cases[i].positions, &memory, &error),
                         -1);
        assert_non_null(strstr(error.message, cases[i].says));
    }
    engine_close(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_of_awkward_sizes_agree_with_the_cpu),
        cmocka_unit_test(drafts_of_every_width_are_sorted),
        cmocka_unit_test(float32_gives_the_cpus_tokens_at_any_temperature),
        cmocka_unit_test(float32_gives_the_cpus_tokens_under_top_k_and_top_p),
        cmocka_unit_test(bfloat16_passes_the_audit_at_every_budget),
        cmocka_unit_test(a_run_repeats_itself_bit_by_bit),
        cmocka_unit_test(says_what_it_cannot_do),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
