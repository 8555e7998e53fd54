/* What layers.c shares with halves.c, context.c and products_alone.c: the same layers, seen from elsewhere. */
#ifndef COLLECT_ENGINE_CUDA_LAYERS_H
#define COLLECT_ENGINE_CUDA_LAYERS_H

#include "collect/engine/cuda/cuda.h"

static inline struct layers *layers_of(struct rank *rank, bool drafter)
{
    return drafter ? &rank->drafter : &rank->target;
}

static inline const struct model *layers_model(const struct cuda *cuda, bool drafter)
{
    return drafter ? cuda->options.drafter : cuda->options.target;
}

/* One row streams the weights through kernels of its own, which make the normed row and add to the residual stream. */
static inline bool layers_are_single(const struct cuda *cuda, int rows)
{
    return cuda->singles && rows == 1;
}

/* Elements of a layer's keys, or values. */
static inline size_t layers_cache_stride(const struct cuda *cuda, const struct layers *layers)
{
    return (size_t)cuda->options.sessions * (size_t)layers->kv_heads * (size_t)cuda->options.capacity *
           (size_t)layers->model->head_size;
}

/* The product that answers in sums[0]: attention's, or a recurrence's. */
static inline const struct product *layers_mixer_out(const struct layers *layers, int layer)
{
    return layers->model->kinds[layer] == MODEL_RECURRENT ? layers->recurrent_out : layers->o;
}

/* --- layers.c --------------------------------------------------------------------------------------------------- */

/* What becomes of the heads in `fused` of the batch's rows in a layer. */
struct heads_call layers_heads(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter,
                               int layer);

/* Which of the drafter's features the output of the target's layer is, or -1. */
int layers_feature(const struct cuda *cuda, int layer);

/* The attention of the batch's rows in a layer. */
struct attention_call layers_attention(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank,
                                       bool drafter, int layer);

/* Queues that all ranks' sums[which] (which < 0: nothing) are added to x[rows], and the rows normed into out; norm
 * NULL: no norm; feature: which of the drafter's x becomes, or -1. */
void layers_add_norm(const struct cuda *cuda, const struct gpu *gpu, int rows, float *x, int which, const float *norm,
                     float epsilon, int feature, void *out);

/* --- halves.c --------------------------------------------------------------------------------------------------- */

/* Whether the batch is a row that goes through layers by halves; all layers, from the embedding in x to what the head
 * reads there. */
bool layers_take_halves(const struct cuda *cuda, bool drafter);
void layers_run_halves(const struct cuda *cuda);

/* --- context.c -------------------------------------------------------------------------------------------------- */

/* Queues the product of features[rows, feature_count * hidden_size] with fc, into each rank's sums[2]. */
void layers_fuse_features(const struct cuda *cuda, const struct gpu *gpu, const void *features, int rows);

#endif
