/* The engine as something that a campaign measures. */
#ifndef COLLECT_ENGINE_SOURCE_H
#define COLLECT_ENGINE_SOURCE_H

#include "collect/source.h"

/* Opens the models that the plan names; `device` (may be NULL) overrides the plan's. */
struct source *engine_source_open(const struct plan *plan, const char *device, struct error *error);

#endif
