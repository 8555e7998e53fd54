/* The CPU backend: the reference, and the default where there is no GPU. */
#include "collect/engine/backend.h"
#include "collect/engine/cpu/kernels.h"
#include "collect/engine/cpu/stack.h"

#include "collect/base/json.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_CHUNK 64       /* rows of a prompt that run together */
#define HEAD_LOGITS (4 << 20) /* how many exist at a time, or a prompt chunk's */
#define SHAPES_MAXIMUM 16

struct cpu {
    struct backend base;
    struct backend_options options;
    enum product_type type;
    struct stack *target, *drafter;
    struct linear *head;            /* [vocabulary_size, hidden_size] */
    struct linear *fuse;            /* the drafter's fc */
    float *hidden_norm;             /* [hidden_size] */
    int *lengths;                   /* [session]: committed positions */
    int most_rows, words;           /* of a batch; of a row's visible set */
    int head_rows;                  /* rows whose logits exist at a time */
    int logit_rows;                 /* of the last call: rows of `normed` that inspect may ask for */
    float *x;                       /* [rows, hidden_size]: the residual stream */
    char *normed;                   /* [rows, hidden_size] in the type: what the head reads */
    float *logits;                  /* [head_rows, vocabulary_size] */
    char *features;                 /* [rows, feature_count * hidden_size] in the type */
    char *kept_features;            /* the same for one path */
    float *fused;                   /* [rows, hidden_size]: fc of features */
    char *context;                  /* [rows, hidden_size] in the type */
    int *positions;                 /* [rows] */
    uint64_t *visible;              /* [rows, words] */
    struct stack_segment *segments; /* [session] */
};

/* --- opening
 * --------------------------------------------------------------------------------------------------------------------
 */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int add_sorted_unique(int *shapes, int count)
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
    const int prompt[] = {16, 32, PROMPT_CHUNK};
    for (size_t i = 0; i < sizeof prompt / sizeof *prompt; i++)
        shapes[count++] = prompt[i];
    if (options->drafter) {
        shapes[count++] = options->nodes;
        shapes[count++] = options->drafter->block_size;
    } else {
        shapes[count++] = 1;
    }
    return add_sorted_unique(shapes, count);
}

static struct stack *create_stack(const struct cpu *cpu, const struct model *model, const int *shapes, int count)
{
    int rows[SHAPES_MAXIMUM * 2], row_count = 0;
    for (int i = 0; i < count; i++)
        rows[row_count++] = shapes[i];
    for (int i = 0; i < count && cpu->options.sessions > 1; i++)
        rows[row_count++] = shapes[i] * cpu->options.sessions;
    const struct stack_options options = {
        .model = model,
        .type = cpu->type,
        .sessions = cpu->options.sessions,
        .capacity = cpu->options.capacity,
        .row_shapes = rows,
        .row_shape_count = add_sorted_unique(rows, row_count),
        .segment_shapes = shapes,
        .segment_shape_count = count,
        .with_context = model == cpu->options.drafter,
    };
    return stack_create(&options);
}

static void create_heads(struct cpu *cpu, const int *shapes, int count)
{
    const struct model *target = cpu->options.target, *drafter = cpu->options.drafter;
    int within = 1, room = HEAD_LOGITS / target->vocabulary_size;
    while (within < count && shapes[within] <= (room > PROMPT_CHUNK ? room : PROMPT_CHUNK))
        within++;
    cpu->head_rows = shapes[within - 1];
    cpu->head = linear_create(cpu->type, &target->head, 1, target->hidden_size, LINEAR_STORE, shapes, within);
    if (!drafter)
        return;
    cpu->fuse = linear_create(cpu->type, &drafter->fc, 1, drafter->feature_count * drafter->hidden_size, LINEAR_STORE,
                              shapes, count);
    cpu->hidden_norm = xaligned((size_t)drafter->hidden_size, sizeof(float));
    tensor_to_float(drafter->hidden_norm, 0, drafter->hidden_size, cpu->hidden_norm);
}

