#include "collect/engine/cuda/cuda.h"

#include "collect/base/json.h"
#include "collect/engine/cuda/weights.h"
#include "collect/engine/model_memory.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAXIMUM 2048 /* of a call */
#define ANSWER_LIMIT_S 60 /* a GPU that takes longer is lost */

/* --- what fits -------------------------------------------------------------------------------------------------- */

static int check_model(const struct model *model, int ranks, struct error *error)
{
    const struct model_recurrence *recurrence = &model->recurrence;
    const struct recurrent_sizes sizes = {recurrence->key_heads, recurrence->value_heads, recurrence->key_size,
                                          recurrence->value_size, recurrence->kernel_size};
    if (model->recurrent_count && !kernels_recurrence_takes(&sizes))
        return fail(error,
                    "%s: recurrent states of %d x %d; device \"cuda\" takes up to 32768 elements, %d a side: use "
                    "\"cpu\"",
                    model->folder, sizes.key_size, sizes.value_size, RECURRENT_SIZE_MAXIMUM);
    if (model->head_size > ATTENTION_HEAD_SIZE_MAXIMUM)
        return fail(error, "%s: heads of size %d; device \"cuda\" takes up to %d: use \"cpu\"", model->folder,
                    model->head_size, ATTENTION_HEAD_SIZE_MAXIMUM);
    return model_check_ranks(model, ranks, error);
}

static int check_options(const struct backend_options *options, struct error *error)
{
    if (options->ranks > RANKS_MAXIMUM)
        return fail(error, "tensor_parallel %d: device \"cuda\" has up to %d ranks", options->ranks, RANKS_MAXIMUM);
    if (options->drafter && options->draft_width > TOP_WIDTH_MAXIMUM)
        return fail(error, "a draft of %d tokens a slot; device \"cuda\" gives up to %d", options->draft_width,
                    TOP_WIDTH_MAXIMUM);
    if (options->sessions * options->nodes > ROWS_MAXIMUM)
        return fail(error,
                    "%d sessions of %d nodes; device \"cuda\" verifies up to %d together: lower concurrency or budget",
                    options->sessions, options->nodes, ROWS_MAXIMUM);
    if (check_model(options->target, options->ranks, error))
        return -1;
    return options->drafter ? check_model(options->drafter, options->ranks, error) : 0;
}

/* --- ranks and GPUs --------------------------------------------------------------------------------------------- */

static void slice_layers(struct layers *layers, const struct model *model, int rank, int ranks)
{
    if (!model)
        return;
    layers->model = model;
    layers->heads = model->head_count / ranks;
    layers->kv_heads = model->kv_head_count > ranks ? model->kv_head_count / ranks : 1;
    layers->kv_slice = model->kv_head_count > ranks ? rank : rank * model->kv_head_count / ranks;
    layers->inner = model->intermediate_size / ranks;
    if (model->recurrent_count)
        recurrent_slice(&layers->recurrence, model, ranks);
}

