#include "collect/engine/shape.h"

#include "collect/engine/model_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAFT_LAYERS 5
#define DRAFT_BLOCK 16
#define SEED 20260204u

/* Of Qwen3's config.json; `tiny` is for tests. */
static const struct shape {
    const char *name;
    int hidden_size, intermediate_size, layers, heads, kv_heads, head_size, vocabulary, mask;
    bool tied;
} shapes[] = {
    {"tiny", 64, 96, 8, 4, 2, 16, 2048, 7, true},
    {"qwen3-0.6b", 1024, 3072, 28, 16, 8, 128, 151936, 151669, true},
    {"qwen3-1.7b", 2048, 6144, 28, 16, 8, 128, 151936, 151669, true},
    {"qwen3-4b", 2560, 9728, 36, 32, 8, 128, 151936, 151669, true},
    {"qwen3-8b", 4096, 12288, 36, 32, 8, 128, 151936, 151669, false},
    {"qwen3-14b", 5120, 17408, 40, 40, 8, 128, 151936, 151669, false},
    {"qwen3-32b", 5120, 25600, 64, 64, 8, 128, 151936, 151669, false},
};

enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

const char *shape_names(void)
{
    static char names[SHAPE_COUNT * 16];
    char *at = names;
    for (int i = 0; i < SHAPE_COUNT; i++)
        at += sprintf(at, "%s%s", i ? ", " : "", shapes[i].name);
    return names;
}

/* The tensors as they are listed. */
struct making {
    struct tensor *tensors;
    int count;
    uint32_t seed;
    const char *file;
};

/* Uniform numbers of variance 1 / columns, so that a product of a normed row has elements of about 1; norms of 1. */
static struct recipe make_recipe(const struct wanted_weight *wanted, uint32_t seed)
{
    int dimensions = model_weight_dimensions(wanted);
    if (dimensions == 1)
        return (struct recipe){.mean = 1};
    return (struct recipe){.seed = seed, .spread = sqrtf(3.0f / (float)wanted->shape[dimensions - 1])};
}

static int make_tensor(void *context, const struct wanted_weight *wanted)
{
    struct making *making = context;
    int dimensions = model_weight_dimensions(wanted);
    int64_t elements = 1;
    for (int i = 0; i < dimensions; i++)
        elements *= wanted->shape[i];
    making->tensors = xrealloc(making->tensors, (size_t)making->count + 1, sizeof *making->tensors);
    making->tensors[making->count] = (struct tensor){
        .name = xstrdup(wanted->name),
        .type = TENSOR_MADE,
        .dimensions = dimensions,
        .shape = {wanted->shape[0], wanted->shape[1], wanted->shape[2]},
        .elements = elements,
        .file = making->file,
        .recipe = make_recipe(wanted, making->seed + (uint32_t)making->count * 0x9e3779b9u),
    };
    making->count++;
    return 0;
}

static struct model *make_model(const struct shape *shape, int layers)
{
    struct model *model = xcalloc(1, sizeof *model);
    model->folder = xformat("shape %s", shape->name);
    model->hidden_size = shape->hidden_size;
    model->intermediate_size = shape->intermediate_size;
    model->layer_count = layers;
    model->head_count = shape->heads;
    model->kv_head_count = shape->kv_heads;
    model->head_size = shape->head_size;
    model->vocabulary_size = shape->vocabulary;
    model->position_limit = 40960;
    model->norm_epsilon = 1e-6f;
    model->rope_theta = 1e6f;
    model->tied = shape->tied;
    model->rotary_size = shape->head_size;
    model->windows = xcalloc((size_t)layers, sizeof *model->windows);
    model->kinds = xcalloc((size_t)layers, sizeof *model->kinds);
    return model;
}

static void make_weights(struct model *model, bool drafter)
{
    struct making making = {.seed = drafter ? SEED + 1 : SEED, .file = model->folder};
    struct error error = {0};
    model_list_weights(model, drafter, make_tensor, &making);
    model->weights = safetensors_make(making.tensors, making.count);
    if (model_find_weights(model, drafter, NULL, &error))
        die("%s", error.message);
}

int shape_open(const char *name, struct model **target, struct model **drafter, struct error *error)
{
    int index = 0;
    while (index < SHAPE_COUNT && strcmp(shapes[index].name, name) != 0)
        index++;
    if (index == SHAPE_COUNT)
        return fail(error, "no shape \"%s\"; there are %s", name, shape_names());
    const struct shape *shape = &shapes[index];
    *target = make_model(shape, shape->layers);
    *drafter = make_model(shape, DRAFT_LAYERS);
    (*drafter)->block_size = DRAFT_BLOCK;
    (*drafter)->mask_token = shape->mask;
    model_spread_features(*drafter, shape->layers);
    make_weights(*target, false);
    make_weights(*drafter, true);
    return 0;
}
