#include "collect/engine/cuda/cuda.h"

static size_t cache_stride(const struct cuda *cuda, const struct layers *layers)
{
    return (size_t)cuda->options.sessions * (size_t)layers->kv_heads * (size_t)cuda->options.capacity *
           (size_t)layers->model->head_size;
}

/* One layer's part of a cache. */
static void *layer_cache(const struct cuda *cuda, const struct layers *layers, void *cache, int layer)
{
    return (char *)cache + (size_t)layer * cache_stride(cuda, layers) * element_size(cuda->type);
}

static struct layers *layers_of(struct rank *rank, bool drafter)
{
    return drafter ? &rank->drafter : &rank->target;
}

static const struct model *model_of(const struct cuda *cuda, bool drafter)
{
    return drafter ? cuda->options.drafter : cuda->options.target;
}

/* One row streams the weights through kernels of its own, which make the normed row and add to the residual stream. */
static bool is_single(const struct cuda *cuda, int rows)
{
    return cuda->singles && rows == 1;
}

static struct product_parts parts_of(const struct cuda *cuda, const struct product *product, int rows)
{
    return is_single(cuda, rows) ? (struct product_parts){1, 0} : product_parts(product, rows);
}

static const float *last_norm(const struct gpu *gpu, bool drafter)
{
    return drafter ? gpu->drafter_norm : gpu->norm;
}

static struct heads_call heads_of(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter,
                                  int layer)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct batch *batch = &gpu->batch;
    const struct product_parts parts = parts_of(cuda, layers->qkv, batch->rows);
    return (struct heads_call){
        .type = cuda->type,
        .rows = batch->rows,
        .layers = 1,
        .heads = layers->heads,
        .kv_heads = layers->kv_heads,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .query_size = layers_query_size(layers),
        .rotary_size = model->rotary_size,
        .parts = parts.count,
        .stride = (size_t)layers_qkv_width(layers),
        .part_stride = parts.stride,
        .fused = rank->fused,
        .q_norm = weights->q_norm,
        .k_norm = weights->k_norm,
        .cosines = gpu->cosines[drafter],
        .sines = gpu->sines[drafter],
        .positions = batch->positions,
        .sessions = batch->sessions,
        .slots = batch->slots,
        .epsilon = model->norm_epsilon,
        .queries = rank->queries,
        .keys = layer_cache(cuda, layers, layers->keys, layer),
        .values = layer_cache(cuda, layers, layers->values, layer),
    };
}

static struct attention_call attention_of(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank,
                                          bool drafter, int layer)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct model *model = layers->model;
    const struct batch *batch = &gpu->batch;
    return (struct attention_call){
        .type = cuda->type,
        .rows = batch->rows,
        .heads = layers->heads,
        .kv_heads = layers->kv_heads,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .longest = batch->longest,
        .reach = batch->reach,
        .window = model->windows ? model->windows[layer] : 0,
        .causal_window = model->causal_windows,
        .queries = rank->queries,
        .keys = layer_cache(cuda, layers, layers->keys, layer),
        .values = layer_cache(cuda, layers, layers->values, layer),
        .segments = batch->segments,
        .tiles = batch->tiles,
        .tile_count = batch->tile_count,
        .words = batch->words,
        .positions = batch->positions,
        .visible = batch->visible,
        .partial = rank->partial,
        .attended = rank->attended,
    };
}

/* From `fused` to `attended`. */
static void attend(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter, int layer)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct heads_call heads = heads_of(cuda, gpu, rank, drafter, layer);
    const struct attention_call call = attention_of(cuda, gpu, rank, drafter, layer);
    if (call.longest == 1 &&
        kernels_attend_rows_takes(call.type, call.rows, call.heads, call.kv_heads, call.head_size)) {
        kernels_attend_rows(&heads, &call, gpu->stream);
    } else {
        kernels_store_heads(&heads, gpu->stream);
        kernels_attend(&call, gpu->stream);
    }
    if (layers->model->gated_attention)
        kernels_gate_heads(&heads, rank->attended, gpu->stream);
}

/* y = W · the normed residual stream: in `x` still where it is a single row, otherwise in `input`. */
static void multiply_normed(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                            const struct matvec_call *single)
{
    if (is_single(cuda, gpu->batch.rows))
        kernels_matvec(single, gpu->stream);
    else
        product_apply(product, gpu->batch.rows, gpu->input, single->weights, single->y, single->gated);
}

