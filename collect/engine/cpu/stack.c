#include "collect/engine/cpu/stack_state.h"

#include "collect/engine/cpu/kernels.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Where an attention layer's keys (or values) of one KV head of a session begin: [capacity, head_size]. */
static char *cache_at(const struct stack *stack, char *cache, int layer, int session, int kv_head, int position)
{
    size_t place = (size_t)stack->layers[layer].place;
    size_t head = (place * (size_t)stack->sessions + (size_t)session) * (size_t)stack->kv_heads + (size_t)kv_head;
    return cache + (head * (size_t)stack->capacity + (size_t)position) * (size_t)stack->model->head_size *
                       product_type_size(stack->type);
}

/* Norms and rotates one head of a row, x[head_size], times the factor into out[head_size] in the type. */
static void rotate_head(const struct stack *stack, const float *x, const float *norm, float factor, int position,
                        void *out)
{
    const struct model *model = stack->model;
    const struct kernel_head head = {norm, model->head_size, model->rotary_size, model->norm_epsilon, factor};
    int angles = position * (model->rotary_size / 2);
    kernel_rotate(stack->type, &head, x, stack->cosines + angles, stack->sines + angles, out);
}

/* One KV head of a row: key and value, [head_size] each, into cache position `slot`. */
static void store_key_value(struct stack *stack, int layer, int session, int kv_head, int slot, int position,
                            const float *key, const float *value)
{
    rotate_head(stack, key, stack->layers[layer].k_norm, 1.0f, position,
                cache_at(stack, stack->keys, layer, session, kv_head, slot));
    kernel_store(stack->type, value, 1.0f, stack->model->head_size,
                 cache_at(stack, stack->values, layer, session, kv_head, slot));
}

