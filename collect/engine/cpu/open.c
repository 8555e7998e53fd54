#include "collect/engine/cpu/cpu.h"

#include "collect/base/json.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES_MAXIMUM 64
#define HEAD_LOGITS (4 << 20) /* how many exist at a time, or a prompt chunk's */

/* --- what fits
 * ----------------------------------------------------------------------------------------------------------------------
 */

/* Bytes that the machine can give without swapping, or -1 where the kernel does not say. */
static long long available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    long long kilobytes = -1;
    while (file && fgets(line, sizeof line, file) && kilobytes < 0)
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) != 1)
            kilobytes = -1;
    if (file)
        fclose(file);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

static long long cache_bytes(const struct model *model, const struct backend_options *options, enum product_type type)
{
    long long kv_heads = model->kv_head_count > options->ranks ? model->kv_head_count : options->ranks;
    return 2LL * model->layer_count * options->sessions * kv_heads * options->capacity * model->head_size *
           (long long)product_type_size(type);
}

/* Before anything is loaded: the weights (twice where one row has its own layout) and the caches. */
static int check_memory(const struct backend_options *options, enum product_type type, struct error *error)
{
    long long size = (long long)product_type_size(type), available = available_bytes();
    long long weights = model_parameter_count(options->target) * size * (options->drafter ? 1 : 2);
    long long caches = cache_bytes(options->target, options, type);
    if (options->drafter) {
        weights += model_parameter_count(options->drafter) * size;
        caches += cache_bytes(options->drafter, options, type);
    }
    if (available < 0 || weights + caches < available)
        return 0;
    long long room = available - weights, each = caches / options->capacity / options->sessions;
    return fail(error,
                "%s: weights of %lld MiB and caches of %lld MiB (%d sessions of %d tokens) do not fit the %lld MiB "
                "that are free; "
                "at most %lld tokens would",
                options->target->folder, weights >> 20, caches >> 20, options->sessions, options->capacity,
                available >> 20, room > 0 && each > 0 ? room / each : 0);
}

/* --- shapes
 * -------------------------------------------------------------------------------------------------------------------------
 */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int sort_unique(int *shapes, int count)
{
    qsort(shapes, (size_t)count, sizeof *shapes, by_number);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (kept == 0 || shapes[i] != shapes[kept - 1])
            shapes[kept++] = shapes[i];
    return kept;
}

/* The numbers of rows that a segment may have: a piece of a prompt, and one token or a block and a tree. */
static int segment_shapes(const struct backend_options *options, int *shapes)
{
    int count = 0;
    const int prompt[] = {16, 32, CPU_PROMPT_CHUNK};
    for (size_t i = 0; i < sizeof prompt / sizeof *prompt; i++)
        shapes[count++] = prompt[i];
    if (options->drafter) {
        shapes[count++] = options->nodes;
        shapes[count++] = options->drafter->block_size;
    } else {
        shapes[count++] = 1;
    }
    return sort_unique(shapes, count);
}

/* The numbers of rows of a batch: a segment's, and what one, two, four, ... sessions bring together. */
static int batch_shapes(const struct backend_options *options, int *shapes)
{
    int count = segment_shapes(options, shapes);
    for (int sessions = 2; sessions < 2 * options->sessions && count < SHAPES_MAXIMUM - 1; sessions *= 2) {
        int together = sessions < options->sessions ? sessions : options->sessions;
        shapes[count++] = together * (options->drafter ? options->nodes : 1);
        if (options->drafter)
            shapes[count++] = together * options->drafter->block_size;
    }
    return sort_unique(shapes, count);
}

/* --- loading
 * ------------------------------------------------------------------------------------------------------------------------
 */

static struct stack *create_stack(const struct cpu *cpu, const struct model *model, int rank)
{
    int segments[SHAPES_MAXIMUM], batches[SHAPES_MAXIMUM];
    const struct stack_options options = {
        .model = model,
        .team = cpu->team,
        .rank = rank,
        .type = cpu->type,
        .sessions = cpu->options.sessions,
        .capacity = cpu->options.capacity,
        .row_shapes = batches,
        .row_shape_count = batch_shapes(&cpu->options, batches),
        .segment_shapes = segments,
        .segment_shape_count = segment_shapes(&cpu->options, segments),
        .with_context = model == cpu->options.drafter,
    };
    return stack_create(&options);
}

