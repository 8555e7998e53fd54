/* The target's layers over a single row by two kernels each, where models are small (halves.cuh). What is left of the
 * residual stream goes to and fro between two rows of x, and what its halves add stands in the first rows of the rank's
 * sums. */
#include "collect/engine/cuda/layers.h"

void layers_ready_halves(struct cuda *cuda)
{
    const struct layers *layers = &cuda->gpus->ranks->target;
    const struct model *model = layers->model;
    bool windows = false;
    for (int i = 0; model->windows && i < model->layer_count; i++)
        windows = windows || model->windows[i];
    if (!cuda->singles || cuda->options.ranks > 1 || model->recurrent_count || model->gated_attention || windows)
        return;
    cuda_select(cuda->gpus);
    cuda->mlp_clusters = kernels_halves_take(cuda->type, model->hidden_size, layers->heads, layers->kv_heads,
                                             model->head_size, layers->inner);
}

/* Behind more keys all multiprocessors read them. */
bool layers_take_halves(const struct cuda *cuda, bool drafter)
{
    const struct batch *batch = &cuda->gpus->batch;
    return cuda->mlp_clusters && !drafter && batch->rows == 1 && batch->reach > 0 && batch->reach <= ATTENTION_NEAR;
}

/* Where the drafter's copy of the stream behind `layer` goes, or NULL. */
static void *feature_behind(const struct cuda *cuda, const struct gpu *gpu, int layer)
{
    int feature = layer < 0 ? -1 : layers_feature(cuda, layer);
    size_t width = (size_t)cuda->options.target->hidden_size * element_size(cuda->type);
    return feature < 0 ? NULL : (char *)gpu->features + (size_t)feature * width;
}

static void run_layer(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer)
{
    const struct layers *layers = &rank->target;
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    float *between = gpu->x + model->hidden_size;
    const struct attention_half_call attention = {
        .stream = {.width = model->hidden_size,
                   .part_count = layer > 0 ? cuda->mlp_clusters : 0,
                   .x = gpu->x,
                   .parts = rank->sums[1],
                   .sum = between,
                   .feature = feature_behind(cuda, gpu, layer - 1),
                   .norm = weights->input_norm,
                   .epsilon = model->norm_epsilon,
                   .out = rank->sums[0]},
        .qkv = weights->qkv,
        .o = weights->o,
        .heads = layers_heads(cuda, gpu, rank, false, layer),
    };
    const struct mlp_half_call mlp = {
        .stream = {.width = model->hidden_size,
                   .part_count = layers->kv_heads,
                   .x = between,
                   .parts = rank->sums[0],
                   .sum = gpu->x,
                   .norm = weights->post_attention_norm,
                   .epsilon = model->norm_epsilon,
                   .out = rank->sums[1]},
        .inner = layers->inner,
        .clusters = cuda->mlp_clusters,
        .gate_up = weights->gate_up,
        .down = weights->down,
    };
    watch_mark(cuda, gpu, WATCH_PARTS, "attention's half");
    kernels_attention_half(&attention, gpu->stream);
    watch_mark(cuda, gpu, WATCH_PARTS, "the MLP's half");
    kernels_mlp_half(&mlp, gpu->stream);
}

void layers_run_halves(const struct cuda *cuda)
{
    const struct model *model = cuda->options.target;
    FOR_GPUS(cuda, gpu) {
        const struct rank *rank = gpu->ranks;
        for (int layer = 0; layer < model->layer_count; layer++)
            run_layer(cuda, gpu, rank, layer);
        const struct half_stream stream = {.width = model->hidden_size,
                                           .part_count = cuda->mlp_clusters,
                                           .x = gpu->x,
                                           .parts = rank->sums[1],
                                           .sum = gpu->x,
                                           .feature = feature_behind(cuda, gpu, model->layer_count - 1)};
        watch_mark(cuda, gpu, WATCH_PARTS, "stream");
        kernels_end_halves(&stream, gpu->stream);
    }
}
