#include "collect/engine/cpu/stack_state.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static float *load_vector(const struct tensor *tensor)
{
    float *values = xaligned((size_t)tensor->elements, sizeof *values);
    tensor_to_float(tensor, 0, tensor->elements, values);
    return values;
}

/* A norm's scale: where norms are zero-centred the file has what is to be added to 1. */
static float *load_norm(const struct model *model, const struct tensor *tensor)
{
    float *values = load_vector(tensor);
    for (int64_t i = 0; model->zero_centred_norms && i < tensor->elements; i++)
        values[i] += 1.0f;
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

static void create_attention_layer(struct stack *stack, const struct stack_options *options,
                                   const struct model_layer *from, struct layer *layer)
{
    int head = stack->model->head_size, queries = stack->heads * stack->query_size, keys = stack->kv_heads * head;
    int rank = options->rank, attended = stack->heads * head;
    const struct linear_part in[] = {row_slice(from->q, rank, queries), row_slice(from->k, stack->kv_slice, keys),
                                     row_slice(from->v, stack->kv_slice, keys)};
    const struct linear_part out = column_slice(from->o, rank * attended);
    const int *shapes = options->row_shapes, count = options->row_shape_count;
    layer->q_norm = load_norm(stack->model, from->q_norm);
    layer->k_norm = load_norm(stack->model, from->k_norm);
    layer->in = linear_create(stack->type, in, 3, stack->model->hidden_size, shapes, count);
    layer->out = linear_create(stack->type, &out, 1, attended, shapes, count);
}

static void create_layer(struct stack *stack, const struct stack_options *options, int index)
{
    const struct model_layer *from = &stack->model->layers[index];
    struct layer *layer = &stack->layers[index];
    const struct linear_part gate_up[] = {row_slice(from->gate, options->rank, stack->inner),
                                          row_slice(from->up, options->rank, stack->inner)};
    const struct linear_part down = column_slice(from->down, options->rank * stack->inner);
    const int *shapes = options->row_shapes, count = options->row_shape_count;
    for (int i = 0; i < index; i++)
        layer->place += stack->model->kinds[i] == stack->model->kinds[index];
    layer->input_norm = load_norm(stack->model, from->input_norm);
    layer->post_attention_norm = load_norm(stack->model, from->post_attention_norm);
    if (stack->model->kinds[index] == MODEL_RECURRENT) {
        layer->in = recurrence_create_in(stack->recurrence, &from->recurrent, shapes, count);
        layer->out = recurrence_create_out(stack->recurrence, &from->recurrent, shapes, count);
    } else {
        create_attention_layer(stack, options, from, layer);
    }
    layer->gate_up = linear_create(stack->type, gate_up, 2, stack->model->hidden_size, shapes, count);
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
    int half = stack->model->rotary_size / 2;
    stack->cosines = xaligned((size_t)stack->capacity * (size_t)half, sizeof *stack->cosines);
    stack->sines = xaligned((size_t)stack->capacity * (size_t)half, sizeof *stack->sines);
    for (int i = 0; i < half; i++) {
        float frequency = 1.0f / powf(stack->model->rope_theta, (float)(2 * i) / (float)stack->model->rotary_size);
        for (int position = 0; position < stack->capacity; position++) {
            float angle = (float)position * frequency;
            stack->cosines[position * half + i] = cosf(angle);
            stack->sines[position * half + i] = sinf(angle);
        }
    }
}

static void create_attention(struct stack *stack)
{
    int head = stack->model->head_size, steps = stack->column_steps, columns = steps * STACK_COLUMN_STEP;
    stack->attention = xcalloc((size_t)(stack->segment_shape_count * steps), sizeof *stack->attention);
    for (int shape = 0; shape < stack->segment_shape_count; shape++)
        for (int step = 0; step < steps; step++) {
            struct attention_products *products = &stack->attention[shape * steps + step];
            int rows = stack->segment_shapes[shape] * stack->group;
            products->scores = small_product_create(stack->type, rows, (step + 1) * STACK_COLUMN_STEP, head, true);
            products->weighted = small_product_create(stack->type, rows, head, (step + 1) * STACK_COLUMN_STEP, false);
        }
    size_t rows = (size_t)(stack->segment_shapes[stack->segment_shape_count - 1] * stack->group);
    stack->thread_count = omp_get_max_threads();
    stack->scratch = xcalloc((size_t)stack->thread_count, sizeof *stack->scratch);
    for (int i = 0; i < stack->thread_count; i++) {
        stack->scratch[i].queries = xaligned(rows * (size_t)head, product_type_size(stack->type));
        stack->scratch[i].scores = xaligned(rows * (size_t)columns, sizeof(float));
        stack->scratch[i].weights = stack->type == PRODUCT_FLOAT32
                                        ? (void *)stack->scratch[i].scores
                                        : xaligned(rows * (size_t)columns, product_type_size(stack->type));
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
    int kv = stack->kv_heads * model->head_size, attended = stack->heads * model->head_size;
    int wide = widest(widest(stack->in_width, 2 * stack->inner), model->hidden_size);
    wide = widest(wide, stack->context ? 2 * kv * model->layer_count : 0);
    wide = widest(wide, stack->recurrence ? recurrence_in_width(stack->recurrence) : 0);
    attended = widest(attended, stack->recurrence ? recurrence_out_width(stack->recurrence) : 0);
    size_t cache = (size_t)(model->layer_count - model->recurrent_count) * (size_t)stack->sessions * (size_t)kv *
                   (size_t)stack->capacity;
    stack->keys = xaligned(cache, size);
    stack->values = xaligned(cache, size);
    stack->fused = xaligned(rows * (size_t)wide, sizeof(float));
    stack->partial = xaligned(rows * (size_t)model->hidden_size, sizeof(float));
    stack->product_input = xaligned(rows * (size_t)widest(model->hidden_size, stack->inner), size);
    size_t segment_rows = (size_t)stack->segment_shapes[stack->segment_shape_count - 1];
    stack->bias = xaligned((size_t)stack->sessions * segment_rows * (segment_rows + 2 * STACK_VECTOR), sizeof(float));
    stack->attended = xaligned(rows * (size_t)attended, size);
}

static void set_sizes(struct stack *stack, const struct stack_options *options)
{
    const struct model *model = options->model;
    int ranks = team_ranks(options->team);
    stack->model = model;
    stack->type = options->type;
    stack->sessions = options->sessions;
    stack->column_steps = (options->capacity + STACK_COLUMN_STEP - 1) / STACK_COLUMN_STEP;
    stack->capacity = stack->column_steps * STACK_COLUMN_STEP;
    stack->team = options->team;
    stack->rank = options->rank;
    stack->heads = model->head_count / ranks;
    stack->kv_heads = model->kv_head_count > ranks ? model->kv_head_count / ranks : 1;
    stack->kv_slice = model->kv_head_count > ranks ? options->rank : options->rank * model->kv_head_count / ranks;
    stack->group = stack->heads / stack->kv_heads;
    stack->query_size = model->head_size * (model->gated_attention ? 2 : 1);
    stack->in_width = stack->heads * stack->query_size + 2 * stack->kv_heads * model->head_size;
    stack->inner = model->intermediate_size / ranks;
    stack->maximum_rows = options->row_shapes[options->row_shape_count - 1];
    stack->segment_shape_count = options->segment_shape_count;
    memcpy(stack->segment_shapes, options->segment_shapes, (size_t)options->segment_shape_count * sizeof(int));
}

static void create_recurrence(struct stack *stack, const struct stack_options *options)
{
    const struct recurrence_options recurrence = {
        .model = options->model,
        .type = options->type,
        .rank = options->rank,
        .ranks = team_ranks(options->team),
        .sessions = options->sessions,
        .rows = stack->maximum_rows,
        .verified_rows = options->verified_rows,
        .segment_shapes = options->segment_shapes,
        .segment_shape_count = options->segment_shape_count,
    };
    stack->recurrence = recurrence_create(&recurrence);
}

struct stack *stack_create(const struct stack_options *options)
{
    const struct model *model = options->model;
    struct stack *stack = xcalloc(1, sizeof *stack);
    set_sizes(stack, options);
    if (model->recurrent_count)
        create_recurrence(stack, options);
    stack->layers = xcalloc((size_t)model->layer_count, sizeof *stack->layers);
    for (int i = 0; i < model->layer_count; i++)
        create_layer(stack, options, i);
    stack->norm = load_norm(model, model->norm);
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
        struct linear *linears[] = {layer->in, layer->out, layer->gate_up, layer->down};
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
        free(stack->type == PRODUCT_FLOAT32 ? NULL : stack->scratch[i].weights);
        free(stack->scratch[i].sums);
        free(stack->scratch[i].output);
    }
    linear_destroy(stack->context);
    recurrence_destroy(stack->recurrence);
    void *buffers[] = {stack->layers,  stack->norm,  stack->cosines,  stack->sines,         stack->keys,
                       stack->values,  stack->fused, stack->attended, stack->product_input, stack->attention,
                       stack->scratch, stack->bias,  stack->partial};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(stack);
}

size_t stack_weight_bytes(const struct stack *stack)
{
    size_t bytes = stack->context ? linear_bytes(stack->context) : 0;
    for (int i = 0; i < stack->model->layer_count; i++) {
        const struct layer *layer = &stack->layers[i];
        bytes += linear_bytes(layer->in) + linear_bytes(layer->out) + linear_bytes(layer->gate_up) +
                 linear_bytes(layer->down);
    }
    return bytes;
}
