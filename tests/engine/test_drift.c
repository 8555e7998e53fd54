/* The committed states of recurrent layers over thousands of rounds of trees: beside single steps over the same tokens,
 * and beside a fresh prefill. CLEANSLATE_BACKEND=cuda tests that backend instead of the CPU's. */
#include "collect/engine/backend.h"
#include "tests/engine/hybrid_files.h"
#include "tests/engine/kept_algorithms.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#ifdef CLEANSLATE_DEBUG
enum { ROUNDS = 200 }; /* what sanitizers find shows sooner, and they are slow */
#else
enum { ROUNDS = 2000 };
#endif

enum { VOCABULARY = 512, STATES = 6 * 12 * 32 * 32, TREE = 8, DEPTH = 2, PREFILL = 40, LONGEST = PREFILL + 3 * ROUNDS };

static const struct sampling greedy = {.top_p = 1};
static const struct backend_class *class;
static struct model *target;

static int open_target(void **state)
{
    struct error error = {0};
    const char *backend = getenv("CLEANSLATE_BACKEND");
    (void)state;
    class = backend_find(backend ? backend : "cpu", &error);
    if (!class || !class->has_recurrence)
        print_message("SKIPPED: %s\n", class ? "this backend has no recurrent layers" : error.message);
    error = (struct error){0};
    target = model_open_target(HYBRID_FOLDER, &error);
    return target ? 0 : -1;
}

static int close_target(void **state)
{
    (void)state;
    model_close(target);
    return 0;
}

struct history {
    struct backend *backend;
    uint64_t random;
    int tokens[LONGEST], count;
};

static void append(struct backend *backend, int session, const int *ids, int count)
{
    struct choice ignored;
    class->extend(backend, &(struct segment){session, count, ids, NULL}, 1, &ignored);
}

static int draw(struct history *history, int count)
{
    history->random = history->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((history->random >> 33) % (uint64_t)count);
}

/* Verifies a random tree over session 0 and keeps a random path of it, at most three nodes; session 1 takes the same
 * tokens by single steps. */
static void run_round(struct history *history)
{
    int tokens[TREE], parents[TREE], depths[TREE], path[TREE];
    struct choice chosen[TREE];
    for (int i = 0; i < TREE; i++) {
        tokens[i] = draw(history, VOCABULARY);
        parents[i] = i ? draw(history, 2) ? i - 1 : draw(history, i) : -1;
        if (i && depths[parents[i]] == DEPTH)
            parents[i] = 0;
        depths[i] = i ? depths[parents[i]] + 1 : 0;
    }
    class->verify(history->backend, &(struct segment){0, TREE, tokens, parents}, 1, chosen);
    int node = draw(history, TREE), length = depths[node] + 1;
    for (int i = length - 1; i >= 0; i--, node = parents[node])
        path[i] = node;
    class->commit(history->backend, &(struct kept_path){0, length, path}, 1);
    for (int i = 0; i < length; i++) {
        history->tokens[history->count++] = tokens[path[i]];
        append(history->backend, 1, &tokens[path[i]], 1);
    }
}

/* The distance of session 0's states from another session's, relative to these; the largest of any layer and head. */
static double state_error(struct backend *backend, int session)
{
    static float ours[STATES], others[STATES];
    double largest = 0;
    class->inspect(backend, INSPECT_STATE, 0, 1, ours);
    class->inspect(backend, INSPECT_STATE, session, 1, others);
    for (int head = 0; head < STATES; head += 32 * 32) {
        double distance = 0, size = 0;
        for (int i = head; i < head + 32 * 32; i++) {
            distance += ((double)ours[i] - (double)others[i]) * ((double)ours[i] - (double)others[i]);
            size += (double)others[i] * (double)others[i];
        }
        largest = fmax(largest, sqrt(distance / size));
    }
    return largest;
}

static void states_do_not_drift(void **state)
{
    (void)state;
    if (!class || !class->has_recurrence)
        skip();
    static struct history history = {.random = 3};
    struct error error = {0};
    const struct backend_options options = {.target = target,
                                            .dtype = ENGINE_FLOAT32,
                                            .ranks = 1,
                                            .sessions = 3,
                                            .capacity = LONGEST + TREE,
                                            .nodes = TREE,
                                            .draft_width = 1,
                                            .vocabulary = VOCABULARY,
                                            .algorithms = kept_algorithms()};
    history.backend = class->open(&options, &error);
    assert_string_equal(error.message, "");
    double halves[2] = {0}, sequential = 0;
    for (int i = 0; i < PREFILL; i++)
        history.tokens[history.count++] = draw(&history, VOCABULARY);
    for (int session = 0; session < 2; session++) {
        class->reset(history.backend, session, &greedy);
        append(history.backend, session, history.tokens, PREFILL);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        run_round(&history);
        sequential = fmax(sequential, round % 20 ? 0 : state_error(history.backend, 1));
        if (round % (ROUNDS / 10))
            continue;
        class->reset(history.backend, 2, &greedy);
        append(history.backend, 2, history.tokens, history.count);
        double *half = &halves[round > ROUNDS / 2];
        *half = fmax(*half, state_error(history.backend, 2));
    }
    print_message(
        "after %d rounds of %d tokens: states within %.2g of single steps, within %.2g and then %.2g of a fresh "
        "prefill\n",
        ROUNDS, history.count - PREFILL, sequential, halves[0], halves[1]);
    assert_true(sequential <= 1e-4);
    assert_true(halves[1] <= 1e-3);
    assert_true(halves[1] <= 2 * halves[0]);
    class->close(history.backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_do_not_drift),
    };
    return cmocka_run_group_tests(tests, open_target, close_target);
}
