/* Each rank's slice of the weights, and what all ranks of a GPU share. */
#include "collect/engine/cuda/cuda.h"
#include "collect/engine/cuda/weights.h"

#include <math.h>
#include <stdlib.h>

/* Norms' scales, one behind the other: where norms are zero-centred the files have what is to be added to 1. */
static float *load_norms(struct loader *loader, const struct model *model, const struct tensor *const *tensors,
                         int count)
{
    size_t elements = 0, done = 0;
    for (int i = 0; i < count; i++)
        elements += (size_t)tensors[i]->elements;
    float *values = xcalloc(elements, sizeof *values);
    for (int i = 0; i < count; done += (size_t)tensors[i++]->elements)
        tensor_to_float(tensors[i], 0, tensors[i]->elements, values + done);
    for (size_t i = 0; model->zero_centred_norms && i < elements; i++)
        values[i] += 1.0f;
    float *norms = loader_floats(loader, values, elements);
    free(values);
    return norms;
}

static void load_attention(struct loader *loader, const struct layers *layers, int rank, const struct model_layer *from,
                           struct layer_weights *to)
{
    const struct weight_part qkv[] = {weight_rows(from->q, rank, layers_query_width(layers)),
                                      weight_rows(from->k, layers->kv_slice, layers_kv_width(layers)),
                                      weight_rows(from->v, layers->kv_slice, layers_kv_width(layers))};
    const struct weight_part o = weight_columns(from->o, rank, layers_head_width(layers));
    to->q_norm = load_norms(loader, layers->model, &from->q_norm, 1);
    to->k_norm = load_norms(loader, layers->model, &from->k_norm, 1);
    to->qkv = loader_matrix(loader, qkv, 3);
    to->o = loader_matrix(loader, &o, 1);
}

static void load_layer(struct loader *loader, const struct layers *layers, int rank, int index)
{
    const struct model_layer *from = &layers->model->layers[index];
    struct layer_weights *to = &layers->weights[index];
    const struct weight_part gate_up[] = {weight_rows(from->gate, rank, layers->inner),
                                          weight_rows(from->up, rank, layers->inner)};
    const struct weight_part down = weight_columns(from->down, rank, layers->inner);
    to->input_norm = load_norms(loader, layers->model, &from->input_norm, 1);
    to->post_attention_norm = load_norms(loader, layers->model, &from->post_attention_norm, 1);
    if (layers->model->kinds[index] == MODEL_RECURRENT)
        recurrent_load_layer(loader, &layers->recurrence, layers->model, rank, &from->recurrent, &to->recurrent_in,
                             &to->recurrent_out);
    else
        load_attention(loader, layers, rank, from, to);
    to->gate_up = loader_matrix(loader, gate_up, 2);
    to->down = loader_matrix(loader, &down, 1);
}

static void load_layers(struct loader *loader, struct layers *layers, int rank)
{
    const struct model *model = layers->model;
    layers->weights = xcalloc((size_t)model->layer_count, sizeof *layers->weights);
    for (int i = 0; i < model->layer_count; i++)
        load_layer(loader, layers, rank, i);
    if (model->recurrent_count)
        recurrent_load(loader, &layers->recurrence, model, rank);
}

static void load_context(struct loader *loader, struct layers *layers)
{
    const struct model *model = layers->model;
    size_t count = (size_t)model->layer_count;
    struct weight_part *parts = xcalloc(count * 2, sizeof *parts);
    const struct tensor **norms = xcalloc(count, sizeof *norms);
    for (size_t i = 0; i < count; i++) {
        parts[2 * i] = weight_rows(model->layers[i].k, layers->kv_slice, layers_kv_width(layers));
        parts[2 * i + 1] = weight_rows(model->layers[i].v, layers->kv_slice, layers_kv_width(layers));
        norms[i] = model->layers[i].k_norm;
    }
    layers->context = loader_matrix(loader, parts, 2 * (int)count);
    layers->k_norms = load_norms(loader, model, norms, (int)count);
    free((void *)norms);
    free(parts);
}

static void load_rank(const struct cuda *cuda, struct gpu *gpu, struct rank *rank, struct loader *loader)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int ranks = cuda->options.ranks, slice = target->vocabulary_size / ranks;
    const struct weight_part head = weight_rows(target->head, rank->index, slice);
    size_t offset = (size_t)rank->index * (size_t)slice * (size_t)target->hidden_size * element_size(cuda->type);
    bool tied = target->head == target->embedding;
    rank->head = tied ? (char *)gpu->embedding + offset : loader_matrix(loader, &head, 1);
    load_layers(loader, &rank->target, rank->index);
    if (!drafter)
        return;
    const struct weight_part fuse =
        weight_columns(drafter->fc, rank->index, drafter->feature_count * drafter->hidden_size / ranks);
    load_layers(loader, &rank->drafter, rank->index);
    load_context(loader, &rank->drafter);
    rank->fuse = loader_matrix(loader, &fuse, 1);
}

void load_weights(struct cuda *cuda, struct gpu *gpu)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    struct loader *loader = loader_create(cuda->type, gpu->stream);
    const struct weight_part embedding = weight_rows(target->embedding, 0, target->vocabulary_size);
    gpu->embedding = loader_matrix(loader, &embedding, 1);
    gpu->norm = load_norms(loader, target, &target->norm, 1);
    if (drafter) {
        gpu->drafter_norm = load_norms(loader, drafter, &drafter->norm, 1);
        gpu->hidden_norm = load_norms(loader, drafter, &drafter->hidden_norm, 1);
    }
    FOR_RANKS(gpu, rank)
        load_rank(cuda, gpu, rank, loader);
    cuda->weight_bytes += loader_bytes(loader);
    loader_destroy(loader);
}

/* The same angles as the CPU backend's, computed by the same functions. */
void load_rotation(const struct cuda *cuda, const struct gpu *gpu, bool drafter)
{
    const struct model *model = drafter ? cuda->options.drafter : cuda->options.target;
    size_t half = (size_t)model->rotary_size / 2, capacity = (size_t)cuda->options.capacity;
    size_t bytes = capacity * half * sizeof(float);
    float *cosines = xmalloc(bytes), *sines = xmalloc(bytes);
    for (size_t i = 0; i < half; i++) {
        float frequency = 1.0f / powf(model->rope_theta, (float)(2 * i) / (float)model->rotary_size);
        for (size_t position = 0; position < capacity; position++) {
            float angle = (float)position * frequency;
            cosines[position * half + i] = cosf(angle);
            sines[position * half + i] = sinf(angle);
        }
    }
    CUDA_CHECK(cudaMemcpy(gpu->cosines[drafter], cosines, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(gpu->sines[drafter], sines, bytes, cudaMemcpyHostToDevice));
    free(cosines);
    free(sines);
}
