/* A stack of layers over a batch: the residual stream from the embeddings to the logits. */
#include "collect/engine/cuda/layers.h"

/* The part of a cache that layer `layer` has, which attends. */
static void *layer_cache(const struct cuda *cuda, const struct layers *layers, void *cache, int layer)
{
    size_t place = (size_t)layers_place(layers, layer);
    return (char *)cache + place * layers_cache_stride(cuda, layers) * element_size(cuda->type);
}

/* Few rows go through the own kernels, whose ends make what the next kernel reads. Rows are normed behind the product
 * that reads them, by the sums of squares that the one before left. */
static bool is_few(const struct cuda *cuda, int rows)
{
    return cuda->few && rows <= PRODUCT_OWN_ROWS && !layers_are_single(cuda, rows);
}

static const float *last_norm(const struct gpu *gpu, bool drafter)
{
    return drafter ? gpu->drafter_norm : gpu->norm;
}

struct heads_call layers_heads(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter,
                               int layer)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct batch *batch = &gpu->batch;
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
        .stride = (size_t)layers_qkv_width(layers),
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

struct attention_call layers_attention(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank,
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

static bool attends_rows(const struct cuda *cuda, const struct layers *layers, const struct batch *batch)
{
    return batch->longest == 1 && kernels_attend_rows_takes(cuda->type, batch->rows, layers->heads, layers->kv_heads,
                                                            layers->model->head_size);
}

/* Whether the product of queries, keys and values ends in heads. */
static bool ends_in_heads(const struct cuda *cuda, const struct layers *layers, const struct batch *batch)
{
    return is_few(cuda, batch->rows) && product_has_heads(layers->qkv) && !layers->model->gated_attention &&
           !attends_rows(cuda, layers, batch);
}

/* From `fused`, or the heads, to `attended`. */
static void attend(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter, int layer)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct heads_call heads = layers_heads(cuda, gpu, rank, drafter, layer);
    const struct attention_call call = layers_attention(cuda, gpu, rank, drafter, layer);
    if (attends_rows(cuda, layers, &gpu->batch)) {
        kernels_attend_rows(&heads, &call, gpu->stream);
    } else {
        if (!ends_in_heads(cuda, layers, &gpu->batch))
            kernels_store_heads(&heads, gpu->stream);
        kernels_attend(&call, gpu->stream);
    }
    if (layers->model->gated_attention)
        kernels_gate_heads(&heads, rank->attended, gpu->stream);
}

/* y = W · the normed residual stream: in `x` still where it is a single row, otherwise in `input`. Of few rows, which
 * are not normed, `before` left the squares (NULL: the embedding); heads: what becomes of them, or NULL. */
static void multiply_normed(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                            const struct matvec_call *single, const struct product *before,
                            const struct heads_call *heads)
{
    int rows = gpu->batch.rows;
    if (layers_are_single(cuda, rows)) {
        kernels_matvec(single, gpu->stream);
        return;
    }
    if (!is_few(cuda, rows)) {
        product_apply(product, rows, gpu->input, single->weights, single->y, single->gated);
        return;
    }
    struct skinny_call ends = {.squares = gpu->squares,
                               .square_count = before ? product_tiles(before, rows) : 1,
                               .epsilon = single->epsilon,
                               .y = single->y,
                               .gated = single->gated};
    if (heads)
        ends.heads = *heads;
    product_apply_ends(product, rows, gpu->input, single->weights, &ends);
}

/* sums = W · input; a single row of a single rank is added to the residual stream at once, and few rows of it, as
 * `added` says. */
static void multiply_added(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                           const struct matvec_call *single, const struct skinny_added *added)
{
    struct matvec_call call = *single;
    const struct skinny_call ends = {.added = *added};
    call.add = cuda->options.ranks == 1;
    if (call.add)
        call.y = gpu->x;
    if (layers_are_single(cuda, gpu->batch.rows))
        kernels_matvec(&call, gpu->stream);
    else if (is_few(cuda, gpu->batch.rows))
        product_apply_ends(product, gpu->batch.rows, single->input, single->weights, &ends);
    else
        product_apply(product, gpu->batch.rows, single->input, single->weights, single->y, NULL);
}

int layers_feature(const struct cuda *cuda, int layer)
{
    const struct model *model = cuda->options.drafter;
    for (int f = 0; model && f < model->feature_count; f++)
        if (model->feature_layers[f] == layer)
            return f;
    return -1;
}

/* The norm behind a layer, and where its rows go. */
static const float *norm_behind(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    bool last = layer == layers_model(cuda, drafter)->layer_count - 1;
    return last ? last_norm(gpu, drafter) : layers_of(gpu->ranks, drafter)->weights[layer + 1].input_norm;
}

static void *rows_behind(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    return layer == layers_model(cuda, drafter)->layer_count - 1 ? gpu->normed : gpu->input;
}

