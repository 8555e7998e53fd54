/* What opening a model consists of; for model.c and shape.c alone. */
#ifndef COLLECT_ENGINE_MODEL_PARTS_H
#define COLLECT_ENGINE_MODEL_PARTS_H

#include "collect/engine/model.h"

/* Fills what config.json (and a target's generation_config.json) in model->folder says; target NULL: of a target. */
int model_read_config(struct model *model, const struct model *target, struct error *error);

/* The DFlash authors' spread of a drafter's features over the target's layers, where the config names none: round(1 + i
 * (N - 4) / (n - 1)), or N / 2 for one layer. */
void model_spread_features(struct model *drafter, int target_layers);

/* A tensor that a model of these sizes has. */
struct wanted_weight {
    const char *name;
    int64_t rows, columns; /* columns 0: a vector */
    const struct tensor **to;
};

/* Calls `on_weight` with each, until one answers non-zero, which is the answer. Makes model->layers where they are not
 * there yet. */
typedef int model_on_weight(void *context, const struct wanted_weight *wanted);
int model_list_weights(struct model *model, bool drafter, model_on_weight *on_weight, void *context);

/* Points the model at its tensors in model->weights, each checked for shape and type. findings NULL: stops at the first
 * that does not fit; otherwise they are listed. */
int model_find_weights(struct model *model, bool drafter, struct model_findings *findings, struct error *error);

#endif
