#include "collect/engine/model_config.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/engine/model_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int config_refuse(const struct config *config, const char *key, const char *value, const char *supported,
                  struct error *error)
{
    return fail(error, "%s: \"%s\" is %s; supported: %s", config->where, key, value, supported);
}

/* --- both kinds ------------------------------------------------------------------------------------------------- */

static int read_fields(struct model *model, struct config *config, struct error *error)
{
    const struct json_field fields[] = {
        {"model_type", JSON_FIELD_STRING, &config->model_type, true},
        {"architectures", JSON_FIELD_ARRAY, &config->architectures},
        {"hidden_act", JSON_FIELD_STRING, &config->hidden_act},
        {"attention_bias", JSON_FIELD_BOOL, &config->attention_bias},
        {"mlp_bias", JSON_FIELD_BOOL, &config->mlp_bias},
        {"use_sliding_window", JSON_FIELD_BOOL, &config->use_sliding_window},
        {"sliding_window", JSON_FIELD_INT, &config->sliding_window, false, 1, INT32_MAX},
        {"tie_word_embeddings", JSON_FIELD_BOOL, &model->tied},
        {"rope_theta", JSON_FIELD_DOUBLE, &config->rope_theta},
        {"partial_rotary_factor", JSON_FIELD_DOUBLE, &config->rotary_factor},
        {"rope_scaling", JSON_FIELD_OBJECT, &config->rope_scaling},
        {"rope_parameters", JSON_FIELD_OBJECT, &config->rope_parameters},
        {"quantization_config", JSON_FIELD_ANY, &config->quantization},
        {"layer_types", JSON_FIELD_ARRAY, &config->layer_types},
        {"eos_token_id", JSON_FIELD_ANY, &config->end_tokens},
        {"dflash_config", JSON_FIELD_OBJECT, &config->dflash},
        {"rms_norm_eps", JSON_FIELD_DOUBLE, &config->norm_epsilon, false, 1e-12, 1},
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
    return json_read_fields(config->json, config->where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int find_family(struct config *config, bool drafter, struct error *error)
{
    const char *type = config->model_type;
    bool dense = strcmp(type, "qwen3") == 0;
    bool hybrid = !drafter && (strcmp(type, "qwen3_5") == 0 || strcmp(type, "qwen3_5_text") == 0);
    if (!dense && !hybrid)
        return config_refuse(config, "model_type", type, drafter ? "qwen3" : "qwen3, qwen3_5", error);
    if (!drafter && config->dflash)
        return fail(error, "%s: \"dflash_config\" is there: this is a DFlash drafter; name its target's folder",
                    config->where);
    config->family = drafter ? FAMILY_DRAFTER : hybrid ? FAMILY_QWEN3_5 : FAMILY_QWEN3;
    return 0;
}

static int check_demands(const struct config *config, struct error *error)
{
    if (strcmp(config->hidden_act, "silu") != 0)
        return config_refuse(config, "hidden_act", config->hidden_act, "silu", error);
    if (config->attention_bias)
        return config_refuse(config, "attention_bias", "true", "false", error);
    if (config->mlp_bias)
        return config_refuse(config, "mlp_bias", "true", "false", error);
    if (config->quantization)
        return config_refuse(config, "quantization_config", "present", "weights in F32, F16 or BF16", error);
    return 0;
}

/* rope_theta stands at the top (older files) or in rope_parameters (newer); scaled positions are refused. */
static int read_rope(struct config *config, struct error *error)
{
    const char *types[] = {NULL, NULL};
    const struct json_field scaling[] = {{"rope_type", JSON_FIELD_STRING, &types[0]},
                                         {"type", JSON_FIELD_STRING, &types[1]},
                                         {"rope_theta", JSON_FIELD_DOUBLE, &config->rope_theta},
                                         {"partial_rotary_factor", JSON_FIELD_DOUBLE, &config->rotary_factor},
                                         {0}};
    const json_t *both[] = {config->rope_scaling, config->rope_parameters};
    for (int i = 0; i < 2; i++) {
        if (both[i] && json_read_fields(both[i], config->where, scaling, JSON_UNKNOWN_KEYS_IGNORED, error))
            return -1;
        for (int t = 0; t < 2; t++)
            if (types[t] && strcmp(types[t], "default") != 0)
                return config_refuse(config, "rope_type", types[t], "default", error);
    }
    if (!(config->rope_theta >= 1 && config->rope_theta <= 1e30))
        return fail(error, "%s: \"rope_theta\" is missing or not from 1 to 1e30", config->where);
    return 0;
}

/* A hybrid rotates the first part of a head, by default a quarter as its authors' program does. */
static int set_rotary_size(struct model *model, const struct config *config, struct error *error)
{
    bool hybrid = config->family == FAMILY_QWEN3_5;
    double factor = !isnan(config->rotary_factor) ? config->rotary_factor : hybrid ? 0.25 : 1;
    if (!hybrid && factor != 1)
        return config_refuse(config, "partial_rotary_factor", "not 1", "rotation of the whole head", error);
    model->rotary_size = factor > 0 && factor <= 1 ? (int)(model->head_size * factor + 0.5) : 0;
    if (model->rotary_size < 2 || model->rotary_size % 2)
        return fail(error, "%s: \"partial_rotary_factor\" is %g: of a head of %d no even part is rotated",
                    config->where, factor, model->head_size);
    return 0;
}

static int set_sizes(struct model *model, const struct config *config, struct error *error)
{
    if (!model->kv_head_count)
        model->kv_head_count = model->head_count;
    if (!model->head_size)
        model->head_size = model->hidden_size / model->head_count;
    if (model->head_count % model->kv_head_count || model->head_size < 2 || model->head_size % 2)
        return fail(error, "%s: %d heads of size %d over %d key-value heads do not divide", config->where,
                    model->head_count, model->head_size, model->kv_head_count);
    model->rope_theta = (float)config->rope_theta;
    model->norm_epsilon = (float)config->norm_epsilon;
    return set_rotary_size(model, config, error);
}

/* --- what each layer is ------------------------------------------------------------------------------------------ */

/* Windows are a drafter's, recurrent layers a hybrid's. */
static int read_layer_type(struct model *model, const struct config *config, size_t layer, int window,
                           struct error *error)
{
    static const char *const supported[] = {[FAMILY_QWEN3] = "full_attention",
                                            [FAMILY_QWEN3_5] = "full_attention, linear_attention",
                                            [FAMILY_DRAFTER] = "full_attention, sliding_attention"};
    const char *type = json_string_value(json_array_get(config->layer_types, layer));
    bool sliding = config->family == FAMILY_DRAFTER && type && strcmp(type, "sliding_attention") == 0;
    bool linear = config->family == FAMILY_QWEN3_5 && type && strcmp(type, "linear_attention") == 0;
    if (!type || (!sliding && !linear && strcmp(type, "full_attention") != 0))
        return config_refuse(config, "layer_types", type ? type : "not a list of strings", supported[config->family],
                             error);
    if (sliding && !window)
        return fail(error, "%s: \"sliding_window\" is missing, which layers of sliding_attention need", config->where);
    if (sliding && json_is_false(json_object_get(config->json, "use_sliding_window")))
        return config_refuse(config, "use_sliding_window", "false beside layers of sliding_attention", "true", error);
    model->windows[layer] = sliding ? window : 0;
    model->kinds[layer] = linear ? MODEL_RECURRENT : MODEL_ATTENTION;
    return 0;
}

int config_read_layers(struct model *model, const struct config *config, int window, struct error *error)
{
    size_t count = json_array_size(config->layer_types);
    bool drafter = config->family == FAMILY_DRAFTER;
    model->windows = xcalloc((size_t)model->layer_count, sizeof *model->windows);
    model->kinds = xcalloc((size_t)model->layer_count, sizeof *model->kinds);
    if (config->use_sliding_window && !(drafter && config->layer_types))
        return config_refuse(config, "use_sliding_window", "true", drafter ? "true beside \"layer_types\"" : "false",
                             error);
    if (config->layer_types && count != (size_t)model->layer_count)
        return fail(error, "%s: \"layer_types\" has %zu entries for %d layers", config->where, count,
                    model->layer_count);
    for (size_t i = 0; i < count; i++)
        if (read_layer_type(model, config, i, window, error))
            return -1;
    return 0;
}

/* --- targets ---------------------------------------------------------------------------------------------------- */

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
    const json_t *end = NULL;
    const struct json_field fields[] = {{"eos_token_id", JSON_FIELD_ANY, &end}, {0}};
    int result = 0;
    if (file_exists(path)) {
        config = json_read_file(path, error);
        result = !config || json_read_fields(config, path, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
                         add_end_tokens(model, end, path, error)
                     ? -1
                     : 0;
    }
    json_decref(config);
    free(path);
    return result;
}

static int read_target(struct model *model, const struct config *config, struct error *error)
{
    return config_read_layers(model, config, 0, error) ||
                   (config->family == FAMILY_QWEN3_5 && config_read_recurrence(model, config, error)) ||
                   add_end_tokens(model, config->end_tokens, config->where, error) ||
                   read_generation_config(model, error)
               ? -1
               : 0;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

/* A multimodal model's file has its language model's keys in text_config: they go to the top. */
static int lift_text_config(struct config *config, struct error *error)
{
    json_t *text = json_incref(json_object_get(config->json, "text_config")), *value;
    const json_t *tied = json_object_get(config->json, "tie_word_embeddings"),
                 *text_tied = json_object_get(text, "tie_word_embeddings");
    const char *key;
    int result = 0;
    if (text && !json_is_object(text))
        result = fail(error, "%s: \"text_config\" must be an object", config->where);
    else if (json_is_boolean(tied) && json_is_boolean(text_tied) && !json_equal(tied, text_tied))
        result = config_refuse(config, "tie_word_embeddings", "true in one place and false in another",
                               "one answer, in \"text_config\" and beside it", error);
    else
        json_object_foreach(text, key, value) json_object_set(config->json, key, value);
    json_decref(text);
    return result;
}

int model_read_config(struct model *model, const struct model *target, struct error *error)
{
    struct config config = {.where = file_join(model->folder, "config.json"),
                            .hidden_act = "silu",
                            .rotary_factor = NAN,
                            .norm_epsilon = 1e-6};
    config.json = json_read_file(config.where, error);
    int result = -1;
    if (config.json && !lift_text_config(&config, error) && !read_fields(model, &config, error) &&
        !find_family(&config, target != NULL, error) && !check_demands(&config, error) && !read_rope(&config, error) &&
        !set_sizes(model, &config, error))
        result = target ? config_read_drafter(model, target, &config, error) : read_target(model, &config, error);
    json_decref(config.json);
    free(config.where);
    return result;
}