static void create_buffers(struct cpu *cpu)
{
    const struct model *target = cpu->options.target;
    size_t rows = (size_t)cpu->most_rows, hidden = (size_t)target->hidden_size, size = product_type_size(cpu->type);
    cpu->lengths = xcalloc((size_t)cpu->options.sessions, sizeof *cpu->lengths);
    cpu->segments = xcalloc((size_t)cpu->options.sessions, sizeof *cpu->segments);
    cpu->positions = xcalloc(rows, sizeof *cpu->positions);
    cpu->visible = xcalloc(rows * (size_t)cpu->words, sizeof *cpu->visible);
    cpu->x = xaligned(rows * hidden, sizeof(float));
    cpu->normed = xaligned((rows + (size_t)cpu->head_rows) * hidden, size);
    cpu->logits = xaligned((size_t)cpu->head_rows * (size_t)target->vocabulary_size, sizeof(float));
    if (!cpu->options.drafter)
        return;
    size_t features = (size_t)cpu->options.drafter->feature_count * hidden;
    cpu->features = xaligned(rows * features, size);
    cpu->kept_features = xaligned(rows * features, size);
    cpu->fused = xaligned(rows * hidden, sizeof(float));
    cpu->context = xaligned(rows * hidden, size);
}

static void cpu_close(struct backend *backend);

static struct backend *cpu_open(const struct backend_options *options, struct error *error)
{
    (void)error;
    struct cpu *cpu = xcalloc(1, sizeof *cpu);
    cpu->base.class = &backend_cpu;
    cpu->options = *options;
    cpu->type = options->dtype == ENGINE_BFLOAT16 && product_has_bfloat16() ? PRODUCT_BFLOAT16 : PRODUCT_FLOAT32;
    int shapes[SHAPES_MAXIMUM], count = segment_shapes(options, shapes);
    cpu->most_rows = shapes[count - 1] * options->sessions;
    cpu->words = (shapes[count - 1] + 63) / 64;
    cpu->target = create_stack(cpu, options->target, shapes, count);
    if (options->drafter)
        cpu->drafter = create_stack(cpu, options->drafter, shapes, count);
    create_heads(cpu, shapes, count);
    create_buffers(cpu);
    return &cpu->base;
}

static void cpu_close(struct backend *backend)
{
    struct cpu *cpu = (struct cpu *)backend;
    stack_destroy(cpu->target);
    stack_destroy(cpu->drafter);
    linear_destroy(cpu->head);
    linear_destroy(cpu->fuse);
    void *buffers[] = {cpu->hidden_norm, cpu->lengths, cpu->segments, cpu->positions, cpu->visible, cpu->x,
                       cpu->normed,      cpu->logits,  cpu->features, cpu->fused,     cpu->context, cpu->kept_features};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(cpu);
}

static json_t *cpu_describe(const struct backend *backend)
{
    const struct cpu *cpu = (const struct cpu *)backend;
    size_t weights = stack_weight_bytes(cpu->target) + linear_bytes(cpu->head);
    size_t cache = stack_cache_bytes(cpu->target);
    if (cpu->drafter) {
        weights += stack_weight_bytes(cpu->drafter) + linear_bytes(cpu->fuse);
        cache += stack_cache_bytes(cpu->drafter);
    }
    json_t *description = json_object(), *memory = json_object();
    json_set(memory, "weights_bytes", json_integer((json_int_t)weights));
    json_set(memory, "cache_bytes", json_integer((json_int_t)cache));
    json_set(memory, "capacity_tokens", json_integer(cpu->options.capacity));
    json_set(description, "device", json_string("cpu"));
    json_set(description, "threads", json_integer(omp_get_max_threads()));
    json_set(description, "compute_dtype", json_string(cpu->type == PRODUCT_BFLOAT16 ? "bfloat16" : "float32"));
    json_set(description, "memory", memory);
    return description;
}

/* --- batches
 * ----------------------------------------------------------------------------------------------------------------------
 */

