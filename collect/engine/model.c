#include "collect/engine/model.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* What config.json says and this engine does only one way. */
struct demands {
    const char *model_type, *hidden_act;
    bool attention_bias, mlp_bias, use_sliding_window;
    const json_t *rope_scaling, *rope_parameters, *quantization, *layer_types, *end_tokens, *dflash;
    double rope_theta, norm_epsilon;
};

static int refuse(const char *where, const char *key, const char *value, const char *supported, struct error *error)
{
    return fail(error, "%s: \"%s\" is %s; supported: %s", where, key, value, supported);
}

static int check_demands(const struct demands *demands, const char *where, struct error *error)
{
    if (strcmp(demands->model_type, "qwen3") != 0)
        return refuse(where, "model_type", demands->model_type, "qwen3", error);
    if (strcmp(demands->hidden_act, "silu") != 0)
        return refuse(where, "hidden_act", demands->hidden_act, "silu", error);
    if (demands->attention_bias)
        return refuse(where, "attention_bias", "true", "false", error);
    if (demands->mlp_bias)
        return refuse(where, "mlp_bias", "true", "false", error);
    if (demands->use_sliding_window)
        return refuse(where, "use_sliding_window", "true", "false", error);
    if (demands->quantization)
        return refuse(where, "quantization_config", "present", "weights in F32, F16 or BF16", error);
    size_t index;
    json_t *type;
    json_array_foreach(demands->layer_types, index, type)
    {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention") != 0)
            return refuse(where, "layer_types", name ? name : "not a string", "full_attention", error);
    }
    return 0;
}

/* rope_theta stands at the top (older files) or in rope_parameters (newer); scaled positions are refused. */
static int read_rope(struct demands *demands, const char *where, struct error *error)
{
    const char *type = "default";
    const json_t *unused = NULL;
    const struct json_field scaling[] = {{"rope_type", JSON_FIELD_STRING, &type},
                                         {"type", JSON_FIELD_STRING, &type},
                                         {"rope_theta", JSON_FIELD_DOUBLE, &demands->rope_theta},
                                         {"partial_rotary_factor", JSON_FIELD_ANY, &unused},
                                         {0}};
    const json_t *both[] = {demands->rope_scaling, demands->rope_parameters};
    for (int i = 0; i < 2; i++)
        if (both[i] && json_read_fields(both[i], where, scaling, JSON_UNKNOWN_KEYS_IGNORED, error))
            return -1;
    if (strcmp(type, "default") != 0)
        return refuse(where, "rope_type", type, "default", error);
    if (unused)
        return refuse(where, "partial_rotary_factor", "present", "rotation of the whole head", error);
    if (!(demands->rope_theta >= 1))
        return fail(error, "%s: \"rope_theta\" is missing or below 1", where);
    return 0;
}

static int add_end_tokens(struct model *model, const json_t *value, const char *where, struct error *error)
{
    size_t count = json_is_array(value) ? json_array_size(value) : value != NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= model->vocabulary_size)
            return fail(error, "%s: \"eos_token_id\" must be token ids below %d", where, model->vocabulary_size);
        int token = (int)json_integer_value(id), known = 0;
        while (known < model->end_token_count && model->end_tokens[known] != token)
            known++;
        if (known < model->end_token_count)
            continue;
        if (model->end_token_count == MODEL_END_TOKENS_MAXIMUM)
            return fail(error, "%s: more than %d end tokens", where, MODEL_END_TOKENS_MAXIMUM);
        model->end_tokens[model->end_token_count++] = token;
    }
    return 0;
}

static int read_generation_config(struct model *model, struct error *error)
{
    char *path = file_join(model->folder, "generation_config.json");
    json_t *config = NULL;
    int result = 0;
    if (file_exists(path)) {
        config = json_read_file(path, error);
        const json_t *end = config ? json_object_get(config, "eos_token_id") : NULL;
        result = !config ? -1 : end && !json_is_null(end) ? add_end_tokens(model, end, path, error) : 0;
    }
    json_decref(config);
    free(path);
    return result;
}

/* The DFlash authors' spread where the config names no layers: round(1 + i (N - 4) / (n - 1)), or N / 2 for one layer.
 */
