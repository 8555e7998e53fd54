#include "collect/engine/cuda/cuda.h"

#include "collect/base/json.h"
#include "collect/engine/cuda/weights.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAXIMUM 2048 /* of a call */

static int kv_width(const struct layers *layers)
{
    return layers->kv_heads * layers->model->head_size;
}

static int head_width(const struct layers *layers)
{
    return layers->heads * layers->model->head_size;
}

/* --- what fits -------------------------------------------------------------------------------------------------- */

static int check_model(const struct model *model, int ranks, struct error *error)
{
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

/* Every GPU reads what the others' ranks add. */
static int open_peers(const struct cuda *cuda, struct error *error)
{
    FOR_GPUS(cuda, gpu)
        for (int i = 0; i < cuda->gpu_count; i++) {
            int other = cuda->gpus[i].ordinal, reachable = 0;
            if (other == gpu->ordinal)
                continue;
            CUDA_CHECK(cudaDeviceCanAccessPeer(&reachable, gpu->ordinal, other));
            if (!reachable)
                return fail(error,
                            "GPU %d cannot read the memory of GPU %d; choose GPUs of one NVLink or PCIe root by "
                            "CUDA_VISIBLE_DEVICES, or another tensor_parallel",
                            gpu->ordinal, other);
            cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
            if (status != cudaErrorPeerAccessAlreadyEnabled)
                CUDA_CHECK(status);
            else
                cudaGetLastError();
        }
    return 0;
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
    return open_peers(cuda, error);
}

static void introduce_gpus(struct cuda *cuda)
{
    for (int i = 0; i < cuda->gpu_count; i++) {
        struct meeting *meeting = &cuda->gpus[i].meeting;
        meeting->gpus = cuda->gpu_count;
        meeting->index = i;
        for (int j = 0; j < cuda->gpu_count; j++)
            meeting->others[j] = cuda->gpus[j].meeting.flags;
    }
}

/* --- loading ---------------------------------------------------------------------------------------------------- */

static void load_layer(struct loader *loader, const struct layers *layers, int rank, const struct model_layer *from,
                       struct layer_weights *to)
{
    const struct weight_part qkv[] = {weight_rows(from->q, rank, head_width(layers)),
                                      weight_rows(from->k, layers->kv_slice, kv_width(layers)),
                                      weight_rows(from->v, layers->kv_slice, kv_width(layers))};
    const struct weight_part gate_up[] = {weight_rows(from->gate, rank, layers->inner),
                                          weight_rows(from->up, rank, layers->inner)};
    const struct weight_part o = weight_columns(from->o, rank, head_width(layers)),
                             down = weight_columns(from->down, rank, layers->inner);
    to->input_norm = loader_vectors(loader, &from->input_norm, 1);
    to->post_attention_norm = loader_vectors(loader, &from->post_attention_norm, 1);
    to->q_norm = loader_vectors(loader, &from->q_norm, 1);
    to->k_norm = loader_vectors(loader, &from->k_norm, 1);
    to->qkv = loader_matrix(loader, qkv, 3);
    to->o = loader_matrix(loader, &o, 1);
    to->gate_up = loader_matrix(loader, gate_up, 2);
    to->down = loader_matrix(loader, &down, 1);
}

static void load_layers(struct loader *loader, struct layers *layers, int rank)
{
    const struct model *model = layers->model;
    layers->weights = xcalloc((size_t)model->layer_count, sizeof *layers->weights);
    for (int i = 0; i < model->layer_count; i++)
        load_layer(loader, layers, rank, &model->layers[i], &layers->weights[i]);
}

static void load_context(struct loader *loader, struct layers *layers)
{
    const struct model *model = layers->model;
    size_t count = (size_t)model->layer_count;
    struct weight_part *parts = xcalloc(count * 2, sizeof *parts);
    const struct tensor **norms = xcalloc(count, sizeof *norms);
    for (size_t i = 0; i < count; i++) {
        parts[2 * i] = weight_rows(model->layers[i].k, layers->kv_slice, kv_width(layers));
        parts[2 * i + 1] = weight_rows(model->layers[i].v, layers->kv_slice, kv_width(layers));
        norms[i] = model->layers[i].k_norm;
    }
    layers->context = loader_matrix(loader, parts, 2 * (int)count);
    layers->k_norms = loader_vectors(loader, norms, (int)count);
    free((void *)norms);
    free(parts);
}

static void load_rank(const struct cuda *cuda, struct gpu *gpu, struct rank *rank, struct loader *loader)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int ranks = cuda->options.ranks, slice = target->vocabulary_size / ranks;
    const struct weight_part head = weight_rows(target->head, rank->index, slice);
    size_t offset = (size_t)rank->index * (size_t)slice * (size_t)target->hidden_size * element_size(cuda->type);
    bool tied = target->head == target->embedding;
    rank->head = tied ? (char *)gpu->embedding + offset : loader_matrix(loader, &head, 1);
    load_layers(loader, &rank->target, rank->index);
    if (!drafter)
        return;
    const struct weight_part fuse =
        weight_columns(drafter->fc, rank->index, drafter->feature_count * drafter->hidden_size / ranks);
    load_layers(loader, &rank->drafter, rank->index);
    load_context(loader, &rank->drafter);
    rank->fuse = loader_matrix(loader, &fuse, 1);
}

