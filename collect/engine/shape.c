#include "collect/engine/shape.h"

#include "collect/engine/model_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAFT_LAYERS 5
#define DRAFT_BLOCK 16
#define SEED 20260204u

struct sizes {
    int intermediate_size, heads, kv_heads, head_size;
};

/* Of the models' config.json; what begins with `tiny` is for tests. */
static const struct shape {
    const char *name;
    int hidden_size, layers, vocabulary, mask;
    bool tied;
    struct sizes target;
    int key_heads, value_heads, recurrent_size; /* of a hybrid's recurrent layers: heads, and the size of all */
    struct sizes drafter;                       /* all 0: the target's */
    int window;                                 /* of all layers of the drafter but its last; 0: none has one */
} shapes[] = {
    {"tiny", 64, 8, 2048, 7, true, {96, 4, 2, 16}},
    {"qwen3-0.6b", 1024, 28, 151936, 151669, true, {3072, 16, 8, 128}},
    {"qwen3-1.7b", 2048, 28, 151936, 151669, true, {6144, 16, 8, 128}},
    {"qwen3-4b", 2560, 36, 151936, 151669, true, {9728, 32, 8, 128}},
    {"qwen3-8b", 4096, 36, 151936, 151669, false, {12288, 32, 8, 128}},
    {"qwen3-14b", 5120, 40, 151936, 151669, false, {17408, 40, 8, 128}},
    {"qwen3-32b", 5120, 64, 151936, 151669, false, {25600, 64, 8, 128}},
    {"tiny-hybrid", 64, 8, 2048, 7, true, {96, 4, 2, 32}, 2, 4, 16, {96, 4, 2, 16}, 24},
    {"qwen3.5-4b", 2560, 32, 248320, 248070, true, {9216, 16, 4, 256}, 16, 32, 128, {9728, 32, 8, 128}},
    {"qwen3.5-9b", 4096, 32, 248320, 248070, false, {12288, 16, 4, 256}, 16, 32, 128, {12288, 32, 8, 128}},
    {"qwen3.6-27b", 5120, 64, 248320, 248070, false, {17408, 24, 4, 256}, 16, 48, 128, {17408, 32, 8, 128}, 2048},
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
    bool zero_centred;
    const char *file;
};

/* Whether a tensor's name ends so. */
static bool is_named(const struct wanted_weight *wanted, const char *end)
{
    size_t length = strlen(wanted->name), tail = strlen(end);
    return length >= tail && strcmp(wanted->name + length - tail, end) == 0;
}

/* Matrices: uniform numbers of variance 1 / columns, so that a product of a normed row has elements of about 1. Norms:
 * 1, or what makes it 1. Decays near 0.96. */
static struct recipe make_recipe(const struct making *making, const struct wanted_weight *wanted)
{
    int dimensions = model_weight_dimensions(wanted);
    uint32_t seed = making->seed + (uint32_t)making->count * 0x9e3779b9u;
    if (dimensions > 1)
        return (struct recipe){.seed = seed, .spread = sqrtf(3.0f / (float)wanted->shape[dimensions - 1])};
    if (is_named(wanted, ".A_log"))
        return (struct recipe){.mean = -3};
    bool zero_centred = making->zero_centred && !is_named(wanted, ".linear_attn.norm.weight");
    return (struct recipe){.mean = zero_centred ? 0 : 1};
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
        .recipe = make_recipe(making, wanted),
    };
    making->count++;
    return 0;
}

static struct model *make_model(const struct shape *shape, const struct sizes *sizes, int layers)
{
    struct model *model = xcalloc(1, sizeof *model);
    model->folder = xformat("shape %s", shape->name);
    model->hidden_size = shape->hidden_size;
    model->intermediate_size = sizes->intermediate_size;
    model->layer_count = layers;
    model->head_count = sizes->heads;
    model->kv_head_count = sizes->kv_heads;
    model->head_size = sizes->head_size;
    model->vocabulary_size = shape->vocabulary;
    model->position_limit = 40960;
    model->norm_epsilon = 1e-6f;
    model->rope_theta = shape->key_heads ? 1e7f : 1e6f;
    model->tied = shape->tied;
    model->rotary_size = sizes->head_size;
    model->windows = xcalloc((size_t)layers, sizeof *model->windows);
    model->kinds = xcalloc((size_t)layers, sizeof *model->kinds);
    return model;
}

static struct model *make_target(const struct shape *shape)
{
    struct model *target = make_model(shape, &shape->target, shape->layers);
    if (!shape->key_heads)
        return target;
    int size = shape->recurrent_size;
    target->rotary_size = target->head_size / 4;
    target->zero_centred_norms = target->gated_attention = true;
    target->recurrence = (struct model_recurrence){shape->key_heads, shape->value_heads, size, size, 4};
    for (int i = 0; i < target->layer_count; i++)
        if ((i + 1) % 4) {
            target->kinds[i] = MODEL_RECURRENT;
            target->recurrent_count++;
        }
    return target;
}

static struct model *make_drafter(const struct shape *shape)
{
    struct model *drafter = make_model(shape, shape->drafter.heads ? &shape->drafter : &shape->target, DRAFT_LAYERS);
    drafter->block_size = DRAFT_BLOCK;
    drafter->mask_token = shape->mask;
    drafter->causal_windows = true;
    for (int i = 0; i < DRAFT_LAYERS - 1; i++)
        drafter->windows[i] = shape->window;
    model_spread_features(drafter, shape->layers);
    return drafter;
}

static void make_weights(struct model *model, bool drafter)
{
    struct making making = {
        .seed = drafter ? SEED + 1 : SEED, .zero_centred = model->zero_centred_norms, .file = model->folder};
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
    *target = make_target(shape);
    *drafter = make_drafter(shape);
    make_weights(*target, false);
    make_weights(*drafter, true);
    return 0;
}
