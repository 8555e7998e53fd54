#include "collect/engine/cpu/stack.h"

#include "collect/engine/cpu/kernels.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN_STEP 64  /* attention's products are readied for lengths in these steps */
#define PARALLEL_ROWS 4 /* fewer rows are not worth waking other threads */

struct layer {
    float *input_norm, *post_attention_norm; /* [hidden_size] */
    float *q_norm, *k_norm;                  /* [head_size] */
    struct linear *qkv;                      /* [(heads + 2 kv_heads) * head_size, hidden_size] */
    struct linear *o;                        /* [hidden_size, heads * head_size] */
    struct linear *gate_up;                  /* [2 * intermediate_size, hidden_size] */
    struct linear *down;                     /* [hidden_size, intermediate_size] */
};

/* Scores and weighted values of one number of rows and one number of columns. */
struct attention_products {
    struct small_product *scores;   /* [rows, columns] = q[rows, head_size] · k[columns, head_size]ᵀ */
    struct small_product *weighted; /* [rows, head_size] = p[rows, columns] · v[columns, head_size] */
};

/* What one thread needs to attend for one KV head: rows are a segment's rows times the query heads that share the KV
 * head. */
struct attention_scratch {
    char *queries; /* [rows, head_size] in the products' type */
    float *scores; /* [rows, columns] */
    void *weights; /* the same in the products' type */
    float *sums;   /* [rows]: what the weights must be divided by */
    float *output; /* [rows, head_size] */
};

struct stack {
    const struct model *model;
    enum product_type type;
    struct team *team;
    int rank, heads, kv_heads, inner; /* this rank's query heads, KV heads, MLP columns */
    int kv_slice;                     /* its slice of the KV heads; ranks share one where there are fewer heads */
    int sessions, capacity, group;    /* group: query heads a KV head */
    int maximum_rows;
    int segment_shapes[64], segment_shape_count;
    int column_steps;
    struct layer *layers;
    float *norm;                          /* [hidden_size] */
    struct linear *context;               /* a drafter's keys and values of all layers from features, or NULL */
    float *cosines, *sines;               /* [capacity, head_size / 2] */
    char *keys, *values;                  /* [layer][session][kv_head][capacity][head_size] in the type */
    struct attention_products *attention; /* [segment_shape][column step] */
    struct attention_scratch *scratch;    /* [thread] */
    int thread_count;
    float *partial;      /* [rows, hidden_size]: this rank's share of a sum over ranks */
    float *fused;        /* qkv, gate_up or context products: [rows, widest] */
    char *product_input; /* [rows, widest] in the type */
    float *bias;         /* [session][segment rows, segment rows] */
    char *attended;      /* [rows, heads * head_size] in the type */
};

static float *load_vector(const struct tensor *tensor)
{
    float *values = xaligned((size_t)tensor->elements, sizeof *values);
    tensor_to_float(tensor, 0, tensor->elements, values);
    return values;
}

static int widest(int a, int b)
{
    return a > b ? a : b;
}

/* Rows [count * index, count * (index + 1)) of a weight, all columns. */
static struct linear_part row_slice(const struct tensor *tensor, int index, int count)
{
    return (struct linear_part){tensor, index * count, count, 0};
}

/* All rows of a weight, columns from `first` on. */
static struct linear_part column_slice(const struct tensor *tensor, int first)
{
    return (struct linear_part){tensor, 0, (int)tensor->shape[0], first};
}

static void create_layer(struct stack *stack, const struct stack_options *options, const struct model_layer *from,
                         struct layer *layer)
{
    int head = stack->model->head_size, hidden = stack->model->hidden_size, rank = options->rank;
    int queries = stack->heads * head, keys = stack->kv_heads * head;
    const struct linear_part qkv[] = {row_slice(from->q, rank, queries), row_slice(from->k, stack->kv_slice, keys),
                                      row_slice(from->v, stack->kv_slice, keys)};
    const struct linear_part gate_up[] = {row_slice(from->gate, rank, stack->inner),
                                          row_slice(from->up, rank, stack->inner)};
    const struct linear_part o = column_slice(from->o, rank * queries),
                             down = column_slice(from->down, rank * stack->inner);
    const int *shapes = options->row_shapes, count = options->row_shape_count;
    layer->input_norm = load_vector(from->input_norm);
    layer->post_attention_norm = load_vector(from->post_attention_norm);
    layer->q_norm = load_vector(from->q_norm);
    layer->k_norm = load_vector(from->k_norm);
    layer->qkv = linear_create(stack->type, qkv, 3, hidden, shapes, count);
    layer->o = linear_create(stack->type, &o, 1, queries, shapes, count);
    layer->gate_up = linear_create(stack->type, gate_up, 2, hidden, shapes, count);
    layer->down = linear_create(stack->type, &down, 1, stack->inner, shapes, count);
}

