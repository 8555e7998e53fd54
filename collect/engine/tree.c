#include "collect/engine/tree.h"

#include "collect/base/error.h"

#include <stdbool.h>

/* A prefix that may become a node: the `rank`-th token of slot `depth` (from 1) below node `parent`. */
struct candidate {
    double score;
    int parent, depth, rank;
};

struct builder {
    const struct tree_draft *draft;
    struct tree *tree;
    int ranks[TREE_NODES_MAXIMUM]; /* of each node within its slot */
    struct candidate heap[2 * TREE_NODES_MAXIMUM + 2];
    int heap_count;
};

static double log_probability(const struct builder *builder, int depth, int rank)
{
    return (double)builder->draft->log_probabilities[(depth - 1) * builder->draft->width + rank];
}

/* The rank at `depth` on the way to the candidate. */
static int rank_at(const struct builder *builder, const struct candidate *candidate, int depth)
{
    if (depth == candidate->depth)
        return candidate->rank;
    int node = candidate->parent;
    while (builder->tree->depths[node] > depth)
        node = builder->tree->parents[node];
    return builder->ranks[node];
}

static bool before(const struct builder *builder, const struct candidate *a, const struct candidate *b)
{
    if (a->score != b->score)
        return a->score > b->score;
    int shared = a->depth < b->depth ? a->depth : b->depth;
    for (int depth = 1; depth <= shared; depth++) {
        int left = rank_at(builder, a, depth), right = rank_at(builder, b, depth);
        if (left != right)
            return left < right;
    }
    return a->depth < b->depth;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;
    *a = *b;
    *b = kept;
}

static void heap_push(struct builder *builder, struct candidate candidate)
{
    struct candidate *heap = builder->heap;
    int at = builder->heap_count++;
    heap[at] = candidate;
    for (; at > 0 && before(builder, &heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static struct candidate heap_pop(struct builder *builder)
{
    struct candidate *heap = builder->heap, best = heap[0];
    heap[0] = heap[--builder->heap_count];
    for (int at = 0;;) {
        int child = 2 * at + 1;
        if (child + 1 < builder->heap_count && before(builder, &heap[child + 1], &heap[child]))
            child++;
        if (child >= builder->heap_count || !before(builder, &heap[child], &heap[at]))
            return best;
        swap(&heap[at], &heap[child]);
        at = child;
    }
}

static int add_node(struct tree *tree, int token, int parent, double score)
{
    int node = tree->count++;
    tree->tokens[node] = token;
    tree->parents[node] = parent;
    tree->scores[node] = score;
    tree->depths[node] = parent < 0 ? 0 : tree->depths[parent] + 1;
    return node;
}

void tree_build(const struct tree_draft *draft, int root_token, int budget, struct tree *tree)
{
    static _Thread_local struct builder builder;
    builder.draft = draft;
    builder.tree = tree;
    builder.heap_count = 0;
    tree->count = 0;
    add_node(tree, root_token, -1, 0);
    if (draft->slots > 0 && draft->width > 0)
        heap_push(&builder, (struct candidate){log_probability(&builder, 1, 0), 0, 1, 0});
    while (tree->count <= budget && tree->count < TREE_NODES_MAXIMUM && builder.heap_count > 0) {
        struct candidate best = heap_pop(&builder);
        int node = add_node(tree, draft->tokens[(best.depth - 1) * draft->width + best.rank], best.parent, best.score);
        builder.ranks[node] = best.rank;
        double here = log_probability(&builder, best.depth, best.rank);
        if (best.rank + 1 < draft->width) {
            double next = best.score - here + log_probability(&builder, best.depth, best.rank + 1);
            heap_push(&builder, (struct candidate){next, best.parent, best.depth, best.rank + 1});
        }
        if (best.depth < draft->slots)
            heap_push(&builder, (struct candidate){best.score + log_probability(&builder, best.depth + 1, 0), node,
                                                   best.depth + 1, 0});
    }
}

void tree_build_path(const struct tree_draft *draft, int root_token, struct tree *tree)
{
    tree->count = 0;
    int node = add_node(tree, root_token, -1, 0);
    for (int slot = 0; slot < draft->slots && tree->count < TREE_NODES_MAXIMUM; slot++)
        node = add_node(tree, draft->tokens[slot * draft->width], node,
                        tree->scores[node] + (double)draft->log_probabilities[slot * draft->width]);
}

int tree_walk(const struct tree *tree, const int *chosen, int *path)
{
    int length = 0, node = 0;
    path[length++] = 0;
    for (int next = 1; next < tree->count; next++) {
        if (tree->parents[next] != node || tree->tokens[next] != chosen[node])
            continue;
        path[length++] = next;
        node = next;
    }
    return length;
}

int tree_depth(const int *parents, int count)
{
    int depths[TREE_NODES_MAXIMUM] = {0}, deepest = 0;
    for (int node = 1; node < count; node++) {
        depths[node] = depths[parents[node]] + 1;
        deepest = depths[node] > deepest ? depths[node] : deepest;
    }
    return deepest;
}

void tree_reshape(struct tree *tree, const int *parents)
{
    for (int node = 1; node < tree->count; node++) {
        tree->tokens[node] = node;
        tree->parents[node] = parents[node];
        tree->depths[node] = tree->depths[parents[node]] + 1;
    }
}

void tree_force(const struct tree *tree, int length, int *chosen)
{
    int last = 0;
    for (int node = 0; node < tree->count; node++) {
        chosen[node] = -1;
        if (tree->depths[last] < length - 1 && tree->depths[node] > tree->depths[last])
            last = node;
    }
    for (; last > 0; last = tree->parents[last])
        chosen[tree->parents[last]] = tree->tokens[last];
}
