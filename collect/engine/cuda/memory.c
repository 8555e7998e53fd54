/* What the backend takes of the GPUs and of the host, planned before it is taken. */
#include "collect/engine/cuda/cuda.h"
#include "collect/engine/cuda/skinny_ways.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_LOGITS (32 << 20)      /* how many exist at a time, unless 64 rows have more */
#define RESERVE ((size_t)512 << 20) /* bytes of each GPU for CUDA's own code, queues and graphs */
#define BUFFERS_MAXIMUM 40

/* CACHE: grows with the capacity, for every session; ANGLES: for all of them. STATE, NODES: of recurrent layers, for
 * every session, and for its nodes. */
enum buffer_kind { BUFFER_WORK, BUFFER_CACHE, BUFFER_ANGLES, BUFFER_STATE, BUFFER_NODES, BUFFER_PINNED, BUFFER_KINDS };

/* A piece of the GPU's memory, or (pinned) of the host's, with zero bytes where the options do not need it. */
struct buffer {
    void **to;
    size_t count, size;
    enum buffer_kind kind;
};

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- what there is ---------------------------------------------------------------------------------------------- */

static int add_caches(const struct cuda *cuda, struct layers *layers, struct buffer *buffers)
{
    const struct model *model = layers->model;
    size_t cache = (size_t)layers_attending(layers) * (size_t)cuda->options.sessions * (size_t)layers->kv_heads *
                   (size_t)cuda->options.capacity * (size_t)model->head_size;
    buffers[0] = (struct buffer){&layers->keys, cache, element_size(cuda->type), BUFFER_CACHE};
    buffers[1] = (struct buffer){&layers->values, cache, element_size(cuda->type), BUFFER_CACHE};
    return 2;
}

static int add_recurrence(const struct cuda *cuda, struct recurrence *own, struct buffer *buffers)
{
    if (!own->layer_count)
        return 0;
    size_t sessions = (size_t)own->layer_count * (size_t)cuda->options.sessions, size = element_size(cuda->type);
    size_t nodes = (size_t)recurrent_kept_rows(cuda), kept = (size_t)own->layer_count * nodes;
    size_t channels = (size_t)recurrent_channels(&own->sizes), heads = (size_t)own->sizes.value_heads;
    size_t rows = (size_t)cuda->most_rows, before = (size_t)own->sizes.kernel_size - 1;
    const struct buffer list[] = {
        {(void **)&own->states, sessions * recurrent_state_elements(&own->sizes), sizeof(float), BUFFER_STATE},
        {&own->windows, sessions * before * channels, size, BUFFER_STATE},
        {&own->inputs, kept * channels, size, BUFFER_NODES},
        {(void **)&own->decays, kept * heads, sizeof(float), BUFFER_NODES},
        {(void **)&own->betas, kept * heads, sizeof(float), BUFFER_NODES},
        {&own->passing_inputs, before * channels, size, BUFFER_WORK},
        {(void **)&own->passing_decays, rows * heads, sizeof(float), BUFFER_WORK},
        {(void **)&own->passing_betas, rows * heads, sizeof(float), BUFFER_WORK},
        {(void **)&own->mixed, rows * channels, sizeof(float), BUFFER_WORK},
        {(void **)&own->deltas, nodes * (size_t)recurrent_values(&own->sizes), sizeof(float), BUFFER_WORK},
    };
    memcpy(buffers, list, sizeof list);
    return (int)(sizeof list / sizeof *list);
}

static size_t partials(const struct cuda *cuda, const struct layers *layers)
{
    return layers->model ? kernels_attention_partials(cuda->most_rows, layers->heads, layers->model->head_size) : 0;
}

/* The widest of a rank's rows that a product of these layers answers. */
static int widest(const struct layers *layers, bool drafter)
{
    const struct model *model = layers->model;
    int kv = layers->kv_heads * model->head_size;
    int width = most(most(layers_qkv_width(layers), recurrent_in_width(&layers->recurrence.sizes)), 2 * layers->inner);
    return most(width, drafter ? 2 * model->layer_count * kv : 0);
}