static void create_context(struct stack *stack, const struct stack_options *options)
{
    const struct model *model = stack->model;
    int keys = stack->kv_heads * model->head_size;
    struct linear_part *parts = xcalloc((size_t)model->layer_count * 2, sizeof *parts);
    for (int i = 0; i < model->layer_count; i++) {
        parts[2 * i] = row_slice(model->layers[i].k, stack->kv_slice, keys);
        parts[2 * i + 1] = row_slice(model->layers[i].v, stack->kv_slice, keys);
    }
    stack->context = linear_create(stack->type, parts, 2 * model->layer_count, model->hidden_size, options->row_shapes,
                                   options->row_shape_count);
    free(parts);
}

static void create_rotation(struct stack *stack)
{
    int half = stack->model->head_size / 2;
    stack->cosines = xaligned((size_t)stack->capacity * (size_t)half, sizeof *stack->cosines);
    stack->sines = xaligned((size_t)stack->capacity * (size_t)half, sizeof *stack->sines);
    for (int i = 0; i < half; i++) {
        float frequency = 1.0f / powf(stack->model->rope_theta, (float)(2 * i) / (float)stack->model->head_size);
        for (int position = 0; position < stack->capacity; position++) {
            float angle = (float)position * frequency;
            stack->cosines[position * half + i] = cosf(angle);
            stack->sines[position * half + i] = sinf(angle);
        }
    }
}

static void create_attention(struct stack *stack)
{
    int head = stack->model->head_size, steps = stack->column_steps, columns = steps * COLUMN_STEP;
    stack->attention = xcalloc((size_t)(stack->segment_shape_count * steps), sizeof *stack->attention);
    for (int shape = 0; shape < stack->segment_shape_count; shape++)
        for (int step = 0; step < steps; step++) {
            struct attention_products *products = &stack->attention[shape * steps + step];
            int rows = stack->segment_shapes[shape] * stack->group;
            products->scores = small_product_create(stack->type, rows, (step + 1) * COLUMN_STEP, head, true);
            products->weighted = small_product_create(stack->type, rows, head, (step + 1) * COLUMN_STEP, false);
        }
    size_t rows = (size_t)(stack->segment_shapes[stack->segment_shape_count - 1] * stack->group);
    stack->thread_count = omp_get_max_threads();
    stack->scratch = xcalloc((size_t)stack->thread_count, sizeof *stack->scratch);
    for (int i = 0; i < stack->thread_count; i++) {
        stack->scratch[i].queries = xaligned(rows * (size_t)head, product_type_size(stack->type));
        stack->scratch[i].scores = xaligned(rows * (size_t)columns, sizeof(float));
        stack->scratch[i].weights = xaligned(rows * (size_t)columns, product_type_size(stack->type));
        stack->scratch[i].sums = xaligned(rows, sizeof(float));
        stack->scratch[i].output = xaligned(rows * (size_t)head, sizeof(float));
    }
}

/* Caches are a whole number of column steps long: products read past a session's end, where they find zeros or what is
 * left of rows that were not kept, and the mask hides it. */
