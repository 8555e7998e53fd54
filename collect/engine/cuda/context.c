/* The drafter's context: its keys and values of what is committed, made of the target's features. */
#include "collect/engine/cuda/layers.h"

static void store_context(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int rows,
                          const int *positions, const int *sessions, const int *slots)
{
    const struct layers *layers = &rank->drafter;
    const struct model *model = layers->model;
    int width = 2 * layers->kv_heads * model->head_size;
    const struct heads_call call = {
        .type = cuda->type,
        .rows = rows,
        .layers = model->layer_count,
        .kv_heads = layers->kv_heads,
        .head_size = model->head_size,
        .capacity = cuda->options.capacity,
        .rotary_size = model->rotary_size,
        .stride = (size_t)(model->layer_count * width),
        .cache_stride = layers_cache_stride(cuda, layers),
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

void layers_fuse_features(const struct cuda *cuda, const struct gpu *gpu, const void *features, int rows)
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
    FOR_GPUS(cuda, gpu)
        layers_fuse_features(cuda, gpu, kept ? gpu->kept_features : gpu->features, rows);
    peers_send_sums(cuda, 2, rows);
    FOR_GPUS(cuda, gpu)
        layers_add_norm(cuda, gpu, rows, NULL, 2, gpu->hidden_norm, cuda->options.drafter->norm_epsilon, -1,
                        gpu->input);
    FOR_GPUS(cuda, gpu)
        project(cuda, gpu, kept, rows);
}
