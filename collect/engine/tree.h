/* The draft tree of DDTree (arXiv 2604.12989, Algorithm 1): the `budget` best prefixes under the drafter's product of
 * slot distributions, found best first; and the walk of the verified tree. Pure C, no device. A path (DFlash's linear
 * block) is a tree too. */
#ifndef COLLECT_ENGINE_TREE_H
#define COLLECT_ENGINE_TREE_H

#include <stdint.h>

#define TREE_NODES_MAXIMUM 1025 /* the root and a budget of 1024 */

/* Nodes in the order they were chosen; a parent stands before its children. Node 0 is the root: parent -1, depth 0. */
struct tree {
    int count;
    int tokens[TREE_NODES_MAXIMUM];
    int parents[TREE_NODES_MAXIMUM];
    int depths[TREE_NODES_MAXIMUM];
    double scores[TREE_NODES_MAXIMUM]; /* log-probability of the prefix under the draft; 0 at the root */
};

/* What the drafter says of the slots after the anchor: for each of `slots` rows the `width` likeliest tokens, best
 * first, with their log-probabilities over the whole vocabulary. tokens[slots * width], log_probabilities[slots *
 * width]. */
struct tree_draft {
    int slots, width;
    int *tokens;
    float *log_probabilities;
};

/* Builds the tree of `budget` nodes below `root_token` (fewer where the draft has not so many prefixes). Scores are
 * sums of log-probabilities; ties go to the lexicographically smaller tuple of ranks. */
void tree_build(const struct tree_draft *draft, int root_token, int budget, struct tree *tree);

/* The path of each slot's best token: `slots` nodes below the root. */
void tree_build_path(const struct tree_draft *draft, int root_token, struct tree *tree);

/* From the root follows the child whose token is its parent's chosen one, until there is none. chosen[tree->count] is
 * the target's token at each node. Writes the nodes passed, root first, into path[tree->count] and answers how many:
 * the acceptance length of the round, since the last node's choice is the bonus. */
int tree_walk(const struct tree *tree, const int *chosen, int *path);

/* --- for benchmarks without a real drafter: trees of a recorded shape, a path of a wished length ------------------ */

/* Of the first `count` nodes of a tree by its parents: the deepest one's depth. */
int tree_depth(const int *parents, int count);

/* Gives the tree's nodes the parents of a recorded one (parents[tree->count]; -1 at the root), and tokens that differ.
 */
void tree_reshape(struct tree *tree, const int *parents);

/* Writes such choices into chosen[tree->count] that the walk keeps `length` nodes: those down to the first node that is
 * deep enough, or to the deepest. */
void tree_force(const struct tree *tree, int length, int *chosen);

#endif
