/* The gated DeltaNet layers of a stack (arXiv 2412.06464), one rank's heads of them: causal convolution, gated delta
 * rule, gated norm. The products before and behind are the stack's.
 *
 * Committed is, for each session, a state of every value head, [key_size, value_size] in float32, and of every layer a
 * window, the last rows that its convolution read. A call's rows either advance both, or are verified over them. Then
 * all that is kept of a row until the commit is what its convolution reads, its decay and its beta: no state.
 *
 * A verified row i with the ancestors j, decays d, states' keys k and queries q (both of length 1, q times
 * 1 / sqrt(key_size)), is answered from the one committed state S, with D(j, i) the product of the decays behind j up
 * to i, and D(i) of all from the root on:
 *
 *     u_i = beta_i (v_i - D(i) Sᵀk_i - Σ_j D(j, i) (k_i · k_j) u_j)
 *     o_i = D(i) Sᵀq_i + Σ_j D(j, i) (q_i · k_j) u_j + (q_i · k_i) u_i
 *
 * A piece of a prompt is the same with a path for a tree, and S ← D S + Σ_j D(j, last) k_j u_jᵀ at its end. A commit
 * instead goes along the path by the rule's own steps, so that what is kept does not depend on the tree around it. */
#ifndef COLLECT_ENGINE_CPU_RECURRENCE_H
#define COLLECT_ENGINE_CPU_RECURRENCE_H

#include "collect/engine/cpu/product.h"
#include "collect/engine/model.h"

struct stack_segment;
struct recurrence;

struct recurrence_options {
    const struct model *model;
    enum product_type type;
    int rank, ranks, sessions;
    int rows;                  /* of a batch, at most */
    int verified_rows;         /* of a batch that is verified; 0: none is */
    const int *segment_shapes; /* rows of a segment that products are readied for, rising */
    int segment_shape_count;
};

struct recurrence *recurrence_create(const struct recurrence_options *options);
void recurrence_destroy(struct recurrence *recurrence);

/* The slices of a layer's weights that the stack multiplies with: before, in the order of a fused row: q, k, v, z, b,
 * a; and behind. */
struct linear *recurrence_create_in(const struct recurrence *recurrence, const struct model_recurrent_layer *layer,
                                    const int *shapes, int shape_count);
struct linear *recurrence_create_out(const struct recurrence *recurrence, const struct model_recurrent_layer *layer,
                                     const int *shapes, int shape_count);

/* Columns of a fused row, and of what goes into the product behind. */
int recurrence_in_width(const struct recurrence *recurrence);
int recurrence_out_width(const struct recurrence *recurrence);

void recurrence_reset(struct recurrence *recurrence, int session);

/* Recurrent layer `layer` (from 0, attention not counted) over fused[rows, in_width]; out[rows, out_width] in the type.
 * All segments advance their sessions, or none does. */
void recurrence_run(struct recurrence *recurrence, int layer, const struct stack_segment *segments, int segment_count,
                    const float *fused, void *out);

/* Advances a session, in every layer, along the path nodes[count] of those rows of the last verified batch that begin
 * at `first`. */
void recurrence_commit(struct recurrence *recurrence, int session, int first, const int *nodes, int count);

/* Reads the states of a layer once, as recurrence_run() does for one segment of `rows` rows; for benchmarks. */
void recurrence_run_products(struct recurrence *recurrence, int layer, int rows);

/* A session's committed states in a layer: [value heads of the rank, key_size, value_size]. */
const float *recurrence_state(const struct recurrence *recurrence, int layer, int session);

#endif
