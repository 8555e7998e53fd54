#include "collect/engine/cuda/cuda.h"

#include "collect/base/json.h"
#include "collect/engine/cuda/weights.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_LOGITS (32 << 20)      /* how many exist at a time, unless 64 rows have more */
#define RESERVE ((size_t)512 << 20) /* bytes for CUDA's own code and queues */
#define BUFFERS_MAXIMUM 32

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int kv_width(const struct model *model)
{
    return model->kv_head_count * model->head_size;
}

/* --- what fits -------------------------------------------------------------------------------------------------- */

static int check_model(const struct model *model, struct error *error)
{
    if (model->head_size > ATTENTION_HEAD_SIZE_MAXIMUM)
        return fail(error, "%s: heads of size %d; device \"cuda\" takes up to %d: use \"cpu\"", model->folder,
                    model->head_size, ATTENTION_HEAD_SIZE_MAXIMUM);
    return 0;
}

static int check_options(const struct backend_options *options, struct error *error)
{
    if (options->ranks != 1)
        return fail(error, "tensor_parallel %d: device \"cuda\" has one rank; use 1, or device \"cpu\"",
                    options->ranks);
    if (options->drafter && options->draft_width > TOP_WIDTH_MAXIMUM)
        return fail(error, "a draft of %d tokens a slot; device \"cuda\" gives up to %d", options->draft_width,
                    TOP_WIDTH_MAXIMUM);
    if (check_model(options->target, error))
        return -1;
    return options->drafter ? check_model(options->drafter, error) : 0;
}

static size_t weight_bytes(const struct backend_options *options, size_t size)
{
    size_t bytes = (size_t)model_parameter_count(options->target) * size;
    const struct model *drafter = options->drafter;
    if (drafter)
        bytes += ((size_t)model_parameter_count(drafter) +
                  2 * (size_t)drafter->layer_count * (size_t)kv_width(drafter) * (size_t)drafter->hidden_size) *
                 size;
    return bytes;
}

/* A piece of the GPU's memory, or (pinned) of the host's, with zero bytes where the options do not need it. */
struct buffer {
    void **to;
    size_t count, size;
    bool pinned, grows; /* with the capacity: a cache or what belongs to it */
};

static int add_layers(const struct cuda *cuda, struct layers *layers, struct buffer *buffers)
{
    const struct model *model = layers->model;
    size_t capacity = (size_t)cuda->options.capacity, half = (size_t)model->head_size / 2;
    size_t cache = (size_t)model->layer_count * (size_t)cuda->options.sessions * (size_t)kv_width(model) * capacity;
    buffers[0] = (struct buffer){&layers->keys, cache, element_size(cuda->type), false, true};
    buffers[1] = (struct buffer){&layers->values, cache, element_size(cuda->type), false, true};
    buffers[2] = (struct buffer){(void **)&layers->cosines, capacity * half, sizeof(float), false, true};
    buffers[3] = (struct buffer){(void **)&layers->sines, capacity * half, sizeof(float), false, true};
    return 4;
}

/* The widest of a model's rows, in the units of what they are multiplied with. */
struct widths {
    int hidden, heads, input, fused, group;
};

static void widen(struct widths *widths, const struct model *model, bool drafts)
{
    int heads = model->head_count * model->head_size;
    widths->hidden = model->hidden_size;
    widths->heads = most(widths->heads, heads);
    widths->input = most(widths->input, most(model->hidden_size, model->intermediate_size));
    widths->fused = most(widths->fused, most(heads + 2 * kv_width(model), 2 * model->intermediate_size));
    widths->fused =
        most(widths->fused, most(model->hidden_size, drafts ? 2 * model->layer_count * kv_width(model) : 0));
    widths->group = most(widths->group, model->head_count / model->kv_head_count);
}

static size_t most_partials(const struct cuda *cuda)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    size_t own = kernels_attention_partials(cuda->most_rows, target->head_count, target->head_size);
    size_t other = drafter ? kernels_attention_partials(cuda->most_rows, drafter->head_count, drafter->head_size) : 0;
    return own > other ? own : other;
}

