#include "collect/source.h"

#include "collect/engine/source.h"
#include "collect/server/source.h"

struct source *source_open(const struct plan *plan, const char *device, struct error *error)
{
    return plan->source == PLAN_SOURCE_SERVER ? server_source_open(plan, error)
                                              : engine_source_open(plan, device, error);
}

void source_close(struct source *source)
{
    if (source)
        source->class->close(source);
}