/* Of the shapes, those whose logits may exist at once. */
static int head_shapes(const struct backend_options *options, int *shapes)
{
    int count = batch_shapes(options, shapes), within = 1, room = HEAD_LOGITS / options->target->vocabulary_size;
    while (within < count && shapes[within] <= (room > CPU_PROMPT_CHUNK ? room : CPU_PROMPT_CHUNK))
        within++;
    return within;
}

static void load_rank(void *context, int index)
{
    struct cpu *cpu = context;
    struct cpu_rank *rank = &cpu->ranks[index];
    const struct model *target = cpu->options.target, *drafter = cpu->options.drafter;
    int shapes[SHAPES_MAXIMUM], count = head_shapes(&cpu->options, shapes), hidden = target->hidden_size;
    int vocabulary = target->vocabulary_size / cpu->options.ranks, slice = hidden / cpu->options.ranks;
    size_t rows = (size_t)cpu->most_rows;
    const struct linear_part head = {target->head, index * vocabulary, vocabulary, 0};
    rank->target = create_stack(cpu, target, index);
    rank->head = linear_create(cpu->type, &head, 1, hidden, shapes, count);
    rank->x = xaligned(rows * (size_t)hidden, sizeof(float));
    rank->normed = xaligned((rows + (size_t)cpu->head_rows) * (size_t)hidden, product_type_size(cpu->type));
    if (cpu->options.ranks > 1)
        rank->slice = xaligned((size_t)cpu->head_rows * (size_t)vocabulary + rows * (size_t)slice, sizeof(float));
    if (!drafter)
        return;
    const struct linear_part fuse = {drafter->fc, index * slice, slice, 0};
    count = segment_shapes(&cpu->options, shapes);
    rank->drafter = create_stack(cpu, drafter, index);
    rank->fuse = linear_create(cpu->type, &fuse, 1, drafter->feature_count * hidden, shapes, count);
}

static void create_shared(struct cpu *cpu)
{
    const struct model *target = cpu->options.target, *drafter = cpu->options.drafter;
    size_t rows = (size_t)cpu->most_rows, hidden = (size_t)target->hidden_size, size = product_type_size(cpu->type);
    size_t sessions = (size_t)cpu->options.sessions;
    cpu->lengths = xcalloc(sessions, sizeof *cpu->lengths);
    cpu->sampling = xcalloc(sessions, sizeof *cpu->sampling);
    cpu->segments = xcalloc(sessions, sizeof *cpu->segments);
    cpu->tokens = xcalloc(rows, sizeof *cpu->tokens);
    cpu->positions = xcalloc(rows, sizeof *cpu->positions);
    cpu->row_sessions = xcalloc(rows, sizeof *cpu->row_sessions);
    cpu->visible = xcalloc(rows * (size_t)cpu->words, sizeof *cpu->visible);
    cpu->logits = xaligned((size_t)cpu->head_rows * (size_t)target->vocabulary_size, sizeof(float));
    cpu->thread_count = omp_get_max_threads();
    cpu->scratch = xcalloc((size_t)cpu->thread_count, sizeof *cpu->scratch);
    for (int i = 0; i < cpu->thread_count; i++) {
        cpu->scratch[i].indices = xcalloc((size_t)target->vocabulary_size, sizeof(int));
        cpu->scratch[i].values = xcalloc((size_t)target->vocabulary_size, sizeof(float));
    }
    if (!drafter)
        return;
    size_t features = (size_t)drafter->feature_count * hidden;
    cpu->features = xaligned(rows * features, size);
    cpu->kept_features = xaligned(rows * features, size);
    cpu->fused = xaligned(rows * hidden, sizeof(float));
    cpu->context = xaligned(rows * hidden, size);
    cpu->hidden_norm = xaligned(hidden, sizeof(float));
    tensor_to_float(drafter->hidden_norm, 0, drafter->hidden_size, cpu->hidden_norm);
}

