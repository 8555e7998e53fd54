#include "collect/engine/cuda/cuda.h"

/* One layer's part of a cache. */
static void *layer_cache(const struct cuda *cuda, const struct layers *layers, void *cache, int layer)
{
    const struct model *model = layers->model;
    size_t heads = (size_t)cuda->options.sessions * (size_t)model->kv_head_count;
    size_t elements = heads * (size_t)cuda->options.capacity * (size_t)model->head_size;
    return (char *)cache + (size_t)layer * elements * element_size(cuda->type);
}

static void norm_rows(const struct cuda *cuda, const float *weight, float epsilon, void *out)
{
    kernels_rms_norm(cuda->type, cuda->x, weight, cuda->batch.rows, cuda->options.target->hidden_size, epsilon, out,
                     cuda->stream);
}

static void store_heads(const struct cuda *cuda, const struct layers *layers, int layer)
{
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct batch *batch = &cuda->batch;
    const struct heads_call call = {
        .type = cuda->type,
        .rows = batch->rows,
        .heads = model->head_count,
        .kv_heads = model->kv_head_count,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .stride = (size_t)(model->head_count + 2 * model->kv_head_count) * (size_t)model->head_size,
        .fused = cuda->fused,
        .q_norm = weights->q_norm,
        .k_norm = weights->k_norm,
        .cosines = layers->cosines,
        .sines = layers->sines,
        .positions = batch->positions,
        .sessions = batch->sessions,
        .slots = batch->slots,
        .epsilon = model->norm_epsilon,
        .queries = cuda->queries,
        .keys = layer_cache(cuda, layers, layers->keys, layer),
        .values = layer_cache(cuda, layers, layers->values, layer),
    };
    kernels_store_heads(&call, cuda->stream);
}

static void attend(const struct cuda *cuda, const struct layers *layers, int layer)
{
    const struct model *model = layers->model;
    const struct batch *batch = &cuda->batch;
    const struct attention_call call = {
        .type = cuda->type,
        .rows = batch->rows,
        .heads = model->head_count,
        .kv_heads = model->kv_head_count,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .window = model->windows ? model->windows[layer] : 0,
        .causal_window = model->causal_windows,
        .queries = cuda->queries,
        .keys = layer_cache(cuda, layers, layers->keys, layer),
        .values = layer_cache(cuda, layers, layers->values, layer),
        .segments = batch->segments,
        .tiles = batch->tiles,
        .tile_count = batch->tile_count,
        .words = batch->words,
        .positions = batch->positions,
        .visible = batch->visible,
        .partial = cuda->partial,
        .attended = cuda->attended,
    };
    kernels_attend(&call, cuda->stream);
}

static void run_layer(const struct cuda *cuda, const struct layers *layers, int layer)
{
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    int rows = cuda->batch.rows;
    norm_rows(cuda, weights->input_norm, model->norm_epsilon, cuda->input);
    product_apply(layers->qkv, rows, cuda->input, weights->qkv, cuda->fused, false);
    store_heads(cuda, layers, layer);
    attend(cuda, layers, layer);
    product_apply(layers->o, rows, cuda->attended, weights->o, cuda->x, true);
    norm_rows(cuda, weights->post_attention_norm, model->norm_epsilon, cuda->input);
    product_apply(layers->gate_up, rows, cuda->input, weights->gate_up, cuda->fused, false);
    kernels_gate(cuda->type, cuda->fused, rows, model->intermediate_size, cuda->input, cuda->stream);
    product_apply(layers->down, rows, cuda->input, weights->down, cuda->x, true);
}

static void keep_features(const struct cuda *cuda, int layer)
{
    const struct model *drafter = cuda->options.drafter;
    for (int f = 0; f < drafter->feature_count; f++)
        if (drafter->feature_layers[f] == layer)
            kernels_store_block(cuda->type, cuda->x, cuda->batch.rows, drafter->hidden_size, f, drafter->feature_count,
                                cuda->features, cuda->stream);
}

void layers_run(struct cuda *cuda, const struct layers *layers)
{
    kernels_embed(cuda->type, cuda->embedding, cuda->batch.tokens, cuda->batch.rows, layers->model->hidden_size,
                  cuda->x, cuda->stream);
    for (int layer = 0; layer < layers->model->layer_count; layer++) {
        run_layer(cuda, layers, layer);
        if (cuda->options.drafter && layers == &cuda->target)
            keep_features(cuda, layer);
    }
    norm_rows(cuda, layers->norm, layers->model->norm_epsilon, cuda->normed);
}

static void store_context(const struct cuda *cuda, int layer, int rows, const int *positions, const int *sessions)
{
    const struct layers *layers = &cuda->drafter;
    const struct model *model = layers->model;
    const struct heads_call call = {
        .type = cuda->type,
        .rows = rows,
        .kv_heads = model->kv_head_count,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .stride = 2 * (size_t)(model->layer_count * model->kv_head_count * model->head_size),
        .fused = cuda->fused + (size_t)layer * 2 * (size_t)(model->kv_head_count * model->head_size),
        .k_norm = layers->weights[layer].k_norm,
        .cosines = layers->cosines,
        .sines = layers->sines,
        .positions = positions,
        .sessions = sessions,
        .slots = positions,
        .epsilon = model->norm_epsilon,
        .keys = layer_cache(cuda, layers, layers->keys, layer),
        .values = layer_cache(cuda, layers, layers->values, layer),
    };
    kernels_store_heads(&call, cuda->stream);
}

void layers_add_context(struct cuda *cuda, const void *features, int rows, const int *positions, const int *sessions)
{
    const struct model *drafter = cuda->options.drafter;
    product_apply(cuda->fuse_product, rows, features, cuda->fuse, cuda->fused, false);
    kernels_rms_norm(cuda->type, cuda->fused, cuda->hidden_norm, rows, drafter->hidden_size, drafter->norm_epsilon,
                     cuda->context, cuda->stream);
    product_apply(cuda->drafter.project, rows, cuda->context, cuda->drafter.context, cuda->fused, false);
    for (int layer = 0; layer < drafter->layer_count; layer++)
        store_context(cuda, layer, rows, positions, sessions);
}

void layers_run_products(struct cuda *cuda, const struct layers *layers)
{
    int rows = cuda->batch.rows;
    for (int layer = 0; layer < layers->model->layer_count; layer++) {
        const struct layer_weights *weights = &layers->weights[layer];
        product_apply(layers->qkv, rows, cuda->input, weights->qkv, cuda->fused, false);
        attend(cuda, layers, layer);
        product_apply(layers->o, rows, cuda->attended, weights->o, cuda->x, true);
        product_apply(layers->gate_up, rows, cuda->input, weights->gate_up, cuda->fused, false);
        product_apply(layers->down, rows, cuda->input, weights->down, cuda->x, true);
    }
}

void layers_run_context_products(struct cuda *cuda, int rows)
{
    product_apply(cuda->fuse_product, rows, cuda->kept_features, cuda->fuse, cuda->fused, false);
    product_apply(cuda->drafter.project, rows, cuda->context, cuda->drafter.context, cuda->fused, false);
}