static void load_gpu(struct cuda *cuda, struct gpu *gpu)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    struct loader *loader = loader_create(cuda->type, gpu->stream);
    const struct weight_part embedding = weight_rows(target->embedding, 0, target->vocabulary_size);
    gpu->embedding = loader_matrix(loader, &embedding, 1);
    gpu->norm = loader_vectors(loader, &target->norm, 1);
    if (drafter) {
        gpu->drafter_norm = loader_vectors(loader, &drafter->norm, 1);
        gpu->hidden_norm = loader_vectors(loader, &drafter->hidden_norm, 1);
    }
    FOR_RANKS(gpu, rank)
        load_rank(cuda, gpu, rank, loader);
    cuda->weight_bytes += loader_bytes(loader);
    loader_destroy(loader);
}

/* The same angles as the CPU backend's, computed by the same functions. */
static void send_rotation(const struct cuda *cuda, const struct gpu *gpu, bool drafter)
{
    const struct model *model = drafter ? cuda->options.drafter : cuda->options.target;
    size_t half = (size_t)model->head_size / 2, capacity = (size_t)cuda->options.capacity;
    size_t bytes = capacity * half * sizeof(float);
    float *cosines = xmalloc(bytes), *sines = xmalloc(bytes);
    for (size_t i = 0; i < half; i++) {
        float frequency = 1.0f / powf(model->rope_theta, (float)(2 * i) / (float)model->head_size);
        for (size_t position = 0; position < capacity; position++) {
            float angle = (float)position * frequency;
            cosines[position * half + i] = cosf(angle);
            sines[position * half + i] = sinf(angle);
        }
    }
    CUDA_CHECK(cudaMemcpy(gpu->cosines[drafter], cosines, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(gpu->sines[drafter], sines, bytes, cudaMemcpyHostToDevice));
    free(cosines);
    free(sines);
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* Rows that a prompt's pieces are rounded up to. */
static const int prompt_rows[] = {16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048};

/* The numbers of rows that the calls' batches have; every one in order that a product of another is timed once. */
static int list_rows(const struct cuda *cuda, int most, int *rows)
{
    const struct backend_options *options = &cuda->options;
    int count = 0;
    for (int sessions = 1; sessions <= options->sessions; sessions++) {
        rows[count++] = sessions * options->nodes;
        if (options->drafter) {
            rows[count++] = sessions * options->drafter->block_size;
            rows[count++] = sessions * options->drafter->block_size - 1;
            rows[count++] = sessions * cuda->path_rows;
        }
    }
    for (size_t i = 0; i < sizeof prompt_rows / sizeof *prompt_rows; i++)
        rows[count++] = prompt_rows[i];
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (rows[i] > 0 && rows[i] <= most)
            rows[kept++] = rows[i];
    rows[kept++] = most;
    return kept;
}

#define LISTED_MAXIMUM (4 * 16 + 16)

static void ready(const struct cuda *cuda, struct product *product, int most, const struct product_trial *trial)
{
    int rows[LISTED_MAXIMUM], count = list_rows(cuda, most, rows);
    for (int i = 0; i < count; i++)
        product_ready(product, rows[i], trial);
}

/* One of a layer's products, timed with the weights of all layers. `member`: of struct layer_weights. */
static struct product *ready_layers(const struct cuda *cuda, const struct gpu *gpu, const struct layers *layers,
                                    size_t member, int inputs, int outputs, const struct product_trial *like)
{
    int count = layers->model->layer_count;
    const void **weights = xcalloc((size_t)count, sizeof *weights);
    for (int i = 0; i < count; i++)
        weights[i] = *(void *const *)((const char *)&layers->weights[i] + member);
    const struct product_trial trial = {like->x, like->y, like->gated, weights, count};
    struct product *product = like->gated ? product_create_gated(gpu->library, inputs, outputs)
                                          : product_create(gpu->library, inputs, outputs, inputs, false);
    ready(cuda, product, cuda->most_rows, &trial);
    free((void *)weights);
    return product;
}

static void create_layer_products(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank,
                                  struct layers *layers)
{
    int hidden = layers->model->hidden_size, heads = head_width(layers), inner = layers->inner;
    const struct product_trial qkv = {.x = gpu->input, .y = rank->fused}, o = {.x = rank->attended, .y = rank->sums[0]},
                               gate_up = {.x = gpu->input, .y = rank->fused, .gated = rank->gated},
                               down = {.x = rank->gated, .y = rank->sums[1]};
    layers->qkv = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, qkv), hidden,
                               heads + 2 * kv_width(layers), &qkv);
    layers->o = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, o), heads, hidden, &o);
    layers->gate_up =
        ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, gate_up), hidden, 2 * inner, &gate_up);
    layers->down = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, down), inner, hidden, &down);
}

