/* The two halves of opening a model; model.c alone calls them. */
#ifndef COLLECT_ENGINE_MODEL_PARTS_H
#define COLLECT_ENGINE_MODEL_PARTS_H

#include "collect/engine/model.h"

/* Fills what config.json (and a target's generation_config.json) in model->folder says; target NULL: of a target. */
int model_read_config(struct model *model, const struct model *target, struct error *error);

/* Points the model at its tensors in model->weights, each checked for shape and type. findings NULL: stops at the first
 * that does not fit; otherwise they are listed. */
int model_find_weights(struct model *model, bool drafter, struct model_findings *findings, struct error *error);

#endif
