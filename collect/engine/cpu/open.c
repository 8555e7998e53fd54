#include "collect/engine/cpu/cpu.h"

#include "collect/base/json.h"
#include "collect/engine/model_memory.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES_MAXIMUM 64
#define HEAD_LOGITS (4 << 20) /* how many exist at a time, or a prompt chunk's */

/* --- what fits
 * ----------------------------------------------------------------------------------------------------------------------
 */

/* Before anything is loaded: the weights (twice where one row has its own layout) and what sessions hold. */
static int check_memory(const struct backend_options *options, enum product_type type, struct error *error)
{
    int size = (int)product_type_size(type);
    int64_t available = memory_available(), nodes = options->nodes > 1 ? options->nodes : 0;
    const struct model_memory target = model_memory(options->target, size, options->ranks),
                              drafter = model_memory(options->drafter, size, options->ranks);
    int64_t weights = target.weights * (options->drafter ? 1 : 2) + drafter.weights;
    int64_t each = model_memory_of_session(&target, options->capacity, nodes) +
                   model_memory_of_session(&drafter, options->capacity, 0);
    if (available < 0 || weights + each * options->sessions < available)
        return 0;
    int64_t room = available > weights ? available - weights : 0, position = target.position + drafter.position;
    int64_t fixed = each - position * options->capacity, spare = room / options->sessions - fixed;
    return fail(error,
                "%s: weights of %lld MiB and %d sessions of %lld MiB (%d tokens; %lld MiB of recurrent state and "
                "nodes) do not fit the %lld MiB that are free; at most %lld sessions would, or these with at most "
                "%lld tokens",
                options->target->folder, (long long)weights >> 20, options->sessions, (long long)each >> 20,
                options->capacity, (long long)fixed >> 20, (long long)available >> 20, (long long)(room / each),
                (long long)(spare > 0 && position > 0 ? spare / position : 0));
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
        .verified_rows = cpu->options.nodes > 1 ? cpu->options.sessions * cpu->options.nodes : 0,
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
    const struct model_memory target = model_memory(cpu->options.target, (int)product_type_size(cpu->type),
                                                    cpu->options.ranks),
                              drafter = model_memory(cpu->options.drafter, (int)product_type_size(cpu->type),
                                                     cpu->options.ranks);
    size_t weights = 0;
    for (int i = 0; i < cpu->options.ranks; i++) {
        const struct cpu_rank *rank = &cpu->ranks[i];
        weights += stack_weight_bytes(rank->target) + linear_bytes(rank->head);
        if (rank->drafter)
            weights += stack_weight_bytes(rank->drafter) + linear_bytes(rank->fuse);
    }
    json_t *memory = json_object();
    json_set(memory, "weights_bytes", json_integer((json_int_t)weights));
    json_set(memory, "cache_bytes",
             json_integer((target.position + drafter.position) * cpu->options.capacity * cpu->options.sessions));
    json_set(memory, "capacity_tokens", json_integer(cpu->options.capacity));
    if (target.state) {
        json_set(memory, "state_bytes", json_integer((target.state + target.window) * cpu->options.sessions));
        json_set(memory, "node_bytes", json_integer(target.node));
    }
    return memory;
}

json_t *cpu_describe_device(const char *device, enum engine_dtype dtype)
{
    (void)device;
    json_t *description = json_object();
    json_set(description, "device", json_string("cpu"));
    json_set(description, "threads", json_integer(omp_get_max_threads()));
    json_set(description, "compute_dtype",
             json_string(cpu_product_type(dtype) == PRODUCT_BFLOAT16 ? "bfloat16" : "float32"));
    return description;
}
