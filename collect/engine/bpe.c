#include "collect/engine/bpe.h"

#include "collect/base/error.h"

#include <stdlib.h>

/* The tokens of a word that are left, and a binary heap of candidates: rank in the upper half, position in the lower,
 * so that plain order of the numbers is the order of merging. A candidate may have gone stale; that shows when it is
 * taken out. */
struct word {
    int *ids;
    int *next,
        *previous; /* positions; -1: none. next[i] is -2 where the token at i was merged into its left neighbour */
    uint64_t *heap;
    int heap_size;
};

enum { NONE = -1, GONE = -2 };

void bpe_init(struct bpe *bpe, int count)
{
    uint64_t size = 2;
    while (size < 2 * (uint64_t)count)
        size *= 2;
    bpe->slots = xcalloc(size, sizeof *bpe->slots);
    bpe->mask = size - 1;
    for (uint64_t i = 0; i < size; i++)
        bpe->slots[i].merged = NONE;
}

void bpe_free(struct bpe *bpe)
{
    free(bpe->slots);
    bpe->slots = NULL;
}

/* The pair's slot, or the empty one where it belongs. */
static struct bpe_merge *find_slot(const struct bpe *bpe, int left, int right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    uint64_t at = (hash ^ hash >> 32) & bpe->mask;
    while (bpe->slots[at].merged != NONE && bpe->slots[at].pair != pair)
        at = (at + 1) & bpe->mask;
    return &bpe->slots[at];
}

int bpe_add(struct bpe *bpe, int left, int right, int rank, int merged)
{
    struct bpe_merge *slot = find_slot(bpe, left, right);
    if (slot->merged != NONE)
        return -1;
    slot->pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    slot->rank = rank;
    slot->merged = merged;
    return 0;
}

static void heap_push(struct word *word, uint64_t candidate)
{
    int at = word->heap_size++;
    for (int parent; at > 0 && word->heap[parent = (at - 1) / 2] > candidate; at = parent)
        word->heap[at] = word->heap[parent];
    word->heap[at] = candidate;
}

static uint64_t heap_pop(struct word *word)
{
    uint64_t first = word->heap[0], last = word->heap[--word->heap_size];
    int at = 0;
    for (int child; (child = 2 * at + 1) < word->heap_size; at = child) {
        if (child + 1 < word->heap_size && word->heap[child + 1] < word->heap[child])
            child++;
        if (word->heap[child] >= last)
            break;
        word->heap[at] = word->heap[child];
    }
    word->heap[at] = last;
    return first;
}

static void push_pair(const struct bpe *bpe, struct word *word, int left)
{
    if (left < 0 || word->next[left] < 0)
        return;
    const struct bpe_merge *merge = find_slot(bpe, word->ids[left], word->ids[word->next[left]]);
    if (merge->merged != NONE)
        heap_push(word, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)left);
}

static void merge_pair(const struct bpe *bpe, struct word *word, int rank, int left)
{
    int right = word->next[left];
    if (right < 0)
        return;
    const struct bpe_merge *merge = find_slot(bpe, word->ids[left], word->ids[right]);
    if (merge->merged == NONE || merge->rank != rank)
        return;
    word->ids[left] = merge->merged;
    word->next[left] = word->next[right];
    if (word->next[right] >= 0)
        word->previous[word->next[right]] = left;
    word->next[right] = GONE;
    push_pair(bpe, word, word->previous[left]);
    push_pair(bpe, word, left);
}

int bpe_apply(const struct bpe *bpe, int *ids, int count)
{
    if (count < 2)
        return count;
    /* One candidate for each neighbouring pair at first, two more at most for each merge. */
    size_t length = (size_t)count;
    struct word word = {.ids = ids};
    word.heap = xmalloc(3 * length * sizeof *word.heap);
    word.next = xmalloc(2 * length * sizeof *word.next);
    word.previous = word.next + length;
    for (int i = 0; i < count; i++) {
        word.next[i] = i + 1 < count ? i + 1 : NONE;
        word.previous[i] = i - 1;
    }
    for (int i = 0; i < count; i++)
        push_pair(bpe, &word, i);
    while (word.heap_size > 0) {
        uint64_t candidate = heap_pop(&word);
        merge_pair(bpe, &word, (int)(candidate >> 32), (int)(uint32_t)candidate);
    }
    int left = 0;
    for (int i = 0; i >= 0; i = word.next[i])
        ids[left++] = ids[i];
    free(word.heap);
    free(word.next);
    return left;
}