static void create_buffers(struct stack *stack)
{
    const struct model *model = stack->model;
    size_t rows = (size_t)stack->maximum_rows, size = product_type_size(stack->type);
    int heads = stack->heads * model->head_size, kv = stack->kv_heads * model->head_size;
    int wide = widest(widest(heads + 2 * kv, 2 * stack->inner), model->hidden_size);
    wide = widest(wide, stack->context ? 2 * kv * model->layer_count : 0);
    size_t cache = (size_t)model->layer_count * (size_t)stack->sessions * (size_t)kv * (size_t)stack->capacity;
    stack->keys = xaligned(cache, size);
    stack->values = xaligned(cache, size);
    stack->fused = xaligned(rows * (size_t)wide, sizeof(float));
    stack->partial = xaligned(rows * (size_t)model->hidden_size, sizeof(float));
    stack->product_input = xaligned(rows * (size_t)widest(model->hidden_size, stack->inner), size);
    size_t segment_rows = (size_t)stack->segment_shapes[stack->segment_shape_count - 1];
    stack->bias = xaligned((size_t)stack->sessions * segment_rows * segment_rows, sizeof(float));
    stack->attended = xaligned(rows * (size_t)heads, size);
}

struct stack *stack_create(const struct stack_options *options)
{
    const struct model *model = options->model;
    struct stack *stack = xcalloc(1, sizeof *stack);
    stack->model = model;
    stack->type = options->type;
    stack->sessions = options->sessions;
    stack->column_steps = (options->capacity + COLUMN_STEP - 1) / COLUMN_STEP;
    stack->capacity = stack->column_steps * COLUMN_STEP;
    int ranks = team_ranks(options->team);
    stack->team = options->team;
    stack->rank = options->rank;
    stack->heads = model->head_count / ranks;
    stack->kv_heads = model->kv_head_count > ranks ? model->kv_head_count / ranks : 1;
    stack->kv_slice = model->kv_head_count > ranks ? options->rank : options->rank * model->kv_head_count / ranks;
    stack->group = stack->heads / stack->kv_heads;
    stack->inner = model->intermediate_size / ranks;
    stack->maximum_rows = options->row_shapes[options->row_shape_count - 1];
    stack->segment_shape_count = options->segment_shape_count;
    memcpy(stack->segment_shapes, options->segment_shapes, (size_t)options->segment_shape_count * sizeof(int));
    stack->layers = xcalloc((size_t)model->layer_count, sizeof *stack->layers);
    for (int i = 0; i < model->layer_count; i++)
        create_layer(stack, options, &model->layers[i], &stack->layers[i]);
    stack->norm = load_vector(model->norm);
    if (options->with_context)
        create_context(stack, options);
    create_rotation(stack);
    create_attention(stack);
    create_buffers(stack);
    return stack;
}

void stack_destroy(struct stack *stack)
{
    if (!stack)
        return;
    for (int i = 0; i < stack->model->layer_count; i++) {
        struct layer *layer = &stack->layers[i];
        float *vectors[] = {layer->input_norm, layer->post_attention_norm, layer->q_norm, layer->k_norm};
        struct linear *linears[] = {layer->qkv, layer->o, layer->gate_up, layer->down};
        for (int j = 0; j < 4; j++) {
            free(vectors[j]);
            linear_destroy(linears[j]);
        }
    }
    for (int i = 0; i < stack->segment_shape_count * stack->column_steps; i++) {
        small_product_destroy(stack->attention[i].scores);
        small_product_destroy(stack->attention[i].weighted);
    }
    for (int i = 0; i < stack->thread_count; i++) {
        free(stack->scratch[i].queries);
        free(stack->scratch[i].scores);
        free(stack->scratch[i].weights);
        free(stack->scratch[i].sums);
        free(stack->scratch[i].output);
    }
    linear_destroy(stack->context);
    void *buffers[] = {stack->layers,  stack->norm,  stack->cosines,  stack->sines,         stack->keys,
                       stack->values,  stack->fused, stack->attended, stack->product_input, stack->attention,
                       stack->scratch, stack->bias,  stack->partial};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(stack);
}

/* Where a layer's keys (or values) of one KV head of a session begin: [capacity, head_size]. */
static char *cache_at(const struct stack *stack, char *cache, int layer, int session, int kv_head, int position)
{
    size_t head =
        ((size_t)layer * (size_t)stack->sessions + (size_t)session) * (size_t)stack->kv_heads + (size_t)kv_head;
    return cache + (head * (size_t)stack->capacity + (size_t)position) * (size_t)stack->model->head_size *
                       product_type_size(stack->type);
}