/* All memory but the weights'. */
static int list_buffers(struct cuda *cuda, struct buffer *buffers)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    struct widths widths = {0};
    int count = add_layers(cuda, &cuda->target, buffers), sessions = cuda->options.sessions;
    widen(&widths, target, false);
    if (drafter) {
        count += add_layers(cuda, &cuda->drafter, buffers + count);
        widen(&widths, drafter, true);
    }
    size_t rows = (size_t)product_rows(cuda->most_rows), head = (size_t)product_rows(cuda->head_rows);
    size_t hidden = (size_t)widths.hidden, size = element_size(cuda->type),
           vocabulary = (size_t)target->vocabulary_size;
    size_t features = drafter ? rows * (size_t)drafter->feature_count * hidden : 0;
    size_t width = drafter ? (size_t)cuda->options.draft_width : 0;
    size_t drafts = drafter ? (size_t)(sessions * drafter->block_size) * width : 0;
    int longest = most(least(CUDA_PROMPT_CHUNK, cuda->options.capacity),
                       most(cuda->options.nodes, drafter ? drafter->block_size : 1));
    cuda->staging.size = batch_bytes(cuda->most_rows, sessions, longest, widths.group);
    const struct buffer list[] = {
        {(void **)&cuda->x, rows * hidden, sizeof(float)},
        {&cuda->normed, (rows + head) * hidden, size}, /* the head begins at any row */
        {&cuda->input, rows * (size_t)widths.input, size},
        {(void **)&cuda->fused, rows * (size_t)widths.fused, sizeof(float)},
        {&cuda->queries, rows * (size_t)widths.heads, size},
        {&cuda->attended, rows * (size_t)widths.heads, size},
        {(void **)&cuda->partial, most_partials(cuda), sizeof(float)},
        {(void **)&cuda->logits, head * vocabulary, sizeof(float)},
        {&cuda->features, features, size},
        {&cuda->kept_features, features, size},
        {&cuda->context, drafter ? rows * hidden : 0, size},
        {&cuda->choose_partial, kernels_choose_partials(cuda->head_rows), 1},
        {(void **)&cuda->chosen, head, sizeof(struct choice)},
        {(void **)&cuda->top_tokens, head * width, sizeof(int)},
        {(void **)&cuda->top_values, head * width, sizeof(float)},
        {(void **)&cuda->staging.device, cuda->staging.size, 1},
        {(void **)&cuda->staging.host, cuda->staging.size, 1, true},
        {(void **)&cuda->choices, rows, sizeof(struct choice), true},
        {(void **)&cuda->draft_tokens, drafts, sizeof(int), true},
        {(void **)&cuda->draft_values, drafts, sizeof(float), true},
        {(void **)&cuda->row_logits, vocabulary, sizeof(float), true},
    };
    memcpy(buffers + count, list, sizeof list);
    return count + (int)(sizeof list / sizeof *list);
}

/* Before anything is loaded. */
static int check_memory(struct cuda *cuda, const struct buffer *buffers, int count, struct error *error)
{
    const struct backend_options *options = &cuda->options;
    size_t available = 0, total = 0, weights = weight_bytes(options, element_size(cuda->type)), caches = 0, work = 0;
    for (int i = 0; i < count; i++)
        if (!buffers[i].pinned)
            *(buffers[i].grows ? &caches : &work) += buffers[i].count * buffers[i].size;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    cuda->cache_bytes = caches;
    cuda->scratch_bytes = work + PRODUCT_WORKSPACE;
    size_t fixed = weights + cuda->scratch_bytes + RESERVE, each = caches / (size_t)options->capacity;
    if (fixed + caches <= available)
        return 0;
    size_t positions = available > fixed && each > 0 ? (available - fixed) / each : 0;
    int spare = most(options->nodes, options->drafter ? options->drafter->block_size : 1);
    return fail(error,
                "%s: weights of %zu MiB, caches of %zu MiB (%d sessions of %d tokens) and %zu MiB to work in do not "
                "fit the %zu MiB that are free on the GPU; at most %zu tokens would",
                options->target->folder, weights >> 20, caches >> 20, options->sessions, options->capacity - spare,
                (cuda->scratch_bytes + RESERVE) >> 20, available >> 20,
                positions > (size_t)spare ? positions - (size_t)spare : 0);
}

/* --- loading ---------------------------------------------------------------------------------------------------- */