/* What a KV head needs of a segment's fused products: its queries, scaled, and its keys and values, to the cache. */
static void store_heads(struct stack *stack, int layer, const struct stack_segment *segment, int kv_head, char *queries)
{
    const struct model *model = stack->model;
    int head = model->head_size, group = stack->group;
    float scale = 1.0f / sqrtf((float)head);
    size_t query_bytes = (size_t)head * product_type_size(stack->type);
    for (int row = 0; row < segment->count; row++) {
        const float *fused = stack->fused + (size_t)(segment->first + row) * (size_t)stack->in_width;
        const float *key = fused + stack->heads * stack->query_size + kv_head * head;
        const float *value = key + stack->kv_heads * head;
        int position = segment->positions[row];
        for (int g = 0; g < group; g++, queries += query_bytes)
            rotate_head(stack, fused + (kv_head * group + g) * stack->query_size, stack->layers[layer].q_norm, scale,
                        position, queries);
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

static int round_up(int count, int step)
{
    return (count + step - 1) / step * step;
}

/* Columns [first, end) hold a segment's new rows, both whole numbers of vectors. */
static struct kernel_columns columns_of(const struct stack_segment *segment)
{
    int seen = segment->base + segment->count;
    return (struct kernel_columns){segment->base / STACK_VECTOR * STACK_VECTOR, round_up(seen, STACK_VECTOR),
                                   round_up(seen, STACK_COLUMN_STEP)};
}

/* The bias of a segment's new columns: 0 where row i sees the column, -INFINITY where it does not; [count, columns]. */
static float *bias_at(const struct stack *stack, const struct stack_segment *segment)
{
    size_t most = (size_t)stack->segment_shapes[stack->segment_shape_count - 1];
    return stack->bias + (size_t)segment->session * most * (most + 2 * STACK_VECTOR);
}

static void fill_bias(struct stack *stack, const struct stack_segment *segment)
{
    struct kernel_columns columns = columns_of(segment);
    int width = columns.end - columns.first, before = segment->base - columns.first;
    for (int i = 0; i < segment->count; i++) {
        const uint64_t *visible = segment->visible + (size_t)i * (size_t)segment->words;
        float *bias = bias_at(stack, segment) + (size_t)i * (size_t)width;
#pragma omp simd
        for (int column = 0; column < width; column++)
            bias[column] = column < before ? 0 : -INFINITY;
        for (int word = 0; word < segment->words; word++)
            for (uint64_t bits = visible[word]; bits; bits &= bits - 1)
                bias[before + word * 64 + __builtin_ctzll(bits)] = 0;
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

/* Scores of a segment's rows, [rows, group, columns.all], to weights and their sums. */
static void weigh_rows(const struct stack *stack, int layer, const struct stack_segment *segment,
                       struct kernel_columns columns, const struct attention_scratch *scratch)
{
    int window = stack->model->windows ? stack->model->windows[layer] : 0, width = columns.end - columns.first;
    size_t stride = (size_t)columns.all * product_type_size(stack->type);
    const float *bias = bias_at(stack, segment);
    float *scores = scratch->scores, *sum = scratch->sums;
    char *weights = scratch->weights;
    for (int row = 0; row < segment->count; row++, bias += width) {
        for (int g = 0; g < stack->group; g++, scores += columns.all, weights += stride) {
            if (window)
                hide_outside_window(stack, window, segment, row, scores);
            *sum++ = kernel_weigh(stack->type, scores, bias, columns, weights);
        }
    }
}

/* What a KV head's queries gathered, divided by the sums of their weights, to their places in `attended`. */
static void store_attended(const struct stack *stack, const struct stack_segment *segment, int kv_head,
                           const struct attention_scratch *scratch)
{
    int head = stack->model->head_size;
    size_t head_bytes = (size_t)head * product_type_size(stack->type);
    float *output = scratch->output;
    const float *sum = scratch->sums;
    for (int row = segment->first; row < segment->first + segment->count; row++) {
        const float *fused = stack->fused + (size_t)row * (size_t)stack->in_width;
        for (int query = kv_head * stack->group; query < (kv_head + 1) * stack->group; query++, output += head) {
            if (stack->model->gated_attention)
                kernel_damp(output, fused + query * stack->query_size + head, head);
            kernel_store(stack->type, output, 1.0f / *sum++, head,
                         stack->attended + (size_t)(row * stack->heads + query) * head_bytes);
        }
    }
}

static void attend(struct stack *stack, int layer, const struct stack_segment *segment, int kv_head)
{
    struct attention_scratch *scratch = &stack->scratch[omp_get_thread_num()];
    struct kernel_columns columns = columns_of(segment);
    int step = columns.all / STACK_COLUMN_STEP - 1;
    const struct attention_products *products =
        &stack->attention[segment_shape(stack, segment->count) * stack->column_steps + step];
    store_heads(stack, layer, segment, kv_head, scratch->queries);
    small_product_apply(products->scores, scratch->queries,
                        cache_at(stack, stack->keys, layer, segment->session, kv_head, 0), scratch->scores);
    weigh_rows(stack, layer, segment, columns, scratch);
    small_product_apply(products->weighted, scratch->weights,
                        cache_at(stack, stack->values, layer, segment->session, kv_head, 0), scratch->output);
    store_attended(stack, segment, kv_head, scratch);
}

/* One row, [hidden_size], into row `row` of `out` in the type. */
static void norm_row(const struct stack *stack, const float *x, const float *weight, int row, void *out)
{
    size_t hidden = (size_t)stack->model->hidden_size;
    kernel_norm(stack->type, x, weight, (int)hidden, stack->model->norm_epsilon,
                (char *)out + (size_t)row * hidden * product_type_size(stack->type));
}

static void norm_rows(const struct stack *stack, const float *x, const float *weight, int rows, void *out)
{
#pragma omp parallel for schedule(static) if (rows >= STACK_PARALLEL_ROWS)
    for (int i = 0; i < rows; i++)
        norm_row(stack, x + (size_t)i * (size_t)stack->model->hidden_size, weight, i, out);
}

/* Adds what all ranks' last products answered to x, and norms it for the next ones. */
static void add_and_norm_rows(const struct stack *stack, float *x, const float *weight, int rows, void *out)
{
    int hidden = stack->model->hidden_size;
    team_share(stack->team, stack->rank, stack->partial);
#pragma omp parallel for schedule(static) if (rows >= STACK_PARALLEL_ROWS)
    for (int i = 0; i < rows; i++) {
        size_t at = (size_t)i * (size_t)hidden;
        team_add_shared(stack->team, at, hidden, x + at);
        norm_row(stack, x + at, weight, i, out);
    }
    team_wait(stack->team);
}

static void attend_all(struct stack *stack, int layer, const struct stack_segment *segments, int segment_count)
{
#pragma omp parallel for schedule(static) collapse(2)
    for (int s = 0; s < segment_count; s++)
        for (int kv = 0; kv < stack->kv_heads; kv++)
            attend(stack, layer, &segments[s], kv);
}

/* What lets rows see each other: attention, or a recurrence. From product_input to partial. */
static void run_mixer(struct stack *stack, int index, const struct stack_segment *segments, int segment_count, int rows)
{
    struct layer *layer = &stack->layers[index];
    linear_apply(layer->in, rows, stack->product_input, stack->fused);
    if (stack->model->kinds[index] == MODEL_RECURRENT)
        recurrence_run(stack->recurrence, layer->place, segments, segment_count, stack->fused, stack->attended);
    else
        attend_all(stack, index, segments, segment_count);
    linear_apply(layer->out, rows, stack->attended, stack->partial);
}

/* From product_input to partial. */
static void run_mlp(struct stack *stack, int index, int rows)
{
    struct layer *layer = &stack->layers[index];
    int inner = stack->inner;
    size_t size = product_type_size(stack->type);
    linear_apply(layer->gate_up, rows, stack->product_input, stack->fused);
#pragma omp parallel for schedule(static) if (rows >= STACK_PARALLEL_ROWS)
    for (int i = 0; i < rows; i++) {
        const float *gate = stack->fused + (size_t)i * 2 * (size_t)inner;
        kernel_gated(stack->type, gate, gate + inner, inner, stack->product_input + (size_t)i * (size_t)inner * size);
    }
    linear_apply(layer->down, rows, stack->product_input, stack->partial);
}

void stack_run(struct stack *stack, const struct stack_segment *segments, int segment_count, int rows, float *x,
               void *normed, stack_on_layer *on_layer, void *context)
{
    int last = stack->model->layer_count - 1;
    for (int i = 0; i < segment_count; i++)
        fill_bias(stack, &segments[i]);
    norm_rows(stack, x, stack->layers[0].input_norm, rows, stack->product_input);
    for (int i = 0; i <= last; i++) {
        run_mixer(stack, i, segments, segment_count, rows);
        add_and_norm_rows(stack, x, stack->layers[i].post_attention_norm, rows, stack->product_input);
        run_mlp(stack, i, rows);
        add_and_norm_rows(stack, x, i < last ? stack->layers[i + 1].input_norm : stack->norm, rows,
                          i < last ? stack->product_input : normed);
        if (on_layer)
            on_layer(context, i, x, rows);
    }
}

void stack_add_context(struct stack *stack, int session, int base, int rows, const void *features)
{
    const struct model *model = stack->model;
    int kv = stack->kv_heads * model->head_size, width = 2 * kv * model->layer_count;
    linear_apply(stack->context, rows, features, stack->fused);
#pragma omp parallel for schedule(static) if (rows >= STACK_PARALLEL_ROWS)
    for (int i = 0; i < rows; i++)
        for (int layer = 0; layer < model->layer_count; layer++) {
            const float *key = stack->fused + (size_t)i * (size_t)width + (size_t)layer * 2 * (size_t)kv;
            for (int h = 0; h < stack->kv_heads; h++)
                store_key_value(stack, layer, session, h, base + i, base + i, key + h * model->head_size,
                                key + kv + h * model->head_size);
        }
}

static void compact_layer(struct stack *stack, int layer, int session, int base, const int *nodes, int count)
{
    size_t row = (size_t)stack->model->head_size * product_type_size(stack->type);
    char *caches[] = {stack->keys, stack->values};
    for (int kv = 0; kv < stack->kv_heads; kv++)
        for (int c = 0; c < 2; c++)
            for (int i = 0; i < count; i++)
                if (nodes[i] != i)
                    memcpy(cache_at(stack, caches[c], layer, session, kv, base + i),
                           cache_at(stack, caches[c], layer, session, kv, base + nodes[i]), row);
}

void stack_commit(struct stack *stack, int session, int base, int first, const int *nodes, int count)
{
    for (int layer = 0; layer < stack->model->layer_count; layer++)
        if (stack->model->kinds[layer] == MODEL_ATTENTION)
            compact_layer(stack, layer, session, base, nodes, count);
    if (stack->recurrence)
        recurrence_commit(stack->recurrence, session, first, nodes, count);
}

void stack_reset(struct stack *stack, int session)
{
    if (stack->recurrence)
        recurrence_reset(stack->recurrence, session);
}

const float *stack_state(const struct stack *stack, int layer, int session)
{
    return recurrence_state(stack->recurrence, layer, session);
}

static void run_attention_products(struct stack *stack, int layer, const struct attention_products *products)
{
#pragma omp parallel for schedule(static)
    for (int kv = 0; kv < stack->kv_heads; kv++) {
        struct attention_scratch *scratch = &stack->scratch[omp_get_thread_num()];
        small_product_apply(products->scores, scratch->queries, cache_at(stack, stack->keys, layer, 0, kv, 0),
                            scratch->scores);
        small_product_apply(products->weighted, scratch->weights, cache_at(stack, stack->values, layer, 0, kv, 0),
                            scratch->output);
    }
}

void stack_run_products(struct stack *stack, int rows, int base)
{
    int step = (base + rows + STACK_COLUMN_STEP - 1) / STACK_COLUMN_STEP - 1;
    const struct attention_products *products =
        &stack->attention[segment_shape(stack, rows) * stack->column_steps + step];
    for (int i = 0; i < stack->model->layer_count; i++) {
        struct layer *layer = &stack->layers[i];
        linear_apply(layer->in, rows, stack->product_input, stack->fused);
        if (stack->model->kinds[i] == MODEL_RECURRENT)
            recurrence_run_products(stack->recurrence, layer->place, rows);
        else
            run_attention_products(stack, i, products);
        linear_apply(layer->out, rows, stack->attended, stack->partial);
        linear_apply(layer->gate_up, rows, stack->product_input, stack->fused);
        linear_apply(layer->down, rows, stack->product_input, stack->partial);
    }
}

void stack_run_context_product(struct stack *stack, int rows, const void *features)
{
    linear_apply(stack->context, rows, features, stack->fused);
}
