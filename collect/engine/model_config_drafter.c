#include "collect/engine/model_config.h"

#include "collect/base/json.h"
#include "collect/engine/model_parts.h"

#include <string.h>

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
        return config_refuse(config, "architectures", architecture, "DFlashDraftModel", error);
    if (!settings->neox)
        return config_refuse(config, "is_neox_style", "false", "true", error);
    if (settings->sink_bias)
        return config_refuse(config, "attention_sink_bias", "true", "false", error);
    if (settings->embedding_scale != 1)
        return config_refuse(config, "input_embedding_scale", "not 1", "1", error);
    if (settings->output_multiplier != 1)
        return config_refuse(config, "output_multiplier", "not 1", "1", error);
    if (settings->softcap != 0)
        return config_refuse(config, "final_logit_softcapping", "present", "none", error);
    if (settings->causal && !json_is_boolean(settings->causal))
        return config_refuse(config, "is_causal", "not a boolean", "true, false", error);
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
    if (config_read_layers(drafter, config, size, error))
        return -1;
    drafter->causal_windows = !json_is_false(settings->causal);
    for (int i = 0; i < drafter->layer_count; i++)
        if (json_is_true(settings->causal) && !drafter->windows[i])
            return config_refuse(config, "is_causal", "true beside layers of full_attention", "false, or windows alone",
                                 error);
    return 0;
}

int config_read_drafter(struct model *drafter, const struct model *target, const struct config *config,
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