static void load_layers(struct loader *loader, struct layers *layers)
{
    const struct model *model = layers->model;
    layers->weights = xcalloc((size_t)model->layer_count, sizeof *layers->weights);
    for (int i = 0; i < model->layer_count; i++) {
        const struct model_layer *from = &model->layers[i];
        struct layer_weights *to = &layers->weights[i];
        const struct tensor *const qkv[] = {from->q, from->k, from->v}, *const gate_up[] = {from->gate, from->up};
        to->input_norm = loader_vector(loader, from->input_norm);
        to->post_attention_norm = loader_vector(loader, from->post_attention_norm);
        to->q_norm = loader_vector(loader, from->q_norm);
        to->k_norm = loader_vector(loader, from->k_norm);
        to->qkv = loader_matrix(loader, qkv, 3);
        to->o = loader_matrix(loader, &from->o, 1);
        to->gate_up = loader_matrix(loader, gate_up, 2);
        to->down = loader_matrix(loader, &from->down, 1);
    }
    layers->norm = loader_vector(loader, model->norm);
}

static void load_drafter(struct cuda *cuda, struct loader *loader)
{
    const struct model *drafter = cuda->options.drafter;
    const struct tensor **context = xcalloc((size_t)drafter->layer_count * 2, sizeof *context);
    for (int i = 0; i < drafter->layer_count; i++) {
        context[2 * i] = drafter->layers[i].k;
        context[2 * i + 1] = drafter->layers[i].v;
    }
    load_layers(loader, &cuda->drafter);
    cuda->drafter.context = loader_matrix(loader, context, 2 * drafter->layer_count);
    cuda->fuse = loader_matrix(loader, &drafter->fc, 1);
    cuda->hidden_norm = loader_vector(loader, drafter->hidden_norm);
    free(context);
}

static void load_weights(struct cuda *cuda)
{
    const struct model *target = cuda->options.target;
    struct loader *loader = loader_create(cuda->type, cuda->stream);
    cuda->embedding = loader_matrix(loader, &target->embedding, 1);
    cuda->head = target->head == target->embedding ? cuda->embedding : loader_matrix(loader, &target->head, 1);
    load_layers(loader, &cuda->target);
    if (cuda->options.drafter)
        load_drafter(cuda, loader);
    cuda->weight_bytes = loader_bytes(loader);
    loader_destroy(loader);
}

/* The same angles as the CPU backend's, computed by the same functions. */
static void send_rotation(const struct cuda *cuda, const struct layers *layers)
{
    const struct model *model = layers->model;
    size_t half = (size_t)model->head_size / 2, capacity = (size_t)cuda->options.capacity;
    float *cosines = xcalloc(capacity * half, sizeof *cosines), *sines = xcalloc(capacity * half, sizeof *sines);
    for (size_t i = 0; i < half; i++) {
        float frequency = 1.0f / powf(model->rope_theta, (float)(2 * i) / (float)model->head_size);
        for (size_t position = 0; position < capacity; position++) {
            float angle = (float)position * frequency;
            cosines[position * half + i] = cosf(angle);
            sines[position * half + i] = sinf(angle);
        }
    }
    CUDA_CHECK(cudaMemcpy(layers->cosines, cosines, capacity * half * sizeof *cosines, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(layers->sines, sines, capacity * half * sizeof *sines, cudaMemcpyHostToDevice));
    free(cosines);
    free(sines);
}

static void allocate(const struct buffer *buffers, int count)
{
    for (int i = 0; i < count; i++) {
        size_t bytes = buffers[i].count * buffers[i].size;
        *buffers[i].to = buffers[i].pinned ? device_allocate_pinned(bytes) : device_allocate(bytes);
    }
}

static void create_layer_products(struct cuda *cuda, struct layers *layers)
{
    const struct model *model = layers->model;
    int hidden = model->hidden_size, inner = model->intermediate_size, heads = model->head_count * model->head_size;
    int rows = cuda->most_rows;
    layers->qkv = product_create(cuda->library, hidden, heads + 2 * kv_width(model), rows);
    layers->o = product_create(cuda->library, heads, hidden, rows);
    layers->gate_up = product_create(cuda->library, hidden, 2 * inner, rows);
    layers->down = product_create(cuda->library, inner, hidden, rows);
}

static void create_products(struct cuda *cuda)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int rows = cuda->most_rows;
    cuda->library = product_library_open(cuda->type, cuda->stream);
    cuda->head_product = product_create(cuda->library, target->hidden_size, target->vocabulary_size, cuda->head_rows);
    create_layer_products(cuda, &cuda->target);
    if (!drafter)
        return;
    int hidden = drafter->hidden_size, width = 2 * drafter->layer_count * kv_width(drafter);
    create_layer_products(cuda, &cuda->drafter);
    cuda->fuse_product = product_create(cuda->library, drafter->feature_count * hidden, hidden, rows);
    cuda->drafter.project = product_create(cuda->library, hidden, width, rows);
}