static void create_gpu(struct cuda *cuda, struct gpu *gpu, int ordinal, int first_rank, int rank_count)
{
    gpu->ordinal = ordinal;
    gpu->rank_count = rank_count;
    gpu->ranks = xcalloc((size_t)rank_count, sizeof *gpu->ranks);
    for (int i = 0; i < rank_count; i++) {
        struct rank *rank = &gpu->ranks[i];
        rank->index = first_rank + i;
        slice_layers(&rank->target, cuda->options.target, rank->index, cuda->options.ranks);
        slice_layers(&rank->drafter, cuda->options.drafter, rank->index, cuda->options.ranks);
    }
    cuda_select(gpu);
    CUDA_CHECK(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    gpu->library = product_library_open(cuda->type, gpu->stream, cuda->algorithms);
}

static int create_gpus(struct cuda *cuda, struct error *error)
{
    const struct backend_options *options = &cuda->options;
    int devices[RANKS_MAXIMUM], distinct = device_assign(options->device, options->ranks, devices, error);
    if (distinct < 0)
        return -1;
    cuda->shared = distinct == 1 && options->ranks > 1;
    cuda->gpu_count = distinct;
    cuda->gpus = xcalloc((size_t)distinct, sizeof *cuda->gpus);
    for (int i = 0; i < distinct; i++)
        create_gpu(cuda, &cuda->gpus[i], devices[i], i, options->ranks / distinct);
    return peers_open(cuda, error);
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* What is not on a GPU, nor copied there. */
static void create_host(struct cuda *cuda)
{
    size_t sessions = (size_t)cuda->options.sessions, vocabulary = (size_t)cuda->options.target->vocabulary_size;
    size_t block = cuda->options.drafter ? (size_t)cuda->options.drafter->block_size : 0;
    size_t nodes = sessions * (size_t)cuda->options.nodes;
    cuda->lengths = xcalloc(sessions, sizeof *cuda->lengths);
    cuda->first_rows = xcalloc(sessions, sizeof *cuda->first_rows);
    cuda->sampling = xcalloc(sessions, sizeof *cuda->sampling);
    cuda->block_tokens = xcalloc(sessions * block, sizeof *cuda->block_tokens);
    cuda->block_segments = xcalloc(sessions, sizeof *cuda->block_segments);
    cuda->padded = xcalloc(sessions, sizeof *cuda->padded);
    cuda->padded_tokens = xcalloc(nodes, sizeof *cuda->padded_tokens);
    cuda->padded_parents = xcalloc(nodes, sizeof *cuda->padded_parents);
    cuda->row_of = xcalloc((size_t)cuda->most_rows, sizeof *cuda->row_of);
    cuda->ahead.given = xcalloc(sessions, sizeof *cuda->ahead.given);
    cuda->ahead.last = xcalloc(sessions, sizeof *cuda->ahead.last);
    cuda->scratch.indices = xcalloc(vocabulary, sizeof *cuda->scratch.indices);
    cuda->scratch.values = xcalloc(vocabulary, sizeof *cuda->scratch.values);
    cuda_select(cuda->gpus);
    for (int i = 0; i < 2; i++)
        CUDA_CHECK(cudaEventCreate(&cuda->marks[i]));
    for (int i = 0; i < CUDA_AHEAD; i++)
        CUDA_CHECK(cudaEventCreateWithFlags(&cuda->ahead.done[i], cudaEventDisableTiming));
}

static bool takes_singles(const struct layers *layers)
{
    const int inputs[] = {layers->model->hidden_size, layers_head_width(layers), layers->inner,
                          recurrent_values(&layers->recurrence.sizes)};
    for (int i = 0; i < 4; i++)
        if (inputs[i] % 8 || inputs[i] > MATVEC_INPUTS_MAXIMUM)
            return false;
    return true;
}

static bool takes_few(const struct layers *layers)
{
    const struct product *products[] = {
        layers->qkv, layers->o, layers->gate_up, layers->down, layers->recurrent_in, layers->recurrent_out};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (products[i] && !product_is_own(products[i], PRODUCT_OWN_ROWS))
            return false;
    return true;
}

static void ready_gpus(struct cuda *cuda)
{
    peers_introduce(cuda);
    FOR_GPUS(cuda, gpu) {
        load_weights(cuda, gpu);
        for (int i = 0; i < (cuda->options.drafter ? 2 : 1); i++)
            load_rotation(cuda, gpu, i);
        FOR_RANKS(gpu, rank)
            ready_products(cuda, gpu, rank);
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    const struct rank *rank = cuda->gpus->ranks;
    cuda->few = cuda->options.ranks == 1 && product_is_own(rank->head_product, PRODUCT_OWN_ROWS) &&
                takes_few(&rank->target) && (!cuda->options.drafter || takes_few(&rank->drafter));
    layers_ready_halves(cuda);
    create_host(cuda);
    graph_capture_all(cuda);
}

/* Those of this kind of GPU, under its name: what is quick on one need not be on another. A new reference. */
static json_t *own_algorithms(json_t *all, const char *device)
{
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device_first(device)));
    json_t *own = json_object_get(all, properties.name);
    if (own)
        return json_incref(own);
    own = json_object();
    if (all)
        json_set(all, properties.name, json_incref(own));
    return own;
}

/* CLEANSLATE_ANSWER_LIMIT: other seconds than these. */
static int64_t answer_limit_ns(void)
{
    const char *wanted = getenv("CLEANSLATE_ANSWER_LIMIT");
    int64_t seconds = wanted ? strtoll(wanted, NULL, 10) : 0;
    return (seconds > 0 ? seconds : ANSWER_LIMIT_S) * 1000000000;
}

struct backend *cuda_open(const struct backend_options *options, struct error *error)
{
    if (device_find(options->device, error) != DEVICE_USABLE || check_options(options, error))
        return NULL;
    struct cuda *cuda = xcalloc(1, sizeof *cuda);
    cuda->base.class = &backend_cuda;
    cuda->options = *options;
    cuda->type = options->dtype == ENGINE_BFLOAT16 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32;
    cuda->algorithms = own_algorithms(options->algorithms, options->device);
    cuda->answer_limit_ns = answer_limit_ns();
    if (create_gpus(cuda, error) || memory_take(cuda, error)) {
        cuda_close(&cuda->base);
        return NULL;
    }
    cuda->singles = cuda->type == ELEMENT_BFLOAT16 && takes_singles(&cuda->gpus->ranks->target) &&
                    (!options->drafter || takes_singles(&cuda->gpus->ranks->drafter));
    ready_gpus(cuda);
    return &cuda->base;
}

/* --- closing ---------------------------------------------------------------------------------------------------- */

static void unload(void *const *memory, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CUDA_CHECK(cudaFree(memory[i]));
}

static void unload_layers(struct layers *layers)
{
    for (int i = 0; layers->weights && i < layers->model->layer_count; i++) {
        const struct layer_weights *weights = &layers->weights[i];
        void *const memory[] = {weights->input_norm,   weights->post_attention_norm,
                                weights->q_norm,       weights->k_norm,
                                weights->qkv,          weights->o,
                                weights->gate_up,      weights->down,
                                weights->recurrent_in, weights->recurrent_out};
        unload(memory, sizeof memory / sizeof *memory);
    }
    struct product *const products[] = {layers->qkv,          layers->o,       layers->gate_up,
                                        layers->down,         layers->project, layers->recurrent_in,
                                        layers->recurrent_out};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        product_destroy(products[i]);
    void *const memory[] = {layers->context, layers->k_norms};
    unload(memory, 2);
    recurrent_unload(&layers->recurrence);
    free(layers->weights);
}

static void close_gpu(const struct cuda *cuda, struct gpu *gpu)
{
    FOR_RANKS(gpu, rank) {
        void *const memory[] = {rank->fuse,
                                cuda->options.target->head == cuda->options.target->embedding ? NULL : rank->head};
        unload_layers(&rank->target);
        unload_layers(&rank->drafter);
        product_destroy(rank->head_product);
        product_destroy(rank->fuse_product);
        unload(memory, 2);
    }
    void *const memory[] = {gpu->embedding, gpu->norm, gpu->drafter_norm, gpu->hidden_norm};
    unload(memory, sizeof memory / sizeof *memory);
    product_library_close(gpu->library);
    CUDA_CHECK(cudaStreamDestroy(gpu->stream));
    free(gpu->ranks);
}

void cuda_close(struct backend *backend)
{
    struct cuda *cuda = (struct cuda *)backend;
    if (cuda->gpu_count)
        cuda_wait(cuda);
    graph_destroy_all(cuda);
    memory_give_back(cuda);
    FOR_GPUS(cuda, gpu)
        close_gpu(cuda, gpu);
    peers_close(cuda);
    for (int i = 0; i < 2; i++)
        if (cuda->marks[i])
            CUDA_CHECK(cudaEventDestroy(cuda->marks[i]));
    for (int i = 0; i < CUDA_AHEAD; i++)
        if (cuda->ahead.done[i])
            CUDA_CHECK(cudaEventDestroy(cuda->ahead.done[i]));
    watch_destroy(cuda->watch);
    json_decref(cuda->algorithms);
    void *host[] = {
        cuda->gpus,           cuda->lengths,     cuda->first_rows,      cuda->sampling,       cuda->block_tokens,
        cuda->block_segments, cuda->padded,      cuda->padded_tokens,   cuda->padded_parents, cuda->row_of,
        cuda->ahead.last,     cuda->ahead.given, cuda->scratch.indices, cuda->scratch.values, cuda};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
}

/* --- descriptions ----------------------------------------------------------------------------------------------- */

json_t *cuda_describe(const struct backend *backend)
{
    const struct cuda *cuda = (const struct cuda *)backend;
    json_t *memory = json_object();
    json_set(memory, "weights_bytes", json_integer((json_int_t)cuda->weight_bytes));
    json_set(memory, "cache_bytes", json_integer((json_int_t)cuda->cache_bytes));
    json_set(memory, "work_bytes", json_integer((json_int_t)cuda->scratch_bytes));
    json_set(memory, "capacity_tokens", json_integer(cuda->options.capacity));
    if (cuda->state_bytes) {
        const struct model_memory target =
            model_memory(cuda->options.target, (int)element_size(cuda->type), cuda->options.ranks);
        json_set(memory, "state_bytes", json_integer((json_int_t)cuda->state_bytes));
        json_set(memory, "node_bytes", json_integer(target.node));
    }
    return memory;
}

/* The driver's own version, which CUDA does not tell: the first number of the kernel's line about it, or null. */
static json_t *driver_version(void)
{
    char line[256] = "", *rest = NULL;
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    const char *word = file && fgets(line, sizeof line, file) ? strtok_r(line, " \n", &rest) : NULL;
    while (word && !isdigit((unsigned char)*word))
        word = strtok_r(NULL, " \n", &rest);
    if (file)
        fclose(file);
    return word ? json_text(word) : json_null();
}

json_t *cuda_describe_device(const char *device, enum engine_dtype dtype)
{
    struct cudaDeviceProp properties;
    int runtime = 0;
    char capability[32], version[32];
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device_first(device)));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    snprintf(capability, sizeof capability, "%d.%d", properties.major, properties.minor);
    snprintf(version, sizeof version, "%d.%d", runtime / 1000, runtime % 1000 / 10);
    json_t *description = json_object();
    json_set(description, "device", json_string("cuda"));
    json_set(description, "gpu", json_text(properties.name));
    json_set(description, "compute_capability", json_string(capability));
    json_set(description, "driver", driver_version());
    json_set(description, "cuda", json_string(version));
    json_set(description, "compute_dtype", json_string(dtype == ENGINE_BFLOAT16 ? "bfloat16" : "float32"));
    return description;
}
