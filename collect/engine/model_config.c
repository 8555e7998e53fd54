#include "collect/engine/model_parts.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

/* What config.json says beside the sizes that go straight to the model. */
struct config {
    char *where;
    json_t *json;
    const char *model_type, *hidden_act;
    bool attention_bias, mlp_bias, use_sliding_window;
    const json_t *architectures, *rope_scaling, *rope_parameters, *quantization, *layer_types, *end_tokens, *dflash;
    double rope_theta, rotary_factor, norm_epsilon;
    int sliding_window;
};

static int refuse(const struct config *config, const char *key, const char *value, const char *supported,
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

static int check_demands(const struct config *config, struct error *error)
{
    if (strcmp(config->model_type, "qwen3") != 0)
        return refuse(config, "model_type", config->model_type, "qwen3", error);
    if (strcmp(config->hidden_act, "silu") != 0)
        return refuse(config, "hidden_act", config->hidden_act, "silu", error);
    if (config->attention_bias)
        return refuse(config, "attention_bias", "true", "false", error);
    if (config->mlp_bias)
        return refuse(config, "mlp_bias", "true", "false", error);
    if (config->quantization)
        return refuse(config, "quantization_config", "present", "weights in F32, F16 or BF16", error);
    return 0;
}

/* rope_theta stands at the top (older files) or in rope_parameters (newer); scaled positions are refused. */
static int read_rope(struct config *config, struct error *error)
{
    const char *type = "default";
    const struct json_field scaling[] = {{"rope_type", JSON_FIELD_STRING, &type},
                                         {"type", JSON_FIELD_STRING, &type},
                                         {"rope_theta", JSON_FIELD_DOUBLE, &config->rope_theta},
                                         {"partial_rotary_factor", JSON_FIELD_DOUBLE, &config->rotary_factor},
                                         {0}};
    const json_t *both[] = {config->rope_scaling, config->rope_parameters};
    for (int i = 0; i < 2; i++)
        if (both[i] && json_read_fields(both[i], config->where, scaling, JSON_UNKNOWN_KEYS_IGNORED, error))
            return -1;
    if (strcmp(type, "default") != 0)
        return refuse(config, "rope_type", type, "default", error);
    if (config->rotary_factor != 1)
        return refuse(config, "partial_rotary_factor", "not 1", "rotation of the whole head", error);
    if (!(config->rope_theta >= 1 && config->rope_theta <= 1e30))
        return fail(error, "%s: \"rope_theta\" is missing or not from 1 to 1e30", config->where);
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
    return 0;
}

/* --- layers that see a window ----------------------------------------------------------------------------------- */

/* Windows are a drafter's; size 0: the config names none. */
static int read_layer_type(const struct config *config, size_t layer, bool drafter, int size, int *window,
                           struct error *error)
{
    const char *type = json_string_value(json_array_get(config->layer_types, layer));
    bool sliding = type && strcmp(type, "sliding_attention") == 0;
    if (!type || (!sliding && strcmp(type, "full_attention") != 0) || (sliding && !drafter))
        return refuse(config, "layer_types", type ? type : "not a list of strings",
                      drafter ? "full_attention, sliding_attention" : "full_attention", error);
    if (sliding && !size)
        return fail(error, "%s: \"sliding_window\" is missing, which layers of sliding_attention need", config->where);
    if (sliding && json_is_false(json_object_get(config->json, "use_sliding_window")))
        return refuse(config, "use_sliding_window", "false beside layers of sliding_attention", "true", error);
    *window = sliding ? size : 0;
    return 0;
}

static int read_windows(struct model *model, const struct config *config, bool drafter, int size, struct error *error)
{
    size_t count = json_array_size(config->layer_types);
    model->windows = xcalloc((size_t)model->layer_count, sizeof *model->windows);
    if (config->use_sliding_window && !(drafter && config->layer_types))
        return refuse(config, "use_sliding_window", "true", drafter ? "true beside \"layer_types\"" : "false", error);
    if (config->layer_types && count != (size_t)model->layer_count)
        return fail(error, "%s: \"layer_types\" has %zu entries for %d layers", config->where, count,
                    model->layer_count);
    for (size_t i = 0; i < count; i++)
        if (read_layer_type(config, i, drafter, size, &model->windows[i], error))
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
    return read_windows(model, config, false, 0, error) ||
                   add_end_tokens(model, config->end_tokens, config->where, error) ||
                   read_generation_config(model, error)
               ? -1
               : 0;
}

/* --- drafters --------------------------------------------------------------------------------------------------- */

void model_spread_features(struct model *drafter, int target_layers)
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
        model_spread_features(drafter, target_layers);
    else if (json_array_size(layers) < 1 || json_array_size(layers) > MODEL_FEATURES_MAXIMUM)
        return fail(error, "%s: \"target_layer_ids\" must name 1 to %d layers", where, MODEL_FEATURES_MAXIMUM);
    else
        drafter->feature_count = (int)json_array_size(layers);
    for (int i = 0; i < drafter->feature_count; i++) {
        const json_t *layer = layers ? json_array_get(layers, (size_t)i) : NULL;
        json_int_t id = layer ? json_integer_value(layer) : drafter->feature_layers[i];
        if ((layer && !json_is_integer(layer)) || id < 0 || id >= target_layers ||
            (i > 0 && id <= drafter->feature_layers[i - 1]))
            return fail(error, "%s: \"target_layer_ids\" must rise and lie below the target's %d layers", where,
                        target_layers);
        drafter->feature_layers[i] = (int)id;
    }
    return 0;
}