/* What is not on the GPU. */
static void create_host(struct cuda *cuda)
{
    size_t sessions = (size_t)cuda->options.sessions, vocabulary = (size_t)cuda->options.target->vocabulary_size;
    size_t block = cuda->options.drafter ? (size_t)cuda->options.drafter->block_size : 0;
    cuda->lengths = xcalloc(sessions, sizeof *cuda->lengths);
    cuda->first_rows = xcalloc(sessions, sizeof *cuda->first_rows);
    cuda->sampling = xcalloc(sessions, sizeof *cuda->sampling);
    cuda->block_tokens = xcalloc(sessions * block, sizeof *cuda->block_tokens);
    cuda->block_segments = xcalloc(sessions, sizeof *cuda->block_segments);
    cuda->scratch.indices = xcalloc(vocabulary, sizeof *cuda->scratch.indices);
    cuda->scratch.values = xcalloc(vocabulary, sizeof *cuda->scratch.values);
}

/* The most rows of a batch, and of those the rows whose logits may exist together. */
static void set_rows(struct cuda *cuda)
{
    const struct backend_options *options = &cuda->options;
    int together = options->sessions * most(options->nodes, options->drafter ? options->drafter->block_size : 1);
    cuda->most_rows = most(together, least(CUDA_PROMPT_CHUNK, options->capacity));
    cuda->head_rows = least(cuda->most_rows, most(64, HEAD_LOGITS / options->target->vocabulary_size));
}

struct backend *cuda_open(const struct backend_options *options, struct error *error)
{
    struct buffer buffers[BUFFERS_MAXIMUM];
    if (device_find(error) != DEVICE_USABLE || check_options(options, error))
        return NULL;
    struct cuda *cuda = xcalloc(1, sizeof *cuda);
    cuda->base.class = &backend_cuda;
    cuda->options = *options;
    cuda->type = options->dtype == ENGINE_BFLOAT16 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32;
    cuda->target.model = options->target;
    cuda->drafter.model = options->drafter;
    set_rows(cuda);
    int count = list_buffers(cuda, buffers);
    if (check_memory(cuda, buffers, count, error)) {
        free(cuda);
        return NULL;
    }
    CUDA_CHECK(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    allocate(buffers, count);
    create_products(cuda);
    create_host(cuda);
    load_weights(cuda);
    send_rotation(cuda, &cuda->target);
    if (options->drafter)
        send_rotation(cuda, &cuda->drafter);
    CUDA_CHECK(cudaDeviceSynchronize());
    return &cuda->base;
}

static void unload_layers(struct layers *layers)
{
    for (int i = 0; layers->model && i < layers->model->layer_count; i++) {
        struct layer_weights *weights = &layers->weights[i];
        void *memory[] = {weights->input_norm, weights->post_attention_norm,
                          weights->q_norm,     weights->k_norm,
                          weights->qkv,        weights->o,
                          weights->gate_up,    weights->down};
        for (size_t j = 0; j < sizeof memory / sizeof *memory; j++)
            CUDA_CHECK(cudaFree(memory[j]));
    }
    struct product *products[] = {layers->qkv, layers->o, layers->gate_up, layers->down, layers->project};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        product_destroy(products[i]);
    CUDA_CHECK(cudaFree(layers->norm));
    CUDA_CHECK(cudaFree(layers->context));
    free(layers->weights);
}

void cuda_close(struct backend *backend)
{
    struct cuda *cuda = (struct cuda *)backend;
    struct buffer buffers[BUFFERS_MAXIMUM];
    int count = list_buffers(cuda, buffers);
    for (int i = 0; i < count; i++)
        CUDA_CHECK(buffers[i].pinned ? cudaFreeHost(*buffers[i].to) : cudaFree(*buffers[i].to));
    product_destroy(cuda->head_product);
    product_destroy(cuda->fuse_product);
    unload_layers(&cuda->target);
    unload_layers(&cuda->drafter);
    product_library_close(cuda->library);
    void *memory[] = {cuda->embedding, cuda->head == cuda->embedding ? NULL : cuda->head, cuda->fuse,
                      cuda->hidden_norm};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        CUDA_CHECK(cudaFree(memory[i]));
    CUDA_CHECK(cudaStreamDestroy(cuda->stream));
    void *host[] = {cuda->lengths,        cuda->first_rows,      cuda->sampling,      cuda->block_tokens,
                    cuda->block_segments, cuda->scratch.indices, cuda->scratch.values};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    free(cuda);
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