static void *row_at(const struct cpu *cpu, char *rows, int row, int width)
{
    return rows + (size_t)row * (size_t)width * product_type_size(cpu->type);
}

static void embed(struct cpu *cpu, int row, int token)
{
    int hidden = cpu->options.target->hidden_size;
    tensor_to_float(cpu->options.target->embedding, (int64_t)token * hidden, hidden,
                    cpu->x + (size_t)row * (size_t)hidden);
}

static uint64_t *visible_at(const struct cpu *cpu, int row)
{
    return cpu->visible + (size_t)row * (size_t)cpu->words;
}

static void see(uint64_t *visible, int row)
{
    visible[row / 64] |= (uint64_t)1 << (row % 64);
}

/* Adds a segment whose rows begin at `first`: a tree by its parents, a causal run where they are NULL. */
static void add_segment(struct cpu *cpu, int index, int first, const struct segment *segment)
{
    int base = cpu->lengths[segment->session];
    cpu->segments[index] = (struct stack_segment){
        segment->session, first, segment->count, base, cpu->positions + first, visible_at(cpu, first), cpu->words};
    for (int i = 0; i < segment->count; i++) {
        int parent = segment->parents ? segment->parents[i] : i - 1;
        uint64_t *visible = visible_at(cpu, first + i);
        if (parent < 0)
            memset(visible, 0, (size_t)cpu->words * sizeof *visible);
        else
            memcpy(visible, visible_at(cpu, first + parent), (size_t)cpu->words * sizeof *visible);
        see(visible, i);
        cpu->positions[first + i] = parent < 0 ? base : cpu->positions[first + parent] + 1;
        embed(cpu, first + i, segment->tokens[i]);
    }
}

/* Keeps the residual stream after each layer that feeds the drafter. */
static void keep_features(void *context, int layer, const float *x, int rows)
{
    struct cpu *cpu = context;
    const struct model *drafter = cpu->options.drafter;
    int hidden = cpu->options.target->hidden_size;
    for (int f = 0; f < drafter->feature_count; f++)
        for (int i = 0; i < rows && drafter->feature_layers[f] == layer; i++)
            kernel_store(cpu->type, x + (size_t)i * (size_t)hidden, 1.0f, hidden,
                         row_at(cpu, cpu->features, i * drafter->feature_count + f, hidden));
}

static int run_target(struct cpu *cpu, const struct segment *segments, int count)
{
    int rows = 0;
    for (int i = 0; i < count; i++) {
        add_segment(cpu, i, rows, &segments[i]);
        rows += segments[i].count;
    }
    stack_run(cpu->target, cpu->segments, count, rows, cpu->x, cpu->normed, cpu->options.drafter ? keep_features : NULL,
              cpu);
    cpu->logit_rows = rows;
    return rows;
}

/* Logits of rows [first, first + count) of `normed`, at most head_rows, into cpu->logits. */
static void run_head(struct cpu *cpu, int first, int count)
{
    linear_apply(cpu->head, count, row_at(cpu, cpu->normed, first, cpu->options.target->hidden_size), cpu->logits);
}

static const float *logits_at(const struct cpu *cpu, int row)
{
    return cpu->logits + (size_t)row * (size_t)cpu->options.target->vocabulary_size;
}

static void choose_rows(struct cpu *cpu, int first, int count, struct choice *chosen)
{
    for (int from = 0; from < count; from += cpu->head_rows) {
        int rows = count - from < cpu->head_rows ? count - from : cpu->head_rows;
        run_head(cpu, first + from, rows);
#pragma omp parallel for schedule(static) if (rows > 1)
        for (int i = 0; i < rows; i++)
            chosen[from + i] = kernel_choose(logits_at(cpu, i), cpu->options.vocabulary);
    }
}

/* --- operations
 * -------------------------------------------------------------------------------------------------------------------
 */

static void cpu_reset(struct backend *backend, int session)
{
    ((struct cpu *)backend)->lengths[session] = 0;
}

