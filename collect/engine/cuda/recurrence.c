/* The recurrent layers of a rank: their own weights, what is kept of rows, and the calls of their kernels. */
#include "collect/engine/cuda/recurrence.h"

#include "collect/engine/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

/* --- weights ---------------------------------------------------------------------------------------------------- */

void recurrent_slice(struct recurrence *recurrence, const struct model *model, int ranks)
{
    const struct model_recurrence *whole = &model->recurrence;
    recurrence->layer_count = model->recurrent_count;
    recurrence->sizes = (struct recurrent_sizes){whole->key_heads / ranks, whole->value_heads / ranks, whole->key_size,
                                                 whole->value_size, whole->kernel_size};
}

/* A rank's rows of a tensor over all channels: those of its queries, of its keys and of its values stand apart. */
struct channel_parts {
    int first[3], count[3];
};

static struct channel_parts find_channels(const struct recurrence *recurrence, const struct model *model, int rank)
{
    const struct model_recurrence *whole = &model->recurrence;
    int all = whole->key_heads * whole->key_size, keys = recurrence->sizes.key_heads * whole->key_size;
    int values = recurrent_values(&recurrence->sizes);
    return (struct channel_parts){{rank * keys, all + rank * keys, 2 * all + rank * values}, {keys, keys, values}};
}

void recurrent_load_layer(struct loader *loader, const struct recurrence *recurrence, const struct model *model,
                          int rank, const struct model_recurrent_layer *from, void **in, void **out)
{
    const struct channel_parts channels = find_channels(recurrence, model, rank);
    int values = recurrent_values(&recurrence->sizes), heads = recurrence->sizes.value_heads;
    struct weight_part parts[6];
    for (int i = 0; i < 3; i++)
        parts[i] = (struct weight_part){from->qkv, channels.first[i], channels.count[i], 0, (int)from->qkv->shape[1]};
    parts[3] = weight_rows(from->z, rank, values);
    parts[4] = weight_rows(from->b, rank, heads);
    parts[5] = weight_rows(from->a, rank, heads);
    const struct weight_part columns = weight_columns(from->out, rank, values);
    *in = loader_matrix(loader, parts, 6);
    *out = loader_matrix(loader, &columns, 1);
}

/* Elements of all layers' tensors, those of a layer one behind the other. */
struct floats {
    float *values;
    size_t count;
};

static void add_floats(struct floats *floats, const struct tensor *tensor, int64_t first, int64_t count)
{
    floats->values = xrealloc(floats->values, floats->count + (size_t)count, sizeof *floats->values);
    tensor_to_float(tensor, first, count, floats->values + floats->count);
    floats->count += (size_t)count;
}

static float *send(struct loader *loader, struct floats *floats)
{
    float *sent = loader_floats(loader, floats->values, floats->count);
    free(floats->values);
    return sent;
}

void recurrent_load(struct loader *loader, struct recurrence *recurrence, const struct model *model, int rank)
{
    const struct channel_parts channels = find_channels(recurrence, model, rank);
    struct floats convolutions = {0}, rates = {0}, step_biases = {0}, norms = {0};
    int heads = recurrence->sizes.value_heads, kernel = recurrence->sizes.kernel_size;
    for (int i = 0; i < model->layer_count; i++) {
        const struct model_recurrent_layer *layer = &model->layers[i].recurrent;
        if (model->kinds[i] != MODEL_RECURRENT)
            continue;
        for (int part = 0; part < 3; part++)
            add_floats(&convolutions, layer->convolution, (int64_t)channels.first[part] * kernel,
                       (int64_t)channels.count[part] * kernel);
        add_floats(&rates, layer->decay_log, rank * heads, heads);
        add_floats(&step_biases, layer->step_bias, rank * heads, heads);
        add_floats(&norms, layer->norm, 0, recurrence->sizes.value_size);
    }
    for (size_t i = 0; i < rates.count; i++)
        rates.values[i] = -expf(rates.values[i]);
    recurrence->convolutions = send(loader, &convolutions);
    recurrence->rates = send(loader, &rates);
    recurrence->step_biases = send(loader, &step_biases);
    recurrence->norms = send(loader, &norms);
}

