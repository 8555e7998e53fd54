/* Draft trees against a search of all prefixes, and the walk. Golden trees are in test_golden.c. */
#include "collect/engine/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 4, WIDTH = 5 };

static int tokens[SLOTS * WIDTH];
static float log_probabilities[SLOTS * WIDTH];
static const struct tree_draft draft = {SLOTS, WIDTH, tokens, log_probabilities};

/* Falling log-probabilities in each slot, rounded so that ties are common. */
static void random_draft(unsigned seed)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        float value = 0;
        for (int rank = 0; rank < WIDTH; rank++) {
            seed = seed * 1664525u + 1013904223u;
            value -= (float)(seed >> 29) / 4;
            tokens[slot * WIDTH + rank] = 100 * slot + rank;
            log_probabilities[slot * WIDTH + rank] = value;
        }
    }
}

static int prefixes_better_than(double score, int depth, double sum)
{
    int count = 0;
    for (int rank = 0; depth < SLOTS && rank < WIDTH; rank++) {
        double here = sum + log_probabilities[depth * WIDTH + rank];
        count += (here > score) + prefixes_better_than(score, depth + 1, here);
    }
    return count;
}

static void holds_the_best_prefixes(void **state)
{
    (void)state;
    static struct tree tree;
    for (unsigned seed = 1; seed <= 200; seed++) {
        random_draft(seed);
        int budget = (int)(seed % 60) + 1;
        tree_build(&draft, 7, budget, &tree);
        assert_int_equal(tree.count, budget + 1);
        for (int node = 1; node < tree.count; node++) {
            int parent = tree.parents[node];
            assert_in_range(parent, 0, node - 1);
            assert_int_equal(tree.depths[node], tree.depths[parent] + 1);
            assert_true(node == 1 || tree.scores[node] <= tree.scores[node - 1]);
            /* best first: fewer prefixes are strictly better than nodes stand before it */
            assert_true(prefixes_better_than(tree.scores[node], 0, 0) < node);
        }
    }
}

static void gives_what_there_is(void **state)
{
    (void)state;
    static struct tree tree;
    random_draft(1);
    tree_build(&draft, 7, 1024, &tree);
    assert_int_equal(tree.count, 1 + 5 + 25 + 125 + 625);
    tree_build(&draft, 7, 0, &tree);
    assert_int_equal(tree.count, 1);
    assert_int_equal(tree.tokens[0], 7);
    const struct tree_draft empty = {0, 0, NULL, NULL};
    tree_build(&empty, 7, 16, &tree);
    assert_int_equal(tree.count, 1);
}

static void a_path_is_each_slots_best(void **state)
{
    (void)state;
    static struct tree tree;
    random_draft(3);
    tree_build_path(&draft, 7, &tree);
    assert_int_equal(tree.count, SLOTS + 1);
    for (int node = 1; node <= SLOTS; node++) {
        assert_int_equal(tree.tokens[node], 100 * (node - 1));
        assert_int_equal(tree.parents[node], node - 1);
    }
}

static void the_walk_follows_chosen_tokens(void **state)
{
    (void)state;
    /* 0 ─ 1 ─ 3 ─ 5
     *   └ 2 ─ 4      */
    const struct tree tree = {.count = 6, .tokens = {9, 10, 11, 12, 13, 14}, .parents = {-1, 0, 0, 1, 2, 3}};
    static const struct {
        int chosen[6], length, path[6];
    } cases[] = {
        {{99, 12, 13, 14, 0, 0}, 1, {0}},          {{10, 99, 13, 14, 0, 0}, 2, {0, 1}},
        {{10, 12, 13, 14, 0, 0}, 4, {0, 1, 3, 5}}, {{11, 12, 13, 14, 0, 0}, 3, {0, 2, 4}},
        {{13, 12, 13, 14, 0, 0}, 1, {0}}, /* a token that stands elsewhere in the tree does not count */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int path[6];
        assert_int_equal(tree_walk(&tree, cases[i].chosen, path), cases[i].length);
        assert_memory_equal(path, cases[i].path, (size_t)cases[i].length * sizeof *path);
    }
}

/* 0 ─ 1 ─ 3 ─ 5
 *   └ 2 ─ 4      */
static void takes_a_recorded_shape_and_a_forced_path(void **state)
{
    (void)state;
    static struct tree tree;
    static const int parents[] = {-1, 0, 0, 1, 2, 3};
    static const struct {
        int length, kept, path[4];
    } cases[] = {{1, 1, {0}}, {2, 2, {0, 1}}, {3, 3, {0, 1, 3}}, {4, 4, {0, 1, 3, 5}}, {6, 4, {0, 1, 3, 5}}};
    random_draft(5);
    tree_build(&draft, 7, 5, &tree);
    tree_reshape(&tree, parents);
    assert_int_equal(tree.tokens[0], 7);
    assert_memory_equal(tree.parents, parents, sizeof parents);
    assert_int_equal(tree_depth(parents, 6), 3);
    assert_int_equal(tree_depth(parents, 3), 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int chosen[6], path[6];
        tree_force(&tree, cases[i].length, chosen);
        assert_int_equal(tree_walk(&tree, chosen, path), cases[i].kept);
        assert_memory_equal(path, cases[i].path, (size_t)cases[i].kept * sizeof *path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_the_best_prefixes),
        cmocka_unit_test(gives_what_there_is),
        cmocka_unit_test(a_path_is_each_slots_best),
        cmocka_unit_test(the_walk_follows_chosen_tokens),
        cmocka_unit_test(takes_a_recorded_shape_and_a_forced_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