/* features[rows] of tokens at positions base, base + 1, ...: fused, normed, and to the drafter's caches. */
static void add_context(struct cpu *cpu, int session, int base, int rows, const void *features)
{
    int hidden = cpu->options.drafter->hidden_size;
    float epsilon = cpu->options.drafter->norm_epsilon;
    linear_apply(cpu->fuse, rows, features, cpu->fused);
    for (int i = 0; i < rows; i++) {
        float *row = cpu->fused + (size_t)i * (size_t)hidden;
        kernel_rms_norm(row, cpu->hidden_norm, hidden, epsilon, row);
        kernel_store(cpu->type, row, 1.0f, hidden, row_at(cpu, cpu->context, i, hidden));
    }
    stack_add_context(cpu->drafter, session, base, rows, cpu->context);
}

static void finish_extend(struct cpu *cpu, int count)
{
    for (int i = 0; i < count; i++) {
        const struct stack_segment *segment = &cpu->segments[i];
        if (cpu->drafter) {
            int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
            add_context(cpu, segment->session, segment->base, segment->count,
                        row_at(cpu, cpu->features, segment->first, width));
        }
        cpu->lengths[segment->session] += segment->count;
    }
}

/* One token of each session in one batch. */
static void extend_together(struct cpu *cpu, const struct segment *segments, int count, struct choice *chosen)
{
    int rows = run_target(cpu, segments, count);
    choose_rows(cpu, 0, rows, chosen);
    finish_extend(cpu, count);
}

static void extend_prompt(struct cpu *cpu, const struct segment *segment, struct choice *chosen)
{
    for (int done = 0; done < segment->count; done += PROMPT_CHUNK) {
        int rows = segment->count - done < PROMPT_CHUNK ? segment->count - done : PROMPT_CHUNK;
        struct segment chunk = {segment->session, rows, segment->tokens + done, NULL};
        run_target(cpu, &chunk, 1);
        if (done + rows == segment->count)
            choose_rows(cpu, rows - 1, 1, chosen);
        finish_extend(cpu, 1);
    }
}

static void cpu_extend(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cpu *cpu = (struct cpu *)backend;
    int longest = 0;
    for (int i = 0; i < count; i++)
        longest = segments[i].count > longest ? segments[i].count : longest;
    if (longest == 1)
        extend_together(cpu, segments, count, chosen);
    for (int i = 0; i < count && longest > 1; i++)
        extend_prompt(cpu, &segments[i], &chosen[i]);
}

static void cpu_verify(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cpu *cpu = (struct cpu *)backend;
    int rows = run_target(cpu, segments, count);
    choose_rows(cpu, 0, rows, chosen);
}

static const struct stack_segment *segment_of(const struct cpu *cpu, int session)
{
    const struct stack_segment *segment = cpu->segments;
    while (segment->session != session)
        segment++;
    return segment;
}

static void cpu_commit(struct backend *backend, const struct kept_path *paths, int count)
{
    struct cpu *cpu = (struct cpu *)backend;
    for (int i = 0; i < count; i++) {
        const struct kept_path *path = &paths[i];
        int base = cpu->lengths[path->session], first = segment_of(cpu, path->session)->first;
        stack_compact(cpu->target, path->session, base, path->nodes, path->length);
        if (cpu->drafter) {
            int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
            for (int j = 0; j < path->length; j++)
                memcpy(row_at(cpu, cpu->kept_features, j, width),
                       row_at(cpu, cpu->features, first + path->nodes[j], width),
                       (size_t)width * product_type_size(cpu->type));
            add_context(cpu, path->session, base, path->length, cpu->kept_features);
        }
        cpu->lengths[path->session] += path->length;
    }
}