static int list_rank(struct cuda *cuda, struct rank *rank, struct buffer *buffers)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int count = add_caches(cuda, &rank->target, buffers);
    count += add_recurrence(cuda, &rank->target.recurrence, buffers + count);
    int fused = widest(&rank->target, false), heads = rank->target.heads * target->head_size,
        inner = rank->target.inner;
    if (drafter) {
        count += add_caches(cuda, &rank->drafter, buffers + count);
        fused = most(fused, widest(&rank->drafter, true));
        heads = most(heads, rank->drafter.heads * drafter->head_size);
        inner = most(inner, rank->drafter.inner);
    }
    size_t rows = (size_t)cuda->most_rows, head = (size_t)cuda->head_rows, size = element_size(cuda->type);
    size_t slice = (size_t)(target->vocabulary_size / cuda->options.ranks);
    size_t slots = drafter ? (size_t)(cuda->options.sessions * drafter->block_size) : 0;
    size_t nodes = (size_t)(cuda->options.sessions * cuda->options.nodes);
    int draft_width = drafter ? cuda->options.draft_width : 0, top_width = most(draft_width, cuda->top_width);
    size_t drafted = slots * (size_t)draft_width, limited = nodes * (size_t)cuda->top_width;
    size_t tops = drafted > limited ? drafted : limited;
    size_t sums = rows * (size_t)target->hidden_size;
    size_t own = partials(cuda, &rank->target), other = partials(cuda, &rank->drafter);
    const struct buffer list[] = {
        {(void **)&rank->fused, rows * (size_t)fused, sizeof(float)},
        {&rank->queries, rows * (size_t)heads, size},
        {&rank->attended, rows * (size_t)most(heads, recurrent_values(&rank->target.recurrence.sizes)), size},
        {&rank->gated, rows * (size_t)inner, size},
        {(void **)&rank->partial, own > other ? own : other, sizeof(float)},
        {(void **)&rank->sums[0], sums, sizeof(float)},
        {(void **)&rank->sums[1], sums, sizeof(float)},
        {(void **)&rank->sums[2], drafter ? sums : 0, sizeof(float)},
        {(void **)&rank->logits, head * slice, sizeof(float)},
        {&rank->choose_partial, kernels_choose_partials(cuda->head_rows), 1},
        {(void **)&rank->leaders, rows, sizeof *rank->leaders},
        {&rank->top_partial, top_width ? kernels_top_partials(cuda->head_rows, top_width) : 0, 1},
        {(void **)&rank->top_tokens, tops, sizeof *rank->top_tokens, BUFFER_PINNED},
        {(void **)&rank->top_logits, tops, sizeof *rank->top_logits, BUFFER_PINNED},
        {(void **)&rank->top_sums, slots > nodes ? slots : nodes, sizeof *rank->top_sums, BUFFER_PINNED},
    };
    memcpy(buffers + count, list, sizeof list);
    return count + (int)(sizeof list / sizeof *list);
}

static int list_gpu(struct cuda *cuda, struct gpu *gpu, struct buffer *buffers)
{
    const struct model *models[] = {cuda->options.target, cuda->options.drafter};
    size_t rows = (size_t)cuda->most_rows, head = (size_t)cuda->head_rows, hidden = (size_t)models[0]->hidden_size;
    size_t size = element_size(cuda->type);
    size_t features = models[1] ? rows * (size_t)models[1]->feature_count * hidden : 0;
    size_t mailbox = cuda->gpu_count > 1 ? 2 * (size_t)cuda->gpu_count * peers_mailbox_words(cuda) : 0;
    int count = 0;
    for (int i = 0; i < 2 && models[i]; i++) {
        size_t angles = (size_t)cuda->options.capacity * (size_t)models[i]->rotary_size / 2;
        buffers[count++] = (struct buffer){(void **)&gpu->cosines[i], angles, sizeof(float), BUFFER_ANGLES};
        buffers[count++] = (struct buffer){(void **)&gpu->sines[i], angles, sizeof(float), BUFFER_ANGLES};
    }
    for (enum call call = 0; call < CALL_COUNT; call++)
        buffers[count++] = (struct buffer){(void **)&gpu->staging[call], cuda->staging[call].size, 1};
    const struct buffer list[] = {
        {(void **)&gpu->mailbox, mailbox, sizeof *gpu->mailbox},
        {(void **)&gpu->meeting.side, 1, sizeof(unsigned)},
        {(void **)&gpu->meeting.arrived, 1, sizeof(unsigned)},
        {(void **)&gpu->steps, 1, sizeof(unsigned)},
        {(void **)&gpu->x, rows * hidden, sizeof(float)},
        {&gpu->input, rows * hidden, size},
        {&gpu->normed, (rows + head) * hidden, size}, /* the head begins at any row */
        {(void **)&gpu->squares, PRODUCT_OWN_ROWS * (hidden / SKINNY_TILE_MINIMUM + 1), sizeof(float)},
        {&gpu->features, features, size},
        {&gpu->kept_features, features, size},
    };
    memcpy(buffers + count, list, sizeof list);
    return count + (int)(sizeof list / sizeof *list);
}