/* What only a drafter's config says: at the top of the file or in dflash_config, which wins. */
struct draft_settings {
    int block_size, target_layers, window;
    const json_t *layers, *causal;
    bool neox, sink_bias;
    double embedding_scale, output_multiplier, softcap;
};

static int read_draft_settings(struct model *drafter, const struct config *config, struct draft_settings *settings,
                               struct error *error)
{
    const struct json_field fields[] = {
        {"block_size", JSON_FIELD_INT, &settings->block_size, false, 2, 256},
        {"num_target_layers", JSON_FIELD_INT, &settings->target_layers},
        {"mask_token_id", JSON_FIELD_INT, &drafter->mask_token},
        {"target_layer_ids", JSON_FIELD_ARRAY, &settings->layers},
        {"is_causal", JSON_FIELD_ANY, &settings->causal},
        {"causal", JSON_FIELD_ANY, &settings->causal},
        {"swa_window_size", JSON_FIELD_INT, &settings->window, false, 1, INT32_MAX},
        {"is_neox_style", JSON_FIELD_BOOL, &settings->neox},
        {"attention_sink_bias", JSON_FIELD_BOOL, &settings->sink_bias},
        {"input_embedding_scale", JSON_FIELD_DOUBLE, &settings->embedding_scale},
        {"output_multiplier", JSON_FIELD_DOUBLE, &settings->output_multiplier},
        {"final_logit_softcapping", JSON_FIELD_DOUBLE, &settings->softcap},
        {0},
    };
    const json_t *both[] = {config->json, config->dflash};
    for (int i = 0; i < 2; i++)
        if (both[i] && json_read_fields(both[i], config->where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
            return -1;
    return 0;
}

static int check_draft_demands(const struct config *config, const struct draft_settings *settings, struct error *error)
{
    const char *architecture = json_string_value(json_array_get(config->architectures, 0));
    if (architecture && strcmp(architecture, "DFlash2DraftModel") == 0)
        return refuse(config, "architectures", architecture, "DFlashDraftModel", error);
    if (!settings->neox)
        return refuse(config, "is_neox_style", "false", "true", error);
    if (settings->sink_bias)
        return refuse(config, "attention_sink_bias", "true", "false", error);
    if (settings->embedding_scale != 1)
        return refuse(config, "input_embedding_scale", "not 1", "1", error);
    if (settings->output_multiplier != 1)
        return refuse(config, "output_multiplier", "not 1", "1", error);
    if (settings->softcap != 0)
        return refuse(config, "final_logit_softcapping", "present", "none", error);
    if (settings->causal && !json_is_boolean(settings->causal))
        return refuse(config, "is_causal", "not a boolean", "true, false", error);
    return 0;
}

static int check_shared_sizes(const struct model *model, const struct model *target, const char *where,
                              struct error *error)
{
    if (model->hidden_size == target->hidden_size && model->vocabulary_size == target->vocabulary_size)
        return 0;
    return fail(error, "%s: hidden size %d and vocabulary %d; its target %s has %d and %d", where, model->hidden_size,
                model->vocabulary_size, target->folder, target->hidden_size, target->vocabulary_size);
}

/* A stated causality holds for all layers, but only windows can be causal here. */
static int read_draft_windows(struct model *drafter, const struct config *config, const struct draft_settings *settings,
                              struct error *error)
{
    int size = settings->window ? settings->window : config->sliding_window;
    if (read_windows(drafter, config, true, size, error))
        return -1;
    drafter->causal_windows = !json_is_false(settings->causal);
    for (int i = 0; i < drafter->layer_count; i++)
        if (json_is_true(settings->causal) && !drafter->windows[i])
            return refuse(config, "is_causal", "true beside layers of full_attention", "false, or windows alone",
                          error);
    return 0;
}

static int read_drafter(struct model *drafter, const struct model *target, const struct config *config,
                        struct error *error)
{
    struct draft_settings settings = {
        .target_layers = target->layer_count, .neox = true, .embedding_scale = 1, .output_multiplier = 1};
    drafter->mask_token = -1;
    if (read_draft_settings(drafter, config, &settings, error) || check_draft_demands(config, &settings, error))
        return -1;
    if (settings.block_size == 0)
        return fail(error, "%s: \"block_size\" is missing: not a DFlash drafter?", config->where);
    if (drafter->mask_token < 0 || drafter->mask_token >= drafter->vocabulary_size)
        return fail(error, "%s: \"mask_token_id\" must be a token id below %d", config->where,
                    drafter->vocabulary_size);
    if (settings.target_layers != target->layer_count)
        return fail(error, "%s: made for a target of %d layers; this one has %d", config->where, settings.target_layers,
                    target->layer_count);
    drafter->block_size = settings.block_size;
    return read_draft_windows(drafter, config, &settings, error) ||
                   read_feature_layers(drafter, settings.layers, target->layer_count, config->where, error) ||
                   check_shared_sizes(drafter, target, config->where, error)
               ? -1
               : 0;
}

int model_read_config(struct model *model, const struct model *target, struct error *error)
{
    struct config config = {.where = file_join(model->folder, "config.json"),
                            .hidden_act = "silu",
                            .rotary_factor = 1,
                            .norm_epsilon = 1e-6};
    config.json = json_read_file(config.where, error);
    int result = -1;
    if (config.json && !read_fields(model, &config, error) && !check_demands(&config, error) &&
        !read_rope(&config, error) && !set_sizes(model, &config, error))
        result = target ? read_drafter(model, target, &config, error) : read_target(model, &config, error);
    json_decref(config.json);
    free(config.where);
    return result;
}