/* The block of one session from row `first` on: the anchor and masks, each slot seeing the whole block. */
static void add_block(struct cpu *cpu, int index, int first, int session, int anchor)
{
    int block = cpu->options.drafter->block_size, base = cpu->lengths[session];
    cpu->segments[index] =
        (struct stack_segment){session, first, block, base, cpu->positions + first, visible_at(cpu, first), cpu->words};
    for (int i = 0; i < block; i++) {
        uint64_t *visible = visible_at(cpu, first + i);
        memset(visible, 0, (size_t)cpu->words * sizeof *visible);
        for (int j = 0; j < block; j++)
            see(visible, j);
        cpu->positions[first + i] = base + i;
        embed(cpu, first + i, i == 0 ? anchor : cpu->options.drafter->mask_token);
    }
}

static void read_slot(const struct cpu *cpu, int row, struct tree_draft *draft, int slot)
{
    const float *logits = logits_at(cpu, row);
    float *best = draft->log_probabilities + slot * draft->width;
    kernel_top(logits, cpu->options.vocabulary, draft->width, draft->tokens + slot * draft->width, best);
    float sum = kernel_log_sum_exp(logits, cpu->options.target->vocabulary_size);
    for (int i = 0; i < draft->width; i++)
        best[i] -= sum;
}

static void cpu_draft(struct backend *backend, const int *sessions, const int *anchors, int count,
                      struct tree_draft *drafts)
{
    struct cpu *cpu = (struct cpu *)backend;
    int block = cpu->options.drafter->block_size;
    for (int i = 0; i < count; i++)
        add_block(cpu, i, i * block, sessions[i], anchors[i]);
    stack_run(cpu->drafter, cpu->segments, count, count * block, cpu->x, cpu->normed, NULL, NULL);
    cpu->logit_rows = count * block;
    for (int i = 0; i < count; i++) {
        for (int from = 1; from < block; from += cpu->head_rows) {
            int rows = block - from < cpu->head_rows ? block - from : cpu->head_rows;
            run_head(cpu, i * block + from, rows);
#pragma omp parallel for schedule(static)
            for (int row = 0; row < rows; row++)
                read_slot(cpu, row, &drafts[i], from - 1 + row);
        }
        drafts[i].slots = block - 1;
    }
}

static void cpu_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out)
{
    struct cpu *cpu = (struct cpu *)backend;
    int vocabulary = cpu->options.target->vocabulary_size;
    if (what == INSPECT_FEATURES) {
        int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
        kernel_load(cpu->type, row_at(cpu, cpu->features, first, width), count * width, out);
        return;
    }
    if (first + count > cpu->logit_rows)
        die("inspect: rows %d to %d of %d", first, first + count, cpu->logit_rows);
    for (int done = 0; done < count; done += cpu->head_rows) {
        int rows = count - done < cpu->head_rows ? count - done : cpu->head_rows;
        run_head(cpu, first + done, rows);
        memcpy(out + (size_t)done * (size_t)vocabulary, cpu->logits, (size_t)rows * (size_t)vocabulary * sizeof *out);
    }
}

static void run_head_alone(struct cpu *cpu, int rows)
{
    for (int from = 0; from < rows; from += cpu->head_rows)
        run_head(cpu, from, rows - from < cpu->head_rows ? rows - from : cpu->head_rows);
}

static void cpu_run_products(struct backend *backend, enum backend_step step, int rows, int committed)
{
    struct cpu *cpu = (struct cpu *)backend;
    if (step == BACKEND_COMMIT) {
        linear_apply(cpu->fuse, rows, cpu->features, cpu->fused);
        stack_run_context_product(cpu->drafter, rows, cpu->context);
        return;
    }
    stack_run_products(step == BACKEND_DRAFT ? cpu->drafter : cpu->target, rows, committed, cpu->x);
    run_head_alone(cpu, step == BACKEND_DRAFT ? rows - 1 : rows);
}

const struct backend_class backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .describe = cpu_describe,
    .reset = cpu_reset,
    .extend = cpu_extend,
    .verify = cpu_verify,
    .commit = cpu_commit,
    .draft = cpu_draft,
    .inspect = cpu_inspect,
    .run_products = cpu_run_products,
    .close = cpu_close,
};