/* What becomes of few rows behind it. */
static struct skinny_added added_by_mixer(const struct gpu *gpu, const struct layer_weights *weights)
{
    return (struct skinny_added){
        .x = gpu->x, .norm = weights->post_attention_norm, .out = gpu->input, .squares = gpu->squares};
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
    const struct skinny_added added = added_by_mixer(gpu, weights);
    const struct heads_call heads = layers_heads(cuda, gpu, rank, drafter, layer);
    watch_mark(cuda, gpu, WATCH_PARTS, "qkv");
    multiply_normed(cuda, gpu, layers->qkv, &qkv, layer > 0 ? layers->down : NULL,
                    ends_in_heads(cuda, layers, &gpu->batch) ? &heads : NULL);
    watch_mark(cuda, gpu, WATCH_PARTS, "heads");
    watch_mark(cuda, gpu, WATCH_PARTS, "attention");
    attend(cuda, gpu, rank, drafter, layer);
    watch_mark(cuda, gpu, WATCH_PARTS, "o");
    multiply_added(cuda, gpu, layers->o, &o, &added);
}

/* What a recurrent layer adds instead. */
static void run_recurrence(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, int layer)
{
    const struct layers *layers = &rank->target;
    const struct model *model = layers->model;
    const struct layer_weights *weights = &layers->weights[layer];
    const struct matvec_call in = {.inputs = model->hidden_size,
                                   .outputs = recurrent_in_width(&layers->recurrence.sizes),
                                   .weights = weights->recurrent_in,
                                   .x = gpu->x,
                                   .norm = weights->input_norm,
                                   .epsilon = model->norm_epsilon,
                                   .y = rank->fused};
    const struct matvec_call out = {.inputs = recurrent_values(&layers->recurrence.sizes),
                                    .outputs = model->hidden_size,
                                    .weights = weights->recurrent_out,
                                    .input = rank->attended,
                                    .y = rank->sums[0]};
    const struct skinny_added added = added_by_mixer(gpu, weights);
    watch_mark(cuda, gpu, WATCH_PARTS, "recurrent in");
    multiply_normed(cuda, gpu, layers->recurrent_in, &in, layer > 0 ? layers->down : NULL, NULL);
    recurrent_run(cuda, gpu, rank, layers_place(layers, layer));
    watch_mark(cuda, gpu, WATCH_PARTS, "recurrent out");
    multiply_added(cuda, gpu, layers->recurrent_out, &out, &added);
}

/* What lets rows see each other: from `input` to the rank's sums[0]. */
static void run_mixer(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, bool drafter, int layer)
{
    if (layers_model(cuda, drafter)->kinds[layer] == MODEL_RECURRENT)
        run_recurrence(cuda, gpu, rank, layer);
    else
        run_attention(cuda, gpu, rank, drafter, layer);
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
    const int feature = drafter ? -1 : layers_feature(cuda, layer);
    const struct skinny_added added = {.x = gpu->x,
                                       .norm = norm_behind(cuda, gpu, drafter, layer),
                                       .out = rows_behind(cuda, gpu, drafter, layer),
                                       .squares = gpu->squares,
                                       .features = feature >= 0 ? gpu->features : NULL,
                                       .feature_index = feature,
                                       .feature_count = feature >= 0 ? cuda->options.drafter->feature_count : 0};
    watch_mark(cuda, gpu, WATCH_PARTS, "gate_up");
    multiply_normed(cuda, gpu, layers->gate_up, &gate_up, layers_mixer_out(layers, layer), NULL);
    watch_mark(cuda, gpu, WATCH_PARTS, "down");
    multiply_added(cuda, gpu, layers->down, &down, &added);
}

void layers_add_norm(const struct cuda *cuda, const struct gpu *gpu, int rows, float *x, int which, const float *norm,
                     float epsilon, int feature, void *out)
{
    struct add_norm_call call = {
        .type = cuda->type,
        .rows = rows,
        .width = cuda->options.target->hidden_size,
        .x = x,
        .weight = norm,
        .epsilon = epsilon,
        .out = out,
    };
    if (which >= 0) {
        call.meeting = gpu->meeting;
        call.sum_count = cuda->options.ranks;
        peers_find_sums(cuda, gpu, which, rows, call.sums);
    }
    if (feature >= 0) {
        call.features = gpu->features;
        call.feature_index = feature;
        call.feature_count = cuda->options.drafter->feature_count;
    }
    watch_mark(cuda, gpu, WATCH_PARTS, "norm");
    kernels_add_norm(&call, gpu->stream);
}

