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
#define MODEL_WEIGHT_DIMENSIONS 3
struct wanted_weight {
    const char *name;
    int64_t shape[MODEL_WEIGHT_DIMENSIONS]; /* 0: has no more dimensions */
    const struct tensor **to;
};

int model_weight_dimensions(const struct wanted_weight *wanted);

/* Calls `on_weight` with each, until one answers non-zero, which is the answer. Makes model->layers where they are not
 * there yet. */
typedef int model_on_weight(void *context, const struct wanted_weight *wanted);
int model_list_weights(struct model *model, bool drafter, model_on_weight *on_weight, void *context);

/* Points the model at its tensors in model->weights, each checked for shape and type. findings NULL: stops at the first
 * that does not fit; otherwise they are listed. */
int model_find_weights(struct model *model, bool drafter, struct model_findings *findings, struct error *error);

/* Parts that models have beside their text model, known by the names of their tensors. */
enum model_part { MODEL_PART_NONE, MODEL_PART_VISION, MODEL_PART_PREDICTION, MODEL_PART_COUNT };
enum model_part model_find_skipped(const char *name);

#endif