static void default_feature_layers(struct model *drafter, int target_layers)
{
    int count = drafter->layer_count < MODEL_FEATURES_MAXIMUM ? drafter->layer_count : MODEL_FEATURES_MAXIMUM;
    drafter->feature_count = count;
    for (int i = 0; i < count; i++)
        drafter->feature_layers[i] =
            count == 1 ? target_layers / 2 : (int)(1 + (double)i * (target_layers - 4) / (count - 1) + 0.5);
}

static int read_feature_layers(struct model *drafter, const json_t *layers, int target_layers, const char *where,
                               struct error *error)
{
    if (!layers)
        default_feature_layers(drafter, target_layers);
    else if (json_array_size(layers) < 1 || json_array_size(layers) > MODEL_FEATURES_MAXIMUM)
        return fail(error, "%s: \"target_layer_ids\" must name 1 to %d layers", where, MODEL_FEATURES_MAXIMUM);
    else
        drafter->feature_count = (int)json_array_size(layers);
    for (int i = 0; i < drafter->feature_count; i++) {
        const json_t *layer = layers ? json_array_get(layers, (size_t)i) : NULL;
        if (layer)
            drafter->feature_layers[i] = json_is_integer(layer) ? (int)json_integer_value(layer) : -1;
        if (drafter->feature_layers[i] < 0 || drafter->feature_layers[i] >= target_layers ||
            (i > 0 && drafter->feature_layers[i] <= drafter->feature_layers[i - 1]))
            return fail(error, "%s: \"target_layer_ids\" must rise and lie below the target's %d layers", where,
                        target_layers);
    }
    return 0;
}

