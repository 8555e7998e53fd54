/* Models that have a published shape and no files: what a benchmark of speed needs, since no product is faster or
 * slower for the numbers in it. Weights are made where they are used, from a fixed seed, such that rows keep their size
 * on the way through the layers; what such a model writes means nothing. */
#ifndef COLLECT_ENGINE_SHAPE_H
#define COLLECT_ENGINE_SHAPE_H

#include "collect/engine/model.h"

/* "tiny, qwen3-0.6b, ...": the names, parted by commas. */
const char *shape_names(void);

/* A target of that shape in *target, and in *drafter a DFlash drafter for it: five layers, block 16.
 * -1 and the names where there is no such shape. model_close() both. */
int shape_open(const char *name, struct model **target, struct model **drafter, struct error *error);

#endif
