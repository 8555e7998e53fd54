/* A stack of decoder layers on the CPU: the target's, and the drafter's, which differ only in what their rows see.
 *
 * A batch is rows of one or more sessions. Each row has a position and sees its session's committed positions plus
 * those new rows of its own segment that its bit set names: a causal run, a tree's ancestors, or a whole block. */
#ifndef COLLECT_ENGINE_CPU_STACK_H
#define COLLECT_ENGINE_CPU_STACK_H

#include "collect/engine/cpu/product.h"
#include "collect/engine/cpu/team.h"
#include "collect/engine/model.h"

#include <stdint.h>

#define STACK_PARALLEL_ROWS 4 /* fewer rows are not worth waking other threads */

/* New rows of one session, rows [first, first + count) of the batch, stored from cache position `base` on. */
struct stack_segment {
    int session, first, count;
    int base;                /* committed length */
    const int *positions;    /* [count]: for the rotation */
    const uint64_t *visible; /* [count][words]: bit j of row i: row i sees new row j */
    int words;
    const int *parents; /* [count], a parent before its child, -1: none; NULL: each row is behind the one before */
    bool advances;      /* the rows are committed as they run; otherwise stack_commit() says which are */
};

/* Called with the residual stream x[rows, hidden_size] after each layer. */
typedef void stack_on_layer(void *context, int layer, const float *x, int rows);

struct stack;

struct stack_options {
    const struct model *model;
    struct team *team;
    int rank; /* which slice of the heads and of the MLP this stack holds; all calls are made by that rank of the team
               */
    enum product_type type;
    int sessions, capacity;
    const int *row_shapes; /* rows of a batch that products are readied for, rising */
    int row_shape_count;
    const int *segment_shapes; /* rows of a segment that attention is readied for, rising */
    int segment_shape_count;
    int verified_rows; /* of a batch that does not advance its sessions; 0: every batch does */
    bool with_context; /* a drafter: keys and values of all layers also come from fused features */
};

struct stack *stack_create(const struct stack_options *options);
void stack_destroy(struct stack *stack);

/* Runs all layers over x[rows, hidden_size] in place, then the final norm into normed[rows, hidden_size], in the
 * products' type. x and normed have room for the largest row shape. Ranks meet in two all-reduces a layer; x ends
 * bit-identical on all. */
void stack_run(struct stack *stack, const struct stack_segment *segments, int segment_count, int rows, float *x,
               void *normed, stack_on_layer *on_layer, void *context);

/* A drafter's context: writes keys and values of every layer for fused features[rows, hidden_size] (in the products'
 * type), whose tokens stand at cache positions base, base + 1, ... of the session. */
void stack_add_context(struct stack *stack, int session, int base, int rows, const void *features);

/* Empties a session. */
void stack_reset(struct stack *stack, int session);

/* Commits a path of a session's last verified rows, nodes[0] < nodes[1] < ..., which began at row `first` of their
 * batch: moves their keys and values behind the committed length `base`, row nodes[i] to base + i, and advances the
 * states of recurrent layers along them. */
void stack_commit(struct stack *stack, int session, int base, int first, const int *nodes, int count);

/* A session's committed states in recurrent layer `layer` (attention not counted): recurrence_state()'s. */
const float *stack_state(const struct stack *stack, int layer, int session);

size_t stack_weight_bytes(const struct stack *stack);

/* For benchmarks: the products that stack_run and stack_add_context would call for one segment of `rows` rows over
 * `base` committed positions, and nothing else. */
void stack_run_products(struct stack *stack, int rows, int base);
void stack_run_context_product(struct stack *stack, int rows, const void *features);

#endif
