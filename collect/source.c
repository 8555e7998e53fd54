#include "collect/source.h"

#include "collect/engine/source.h"
#include "collect/server/source.h"

struct source *source_open(const struct plan *plan, const char *device, struct error *error)
{
    if (plan->source == PLAN_SOURCE_ENGINE)
        return engine_source_open(plan, device, error);
    if (!device)
        return server_source_open(plan, error);
    fail(error, "--device: %s measures a server, which has devices of its own", plan->path);
    return NULL;
}

void source_close(struct source *source)
{
    if (source)
        source->class->close(source);
}