static int list_host(struct cuda *cuda, struct buffer *buffers)
{
    size_t rows = (size_t)cuda->most_rows, sessions = (size_t)cuda->options.sessions;
    int count = 0;
    for (enum call call = 0; call < CALL_COUNT; call++)
        buffers[count++] =
            (struct buffer){(void **)&cuda->staging[call].host, cuda->staging[call].size, 1, BUFFER_PINNED};
    const struct buffer list[] = {
        {(void **)&cuda->lost, 1, sizeof *cuda->lost, BUFFER_PINNED},
        {(void **)&cuda->choices, rows, sizeof(struct choice), BUFFER_PINNED},
        {(void **)&cuda->ahead.ring, CUDA_AHEAD * sessions, sizeof(struct choice), BUFFER_PINNED},
        {(void **)&cuda->row_logits, (size_t)cuda->options.target->vocabulary_size, sizeof(float), BUFFER_PINNED},
    };
    memcpy(buffers + count, list, sizeof list);
    return count + (int)(sizeof list / sizeof *list);
}

/* --- how much --------------------------------------------------------------------------------------------------- */

/* The rows of the calls, and what each brings along. */
static void set_sizes(struct cuda *cuda)
{
    const struct backend_options *options = &cuda->options;
    const struct model *target = options->target, *drafter = options->drafter;
    int block = drafter ? drafter->block_size : 1, prompt = least(CUDA_PROMPT_CHUNK, options->capacity);
    int group = target->head_count / target->kv_head_count, sessions = options->sessions;
    bool recurrent = target->recurrent_count > 0;
    cuda->block = block;
    cuda->path_rows = least(block, options->nodes);
    cuda->top_width = least(options->candidates, TOP_WIDTH_MAXIMUM);
    cuda->most_rows = most(sessions * most(options->nodes, block), prompt);
    cuda->most_rows = most(cuda->most_rows, PRODUCT_ROWS_STEP); /* products round up */
    cuda->most_rows = (cuda->most_rows + PRODUCT_ROWS_STEP - 1) / PRODUCT_ROWS_STEP * PRODUCT_ROWS_STEP;
    cuda->head_rows = least(cuda->most_rows, most(64, HEAD_LOGITS / target->vocabulary_size));
    if (drafter)
        group = most(group, drafter->head_count / drafter->kv_head_count);
    cuda->staging[CALL_PROMPT].size = batch_bytes(prompt, sessions, prompt, group, false);
    cuda->staging[CALL_STEP].size = batch_bytes(sessions, sessions, 1, group, false);
    cuda->staging[CALL_DRAFT].size = batch_bytes(sessions * block, sessions, block, group, false);
    cuda->staging[CALL_VERIFY].size =
        batch_bytes(sessions * options->nodes, sessions, options->nodes, group, recurrent);
    cuda->staging[CALL_COMMIT].size = batch_keep_bytes(sessions, sessions * most(options->nodes, block));
}

/* Bytes of the weights on one GPU. */
static size_t weight_bytes(const struct cuda *cuda)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    size_t embedding = (size_t)target->vocabulary_size * (size_t)target->hidden_size;
    size_t parameters = (size_t)model_parameter_count(target) - embedding;
    if (drafter)
        parameters +=
            (size_t)model_parameter_count(drafter) + 2 * (size_t)drafter->layer_count * (size_t)drafter->kv_head_count *
                                                         (size_t)drafter->head_size * (size_t)drafter->hidden_size;
    return (embedding + parameters / (size_t)cuda->gpu_count) * element_size(cuda->type);
}

/* What the GPU's memory is taken for, in bytes. */
struct plan {
    size_t weights, kinds[BUFFER_KINDS], work, available;
};

