/* Tokens chosen under top-k and top-p: what a backend answers is, to the bit, what sample.h says of the logits that the
 * backend itself has; on ranks that share a GPU, with lists of any length, and where lists do not settle it. Drafts,
 * which are lists as well, against a sort. Skipped where there is no GPU that CUDA can use. */
#include "collect/base/error.h"
#include "collect/engine/backend.h"
#include "collect/engine/cpu/kernels.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/sized_models.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SESSIONS = 3, NODES = 41, BLOCK = 8, WIDTH = 24, STEPS = 12, PROMPT = 20 };

static const struct backend_class *cuda;

static int find_gpu(void **state)
{
    (void)state;
    cuda = gpu_backend();
    if (cuda)
        gpu_leave_rubbish();
    return 0;
}

/* More tokens than are listed, few; and so many that the logits of one round do not exist at a time. */
static const struct sizes models[] = {{256, 512, 4, 2, 64, 4096, BLOCK, "{}", "{}"},
                                      {64, 128, 4, 2, 16, 800, BLOCK, "{}", "{}"},
                                      {16, 32, 4, 2, 8, 400000, BLOCK, "{}", "{}"}};

/* Of the sessions, which differ: their logits are flat, so that a low temperature is what makes small nuclei. */
static const struct sampling samplings[][SESSIONS] = {
    {{0.7f, 20, 1, 11}, {1, 20, 0.95f, 12}, {1, 1, 1, 13}},
    {{0.05f, 0, 0.95f, 14}, {0.1f, 0, 0.5f, 15}, {0.05f, 0, 0.999f, 16}},
    {{0.1f, 1500, 0.9f, 17}, {0, 0, 1, 18}, {1, 2, 1, 19}},       /* more than are listed; the argmax */
    {{1, 0, 0.01f, 20}, {0.7f, 0, 1, 21}, {0.05f, 30, 0.5f, 22}}, /* wide; all tokens */
    {{1, 0, 1, 23}, {0, 0, 1, 24}, {0.7f, 0, 1, 25}},             /* none is limited, though lists were readied */
};

struct trial {
    struct backend_options options;
    struct backend *backend;
    float *logits; /* [SESSIONS * NODES, vocabulary_size] */
    struct sample_scratch scratch;
    const struct sampling *sampling;
    int committed[SESSIONS];
};

static bool is_limited(const struct trial *trial, int session)
{
    return sample_candidates(&trial->sampling[session], trial->options.vocabulary) > 0;
}

static bool is_any_limited(const struct trial *trial)
{
    return is_limited(trial, 0) || is_limited(trial, 1) || is_limited(trial, 2);
}

/* The choice for row `row` of the logits, of a session at that position. exact: a session of the call is limited; else
 * a GPU makes the choice, and by its own logarithms. */
static void check_row(const struct trial *trial, int row, int session, int position, bool exact, struct choice actual)
{
    const float *logits = trial->logits + (size_t)row * (size_t)trial->options.target->vocabulary_size;
    const struct choice expected =
        sample_choose(logits, trial->options.vocabulary, &trial->sampling[session], position + 1, &trial->scratch);
    const float off = actual.margin == expected.margin ? 0 : fabsf(actual.margin - expected.margin);
    if ((actual.token != expected.token && (exact || expected.margin > 1e-4f)) || !(exact ? off == 0 : off < 1e-4f))
        fail_msg(
            "row %d of %d tokens, session %d at %d, temperature %g, %d ranks: token %d by %.9g, where the row has %d "
            "by %.9g",
            row, trial->options.vocabulary, session, position, (double)trial->sampling[session].temperature,
            trial->options.ranks, actual.token, (double)actual.margin, expected.token, (double)expected.margin);
}

static void check_drafts(struct trial *trial)
{
    static const int sessions[SESSIONS] = {0, 1, 2}, anchors[SESSIONS] = {5, 6, 7};
    static int tokens[SESSIONS][BLOCK * WIDTH];
    static float values[SESSIONS][BLOCK * WIDTH];
    struct tree_draft drafts[SESSIONS];
    int vocabulary_size = trial->options.target->vocabulary_size;
    for (int i = 0; i < SESSIONS; i++)
        drafts[i] = (struct tree_draft){0, WIDTH, tokens[i], values[i]};
    cuda->draft(trial->backend, sessions, anchors, SESSIONS, drafts);
    cuda->inspect(trial->backend, INSPECT_DRAFT, 1, SESSIONS * BLOCK - 1, trial->logits);
    for (int i = 0; i < SESSIONS; i++)
        for (int slot = 0; slot < BLOCK - 1; slot++) {
            const float *logits = trial->logits + (size_t)(i * BLOCK + slot) * (size_t)vocabulary_size;
            float log_sum = kernel_log_sum_exp(logits, vocabulary_size);
            kernel_top(logits, trial->options.vocabulary, WIDTH, trial->scratch.indices, trial->scratch.values);
            for (int k = 0; k < WIDTH; k++) {
                assert_int_equal(tokens[i][slot * WIDTH + k], trial->scratch.indices[k]);
                assert_true(fabsf(values[i][slot * WIDTH + k] - (trial->scratch.values[k] - log_sum)) < 1e-4f);
            }
        }
}