/* Norms and rotates one head of a row, in place; x: [head_size]. */
static void rotate_head(const struct stack *stack, float *x, const float *norm, int position)
{
    int head = stack->model->head_size, half = head / 2;
    kernel_rms_norm(x, norm, head, stack->model->norm_epsilon, x);
    kernel_rotate(x, stack->cosines + position * half, stack->sines + position * half, head);
}

/* One KV head of a row: key and value, [head_size] each, into cache position `slot`. */
static void store_key_value(struct stack *stack, int layer, int session, int kv_head, int slot, int position,
                            float *key, const float *value)
{
    int head = stack->model->head_size;
    rotate_head(stack, key, stack->layers[layer].k_norm, position);
    kernel_store(stack->type, key, 1.0f, head, cache_at(stack, stack->keys, layer, session, kv_head, slot));
    kernel_store(stack->type, value, 1.0f, head, cache_at(stack, stack->values, layer, session, kv_head, slot));
}

/* What a KV head needs of a segment's fused products: its queries, scaled, and its keys and values, to the cache. */
static void store_heads(struct stack *stack, int layer, const struct stack_segment *segment, int kv_head, char *queries)
{
    const struct model *model = stack->model;
    int head = model->head_size, group = stack->group, width = (stack->heads + 2 * stack->kv_heads) * head;
    float scale = 1.0f / sqrtf((float)head);
    size_t query_bytes = (size_t)head * product_type_size(stack->type);
    for (int row = 0; row < segment->count; row++) {
        float *fused = stack->fused + (size_t)(segment->first + row) * (size_t)width;
        float *key = fused + (stack->heads + kv_head) * head, *value = key + stack->kv_heads * head;
        int position = segment->positions[row];
        for (int g = 0; g < group; g++, queries += query_bytes) {
            float *query = fused + (kv_head * group + g) * head;
            rotate_head(stack, query, stack->layers[layer].q_norm, position);
            kernel_store(stack->type, query, scale, head, queries);
        }
        store_key_value(stack, layer, segment->session, kv_head, segment->base + row, position, key, value);
    }
}

static int segment_shape(const struct stack *stack, int rows)
{
    int shape = 0;
    while (stack->segment_shapes[shape] < rows)
        shape++;
    return shape;
}

/* The bias of a segment's new rows: 0 where row i sees row j, -INFINITY where it does not; [count, count]. */
static float *bias_at(const struct stack *stack, const struct stack_segment *segment)
{
    int most = stack->segment_shapes[stack->segment_shape_count - 1];
    return stack->bias + (size_t)segment->session * (size_t)most * (size_t)most;
}

static void fill_bias(struct stack *stack, const struct stack_segment *segment)
{
    float *bias = bias_at(stack, segment);
    for (int i = 0; i < segment->count; i++) {
        const uint64_t *visible = segment->visible + (size_t)i * (size_t)segment->words;
        for (int j = 0; j < segment->count; j++)
            *bias++ = visible[j / 64] >> (j % 64) & 1 ? 0 : -INFINITY;
    }
}

/* A sliding-window layer: hides from row `row` what lies too far back, and what lies ahead where the model says so. */
static void hide_outside_window(const struct stack *stack, int window, const struct stack_segment *segment, int row,
                                float *scores)
{
    int position = segment->positions[row], first = position - window + 1;
    for (int i = 0; i < segment->base && i < first; i++)
        scores[i] = -INFINITY;
    for (int i = 0; i < segment->count; i++) {
        int ahead = segment->positions[i] - position;
        if (-ahead >= window || ahead >= (stack->model->causal_windows ? 1 : window))
            scores[segment->base + i] = -INFINITY;
    }
}

