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

/* Why the tensor cannot be used, or NULL; free() it. */
static char *find_fault(const struct tensor *tensor, const struct wanted_weight *wanted)
{
    const int64_t shape[] = {wanted->rows, wanted->columns};
    int dimensions = wanted->columns ? 2 : 1;
    char is[SHAPE_TEXT_SIZE], should[SHAPE_TEXT_SIZE];
    if (tensor->type == TENSOR_OTHER)
        return xformat("tensor \"%s\" must be F32, F16 or BF16", wanted->name);
    if (has_shape(tensor, shape, dimensions))
        return NULL;
    return xformat("tensor \"%s\" is %s; config.json asks for %s", wanted->name,
                   format_shape(tensor->shape, tensor->dimensions, is), format_shape(shape, dimensions, should));
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

static int list_all(const struct listing *listing, const struct wanted_weight *wanted, size_t count)
{
    int result = 0;
    for (size_t i = 0; !result && i < count; i++)
        result = listing->on_weight(listing->context, &wanted[i]);
    return result;
}

static int list_layer(const struct listing *listing, const char *prefix, int index, struct model_layer *layer)
{
    const struct model *model = listing->model;
    int64_t hidden = model->hidden_size, inner = model->intermediate_size, head = model->head_size;
    int64_t query = head * model->head_count, key = head * model->kv_head_count;
    const struct wanted_weight parts[] = {
        {"input_layernorm", hidden, 0, &layer->input_norm},
        {"post_attention_layernorm", hidden, 0, &layer->post_attention_norm},
        {"self_attn.q_proj", query, hidden, &layer->q},
        {"self_attn.k_proj", key, hidden, &layer->k},
        {"self_attn.v_proj", key, hidden, &layer->v},
        {"self_attn.o_proj", hidden, query, &layer->o},
        {"self_attn.q_norm", head, 0, &layer->q_norm},
        {"self_attn.k_norm", head, 0, &layer->k_norm},
        {"mlp.gate_proj", inner, hidden, &layer->gate},
        {"mlp.up_proj", inner, hidden, &layer->up},
        {"mlp.down_proj", hidden, inner, &layer->down},
    };
    int result = 0;
    for (size_t i = 0; !result && i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        struct wanted_weight part = parts[i];
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", prefix, index, part.name);
        part.name = name;
        result = listing->on_weight(listing->context, &part);
    }
    return result;
}

static int list_target(const struct listing *listing, struct model *model)
{
    int64_t hidden = model->hidden_size, vocabulary = model->vocabulary_size;
    const struct wanted_weight wanted[] = {
        {"model.embed_tokens.weight", vocabulary, hidden, &model->embedding},
        {"model.norm.weight", hidden, 0, &model->norm},
        {"lm_head.weight", vocabulary, hidden, &model->head},
    };
    int result = list_all(listing, wanted, model->tied ? 2 : 3);
    if (model->tied)
        model->head = model->embedding;
    return result;
}

static int list_drafter(const struct listing *listing, struct model *model)
{
    int64_t hidden = model->hidden_size;
    const struct wanted_weight wanted[] = {
        {"norm.weight", hidden, 0, &model->norm},
        {"hidden_norm.weight", hidden, 0, &model->hidden_norm},
        {"fc.weight", hidden, hidden * model->feature_count, &model->fc},
    };
    return list_all(listing, wanted, sizeof wanted / sizeof *wanted);
}

int model_list_weights(struct model *model, bool drafter, model_on_weight *on_weight, void *context)
{
    const struct listing listing = {model, on_weight, context};
    int result = drafter ? list_drafter(&listing, model) : list_target(&listing, model);
    if (!model->layers)
        model->layers = xcalloc((size_t)model->layer_count, sizeof *model->layers);
    for (int i = 0; !result && i < model->layer_count; i++)
        result = list_layer(&listing, drafter ? "" : "model.", i, &model->layers[i]);
    return result;
}

static void list_surplus(const struct search *search)
{
    for (int i = 0; i < safetensors_count(search->model->weights); i++) {
        const char *name = safetensors_at(search->model->weights, i)->name;
        if (!json_object_get(search->used, name))
            json_append(search->findings->surplus, json_text(name));
    }
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