/* A tree whose node i hangs below node (i - 1) * 2 / 3. */
static void check_trees(struct trial *trial)
{
    static int tokens[SESSIONS][NODES], parents[NODES], depths[NODES];
    static struct choice chosen[SESSIONS * NODES];
    static const int path[] = {0, 1};
    struct segment segments[SESSIONS];
    struct kept_path paths[SESSIONS];
    for (int i = 0; i < NODES; i++) {
        parents[i] = i == 0 ? -1 : (i - 1) * 2 / 3;
        depths[i] = i == 0 ? 0 : depths[parents[i]] + 1;
    }
    for (int i = 0; i < SESSIONS; i++) {
        for (int node = 0; node < NODES; node++)
            tokens[i][node] = (node * 37 + i + trial->committed[i]) % trial->options.vocabulary;
        segments[i] = (struct segment){i, NODES, tokens[i], parents};
        paths[i] = (struct kept_path){i, 2, path};
    }
    cuda->verify(trial->backend, segments, SESSIONS, chosen);
    cuda->inspect(trial->backend, INSPECT_LOGITS, 0, SESSIONS * NODES, trial->logits);
    for (int i = 0; i < SESSIONS * NODES; i++)
        check_row(trial, i, i / NODES, trial->committed[i / NODES] + depths[i % NODES], is_any_limited(trial),
                  chosen[i]);
    cuda->commit(trial->backend, paths, SESSIONS);
    for (int i = 0; i < SESSIONS; i++)
        trial->committed[i] += 2;
}

static void check_step(struct trial *trial)
{
    int tokens[SESSIONS];
    struct segment segments[SESSIONS];
    struct choice chosen[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        tokens[i] = (trial->committed[i] * 31 + i) % trial->options.vocabulary;
        segments[i] = (struct segment){i, 1, &tokens[i], NULL};
    }
    cuda->extend(trial->backend, segments, SESSIONS, chosen);
    cuda->inspect(trial->backend, INSPECT_LOGITS, 0, SESSIONS, trial->logits);
    for (int i = 0; i < SESSIONS; i++)
        check_row(trial, i, i, trial->committed[i]++, is_any_limited(trial), chosen[i]);
}

static void check_sessions(struct trial *trial)
{
    int prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * i + 7 * i) % trial->options.vocabulary;
    for (int i = 0; i < SESSIONS; i++) {
        struct choice chosen;
        cuda->reset(trial->backend, i, &trial->sampling[i]);
        cuda->extend(trial->backend, &(struct segment){i, PROMPT - i, prompt, NULL}, 1, &chosen);
        cuda->inspect(trial->backend, INSPECT_LOGITS, PROMPT - i - 1, 1, trial->logits);
        check_row(trial, 0, i, PROMPT - i - 1, is_limited(trial, i), chosen);
        trial->committed[i] = PROMPT - i;
    }
    if (!trial->options.drafter)
        for (int step = 0; step < STEPS; step++)
            check_step(trial);
    for (int round = 0; trial->options.drafter && round < 2; round++) {
        check_drafts(trial);
        check_trees(trial);
    }
}

/* candidates: what the backend is told to ready. sets: of samplings. */
static void check_backend(const struct model *target, const struct model *drafter, int ranks, enum engine_dtype dtype,
                          int candidates, int sets)
{
    struct error error = {0};
    size_t vocabulary_size = (size_t)target->vocabulary_size;
    struct trial trial = {.options = {.target = target,
                                      .drafter = drafter,
                                      .dtype = dtype,
                                      .device = "cuda:0,0,0,0",
                                      .ranks = ranks,
                                      .sessions = SESSIONS,
                                      .capacity = 100,
                                      .nodes = drafter ? NODES : 1,
                                      .draft_width = drafter ? WIDTH : 0,
                                      .vocabulary = target->vocabulary_size - 3,
                                      .candidates = candidates,
                                      .algorithms = kept_algorithms()},
                          .logits = xcalloc(SESSIONS * NODES * vocabulary_size, sizeof(float)),
                          .scratch = {xcalloc(vocabulary_size, sizeof(int)), xcalloc(vocabulary_size, sizeof(float))}};
    trial.backend = cuda->open(&trial.options, &error);
    assert_string_equal(error.message, "");
    for (int i = 0; i < sets; i++) {
        trial.sampling = samplings[i];
        check_sessions(&trial);
    }
    cuda->close(trial.backend);
    free(trial.logits);
    free(trial.scratch.indices);
    free(trial.scratch.values);
}

/* small: by every sampling, type and number of candidates. */
static void check_model(const struct sizes *sizes, bool small)
{
    struct error error = {0};
    char *target_folder = fixture_make_folder(), *drafter_folder = fixture_make_folder();
    sized_models_write(sizes, target_folder, drafter_folder);
    struct model *target = model_open_target(target_folder, &error),
                 *drafter = target ? model_open_drafter(drafter_folder, target, &error) : NULL;
    assert_string_equal(error.message, "");
    int all = sizes->vocabulary - 3, sets = (int)(sizeof samplings / sizeof *samplings);
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int drafts = 0; drafts <= 1; drafts++) {
            const struct model *own = drafts ? drafter : NULL;
            check_backend(target, own, ranks, ENGINE_FLOAT32, all, small ? sets : 3);
            if (!small)
                continue;
            check_backend(target, own, ranks, ENGINE_BFLOAT16, all, sets);
            check_backend(target, own, ranks, ENGINE_FLOAT32, 20, sets);
            check_backend(target, own, ranks, ENGINE_FLOAT32, 0, sets);
        }
    model_close(drafter);
    model_close(target);
    fixture_remove_folder(target_folder);
    fixture_remove_folder(drafter_folder);
}

static void choices_are_the_samplers_of_the_backends_logits(void **state)
{
    (void)state;
    if (!cuda)
        skip();
    check_model(&models[0], true);
    check_model(&models[1], true);
    check_model(&models[2], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_the_samplers_of_the_backends_logits),
    };
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
