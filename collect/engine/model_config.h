/* config.json while it is read: what model_config.c shares with the parts that only drafters and only hybrids have. */
#ifndef COLLECT_ENGINE_MODEL_CONFIG_H
#define COLLECT_ENGINE_MODEL_CONFIG_H

#include "collect/engine/model.h"

enum model_family { FAMILY_QWEN3, FAMILY_QWEN3_5, FAMILY_DRAFTER };

/* What config.json says beside the sizes that go straight to the model. */
struct config {
    char *where;
    json_t *json; /* a text_config's keys at the top */
    enum model_family family;
    const char *model_type, *hidden_act;
    bool attention_bias, mlp_bias, use_sliding_window;
    const json_t *architectures, *rope_scaling, *rope_parameters, *quantization, *layer_types, *end_tokens, *dflash;
    double rope_theta, rotary_factor, norm_epsilon; /* rotary_factor NAN: not said */
    int sliding_window;
};

/* Answers -1 with the key, its value and what could stand there. */
int config_refuse(const struct config *config, const char *key, const char *value, const char *supported,
                  struct error *error);

/* "layer_types" into kinds and windows; window: the size of the sliding ones, 0 where the config names none. */
int config_read_layers(struct model *model, const struct config *config, int window, struct error *error);

/* What only a drafter's config says. */
int config_read_drafter(struct model *drafter, const struct model *target, const struct config *config,
                        struct error *error);

/* What only a target with recurrent layers says. */
int config_read_recurrence(struct model *model, const struct config *config, struct error *error);

#endif
