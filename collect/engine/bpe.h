/* Byte-pair encoding: pairs of token ids, each with a rank and the id that it becomes.
 *
 * A word of n tokens is merged in O(n log n), however long it is: a heap holds the pairs that may be merged, a linked
 * list the tokens that are left. */
#ifndef COLLECT_ENGINE_BPE_H
#define COLLECT_ENGINE_BPE_H

#include <stdint.h>

struct bpe_merge {
    uint64_t pair; /* left id in the upper half, right id in the lower */
    int rank;      /* lower merges first */
    int merged;    /* -1: an empty slot of the table */
};

/* A hash table with open addressing, filled at most by half. */
struct bpe {
    struct bpe_merge *slots;
    uint64_t mask; /* number of slots - 1 */
};

/* Makes room for `count` merges. */
void bpe_init(struct bpe *bpe, int count);
void bpe_free(struct bpe *bpe);

/* Adds "left, right become merged". Answers -1 where the pair is there already. */
int bpe_add(struct bpe *bpe, int left, int right, int rank, int merged);

/* Merges ids[count] in place, always the pair of the lowest rank, of equal ones the leftmost, until none is left.
 * Answers the new count. */
int bpe_apply(const struct bpe *bpe, int *ids, int count);

#endif