enum product_type cpu_product_type(enum engine_dtype dtype)
{
    return dtype == ENGINE_BFLOAT16 && product_has_bfloat16() ? PRODUCT_BFLOAT16 : PRODUCT_FLOAT32;
}

struct backend *cpu_open(const struct backend_options *options, struct error *error)
{
    enum product_type type = cpu_product_type(options->dtype);
    if (model_check_ranks(options->target, options->ranks, error) ||
        (options->drafter && model_check_ranks(options->drafter, options->ranks, error)) ||
        check_memory(options, type, error))
        return NULL;
    struct cpu *cpu = xcalloc(1, sizeof *cpu);
    int shapes[SHAPES_MAXIMUM], count;
    cpu->base.class = &backend_cpu;
    cpu->options = *options;
    cpu->type = type;
    count = segment_shapes(options, shapes);
    cpu->words = (shapes[count - 1] + 63) / 64;
    count = batch_shapes(options, shapes);
    cpu->most_rows = shapes[count - 1];
    count = head_shapes(options, shapes);
    cpu->head_rows = shapes[count - 1];
    cpu->team = team_create(options->ranks);
    cpu->ranks = xcalloc((size_t)options->ranks, sizeof *cpu->ranks);
    create_shared(cpu);
    team_run(cpu->team, load_rank, cpu);
    tensor_hold(options->target->embedding); /* rows of it are looked up from now on */
    return &cpu->base;
}

static void unload_rank(struct cpu_rank *rank)
{
    stack_destroy(rank->target);
    stack_destroy(rank->drafter);
    linear_destroy(rank->head);
    linear_destroy(rank->fuse);
    free(rank->x);
    free(rank->normed);
    free(rank->slice);
}

void cpu_close(struct backend *backend)
{
    struct cpu *cpu = (struct cpu *)backend;
    for (int i = 0; i < cpu->options.ranks; i++)
        unload_rank(&cpu->ranks[i]);
    team_destroy(cpu->team);
    for (int i = 0; i < cpu->thread_count; i++) {
        free(cpu->scratch[i].indices);
        free(cpu->scratch[i].values);
    }
    void *buffers[] = {cpu->ranks,   cpu->hidden_norm, cpu->lengths, cpu->sampling,      cpu->segments,
                       cpu->tokens,  cpu->positions,   cpu->visible, cpu->row_sessions,  cpu->logits,
                       cpu->scratch, cpu->features,    cpu->fused,   cpu->kept_features, cpu->context};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(cpu);
}

json_t *cpu_describe(const struct backend *backend)
{
    const struct cpu *cpu = (const struct cpu *)backend;
    size_t weights = 0, caches = 0;
    for (int i = 0; i < cpu->options.ranks; i++) {
        const struct cpu_rank *rank = &cpu->ranks[i];
        weights += stack_weight_bytes(rank->target) + linear_bytes(rank->head);
        caches += stack_cache_bytes(rank->target);
        if (rank->drafter) {
            weights += stack_weight_bytes(rank->drafter) + linear_bytes(rank->fuse);
            caches += stack_cache_bytes(rank->drafter);
        }
    }
    json_t *memory = json_object();
    json_set(memory, "weights_bytes", json_integer((json_int_t)weights));
    json_set(memory, "cache_bytes", json_integer((json_int_t)caches));
    json_set(memory, "capacity_tokens", json_integer(cpu->options.capacity));
    return memory;
}

json_t *cpu_describe_device(enum engine_dtype dtype)
{
    json_t *device = json_object();
    json_set(device, "device", json_string("cpu"));
    json_set(device, "threads", json_integer(omp_get_max_threads()));
    json_set(device, "compute_dtype",
             json_string(cpu_product_type(dtype) == PRODUCT_BFLOAT16 ? "bfloat16" : "float32"));
    return device;
}