static void attend(struct stack *stack, int layer, const struct stack_segment *segment, int kv_head)
{
    const struct model *model = stack->model;
    struct attention_scratch *scratch = &stack->scratch[omp_get_thread_num()];
    int head = model->head_size, group = stack->group, seen = segment->base + segment->count;
    int step = (seen + COLUMN_STEP - 1) / COLUMN_STEP - 1, columns = (step + 1) * COLUMN_STEP;
    const struct attention_products *products =
        &stack->attention[segment_shape(stack, segment->count) * stack->column_steps + step];
    const float *bias = bias_at(stack, segment);
    int window = model->windows ? model->windows[layer] : 0;
    size_t size = product_type_size(stack->type);
    store_heads(stack, layer, segment, kv_head, scratch->queries);
    small_product_apply(products->scores, scratch->queries,
                        cache_at(stack, stack->keys, layer, segment->session, kv_head, 0), scratch->scores);
    for (int i = 0; i < segment->count * group; i++) {
        float *scores = scratch->scores + (size_t)i * (size_t)columns;
        char *weights = (char *)scratch->weights + (size_t)i * (size_t)columns * size;
        kernel_add(scores + segment->base, bias + (i / group) * segment->count, segment->count);
        if (window)
            hide_outside_window(stack, window, segment, i / group, scores);
        scratch->sums[i] = kernel_weigh(scores, seen);
        kernel_store(stack->type, scores, 1.0f, seen, weights);
        memset(weights + (size_t)seen * size, 0, (size_t)(columns - seen) * size);
    }
    small_product_apply(products->weighted, scratch->weights,
                        cache_at(stack, stack->values, layer, segment->session, kv_head, 0), scratch->output);
    for (int i = 0; i < segment->count * group; i++) {
        size_t row = (size_t)(segment->first + i / group),
               column = (size_t)(kv_head * group + i % group) * (size_t)head;
        size_t at = row * (size_t)(stack->heads * head) + column;
        kernel_store(stack->type, scratch->output + i * head, 1.0f / scratch->sums[i], head,
                     stack->attended + at * size);
    }
}

static void norm_rows(const struct stack *stack, const float *x, const float *weight, int rows, void *out)
{
    int hidden = stack->model->hidden_size;
    size_t size = product_type_size(stack->type);
#pragma omp parallel for schedule(static) if (rows >= PARALLEL_ROWS)
    for (int i = 0; i < rows; i++) {
        float *normed = stack->fused + (size_t)i * (size_t)hidden;
        kernel_rms_norm(x + (size_t)i * (size_t)hidden, weight, hidden, stack->model->norm_epsilon, normed);
        kernel_store(stack->type, normed, 1.0f, hidden, (char *)out + (size_t)i * (size_t)hidden * size);
    }
}

static void run_attention(struct stack *stack, int index, const struct stack_segment *segments, int segment_count,
                          int rows, float *x)
{
    struct layer *layer = &stack->layers[index];
    norm_rows(stack, x, layer->input_norm, rows, stack->product_input);
    linear_apply(layer->qkv, rows, stack->product_input, stack->fused);
#pragma omp parallel for schedule(static) collapse(2)
    for (int s = 0; s < segment_count; s++)
        for (int kv = 0; kv < stack->kv_heads; kv++)
            attend(stack, index, &segments[s], kv);
    linear_apply(layer->o, rows, stack->attended, stack->partial);
    team_reduce_add(stack->team, stack->rank, stack->partial, rows * stack->model->hidden_size, x);
}

static void run_mlp(struct stack *stack, int index, int rows, float *x)
{
    struct layer *layer = &stack->layers[index];
    int inner = stack->inner;
    size_t size = product_type_size(stack->type);
    norm_rows(stack, x, layer->post_attention_norm, rows, stack->product_input);
    linear_apply(layer->gate_up, rows, stack->product_input, stack->fused);
#pragma omp parallel for schedule(static) if (rows >= PARALLEL_ROWS)
    for (int i = 0; i < rows; i++) {
        float *gate = stack->fused + (size_t)i * 2 * (size_t)inner;
        kernel_gated(gate, gate + inner, inner, gate);
        kernel_store(stack->type, gate, 1.0f, inner, stack->product_input + (size_t)i * (size_t)inner * size);
    }
    linear_apply(layer->down, rows, stack->product_input, stack->partial);
    team_reduce_add(stack->team, stack->rank, stack->partial, rows * stack->model->hidden_size, x);
}

