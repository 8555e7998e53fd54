#include "collect/engine/model_parts.h"

#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const struct model *model;
    struct model_findings *findings; /* NULL: what is wrong ends the search */
    json_t *used;                    /* names that were asked for */
    struct error *error;
};

enum { SHAPE_TEXT_SIZE = TENSOR_DIMENSIONS_MAXIMUM * 22 + 3 };

static const char *format_shape(const int64_t *shape, int dimensions, char *text)
{
    char *at = text + sprintf(text, "[");
    for (int i = 0; i < dimensions; i++)
        at += sprintf(at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    sprintf(at, "]");
    return text;
}

static bool has_shape(const struct tensor *tensor, const int64_t *shape, int dimensions)
{
    return tensor->dimensions == dimensions && memcmp(tensor->shape, shape, (size_t)dimensions * sizeof *shape) == 0;
}

int model_weight_dimensions(const struct wanted_weight *wanted)
{
    int dimensions = 1;
    while (dimensions < MODEL_WEIGHT_DIMENSIONS && wanted->shape[dimensions])
        dimensions++;
    return dimensions;
}

/* Why the tensor cannot be used, or NULL; free() it. */
static char *find_fault(const struct tensor *tensor, const struct wanted_weight *wanted)
{
    int dimensions = model_weight_dimensions(wanted);
    char is[SHAPE_TEXT_SIZE], should[SHAPE_TEXT_SIZE];
    if (tensor->type == TENSOR_OTHER)
        return xformat("tensor \"%s\" must be F32, F16 or BF16", wanted->name);
    if (has_shape(tensor, wanted->shape, dimensions))
        return NULL;
    return xformat("tensor \"%s\" is %s; config.json asks for %s", wanted->name,
                   format_shape(tensor->shape, tensor->dimensions, is),
                   format_shape(wanted->shape, dimensions, should));
}

static int find_weight(void *context, const struct wanted_weight *wanted)
{
    struct search *search = context;
    const struct tensor *tensor = safetensors_find(search->model->weights, wanted->name);
    json_set(search->used, wanted->name, json_true());
    if (!tensor && search->findings)
        json_append(search->findings->missing, json_text(wanted->name));
    else if (!tensor)
        return fail(search->error, "%s: tensor \"%s\" is missing", search->model->folder, wanted->name);
    if (!tensor)
        return 0;
    char *fault = find_fault(tensor, wanted);
    int result = 0;
    if (fault && search->findings)
        json_append(search->findings->unfit, json_text(fault));
    else if (fault)
        result = fail(search->error, "%s: %s", tensor->file, fault);
    else
        *wanted->to = tensor;
    free(fault);
    return result;
}

/* Who wants to know of each weight. */
struct listing {
    const struct model *model;
    model_on_weight *on_weight;
    void *context;
};

/* What stands behind `prefix` in the tensors' names. */
static int list_parts(const struct listing *listing, const char *prefix, const struct wanted_weight *parts,
                      size_t count)
{
    int result = 0;
    for (size_t i = 0; !result && i < count; i++) {
        char name[128];
        struct wanted_weight part = parts[i];
        snprintf(name, sizeof name, "%s%s", prefix, part.name);
        part.name = name;
        result = listing->on_weight(listing->context, &part);
    }
    return result;
}

static int list_attention(const struct listing *listing, const char *prefix, struct model_layer *layer)
{
    const struct model *model = listing->model;
    int64_t hidden = model->hidden_size, head = model->head_size, key = head * model->kv_head_count;
    int64_t attended = head * model->head_count, query = attended * (model->gated_attention ? 2 : 1);
    const struct wanted_weight parts[] = {
        {"self_attn.q_proj.weight", {query, hidden}, &layer->q},
        {"self_attn.k_proj.weight", {key, hidden}, &layer->k},
        {"self_attn.v_proj.weight", {key, hidden}, &layer->v},
        {"self_attn.o_proj.weight", {hidden, attended}, &layer->o},
        {"self_attn.q_norm.weight", {head}, &layer->q_norm},
        {"self_attn.k_norm.weight", {head}, &layer->k_norm},
    };
    return list_parts(listing, prefix, parts, sizeof parts / sizeof *parts);
}

static int list_recurrence(const struct listing *listing, const char *prefix, struct model_recurrent_layer *layer)
{
    const struct model_recurrence *sizes = &listing->model->recurrence;
    int64_t hidden = listing->model->hidden_size, heads = sizes->value_heads, values = heads * sizes->value_size;
    int64_t channels = 2 * (int64_t)sizes->key_heads * sizes->key_size + values;
    const struct wanted_weight parts[] = {
        {"linear_attn.in_proj_qkv.weight", {channels, hidden}, &layer->qkv},
        {"linear_attn.in_proj_z.weight", {values, hidden}, &layer->z},
        {"linear_attn.in_proj_b.weight", {heads, hidden}, &layer->b},
        {"linear_attn.in_proj_a.weight", {heads, hidden}, &layer->a},
        {"linear_attn.conv1d.weight", {channels, 1, sizes->kernel_size}, &layer->convolution},
        {"linear_attn.A_log", {heads}, &layer->decay_log},
        {"linear_attn.dt_bias", {heads}, &layer->step_bias},
        {"linear_attn.norm.weight", {sizes->value_size}, &layer->norm},
        {"linear_attn.out_proj.weight", {hidden, values}, &layer->out},
    };
    return list_parts(listing, prefix, parts, sizeof parts / sizeof *parts);
}

static int list_layer(const struct listing *listing, const char *stem, int index, struct model_layer *layer)
{
    const struct model *model = listing->model;
    int64_t hidden = model->hidden_size, inner = model->intermediate_size;
    const struct wanted_weight parts[] = {
        {"input_layernorm.weight", {hidden}, &layer->input_norm},
        {"post_attention_layernorm.weight", {hidden}, &layer->post_attention_norm},
        {"mlp.gate_proj.weight", {inner, hidden}, &layer->gate},
        {"mlp.up_proj.weight", {inner, hidden}, &layer->up},
        {"mlp.down_proj.weight", {hidden, inner}, &layer->down},
    };
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%slayers.%d.", stem, index);
    if (list_parts(listing, prefix, parts, sizeof parts / sizeof *parts))
        return -1;
    return model->kinds[index] == MODEL_RECURRENT ? list_recurrence(listing, prefix, &layer->recurrent)
                                                  : list_attention(listing, prefix, layer);
}

static int list_target(const struct listing *listing, const char *stem, struct model *model)
{
    int64_t hidden = model->hidden_size, vocabulary = model->vocabulary_size;
    const struct wanted_weight inside[] = {
        {"embed_tokens.weight", {vocabulary, hidden}, &model->embedding},
        {"norm.weight", {hidden}, &model->norm},
    };
    const struct wanted_weight head = {"lm_head.weight", {vocabulary, hidden}, &model->head};
    int result = list_parts(listing, stem, inside, sizeof inside / sizeof *inside);
    if (!result && !model->tied)
        result = list_parts(listing, "", &head, 1);
    if (model->tied)
        model->head = model->embedding;
    return result;
}

static int list_drafter(const struct listing *listing, struct model *model)
{
    int64_t hidden = model->hidden_size;
    const struct wanted_weight wanted[] = {
        {"norm.weight", {hidden}, &model->norm},
        {"hidden_norm.weight", {hidden}, &model->hidden_norm},
        {"fc.weight", {hidden, hidden * model->feature_count}, &model->fc},
    };
    return list_parts(listing, "", wanted, sizeof wanted / sizeof *wanted);
}

/* What a target's names begin with: a multimodal model's text model has one more name in front. */
static const char *find_stem(const struct model *model)
{
    static const char nested[] = "model.language_model.";
    for (int i = 0; model->weights && i < safetensors_count(model->weights); i++)
        if (strncmp(safetensors_at(model->weights, i)->name, nested, strlen(nested)) == 0)
            return nested;
    return "model.";
}

int model_list_weights(struct model *model, bool drafter, model_on_weight *on_weight, void *context)
{
    const struct listing listing = {model, on_weight, context};
    const char *stem = drafter ? "" : find_stem(model);
    int result = drafter ? list_drafter(&listing, model) : list_target(&listing, stem, model);
    if (!model->layers)
        model->layers = xcalloc((size_t)model->layer_count, sizeof *model->layers);
    for (int i = 0; !result && i < model->layer_count; i++)
        result = list_layer(&listing, stem, i, &model->layers[i]);
    return result;
}

static void list_surplus(const struct search *search)
{
    for (int i = 0; i < safetensors_count(search->model->weights); i++) {
        const char *name = safetensors_at(search->model->weights, i)->name;
        if (!json_object_get(search->used, name) && model_find_skipped(name) == MODEL_PART_NONE)
            json_append(search->findings->surplus, json_text(name));
    }
}

enum model_part model_find_skipped(const char *name)
{
    static const struct {
        const char *prefix;
        enum model_part part;
    } parts[] = {{"model.visual.", MODEL_PART_VISION}, {"visual.", MODEL_PART_VISION}, {"mtp.", MODEL_PART_PREDICTION}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(name, parts[i].prefix, strlen(parts[i].prefix)) == 0)
            return parts[i].part;
    return MODEL_PART_NONE;
}

int model_find_weights(struct model *model, bool drafter, struct model_findings *findings, struct error *error)
{
    struct search search = {model, findings, json_object(), error};
    int result = model_list_weights(model, drafter, find_weight, &search);
    if (!result && findings)
        list_surplus(&search);
    json_decref(search.used);
    return result;
}
