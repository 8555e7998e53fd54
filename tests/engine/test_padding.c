/* Rows of the vocabulary that no token has are never chosen and never drafted, whatever their logits are: on a tiny
 * random model with 5 tokens in 16 rows, of which two ranks leave one with nothing but padding. */
#include "collect/engine/backend.h"
#include "tests/engine/model_files.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 16, TOKENS = 5, WIDTH = 4, STEPS = 40, NODES = 4 };

static struct model *target, *drafter;
static char *folders[2];

static int set_up(void **state)
{
    struct error error = {0};
    json_t *configs[2] = {model_files_target_config(), model_files_drafter_config()};
    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *tensors = model_files_tensors(configs[i]);
        folders[i] = fixture_make_folder();
        model_files_write_random(folders[i], configs[i], tensors, 3);
        json_decref(tensors);
        json_decref(configs[i]);
    }
    target = model_open_target(folders[0], &error);
    drafter = target ? model_open_drafter(folders[1], target, &error) : NULL;
    return drafter && target->vocabulary_size == ROWS ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(drafter);
    model_close(target);
    fixture_remove_folder(folders[0]);
    fixture_remove_folder(folders[1]);
    return 0;
}

static struct backend *open_backend(int ranks)
{
    struct error error = {0};
    const struct backend_options options = {.target = target,
                                            .drafter = drafter,
                                            .dtype = ENGINE_FLOAT32,
                                            .ranks = ranks,
                                            .sessions = 1,
                                            .capacity = STEPS + NODES + 1,
                                            .nodes = NODES,
                                            .draft_width = WIDTH,
                                            .vocabulary = TOKENS};
    /* The backend keeps neither of the two. */
    /* cppcheck-suppress danglingLifetime */
    struct backend *backend = backend_cpu.open(&options, &error);
    assert_string_equal(error.message, "");
    /* cppcheck-suppress returnDanglingLifetime */
    return backend;
}

static int best_of(const float *logits, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void check_draft(struct backend *backend, int anchor)
{
    int tokens[NODES * WIDTH], session = 0;
    float log_probabilities[NODES * WIDTH];
    struct tree_draft draft = {0, WIDTH, tokens, log_probabilities};
    backend->class->draft(backend, &session, &anchor, 1, &draft);
    assert_true(draft.slots > 0);
    for (int i = 0; i < draft.slots * WIDTH; i++)
        assert_in_range(tokens[i], 0, TOKENS - 1);
}

/* All tokens below the root, whose own it is that is committed. */
static int check_verify(struct backend *backend, int root)
{
    const int tokens[NODES] = {root, 0, 2, 4}, parents[NODES] = {-1, 0, 0, 0}, path = 0;
    struct choice chosen[NODES];
    backend->class->verify(backend, &(struct segment){0, NODES, tokens, parents}, 1, chosen);
    for (int i = 0; i < NODES; i++)
        assert_in_range(chosen[i].token, 0, TOKENS - 1);
    backend->class->commit(backend, &(struct kept_path){0, 1, &path}, 1);
    return chosen[0].token;
}

/* Answers how often a row of padding had the largest logit. */
static int run_session(struct backend *backend, const struct sampling *sampling)
{
    int tempted = 0, token = 1;
    struct choice chosen;
    backend->class->reset(backend, 0, sampling);
    for (int step = 0; step < STEPS; step += 2) {
        float logits[ROWS];
        backend->class->extend(backend, &(struct segment){0, 1, &token, NULL}, 1, &chosen);
        backend->class->inspect(backend, INSPECT_LOGITS, 0, 1, logits);
        assert_in_range(chosen.token, 0, TOKENS - 1);
        if (sampling->temperature == 0)
            assert_int_equal(chosen.token, best_of(logits, TOKENS));
        tempted += best_of(logits, ROWS) >= TOKENS;
        check_draft(backend, chosen.token);
        token = check_verify(backend, chosen.token);
    }
    return tempted;
}

static void padding_is_never_chosen(void **state)
{
    (void)state;
    static const struct sampling cases[] = {{0, 0, 1, 0}, {3, 0, 1, 9}, {1, 8, 0.9f, 9}};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct backend *backend = open_backend(ranks);
        for (int i = 0; i < 3; i++)
            assert_true(run_session(backend, &cases[i]) >= STEPS / 8);
        backend->class->close(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_is_never_chosen)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