void stack_run(struct stack *stack, const struct stack_segment *segments, int segment_count, int rows, float *x,
               void *normed, stack_on_layer *on_layer, void *context)
{
    for (int i = 0; i < segment_count; i++)
        fill_bias(stack, &segments[i]);
    for (int i = 0; i < stack->model->layer_count; i++) {
        run_attention(stack, i, segments, segment_count, rows, x);
        run_mlp(stack, i, rows, x);
        if (on_layer)
            on_layer(context, i, x, rows);
    }
    norm_rows(stack, x, stack->norm, rows, normed);
}

void stack_add_context(struct stack *stack, int session, int base, int rows, const void *features)
{
    const struct model *model = stack->model;
    int kv = stack->kv_heads * model->head_size, width = 2 * kv * model->layer_count;
    linear_apply(stack->context, rows, features, stack->fused);
#pragma omp parallel for schedule(static) if (rows >= PARALLEL_ROWS)
    for (int i = 0; i < rows; i++)
        for (int layer = 0; layer < model->layer_count; layer++) {
            float *key = stack->fused + (size_t)i * (size_t)width + (size_t)layer * 2 * (size_t)kv;
            for (int h = 0; h < stack->kv_heads; h++)
                store_key_value(stack, layer, session, h, base + i, base + i, key + h * model->head_size,
                                key + kv + h * model->head_size);
        }
}

void stack_compact(struct stack *stack, int session, int base, const int *nodes, int count)
{
    int heads = stack->kv_heads;
    size_t row = (size_t)stack->model->head_size * product_type_size(stack->type);
    char *caches[] = {stack->keys, stack->values};
    for (int layer = 0; layer < stack->model->layer_count; layer++)
        for (int kv = 0; kv < heads; kv++)
            for (int c = 0; c < 2; c++)
                for (int i = 0; i < count; i++)
                    if (nodes[i] != i)
                        memcpy(cache_at(stack, caches[c], layer, session, kv, base + i),
                               cache_at(stack, caches[c], layer, session, kv, base + nodes[i]), row);
}

size_t stack_weight_bytes(const struct stack *stack)
{
    size_t bytes = stack->context ? linear_bytes(stack->context) : 0;
    for (int i = 0; i < stack->model->layer_count; i++) {
        const struct layer *layer = &stack->layers[i];
        bytes += linear_bytes(layer->qkv) + linear_bytes(layer->o) + linear_bytes(layer->gate_up) +
                 linear_bytes(layer->down);
    }
    return bytes;
}

size_t stack_cache_bytes(const struct stack *stack)
{
    const struct model *model = stack->model;
    return 2 * (size_t)model->layer_count * (size_t)stack->sessions * (size_t)stack->kv_heads *
           (size_t)stack->capacity * (size_t)model->head_size * product_type_size(stack->type);
}

void stack_run_products(struct stack *stack, int rows, int base)
{
    int step = (base + rows + COLUMN_STEP - 1) / COLUMN_STEP - 1, kv_heads = stack->kv_heads;
    const struct attention_products *products =
        &stack->attention[segment_shape(stack, rows) * stack->column_steps + step];
    for (int i = 0; i < stack->model->layer_count; i++) {
        struct layer *layer = &stack->layers[i];
        linear_apply(layer->qkv, rows, stack->product_input, stack->fused);
#pragma omp parallel for schedule(static)
        for (int kv = 0; kv < kv_heads; kv++) {
            struct attention_scratch *scratch = &stack->scratch[omp_get_thread_num()];
            small_product_apply(products->scores, scratch->queries, cache_at(stack, stack->keys, i, 0, kv, 0),
                                scratch->scores);
            small_product_apply(products->weighted, scratch->weights, cache_at(stack, stack->values, i, 0, kv, 0),
                                scratch->output);
        }
        linear_apply(layer->o, rows, stack->attended, stack->partial);
        linear_apply(layer->gate_up, rows, stack->product_input, stack->fused);
        linear_apply(layer->down, rows, stack->product_input, stack->partial);
    }
}

void stack_run_context_product(struct stack *stack, int rows, const void *features)
{
    linear_apply(stack->context, rows, features, stack->fused);
}
