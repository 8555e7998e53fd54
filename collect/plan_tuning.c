#include "collect/plan_parts.h"

#include "collect/base/json.h"

#include <string.h>

/* The first blocks that are not reported choose the best budget: what it is chosen among must be there. */
static int check_budgets(const struct plan *plan, const char *where, struct error *error)
{
    int trees = 0;
    bool plain = false;
    for (int i = 0; i < plan->arm_count; i++) {
        trees += method_has_budget(plan->arms[i].method) &&
                 plan->arms[i].tensor_parallel == plan->arms[0].tensor_parallel &&
                 plan->arms[i].concurrency == plan->arms[0].concurrency;
        plain |= plan->arms[i].method == METHOD_AUTO;
    }
    if (trees < 2 || !plain)
        return fail(error,
                    "%s: it chooses among budgets by their speedups over \"auto\"; measure \"auto\" and at least "
                    "two \"budgets\", or remove it",
                    where);
    return 0;
}

int plan_read_tuning(struct plan *plan, const json_t *tuning, struct error *error)
{
    char where[PLAN_WHERE_SIZE];
    const char *prompts = "half";
    snprintf(where, sizeof where, "%s: tuning", plan->path);
    const struct json_field fields[] = {
        {"blocks", JSON_FIELD_INT, &plan->tuning_blocks, true, 1, PLAN_BLOCKS_MAXIMUM},
        {"prompts", JSON_FIELD_STRING, &prompts, true, 0, 0},
        {0},
    };
    if (!tuning)
        return 0;
    if (json_read_fields(tuning, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (strcmp(prompts, "half") != 0)
        return fail(error, "%s: \"prompts\" is \"%s\"; it must be \"half\"", where, prompts);
    if (plan_block_count(plan) > PLAN_BLOCKS_MAXIMUM)
        return fail(error, "%s: %d blocks with those that are reported; a plan may have up to %d", where,
                    plan_block_count(plan), PLAN_BLOCKS_MAXIMUM);
    for (int i = 0; i < plan->workload_count; i++)
        if (plan->workloads[i].count == 1)
            return fail(error, "%s: workload \"%s\" has one prompt, which cannot be halved; raise its \"count\"", where,
                        plan->workloads[i].name);
    return check_budgets(plan, where, error);
}

int plan_block_count(const struct plan *plan)
{
    return plan->tuning_blocks + plan->blocks;
}