static int read_drafter_config(struct model *drafter, const json_t *config, const json_t *dflash, int target_layers,
                               const char *where, struct error *error)
{
    int expected_layers = target_layers, block_size = 0;
    const json_t *layers = NULL;
    bool causal = false;
    drafter->mask_token = -1;
    const struct json_field outer[] = {
        {"block_size", JSON_FIELD_INT, &block_size, false, 2, 256},
        {"num_target_layers", JSON_FIELD_INT, &expected_layers},
        {"is_causal", JSON_FIELD_BOOL, &causal},
        {0},
    };
    const struct json_field inner[] = {
        {"block_size", JSON_FIELD_INT, &block_size, false, 2, 256},
        {"mask_token_id", JSON_FIELD_INT, &drafter->mask_token},
        {"target_layer_ids", JSON_FIELD_ARRAY, &layers},
        {"causal", JSON_FIELD_BOOL, &causal},
        {0},
    };
    if (json_read_fields(config, where, outer, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        (dflash && json_read_fields(dflash, where, inner, JSON_UNKNOWN_KEYS_IGNORED, error)))
        return -1;
    if (block_size == 0)
        return fail(error, "%s: \"block_size\" is missing: not a DFlash drafter?", where);
    if (drafter->mask_token < 0 || drafter->mask_token >= drafter->vocabulary_size)
        return fail(error, "%s: \"mask_token_id\" must be a token id below %d", where, drafter->vocabulary_size);
    if (causal)
        return refuse(where, "causal", "true", "false", error);
    if (expected_layers != target_layers)
        return fail(error, "%s: made for a target of %d layers; this one has %d", where, expected_layers,
                    target_layers);
    drafter->block_size = block_size;
    return read_feature_layers(drafter, layers, target_layers, where, error);
}

static int read_config(struct model *model, const struct model *target, struct error *error)
{
    char *where = file_join(model->folder, "config.json");
    json_t *config = json_read_file(where, error);
    struct demands demands = {.model_type = "", .hidden_act = "silu", .norm_epsilon = 1e-6};
    model->kv_head_count = 0;
    const struct json_field fields[] = {
        {"model_type", JSON_FIELD_STRING, &demands.model_type, true},
        {"hidden_act", JSON_FIELD_STRING, &demands.hidden_act},
        {"attention_bias", JSON_FIELD_BOOL, &demands.attention_bias},
        {"mlp_bias", JSON_FIELD_BOOL, &demands.mlp_bias},
        {"use_sliding_window", JSON_FIELD_BOOL, &demands.use_sliding_window},
        {"tie_word_embeddings", JSON_FIELD_BOOL, &model->tied},
        {"rope_theta", JSON_FIELD_DOUBLE, &demands.rope_theta},
        {"rope_scaling", JSON_FIELD_OBJECT, &demands.rope_scaling},
        {"rope_parameters", JSON_FIELD_OBJECT, &demands.rope_parameters},
        {"quantization_config", JSON_FIELD_ANY, &demands.quantization},
        {"layer_types", JSON_FIELD_ARRAY, &demands.layer_types},
        {"eos_token_id", JSON_FIELD_ANY, &demands.end_tokens},
        {"dflash_config", JSON_FIELD_OBJECT, &demands.dflash},
        {"rms_norm_eps", JSON_FIELD_DOUBLE, &demands.norm_epsilon, false, 1e-12, 1},
        {"hidden_size", JSON_FIELD_INT, &model->hidden_size, true, 1, 1 << 20},
        {"intermediate_size", JSON_FIELD_INT, &model->intermediate_size, true, 1, 1 << 20},
        {"num_hidden_layers", JSON_FIELD_INT, &model->layer_count, true, 1, MODEL_LAYERS_MAXIMUM},
        {"num_attention_heads", JSON_FIELD_INT, &model->head_count, true, 1, 4096},
        {"num_key_value_heads", JSON_FIELD_INT, &model->kv_head_count, false, 1, 4096},
        {"head_dim", JSON_FIELD_INT, &model->head_size, false, 2, 1024},
        {"vocab_size", JSON_FIELD_INT, &model->vocabulary_size, true, 2, 1 << 24},
        {"max_position_embeddings", JSON_FIELD_INT, &model->position_limit, true, 1, 1 << 28},
        {0},
    };
    int result = -1;
    if (!config || json_read_fields(config, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        check_demands(&demands, where, error) || read_rope(&demands, where, error))
        goto out;
    if (!model->kv_head_count)
        model->kv_head_count = model->head_count;
    if (!model->head_size)
        model->head_size = model->hidden_size / model->head_count;
    if (model->head_count % model->kv_head_count || model->head_size % 2) {
        fail(error, "%s: %d heads of size %d over %d key-value heads do not divide", where, model->head_count,
             model->head_size, model->kv_head_count);
        goto out;
    }
    model->rope_theta = (float)demands.rope_theta;
    model->norm_epsilon = (float)demands.norm_epsilon;
    if (target)
        result = read_drafter_config(model, config, demands.dflash, target->layer_count, where, error);
    else if (!add_end_tokens(model, demands.end_tokens, where, error))
        result = read_generation_config(model, error);
    if (!result && target &&
        (model->hidden_size != target->hidden_size || model->vocabulary_size != target->vocabulary_size))
        result =
            fail(error, "%s: hidden size %d and vocabulary %d; its target %s has %d and %d", where, model->hidden_size,
                 model->vocabulary_size, target->folder, target->hidden_size, target->vocabulary_size);
out:
    json_decref(config);
    free(where);
    return result;
}

/* The tensor `name` as [rows, columns], or as [rows] where columns is 0. */
static int find_weight(const struct model *model, const char *name, int64_t rows, int64_t columns,
                       const struct tensor **out, struct error *error)
{
    const struct tensor *tensor = safetensors_find(model->weights, name);
    if (!tensor)
        return fail(error, "%s: tensor \"%s\" is missing", model->folder, name);
    if (tensor->type == TENSOR_OTHER)
        return fail(error, "%s: tensor \"%s\" must be F32, F16 or BF16", tensor->file, name);
    bool fits = columns ? tensor->dimensions == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns
                        : tensor->dimensions == 1 && tensor->shape[0] == rows;
    if (!fits)
        return fail(error, "%s: tensor \"%s\" has another shape than config.json says: [%lld%s%lld]", tensor->file,
                    name, (long long)rows, columns ? ", " : "", (long long)columns);
    *out = tensor;
    return 0;
}

static int find_layer(const struct model *model, const char *prefix, int index, struct model_layer *layer,
                      struct error *error)
{
    int64_t hidden = model->hidden_size, inner = model->intermediate_size, head = model->head_size;
    int64_t query = head * model->head_count, key = head * model->kv_head_count;
    const struct {
        const char *name;
        int64_t rows, columns;
        const struct tensor **to;
    } parts[] = {
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
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        snprintf(name, sizeof name, "%slayers.%d.%s.weight", prefix, index, parts[i].name);
        if (find_weight(model, name, parts[i].rows, parts[i].columns, parts[i].to, error))
            return -1;
    }
    return 0;
}

static int find_target_weights(struct model *model, struct error *error)
{
    int64_t hidden = model->hidden_size, vocabulary = model->vocabulary_size;
    if (find_weight(model, "model.embed_tokens.weight", vocabulary, hidden, &model->embedding, error) ||
        find_weight(model, "model.norm.weight", hidden, 0, &model->norm, error))
        return -1;
    model->head = model->embedding;
    return model->tied ? 0 : find_weight(model, "lm_head.weight", vocabulary, hidden, &model->head, error);
}

static int find_drafter_weights(struct model *model, struct error *error)
{
    int64_t hidden = model->hidden_size;
    return find_weight(model, "norm.weight", hidden, 0, &model->norm, error) ||
                   find_weight(model, "hidden_norm.weight", hidden, 0, &model->hidden_norm, error) ||
                   find_weight(model, "fc.weight", hidden, hidden * model->feature_count, &model->fc, error)
               ? -1
               : 0;
}

static struct model *open_model(const char *folder, const struct model *target, struct error *error)
{
    struct model *model = xcalloc(1, sizeof *model);
    model->folder = xstrdup(folder);
    if (read_config(model, target, error) || !(model->weights = safetensors_open(folder, error)) ||
        (target ? find_drafter_weights(model, error) : find_target_weights(model, error)))
        goto failed;
    model->layers = xcalloc((size_t)model->layer_count, sizeof *model->layers);
    for (int i = 0; i < model->layer_count; i++)
        if (find_layer(model, target ? "" : "model.", i, &model->layers[i], error))
            goto failed;
    return model;
failed:
    model_close(model);
    return NULL;
}

struct model *model_open_target(const char *folder, struct error *error)
{
    return open_model(folder, NULL, error);
}

struct model *model_open_drafter(const char *folder, const struct model *target, struct error *error)
{
    return open_model(folder, target, error);
}

void model_close(struct model *model)
{
    if (!model)
        return;
    safetensors_close(model->weights);
    free(model->layers);
    free(model->folder);
    free(model);
}

int64_t model_parameter_count(const struct model *model)
{
    int64_t count = 0;
    for (int i = 0; i < safetensors_count(model->weights); i++) {
        const struct tensor *tensor = safetensors_at(model->weights, i);
        if (!model->tied || strcmp(tensor->name, "lm_head.weight") != 0)
            count += tensor->elements;
    }
    return count;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* SHA-256 of each JSON and safetensors file of the folder, by name. */
static json_t *hash_files(const char *folder, struct error *error)
{
    enum { FILES_MAXIMUM = 8192 };
    char **names = xcalloc(FILES_MAXIMUM, sizeof *names);
    int count = 0;
    json_t *files = json_object();
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory)) && count < FILES_MAXIMUM;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0))
            names[count++] = xstrdup(entry->d_name);
    }
    if (directory)
        closedir(directory);
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (int i = 0; i < count; i++) {
        char hex[FILE_HASH_SIZE], *path = file_join(folder, names[i]);
        if (files && file_hash(path, hex, error)) {
            json_decref(files);
            files = NULL;
        } else if (files) {
            json_set(files, names[i], json_string(hex));
        }
        free(path);
        free(names[i]);
    }
    free(names);
    return files;
}

json_t *model_describe(const struct model *model, struct error *error)
{
    json_t *files = hash_files(model->folder, error);
    if (!files)
        return NULL;
    char hex[FILE_HASH_SIZE];
    json_hash(files, hex);
    json_t *description = json_object();
    json_set(description, "path", json_text(model->folder));
    json_set(description, "sha256", json_string(hex));
    json_set(description, "files", files);
    json_set(description, "parameters", json_integer(model_parameter_count(model)));
    json_set(description, "layers", json_integer(model->layer_count));
    json_set(description, "hidden_size", json_integer(model->hidden_size));
    json_set(description, "vocabulary_size", json_integer(model->vocabulary_size));
    if (model->block_size)
        json_set(description, "block_size", json_integer(model->block_size));
    return description;
}
