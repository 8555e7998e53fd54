/* The gated DeltaNet layers of a rank's target (arXiv 2412.06464), on kernels_recurrence.h. A session has for each a
 * state of every value head and a window; a verified row keeps its convolution's inputs, decays and betas until the
 * commit, which makes the accepted path's keys and values of them again and goes along it by the rule's own steps, for
 * all layers at once. */
#ifndef COLLECT_ENGINE_CUDA_RECURRENCE_H
#define COLLECT_ENGINE_CUDA_RECURRENCE_H

#include "collect/engine/cuda/kernels_recurrence.h"
#include "collect/engine/cuda/weights.h"
#include "collect/engine/model.h"

struct cuda;
struct gpu;
struct rank;

/* C: the rank's channels, recurrent_channels(). Layers are those that are recurrent; all of them lie behind one
 * another. Pointers are to the GPU's memory. */
struct recurrence {
    int layer_count; /* 0: there is nothing else here */
    struct recurrent_sizes sizes;
    float *convolutions;        /* [layer, C, kernel_size] */
    float *rates, *step_biases; /* [layer, value_heads] */
    float *norms;               /* [layer, value_size] */
    float *states;              /* [layer, session, value_heads, key_size, value_size] */
    void *windows;              /* [layer, session, kernel_size - 1, C] */

    /* Of rows that are not committed: [layer, recurrent_kept_rows(), ...]; of a prompt's piece, one layer's. */
    void *inputs, *passing_inputs;  /* [C]; of the piece's last rows alone */
    float *decays, *passing_decays; /* [value_heads] */
    float *betas, *passing_betas;

    float *mixed;  /* [rows, C] */
    float *deltas; /* [recurrent_kept_rows(), value_heads * value_size] */
};

void recurrent_slice(struct recurrence *recurrence, const struct model *model, int ranks);

/* A layer's matrices: rows for q, k, v, z, b and a; columns of the product behind. */
void recurrent_load_layer(struct loader *loader, const struct recurrence *recurrence, const struct model *model,
                          int rank, const struct model_recurrent_layer *from, void **in, void **out);

/* What else the layers have. */
void recurrent_load(struct loader *loader, struct recurrence *recurrence, const struct model *model, int rank);
void recurrent_unload(const struct recurrence *recurrence);

/* Queues recurrent layer `layer` (attention not counted) of the batch: from `fused` to `attended`. */
void recurrent_run(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer);

/* Behind the last layer. */
void recurrent_finish(const struct cuda *cuda, const struct gpu *gpu);

/* Queues the commit of the kept paths. */
void recurrent_commit(const struct cuda *cuda, const struct gpu *gpu);

/* The state's answers alone, for benchmarks. */
void recurrent_run_products(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer);

/* Queues the emptying of a session. */
void recurrent_reset(const struct cuda *cuda, int session);

/* A session's states, as INSPECT_STATE has them. */
void recurrent_inspect(const struct cuda *cuda, int session, float *out);

#endif