void recurrent_unload(const struct recurrence *recurrence)
{
    float *const memory[] = {recurrence->convolutions, recurrence->rates, recurrence->step_biases, recurrence->norms};
    for (int i = 0; i < 4; i++)
        CUDA_CHECK(cudaFree(memory[i]));
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static size_t state_stride(const struct cuda *cuda, const struct recurrence *recurrence)
{
    return (size_t)cuda->options.sessions * recurrent_state_elements(&recurrence->sizes);
}

static size_t window_bytes(const struct cuda *cuda, const struct recurrence *recurrence)
{
    return (size_t)(recurrence->sizes.kernel_size - 1) * (size_t)recurrent_channels(&recurrence->sizes) *
           element_size(cuda->type);
}

/* Recurrent layer `layer`, with what is kept until a commit. */
static struct recurrent_layer layer_of(const struct cuda *cuda, const struct layers *layers, int layer)
{
    const struct recurrence *recurrence = &layers->recurrence;
    const struct recurrent_sizes *sizes = &recurrence->sizes;
    size_t index = (size_t)layer, channels = (size_t)recurrent_channels(sizes), heads = (size_t)sizes->value_heads;
    size_t rows = (size_t)recurrent_kept_rows(cuda), sessions = (size_t)cuda->options.sessions;
    return (struct recurrent_layer){
        .type = cuda->type,
        .sizes = *sizes,
        .convolution = recurrence->convolutions + index * channels * (size_t)sizes->kernel_size,
        .rates = recurrence->rates + index * heads,
        .step_bias = recurrence->step_biases + index * heads,
        .norm = recurrence->norms + index * (size_t)sizes->value_size,
        .epsilon = layers->model->norm_epsilon,
        .states = recurrence->states + index * state_stride(cuda, recurrence),
        .windows = (char *)recurrence->windows + index * sessions * window_bytes(cuda, recurrence),
        .inputs = (char *)recurrence->inputs + index * rows * channels * element_size(cuda->type),
        .decays = recurrence->decays + index * rows * heads,
        .betas = recurrence->betas + index * rows * heads,
    };
}

/* A prompt's rows are committed layer by layer: of them only what the window needs is kept, in one place. */
static bool passes(const struct batch *batch)
{
    return batch->advances && batch->longest > 1;
}

static struct recurrent_call call_of(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer)
{
    const struct recurrence *recurrence = &rank->target.recurrence;
    const struct batch *batch = &gpu->batch;
    struct recurrent_call call = {
        .layer = layer_of(cuda, &rank->target, layer),
        .rows = batch->rows,
        .segment_count = batch->segment_count,
        .longest = batch->longest,
        .advances = batch->advances,
        .segments = batch->segments,
        .near = batch->near,
        .fused = rank->fused,
        .mixed = recurrence->mixed,
        .deltas = recurrence->deltas,
        .out = rank->attended,
    };
    if (passes(batch)) {
        int left = batch->rows - (recurrence->sizes.kernel_size - 1);
        call.first_kept = left > 0 ? left : 0;
        call.layer.inputs = recurrence->passing_inputs;
        call.layer.decays = recurrence->passing_decays;
        call.layer.betas = recurrence->passing_betas;
    }
    return call;
}

static struct recurrent_kept kept_of(const struct cuda *cuda, const struct rank *rank)
{
    return (struct recurrent_kept){.layer = layer_of(cuda, &rank->target, 0),
                                   .layers = rank->target.recurrence.layer_count,
                                   .sessions = cuda->options.sessions,
                                   .rows = recurrent_kept_rows(cuda)};
}

void recurrent_run(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer)
{
    const struct recurrent_call call = call_of(cuda, gpu, rank, layer);
    if (call.advances && call.longest == 1) {
        watch_mark(cuda, gpu, WATCH_PARTS, "state");
        kernels_recurrent_step(&call, gpu->stream);
        return;
    }
    watch_mark(cuda, gpu, WATCH_PARTS, "convolution");
    kernels_recurrent_mix(&call, gpu->stream);
    watch_mark(cuda, gpu, WATCH_PARTS, "state");
    kernels_recurrent_answer(&call, gpu->stream);
    if (!call.advances)
        return;
    const struct recurrent_kept kept = {.layer = call.layer,
                                        .layers = 1,
                                        .sessions = cuda->options.sessions,
                                        .count = call.segment_count,
                                        .segments = call.segments,
                                        .first_kept = call.first_kept};
    kernels_recurrent_move_windows(&kept, gpu->stream);
}

void recurrent_finish(const struct cuda *cuda, const struct gpu *gpu)
{
    const struct batch *batch = &gpu->batch;
    if (!batch->advances || passes(batch))
        return;
    watch_mark(cuda, gpu, WATCH_PARTS, "windows");
    FOR_RANKS(gpu, rank) {
        struct recurrent_kept kept = kept_of(cuda, rank);
        kept.count = batch->segment_count;
        kept.segments = batch->segments;
        kernels_recurrent_move_windows(&kept, gpu->stream);
    }
}

void recurrent_commit(const struct cuda *cuda, const struct gpu *gpu)
{
    watch_mark(cuda, gpu, WATCH_PARTS, "state");
    FOR_RANKS(gpu, rank) {
        struct recurrent_kept kept = kept_of(cuda, rank);
        kept.count = gpu->kept.path_count;
        kept.paths = gpu->kept.paths;
        kept.path_rows = gpu->kept.rows;
        kept.paths_are_new = layers_attending(&rank->target) == 0; /* no caches were compacted in between */
        kernels_recurrent_commit(&kept, gpu->stream);
        kernels_recurrent_move_windows(&kept, gpu->stream);
    }
}

void recurrent_run_products(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank, int layer)
{
    const struct recurrent_call call = call_of(cuda, gpu, rank, layer);
    kernels_recurrent_answer(&call, gpu->stream);
}

/* --- sessions --------------------------------------------------------------------------------------------------- */

void recurrent_reset(const struct cuda *cuda, int session)
{
    FOR_GPUS(cuda, gpu)
        FOR_RANKS(gpu, rank) {
            const struct recurrence *recurrence = &rank->target.recurrence;
            size_t bytes = recurrent_state_elements(&recurrence->sizes) * sizeof(float);
            for (int layer = 0; layer < recurrence->layer_count; layer++) {
                const struct recurrent_layer own = layer_of(cuda, &rank->target, layer);
                CUDA_CHECK(cudaMemsetAsync((char *)own.states + (size_t)session * bytes, 0, bytes, gpu->stream));
                CUDA_CHECK(cudaMemsetAsync((char *)own.windows + (size_t)session * window_bytes(cuda, recurrence), 0,
                                           window_bytes(cuda, recurrence), gpu->stream));
            }
        }
}

void recurrent_inspect(const struct cuda *cuda, int session, float *out)
{
    for (int layer = 0; layer < cuda->options.target->recurrent_count; layer++)
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank) {
                const struct recurrence *recurrence = &rank->target.recurrence;
                size_t count = recurrent_state_elements(&recurrence->sizes);
                const float *states = recurrence->states + (size_t)layer * state_stride(cuda, recurrence);
                CUDA_CHECK(cudaMemcpyAsync(out, states + (size_t)session * count, count * sizeof *out,
                                           cudaMemcpyDeviceToHost, gpu->stream));
                out += count;
            }
    cuda_wait(cuda);
}
