/* Shapes of trees that a drafter proposed: what a benchmark verifies where the drafter at hand was never trained. Best
 * first, the tree of a smaller budget is the beginning of a larger one's, so one of the largest budget serves all.
 *
 * The file: {"schema": "cleanslate.trees/1", "source": "whose they are", "trees": [{"prompt": "file/id", "parents":
 * [the parent of node 1, of node 2, ...]}]}. */
#ifndef COLLECT_ENGINE_RECORDED_TREES_H
#define COLLECT_ENGINE_RECORDED_TREES_H

#include "collect/base/error.h"
#include "collect/engine/tree.h"

#include <jansson.h>

struct recorded_trees {
    int count;
    int **parents; /* [count][TREE_NODES_MAXIMUM], -1 at the root */
    char *source;
};

int recorded_trees_read(const char *path, struct recorded_trees *trees, struct error *error);
void recorded_trees_free(struct recorded_trees *trees);

/* One entry of "trees". A new reference. */
json_t *recorded_tree_to_json(const char *prompt, const struct tree *tree);

int recorded_trees_write(const char *path, const char *source, json_t *trees, struct error *error);

#endif
