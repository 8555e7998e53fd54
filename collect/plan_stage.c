#include "collect/plan_parts.h"

#include "collect/base/json.h"

#include <string.h>

enum { STAGES_MAXIMUM = 16 };

static int read_stage(struct plan *plan, const json_t *object, struct error *error)
{
    struct plan_stage *stage = &plan->stages[plan->stage_count];
    char where[PLAN_WHERE_SIZE];
    snprintf(where, sizeof where, "%s: stage[%d]", plan->path, plan->stage_count);
    const struct json_field fields[] = {
        {"original", JSON_FIELD_STRING, &stage->original, true, 0, 0},
        {"folder", JSON_FIELD_STRING, &stage->folder, true, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    for (int i = 0; i < plan->stage_count; i++)
        if (strcmp(plan->stages[i].folder, stage->folder) == 0)
            return fail(error, "%s: \"folder\" is that of stage[%d] as well", where, i);
    if (strcmp(stage->original, stage->folder) == 0)
        return fail(error, "%s: \"folder\" is the original itself; name a folder in memory, as /dev/shm/model", where);
    plan->stage_count++;
    return 0;
}

int plan_read_stages(struct plan *plan, const json_t *stages, struct error *error)
{
    size_t count = json_array_size(stages);
    if (count > STAGES_MAXIMUM)
        return fail(error, "%s: %zu folders to stage; a plan may have up to %d", plan->path, count, STAGES_MAXIMUM);
    plan->stages = xcalloc(count, sizeof *plan->stages);
    for (size_t i = 0; i < count; i++)
        if (read_stage(plan, json_array_get(stages, i), error))
            return -1;
    return 0;
}
