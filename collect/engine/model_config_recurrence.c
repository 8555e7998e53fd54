#include "collect/engine/model_config.h"

#include "collect/base/json.h"

#include <string.h>

struct recurrence_settings {
    int interval; /* every so many-th layer attends where "layer_types" does not say */
    bool output_gate;
    const char *output_gate_type, *state_type;
};

static int read_settings(struct model *model, const struct config *config, struct recurrence_settings *settings,
                         struct error *error)
{
    struct model_recurrence *recurrence = &model->recurrence;
    const struct json_field fields[] = {
        {"linear_num_key_heads", JSON_FIELD_INT, &recurrence->key_heads, true, 1, 4096},
        {"linear_num_value_heads", JSON_FIELD_INT, &recurrence->value_heads, true, 1, 4096},
        {"linear_key_head_dim", JSON_FIELD_INT, &recurrence->key_size, true, 1, 1024},
        {"linear_value_head_dim", JSON_FIELD_INT, &recurrence->value_size, true, 1, 1024},
        {"linear_conv_kernel_dim", JSON_FIELD_INT, &recurrence->kernel_size, true, 2, 16},
        {"full_attention_interval", JSON_FIELD_INT, &settings->interval, false, 1, MODEL_LAYERS_MAXIMUM},
        {"attn_output_gate", JSON_FIELD_BOOL, &settings->output_gate},
        {"output_gate_type", JSON_FIELD_STRING, &settings->output_gate_type},
        {"mamba_ssm_dtype", JSON_FIELD_STRING, &settings->state_type},
        {0},
    };
    return json_read_fields(config->json, config->where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int check_settings(const struct model *model, const struct config *config,
                          const struct recurrence_settings *settings, struct error *error)
{
    const struct model_recurrence *recurrence = &model->recurrence;
    if (!settings->output_gate)
        return config_refuse(config, "attn_output_gate", "false", "true", error);
    if (strcmp(settings->output_gate_type, "swish") != 0 && strcmp(settings->output_gate_type, "silu") != 0)
        return config_refuse(config, "output_gate_type", settings->output_gate_type, "swish, silu", error);
    if (strcmp(settings->state_type, "float32") != 0)
        return config_refuse(config, "mamba_ssm_dtype", settings->state_type, "float32", error);
    if (recurrence->value_heads % recurrence->key_heads)
        return fail(error, "%s: \"linear_num_value_heads\" is %d, no multiple of \"linear_num_key_heads\", %d",
                    config->where, recurrence->value_heads, recurrence->key_heads);
    return 0;
}

int config_read_recurrence(struct model *model, const struct config *config, struct error *error)
{
    struct recurrence_settings settings = {
        .interval = 4, .output_gate = true, .output_gate_type = "swish", .state_type = "float32"};
    if (read_settings(model, config, &settings, error) || check_settings(model, config, &settings, error))
        return -1;
    model->zero_centred_norms = model->gated_attention = true;
    for (int i = 0; i < model->layer_count; i++) {
        if (!config->layer_types && (i + 1) % settings.interval)
            model->kinds[i] = MODEL_RECURRENT;
        model->recurrent_count += model->kinds[i] == MODEL_RECURRENT;
    }
    return 0;
}
