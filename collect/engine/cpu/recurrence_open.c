#include "collect/engine/cpu/recurrence_state.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

int recurrence_out_width(const struct recurrence *recurrence)
{
    return recurrence->sizes.value_heads * recurrence->sizes.value_size;
}

int recurrence_in_width(const struct recurrence *recurrence)
{
    return recurrence->channels + recurrence_out_width(recurrence) + 2 * recurrence->sizes.value_heads;
}

/* --- the rank's slices of weights ------------------------------------------------------------------------------- */

/* A rank's rows of a tensor over all channels: those of its queries, of its keys and of its values stand apart. */
struct channel_parts {
    int first[3], count[3];
};

static struct channel_parts find_channels(const struct recurrence *recurrence)
{
    const struct model_recurrence *whole = &recurrence->model->recurrence;
    int keys = whole->key_heads * whole->key_size, rank = recurrence->rank;
    int own_keys = recurrence->sizes.key_heads * whole->key_size, own_values = recurrence_out_width(recurrence);
    return (struct channel_parts){{rank * own_keys, keys + rank * own_keys, 2 * keys + rank * own_values},
                                  {own_keys, own_keys, own_values}};
}

struct linear *recurrence_create_in(const struct recurrence *recurrence, const struct model_recurrent_layer *layer,
                                    const int *shapes, int shape_count)
{
    const struct channel_parts channels = find_channels(recurrence);
    int rank = recurrence->rank, values = recurrence_out_width(recurrence), heads = recurrence->sizes.value_heads;
    const struct linear_part parts[] = {
        {layer->qkv, channels.first[0], channels.count[0], 0},
        {layer->qkv, channels.first[1], channels.count[1], 0},
        {layer->qkv, channels.first[2], channels.count[2], 0},
        {layer->z, rank * values, values, 0},
        {layer->b, rank * heads, heads, 0},
        {layer->a, rank * heads, heads, 0},
    };
    return linear_create(recurrence->type, parts, sizeof parts / sizeof *parts, recurrence->model->hidden_size, shapes,
                         shape_count);
}

struct linear *recurrence_create_out(const struct recurrence *recurrence, const struct model_recurrent_layer *layer,
                                     const int *shapes, int shape_count)
{
    int values = recurrence_out_width(recurrence);
    const struct linear_part out = {layer->out, 0, recurrence->model->hidden_size, recurrence->rank * values};
    return linear_create(recurrence->type, &out, 1, values, shapes, shape_count);
}

/* [C, kernel_size] in the file; turned, so that a tap's weights stand together. */
static float *load_convolution(const struct recurrence *recurrence, const struct tensor *tensor)
{
    const struct channel_parts channels = find_channels(recurrence);
    int kernel = recurrence->sizes.kernel_size, to = 0;
    float *weights = xaligned((size_t)kernel * (size_t)recurrence->channels, sizeof *weights), taps[16];
    for (int part = 0; part < 3; part++)
        for (int i = 0; i < channels.count[part]; i++, to++) {
            tensor_to_float(tensor, (int64_t)(channels.first[part] + i) * kernel, kernel, taps);
            for (int t = 0; t < kernel; t++)
                weights[(size_t)t * (size_t)recurrence->channels + (size_t)to] = taps[t];
        }
    return weights;
}

static float *load_slice(const struct tensor *tensor, int first, int count)
{
    float *values = xaligned((size_t)count, sizeof *values);
    tensor_to_float(tensor, first, count, values);
    return values;
}

static void load_layer(const struct recurrence *recurrence, const struct model_recurrent_layer *from,
                       struct recurrent_weights *to)
{
    int heads = recurrence->sizes.value_heads, first = recurrence->rank * heads;
    to->convolution = load_convolution(recurrence, from->convolution);
    to->rate = load_slice(from->decay_log, first, heads);
    to->step_bias = load_slice(from->step_bias, first, heads);
    to->norm = load_slice(from->norm, 0, recurrence->sizes.value_size);
    for (int i = 0; i < heads; i++)
        to->rate[i] = -expf(to->rate[i]);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static struct recurrent_rows create_rows(const struct recurrence *recurrence, int rows)
{
    size_t gates = (size_t)rows * (size_t)recurrence->sizes.value_heads;
    return (struct recurrent_rows){
        xaligned((size_t)rows * (size_t)recurrence->channels, product_type_size(recurrence->type)),
        xaligned(gates, sizeof(float)), xaligned(gates, sizeof(float))};
}

static void free_rows(struct recurrent_rows *rows)
{
    free(rows->inputs);
    free(rows->decays);
    free(rows->betas);
}

static void create_scratch(struct recurrence *recurrence)
{
    size_t rows = (size_t)recurrence->segment_shapes[recurrence->segment_shape_count - 1];
    size_t keys = (size_t)recurrence->sizes.key_size, values = (size_t)recurrence->sizes.value_size;
    recurrence->thread_count = omp_get_max_threads();
    recurrence->scratch = xcalloc((size_t)recurrence->thread_count, sizeof *recurrence->scratch);
    for (int i = 0; i < recurrence->thread_count; i++)
        recurrence->scratch[i] = (struct recurrent_scratch){
            xaligned(2 * rows * keys, sizeof(float)), xaligned(2 * rows * values, sizeof(float)),
            xaligned(rows * values, sizeof(float)), xaligned(rows, sizeof(float))};
}

static void create_sessions(struct recurrence *recurrence)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    size_t sessions = (size_t)recurrence->layer_count * (size_t)recurrence->sessions;
    recurrence->states = xaligned(sessions * (size_t)sizes->value_heads * (size_t)sizes->key_size,
                                  (size_t)sizes->value_size * sizeof(float));
    recurrence->windows = xaligned(sessions * (size_t)(sizes->kernel_size - 1) * (size_t)recurrence->channels,
                                   product_type_size(recurrence->type));
}