static void create_products(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int hidden = target->hidden_size;
    const void *head[] = {rank->head}, *fuse[] = {rank->fuse}, *context[] = {rank->drafter.context};
    const struct product_trial head_trial = {gpu->normed, rank->logits, NULL, head, 1},
                               fuse_trial = {gpu->kept_features, rank->sums[2], NULL, fuse, 1},
                               context_trial = {gpu->input, rank->fused, NULL, context, 1};
    rank->head_product =
        product_create(gpu->library, hidden, target->vocabulary_size / cuda->options.ranks, hidden, true);
    ready(cuda, rank->head_product, cuda->head_rows, &head_trial);
    create_layer_products(cuda, gpu, rank, &rank->target);
    if (!drafter)
        return;
    int features = drafter->feature_count * hidden;
    create_layer_products(cuda, gpu, rank, &rank->drafter);
    rank->fuse_product = product_create(gpu->library, features / cuda->options.ranks, hidden, features, false);
    ready(cuda, rank->fuse_product, cuda->most_rows, &fuse_trial);
    rank->drafter.project =
        product_create(gpu->library, hidden, 2 * drafter->layer_count * kv_width(&rank->drafter), hidden, false);
    ready(cuda, rank->drafter.project, cuda->most_rows, &context_trial);
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
    const int inputs[] = {layers->model->hidden_size, head_width(layers), layers->inner};
    for (int i = 0; i < 3; i++)
        if (inputs[i] % 8 || inputs[i] > MATVEC_INPUTS_MAXIMUM)
            return false;
    return true;
}

static void ready_gpus(struct cuda *cuda)
{
    introduce_gpus(cuda);
    FOR_GPUS(cuda, gpu) {
        load_gpu(cuda, gpu);
        for (int i = 0; i < (cuda->options.drafter ? 2 : 1); i++)
            send_rotation(cuda, gpu, i);
        FOR_RANKS(gpu, rank)
            create_products(cuda, gpu, rank);
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    create_host(cuda);
    graph_capture_all(cuda);
}

/* Those of this kind of GPU, under its name: what is quick on one need not be on another. A new reference. */
static json_t *own_algorithms(json_t *all)
{
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    json_t *own = json_object_get(all, properties.name);
    if (own)
        return json_incref(own);
    own = json_object();
    if (all)
        json_set(all, properties.name, json_incref(own));
    return own;
}

struct backend *cuda_open(const struct backend_options *options, struct error *error)
{
    if (device_find(error) != DEVICE_USABLE || check_options(options, error))
        return NULL;
    struct cuda *cuda = xcalloc(1, sizeof *cuda);
    cuda->base.class = &backend_cuda;
    cuda->options = *options;
    cuda->type = options->dtype == ENGINE_BFLOAT16 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32;
    cuda->algorithms = own_algorithms(options->algorithms);
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
        void *const memory[] = {weights->input_norm, weights->post_attention_norm,
                                weights->q_norm,     weights->k_norm,
                                weights->qkv,        weights->o,
                                weights->gate_up,    weights->down};
        unload(memory, sizeof memory / sizeof *memory);
    }
    struct product *const products[] = {layers->qkv, layers->o, layers->gate_up, layers->down, layers->project};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        product_destroy(products[i]);
    void *const memory[] = {layers->context, layers->k_norms};
    unload(memory, 2);
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

json_t *cuda_describe_device(enum engine_dtype dtype)
{
    struct cudaDeviceProp properties;
    int runtime = 0;
    char capability[32], version[32];
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    snprintf(capability, sizeof capability, "%d.%d", properties.major, properties.minor);
    snprintf(version, sizeof version, "%d.%d", runtime / 1000, runtime % 1000 / 10);
    json_t *device = json_object();
    json_set(device, "device", json_string("cuda"));
    json_set(device, "gpu", json_text(properties.name));
    json_set(device, "compute_capability", json_string(capability));
    json_set(device, "driver", driver_version());
    json_set(device, "cuda", json_string(version));
    json_set(device, "compute_dtype", json_string(dtype == ENGINE_BFLOAT16 ? "bfloat16" : "float32"));
    return device;
}