/* sums = W · input; a single row of a single rank is added to the residual stream at once. */
static void multiply_added(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                           const struct matvec_call *single)
{
    struct matvec_call call = *single;
    call.add = cuda->options.ranks == 1;
    if (call.add)
        call.y = gpu->x;
    if (is_single(cuda, gpu->batch.rows))
        kernels_matvec(&call, gpu->stream);
    else
        product_apply(product, gpu->batch.rows, single->input, single->weights, single->y, NULL);
}

/* What attention adds: from `input` to the rank's sums[0]. */
static void run_attention(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, bool drafter, int layer)
{
    const struct layers *layers = layers_of(rank, drafter);
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct matvec_call qkv = {.inputs = model->hidden_size,
                                    .outputs = layers_qkv_width(layers),
                                    .weights = weights->qkv,
                                    .x = gpu->x,
                                    .norm = weights->input_norm,
                                    .epsilon = model->norm_epsilon,
                                    .y = rank->fused};
    const struct matvec_call o = {.inputs = layers_head_width(layers),
                                  .outputs = model->hidden_size,
                                  .weights = weights->o,
                                  .input = rank->attended,
                                  .y = rank->sums[0]};
    watch_mark(cuda, gpu, WATCH_PARTS, "qkv");
    multiply_normed(cuda, gpu, layers->qkv, &qkv);
    watch_mark(cuda, gpu, WATCH_PARTS, "heads");
    watch_mark(cuda, gpu, WATCH_PARTS, "attention");
    attend(cuda, gpu, rank, drafter, layer);
    watch_mark(cuda, gpu, WATCH_PARTS, "o");
    multiply_added(cuda, gpu, layers->o, &o);
}

/* What the MLP adds: from `input` to sums[1]. */
static void run_mlp(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, bool drafter, int layer)
{
    const struct layers *layers = layers_of(rank, drafter);
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct matvec_call gate_up = {.inputs = model->hidden_size,
                                        .outputs = 2 * layers->inner,
                                        .weights = weights->gate_up,
                                        .x = gpu->x,
                                        .norm = weights->post_attention_norm,
                                        .epsilon = model->norm_epsilon,
                                        .y = rank->fused,
                                        .gated = rank->gated};
    const struct matvec_call down = {.inputs = layers->inner,
                                     .outputs = model->hidden_size,
                                     .weights = weights->down,
                                     .input = rank->gated,
                                     .y = rank->sums[1]};
    watch_mark(cuda, gpu, WATCH_PARTS, "gate_up");
    multiply_normed(cuda, gpu, layers->gate_up, &gate_up);
    watch_mark(cuda, gpu, WATCH_PARTS, "down");
    multiply_added(cuda, gpu, layers->down, &down);
}

/* Adds all ranks' sums[which] (which < 0: nothing) to x[rows] and norms into out; norm NULL: no norm. */
static void add_norm(const struct cuda *cuda, const struct gpu *gpu, int rows, float *x, int which,
                     struct product_parts parts, const float *norm, float epsilon, int feature, void *out)
{
    struct add_norm_call call = {
        .type = cuda->type,
        .rows = rows,
        .width = cuda->options.target->hidden_size,
        .meeting = gpu->meeting,
        .x = x,
        .weight = norm,
        .epsilon = epsilon,
        .out = out,
    };
    for (int i = 0; i < cuda->gpu_count && which >= 0; i++)
        FOR_RANKS(&cuda->gpus[i], rank)
            for (int part = 0; part < parts.count; part++)
                call.sums[call.sum_count++] = rank->sums[which] + (size_t)part * parts.stride;
    if (feature >= 0) {
        call.features = gpu->features;
        call.feature_index = feature;
        call.feature_count = cuda->options.drafter->feature_count;
    }
    watch_mark(cuda, gpu, WATCH_PARTS, "norm");
    kernels_add_norm(&call, gpu->stream);
}

/* Which of the drafter's features the layer's output is, or -1. */
static int feature_of(const struct cuda *cuda, bool drafter, int layer)
{
    const struct model *model = cuda->options.drafter;
    for (int f = 0; model && !drafter && f < model->feature_count; f++)
        if (model->feature_layers[f] == layer)
            return f;
    return -1;
}