static void finish_mixer(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    const struct layer_weights *weights = &layers_of(gpu->ranks, drafter)->weights[layer];
    bool single = layers_are_single(cuda, gpu->batch.rows);
    if ((single && cuda->options.ranks == 1) || is_few(cuda, gpu->batch.rows))
        return;
    layers_add_norm(cuda, gpu, gpu->batch.rows, gpu->x, 0, single ? NULL : weights->post_attention_norm,
                    layers_model(cuda, drafter)->norm_epsilon, -1, gpu->input);
}

static void finish_mlp(const struct cuda *cuda, const struct gpu *gpu, bool drafter, int layer)
{
    bool single = layers_are_single(cuda, gpu->batch.rows);
    int feature = drafter ? -1 : layers_feature(cuda, layer), sums = single && cuda->options.ranks == 1 ? -1 : 1;
    if ((sums < 0 && feature < 0) || is_few(cuda, gpu->batch.rows))
        return;
    layers_add_norm(cuda, gpu, gpu->batch.rows, gpu->x, sums, single ? NULL : norm_behind(cuda, gpu, drafter, layer),
                    layers_model(cuda, drafter)->norm_epsilon, feature, rows_behind(cuda, gpu, drafter, layer));
}

/* The tokens' embeddings, and what the first product reads of them. */
static void start(const struct cuda *cuda, const struct gpu *gpu, bool drafter)
{
    const struct model *model = layers_model(cuda, drafter);
    const struct batch *batch = &gpu->batch;
    bool single = layers_are_single(cuda, batch->rows);
    const struct add_norm_call call = {
        .type = cuda->type,
        .rows = batch->rows,
        .width = model->hidden_size,
        .table = gpu->embedding,
        .tokens = batch->tokens,
        .x = gpu->x,
        .weight = single ? NULL : layers_of(gpu->ranks, drafter)->weights[0].input_norm,
        .epsilon = model->norm_epsilon,
        .squares = is_few(cuda, batch->rows) ? gpu->squares : NULL,
        .out = gpu->input,
    };
    watch_mark(cuda, gpu, WATCH_PARTS, "embed");
    kernels_add_norm(&call, gpu->stream);
}

void layers_run(struct cuda *cuda, bool drafter)
{
    int rows = cuda->host.rows;
    FOR_GPUS(cuda, gpu)
        start(cuda, gpu, drafter);
    if (layers_take_halves(cuda, drafter)) {
        layers_run_halves(cuda);
        return;
    }
    for (int layer = 0; layer < layers_model(cuda, drafter)->layer_count; layer++) {
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank)
                run_mixer(cuda, gpu, rank, drafter, layer);
        peers_send_sums(cuda, 0, rows);
        FOR_GPUS(cuda, gpu)
            finish_mixer(cuda, gpu, drafter, layer);
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank)
                run_mlp(cuda, gpu, rank, drafter, layer);
        peers_send_sums(cuda, 1, rows);
        FOR_GPUS(cuda, gpu)
            finish_mlp(cuda, gpu, drafter, layer);
    }
    if (layers_model(cuda, drafter)->recurrent_count)
        FOR_GPUS(cuda, gpu)
            recurrent_finish(cuda, gpu);
}

/* Logits of `count` rows from `first` on of a rank's slice. */
static void run_head(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, bool drafter, int first,
                     int count)
{
    const struct layers *layers = drafter ? &rank->drafter : &rank->target;
    const struct model *model = cuda->options.target;
    int batch_rows = gpu->batch.rows;
    size_t hidden = (size_t)model->hidden_size;
    const char *rows = (const char *)gpu->normed + (size_t)first * hidden * element_size(cuda->type);
    bool few = is_few(cuda, batch_rows), normed = !few && !layers_are_single(cuda, batch_rows);
    const struct matvec_call single = {.inputs = model->hidden_size,
                                       .outputs = model->vocabulary_size / cuda->options.ranks,
                                       .weights = rank->head,
                                       .x = normed ? NULL : gpu->x + (size_t)first * hidden,
                                       .norm = last_norm(gpu, drafter),
                                       .epsilon = layers_model(cuda, drafter)->norm_epsilon,
                                       .input = rows,
                                       .y = rank->logits};
    struct skinny_call ends = {.epsilon = single.epsilon, .y = rank->logits};
    if (layers_are_single(cuda, count)) {
        kernels_matvec(&single, gpu->stream);
    } else if (few) {
        ends.square_count = product_tiles(layers->down, batch_rows);
        ends.squares = gpu->squares + (size_t)first * (size_t)ends.square_count;
        product_apply_ends(rank->head_product, count, rows, rank->head, &ends);
    } else {
        product_apply(rank->head_product, count, rows, rank->head, rank->logits, NULL);
    }
}

void layers_run_head(struct cuda *cuda, bool drafter, int first, int count)
{
    FOR_GPUS(cuda, gpu) {
        watch_mark(cuda, gpu, WATCH_PARTS, "head");
        FOR_RANKS(gpu, rank)
            run_head(cuda, gpu, rank, drafter, first, count);
    }
}
