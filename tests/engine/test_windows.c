/* Sliding-window layers of a drafter, on the demo drafter with windows put in its place: what must come out is known
 * without another implementation. */
#include "collect/engine/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LENGTH = 70, VOCABULARY = 4096, BLOCK = 16 };

static const struct sampling greedy = {.top_p = 1};
static struct model *target, *drafter;
static int *own_windows;
static struct backend *backend;

static int set_up(void **state)
{
    struct error error = {0};
    (void)state;
    target = model_open_target("data/models/demo/target", &error);
    drafter = target ? model_open_drafter("data/models/demo/drafter", target, &error) : NULL;
    if (!drafter)
        return -1;
    own_windows = drafter->windows;
    const struct backend_options options = {.target = target,
                                            .drafter = drafter,
                                            .dtype = ENGINE_FLOAT32,
                                            .ranks = 1,
                                            .sessions = 1,
                                            .capacity = 128,
                                            .nodes = BLOCK,
                                            .draft_width = 1,
                                            .vocabulary = VOCABULARY};
    /* The backend keeps neither of the two. */
    /* cppcheck-suppress danglingLifetime */
    backend = backend_cpu.open(&options, &error);
    /* cppcheck-suppress danglingLifetime */
    return backend ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    drafter->windows = own_windows;
    backend->class->close(backend);
    model_close(drafter);
    model_close(target);
    return 0;
}

/* Logits of a draft's slots behind a prompt that depends on `seed`, its last token apart; slots * VOCABULARY. */
static float *draft(int seed, int window, bool causal, int slots)
{
    int prompt[LENGTH], windows[2] = {window, window}, tokens[BLOCK], session = 0, anchor = 375;
    float log_probabilities[BLOCK], *logits = calloc((size_t)slots * VOCABULARY, sizeof *logits);
    struct tree_draft rows = {0, 1, tokens, log_probabilities};
    struct choice ignored;
    for (int i = 0; i < LENGTH; i++)
        prompt[i] = (i * 37 + seed * 101) % VOCABULARY;
    drafter->windows = windows;
    drafter->causal_windows = causal;
    drafter->block_size = slots;
    backend->class->reset(backend, 0, &greedy);
    backend->class->extend(backend, &(struct segment){0, LENGTH, prompt, NULL}, 1, &ignored);
    backend->class->draft(backend, &session, &anchor, 1, &rows);
    backend->class->inspect(backend, INSPECT_DRAFT, 0, slots, logits);
    drafter->block_size = BLOCK;
    return logits;
}

static double difference(const float *a, const float *b, int first, int count)
{
    double worst = 0;
    for (int i = first * VOCABULARY; i < (first + count) * VOCABULARY; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

static void a_window_wider_than_everything_is_full_attention(void **state)
{
    (void)state;
    float *full = draft(1, 0, false, BLOCK), *wide = draft(1, LENGTH + BLOCK, false, BLOCK);
    assert_true(difference(full, wide, 0, BLOCK) == 0);
    free(full);
    free(wide);
}

/* In a causal layer a slot is the same whatever stands behind it. */
static void causal_slots_see_nothing_ahead(void **state)
{
    (void)state;
    float *whole = draft(1, LENGTH + BLOCK, true, BLOCK), *five = draft(1, LENGTH + BLOCK, true, 5);
    float *open = draft(1, LENGTH + BLOCK, false, BLOCK);
    assert_true(difference(whole, five, 0, 5) < 1e-4);
    assert_true(difference(whole, open, 1, 4) > 0.1);
    free(whole);
    free(five);
    free(open);
}

/* A window of one is the slot itself: no prompt can matter. A window of n reaches n - 1 positions back, so that the
 * slots behind the first n - 1 see nothing of the prompt either. */
static void a_window_hides_what_lies_further_back(void **state)
{
    (void)state;
    static const struct {
        int window, blind; /* the first slot that no layer of two lets see the prompt */
    } cases[] = {{1, 0}, {2, 2}, {4, 6}, {8, 14}};
    for (int i = 0; i < 4; i++) {
        float *one = draft(1, cases[i].window, true, BLOCK), *other = draft(2, cases[i].window, true, BLOCK);
        int blind = cases[i].blind;
        assert_true(difference(one, other, blind, BLOCK - blind) == 0);
        assert_true(blind == 0 || difference(one, other, blind - 1, 1) > 1e-3);
        free(one);
        free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_wider_than_everything_is_full_attention),
        cmocka_unit_test(causal_slots_see_nothing_ahead),
        cmocka_unit_test(a_window_hides_what_lies_further_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