static void finish_attention(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    const struct layer_weights *weights = &layers_of(gpu->ranks, drafter)->weights[layer];
    bool single = is_single(cuda, gpu->batch.rows);
    if (single && cuda->options.ranks == 1)
        return;
    add_norm(cuda, gpu, gpu->batch.rows, gpu->x, 0, parts_of(cuda, layers_of(gpu->ranks, drafter)->o, gpu->batch.rows),
             single ? NULL : weights->post_attention_norm, model_of(cuda, drafter)->norm_epsilon, -1, gpu->input);
}

static void finish_mlp(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    const struct model *model = model_of(cuda, drafter);
    const struct layers *layers = layers_of(gpu->ranks, drafter);
    bool single = is_single(cuda, gpu->batch.rows), last = layer == model->layer_count - 1;
    int feature = feature_of(cuda, drafter, layer), sums = single && cuda->options.ranks == 1 ? -1 : 1;
    if (sums < 0 && feature < 0)
        return;
    const float *norm = last ? last_norm(gpu, drafter) : layers->weights[layer + 1].input_norm;
    add_norm(cuda, gpu, gpu->batch.rows, gpu->x, sums, parts_of(cuda, layers->down, gpu->batch.rows),
             single ? NULL : norm, model->norm_epsilon, feature, last ? gpu->normed : gpu->input);
}

static void start(const struct cuda *cuda, const struct gpu *gpu, bool drafter)
{
    const struct product_parts nothing = {0};
    const struct model *model = model_of(cuda, drafter);
    const struct batch *batch = &gpu->batch;
    watch_mark(cuda, gpu, WATCH_PARTS, "embed");
    kernels_embed(cuda->type, gpu->embedding, batch->tokens, batch->rows, model->hidden_size, gpu->x, gpu->stream);
    if (!is_single(cuda, batch->rows))
        add_norm(cuda, gpu, batch->rows, gpu->x, -1, nothing, layers_of(gpu->ranks, drafter)->weights[0].input_norm,
                 model->norm_epsilon, -1, gpu->input);
}

void layers_run(struct cuda *cuda, bool drafter)
{
    FOR_GPUS(cuda, gpu)
        start(cuda, gpu, drafter);
    for (int layer = 0; layer < model_of(cuda, drafter)->layer_count; layer++) {
        FOR_GPUS(cuda, gpu) {
            FOR_RANKS(gpu, rank)
                run_attention(cuda, gpu, rank, drafter, layer);
            finish_attention(cuda, gpu, drafter, layer);
        }
        FOR_GPUS(cuda, gpu) {
            FOR_RANKS(gpu, rank)
                run_mlp(cuda, gpu, rank, drafter, layer);
            finish_mlp(cuda, gpu, drafter, layer);
        }
    }
}

void layers_run_head(struct cuda *cuda, bool drafter, int first, int count)
{
    const struct model *model = cuda->options.target;
    size_t row = (size_t)model->hidden_size * element_size(cuda->type);
    FOR_GPUS(cuda, gpu) {
        const void *rows = (const char *)gpu->normed + (size_t)first * row;
        bool normed = !is_single(cuda, gpu->batch.rows);
        watch_mark(cuda, gpu, WATCH_PARTS, "head");
        FOR_RANKS(gpu, rank) {
            const struct matvec_call single = {.inputs = model->hidden_size,
                                               .outputs = model->vocabulary_size / cuda->options.ranks,
                                               .weights = rank->head,
                                               .x = normed ? NULL : gpu->x,
                                               .norm = last_norm(gpu, drafter),
                                               .epsilon = model_of(cuda, drafter)->norm_epsilon,
                                               .input = rows,
                                               .y = rank->logits};
            if (is_single(cuda, count))
                kernels_matvec(&single, gpu->stream);
            else
                product_apply(rank->head_product, count, rows, rank->head, rank->logits, NULL);
        }
    }
}

/* --- the drafter's context -------------------------------------------------------------------------------------- */

static void store_context(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int rows,
                          const int *positions, const int *sessions, const int *slots)
{
    const struct layers *layers = &rank->drafter;
    const struct model *model = layers->model;
    int width = 2 * layers->kv_heads * model->head_size;
    const struct product_parts parts = product_parts(layers->project, rows);
    const struct heads_call call = {
        .type = cuda->type,
        .rows = rows,
        .layers = model->layer_count,
        .kv_heads = layers->kv_heads,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .rotary_size = model->rotary_size,
        .parts = parts.count,
        .stride = (size_t)(model->layer_count * width),
        .part_stride = parts.stride,
        .cache_stride = cache_stride(cuda, layers),
        .fused = rank->fused,
        .k_norm = layers->k_norms,
        .cosines = gpu->cosines[true],
        .sines = gpu->sines[true],
        .positions = positions,
        .sessions = sessions,
        .slots = slots,
        .epsilon = model->norm_epsilon,
        .keys = layers->keys,
        .values = layers->values,
    };
    kernels_store_heads(&call, gpu->stream);
}