static void set_sizes(struct recurrence *recurrence, const struct recurrence_options *options)
{
    const struct model *model = options->model;
    recurrence->model = model;
    recurrence->type = options->type;
    recurrence->rank = options->rank;
    recurrence->sessions = options->sessions;
    recurrence->layer_count = model->recurrent_count;
    recurrence->sizes = model->recurrence;
    recurrence->sizes.key_heads /= options->ranks;
    recurrence->sizes.value_heads /= options->ranks;
    recurrence->group = recurrence->sizes.value_heads / recurrence->sizes.key_heads;
    recurrence->channels =
        2 * recurrence->sizes.key_heads * recurrence->sizes.key_size + recurrence_out_width(recurrence);
    recurrence->segment_shape_count = options->segment_shape_count;
    memcpy(recurrence->segment_shapes, options->segment_shapes, (size_t)options->segment_shape_count * sizeof(int));
}

struct recurrence *recurrence_create(const struct recurrence_options *options)
{
    struct recurrence *recurrence = xcalloc(1, sizeof *recurrence);
    set_sizes(recurrence, options);
    recurrence->layers = xcalloc((size_t)recurrence->layer_count, sizeof *recurrence->layers);
    for (int i = 0, layer = 0; i < options->model->layer_count; i++)
        if (options->model->kinds[i] == MODEL_RECURRENT)
            load_layer(recurrence, &options->model->layers[i].recurrent, &recurrence->layers[layer++]);
    recurrence->reads = xcalloc((size_t)recurrence->segment_shape_count, sizeof(struct small_product *));
    for (int i = 0; i < recurrence->segment_shape_count; i++)
        recurrence->reads[i] = small_product_create(PRODUCT_FLOAT32, 2 * recurrence->segment_shapes[i],
                                                    recurrence->sizes.value_size, recurrence->sizes.key_size, false);
    recurrence->passing = create_rows(recurrence, options->rows);
    if (options->verified_rows) {
        recurrence->verified = xcalloc((size_t)recurrence->layer_count, sizeof *recurrence->verified);
        for (int i = 0; i < recurrence->layer_count; i++)
            recurrence->verified[i] = create_rows(recurrence, options->verified_rows);
    }
    recurrence->mixed = xaligned((size_t)options->rows * (size_t)recurrence->channels, sizeof(float));
    recurrence->output = xaligned((size_t)options->rows * (size_t)recurrence_out_width(recurrence), sizeof(float));
    create_sessions(recurrence);
    create_scratch(recurrence);
    return recurrence;
}

void recurrence_destroy(struct recurrence *recurrence)
{
    if (!recurrence)
        return;
    for (int i = 0; i < recurrence->layer_count; i++) {
        const struct recurrent_weights *layer = &recurrence->layers[i];
        float *vectors[] = {layer->convolution, layer->rate, layer->step_bias, layer->norm};
        for (int j = 0; j < 4; j++)
            free(vectors[j]);
        if (recurrence->verified)
            free_rows(&recurrence->verified[i]);
    }
    free_rows(&recurrence->passing);
    for (int i = 0; i < recurrence->segment_shape_count; i++)
        small_product_destroy(recurrence->reads[i]);
    for (int i = 0; i < recurrence->thread_count; i++) {
        float *vectors[] = {recurrence->scratch[i].factors, recurrence->scratch[i].reads, recurrence->scratch[i].deltas,
                            recurrence->scratch[i].weights};
        for (int j = 0; j < 4; j++)
            free(vectors[j]);
    }
    void *buffers[] = {recurrence->layers,  recurrence->reads, recurrence->verified, recurrence->states,
                       recurrence->windows, recurrence->mixed, recurrence->output,   recurrence->scratch};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(recurrence);
}
