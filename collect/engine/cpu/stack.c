#include "collect/engine/cpu/stack_state.h"

#include "collect/engine/cpu/kernels.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define PARALLEL_ROWS 4 /* fewer rows are not worth waking other threads */

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
    int step = (seen + STACK_COLUMN_STEP - 1) / STACK_COLUMN_STEP - 1, columns = (step + 1) * STACK_COLUMN_STEP;
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

void stack_run_products(struct stack *stack, int rows, int base)
{
    int step = (base + rows + STACK_COLUMN_STEP - 1) / STACK_COLUMN_STEP - 1, kv_heads = stack->kv_heads;
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