static void fuse(const struct cuda *cuda, const struct gpu *gpu, const void *features, int rows)
{
    const struct model *drafter = cuda->options.drafter;
    size_t slice = (size_t)(drafter->feature_count * drafter->hidden_size / cuda->options.ranks);
    watch_mark(cuda, gpu, WATCH_PARTS, "fuse");
    FOR_RANKS(gpu, rank)
        product_apply(rank->fuse_product, rows,
                      (const char *)features + (size_t)rank->index * slice * element_size(cuda->type), rank->fuse,
                      rank->sums[2], NULL);
}

static void project(const struct cuda *cuda, const struct gpu *gpu, bool kept, int rows)
{
    const struct kept *path = &gpu->kept;
    const struct batch *batch = &gpu->batch;
    watch_mark(cuda, gpu, WATCH_PARTS, "context");
    FOR_RANKS(gpu, rank) {
        const struct layers *layers = &rank->drafter;
        product_apply(layers->project, rows, gpu->input, layers->context, rank->fused, NULL);
        store_context(cuda, gpu, rank, rows, kept ? path->positions : batch->positions,
                      kept ? path->sessions : batch->sessions, kept ? path->slots : batch->slots);
    }
}

void layers_add_context(struct cuda *cuda, bool kept)
{
    int rows = kept ? cuda->host_kept.count : cuda->host.rows;
    FOR_GPUS(cuda, gpu) {
        fuse(cuda, gpu, kept ? gpu->kept_features : gpu->features, rows);
        add_norm(cuda, gpu, rows, NULL, 2, product_parts(gpu->ranks->fuse_product, rows), gpu->hidden_norm,
                 cuda->options.drafter->norm_epsilon, -1, gpu->input);
    }
    FOR_GPUS(cuda, gpu)
        project(cuda, gpu, kept, rows);
}

/* --- the products alone ----------------------------------------------------------------------------------------- */

static void multiply(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                     const struct matvec_call *single)
{
    if (is_single(cuda, gpu->batch.rows))
        kernels_matvec(single, gpu->stream);
    else
        product_apply(product, gpu->batch.rows, single->input, single->weights, single->y, single->gated);
}

static void run_layer_products(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, bool drafter,
                               int layer)
{
    const struct layers *layers = layers_of(rank, drafter);
    const struct layer_weights *weights = &layers->weights[layer];
    int hidden = layers->model->hidden_size, heads = layers_head_width(layers);
    const struct matvec_call calls[] = {
        {.inputs = hidden,
         .outputs = layers_qkv_width(layers),
         .weights = weights->qkv,
         .input = gpu->input,
         .y = rank->fused},
        {.inputs = heads, .outputs = hidden, .weights = weights->o, .input = rank->attended, .y = rank->sums[0]},
        {.inputs = hidden,
         .outputs = 2 * layers->inner,
         .weights = weights->gate_up,
         .x = gpu->x,
         .norm = weights->input_norm,
         .input = gpu->input,
         .y = rank->fused,
         .gated = rank->gated},
        {.inputs = layers->inner,
         .outputs = hidden,
         .weights = weights->down,
         .input = rank->gated,
         .y = rank->sums[1]},
    };
    const struct attention_call call = attention_of(cuda, gpu, rank, drafter, layer);
    const struct product *products[] = {layers->qkv, layers->o, layers->gate_up, layers->down};
    for (int i = 0; i < 4; i++) {
        multiply(cuda, gpu, products[i], &calls[i]);
        if (i == 0)
            kernels_attend(&call, gpu->stream);
    }
}

void layers_run_products(struct cuda *cuda, bool drafter)
{
    for (int layer = 0; layer < model_of(cuda, drafter)->layer_count; layer++)
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank)
                run_layer_products(cuda, gpu, rank, drafter, layer);
}

void layers_run_context_products(struct cuda *cuda, int rows)
{
    FOR_GPUS(cuda, gpu) {
        fuse(cuda, gpu, gpu->kept_features, rows);
        FOR_RANKS(gpu, rank)
            product_apply(rank->drafter.project, rows, gpu->input, rank->drafter.context, rank->fused, NULL);
    }
}