static int refuse(const struct cuda *cuda, const struct plan *plan, struct error *error)
{
    const struct backend_options *options = &cuda->options;
    size_t sessions = (size_t)options->sessions, angles = plan->kinds[BUFFER_ANGLES];
    size_t caches = plan->kinds[BUFFER_CACHE] + angles;
    size_t recurrent = plan->kinds[BUFFER_STATE] + plan->kinds[BUFFER_NODES], fixed = plan->weights + plan->work;
    size_t room = plan->available > fixed ? plan->available - fixed : 0;
    size_t session = (caches - angles + recurrent) / sessions;
    size_t position = caches / (size_t)options->capacity;
    size_t positions = room > recurrent && position ? (room - recurrent) / position : 0;
    size_t spare = (size_t)most(options->nodes, options->drafter ? options->drafter->block_size : 1);
    char *states = recurrent ? xformat(", %zu MiB of recurrent states and what nodes keep for them", recurrent >> 20)
                             : xstrdup("");
    fail(error,
         "%s: weights of %zu MiB, caches of %zu MiB (%zu sessions of %zu tokens)%s and %zu MiB to work in do not fit "
         "the "
         "%zu MiB that are free on the GPU; %zu sessions of at most %zu tokens would, or %zu sessions",
         options->target->folder, plan->weights >> 20, caches >> 20, sessions, (size_t)options->capacity - spare,
         states, plan->work >> 20, plan->available >> 20, sessions, positions > spare ? positions - spare : 0,
         session && room > angles ? (room - angles) / session : 0);
    free(states);
    return -1;
}

static int check_memory(struct cuda *cuda, const struct buffer *buffers, int count, struct error *error)
{
    struct plan plan = {.weights = weight_bytes(cuda)};
    size_t total = 0, all;
    for (int i = 0; i < count; i++)
        plan.kinds[buffers[i].kind] += buffers[i].count * buffers[i].size;
    CUDA_CHECK(cudaMemGetInfo(&plan.available, &total));
    plan.work = plan.kinds[BUFFER_WORK] + PRODUCT_WORKSPACE;
    cuda->cache_bytes += plan.kinds[BUFFER_CACHE] + plan.kinds[BUFFER_ANGLES];
    cuda->state_bytes += plan.kinds[BUFFER_STATE];
    cuda->scratch_bytes += plan.work + plan.kinds[BUFFER_NODES];
    plan.work += RESERVE;
    all = plan.weights + plan.work + plan.kinds[BUFFER_CACHE] + plan.kinds[BUFFER_ANGLES] + plan.kinds[BUFFER_STATE] +
          plan.kinds[BUFFER_NODES];
    return all <= plan.available ? 0 : refuse(cuda, &plan, error);
}

static int take(struct cuda *cuda, struct gpu *gpu, struct error *error)
{
    struct buffer buffers[BUFFERS_MAXIMUM * (RANKS_MAXIMUM + 1)];
    cuda_select(gpu); /* whose multiprocessors attention's parts are for */
    int count = list_gpu(cuda, gpu, buffers);
    FOR_RANKS(gpu, rank)
        count += list_rank(cuda, rank, buffers + count);
    if (check_memory(cuda, buffers, count, error))
        return -1;
    for (int i = 0; i < count; i++) {
        size_t bytes = buffers[i].count * buffers[i].size;
        *buffers[i].to = buffers[i].kind == BUFFER_PINNED ? device_allocate_pinned(bytes) : device_allocate(bytes);
    }
    return 0;
}

int memory_take(struct cuda *cuda, struct error *error)
{
    struct buffer buffers[BUFFERS_MAXIMUM];
    set_sizes(cuda);
    for (int i = 0; i < cuda->gpu_count; i++)
        if (take(cuda, &cuda->gpus[i], error))
            return -1;
    int count = list_host(cuda, buffers);
    for (int i = 0; i < count; i++)
        *buffers[i].to = device_allocate_pinned(buffers[i].count * buffers[i].size);
    return 0;
}

static void give_back(const struct buffer *buffers, int count)
{
    for (int i = 0; i < count; i++)
        if (*buffers[i].to)
            CUDA_CHECK(buffers[i].kind == BUFFER_PINNED ? cudaFreeHost(*buffers[i].to) : cudaFree(*buffers[i].to));
}

void memory_give_back(struct cuda *cuda)
{
    struct buffer buffers[BUFFERS_MAXIMUM * (RANKS_MAXIMUM + 1)];
    FOR_GPUS(cuda, gpu) {
        int count = list_gpu(cuda, gpu, buffers);
        FOR_RANKS(gpu, rank)
            count += list_rank(cuda, rank, buffers + count);
        give_back(buffers, count);
    }
    give_back(buffers, list_host(cuda, buffers));
}
