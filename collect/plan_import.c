/* Plans of runs that hold imports: what is in them, no plan could say beforehand. */
#include "collect/plan_parts.h"

#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool plan_is_import(const json_t *plan)
{
    const char *kind = json_string_value(json_object_get(json_object_get(plan, "source"), "kind"));
    return kind && strcmp(kind, ATTEMPT_IMPORT_KIND) == 0;
}

int plan_read_import(struct plan *plan, struct error *error)
{
    const char *schema = NULL;
    const json_t *source = NULL, *rules = NULL;
    const struct json_field fields[] = {
        {"schema", JSON_FIELD_STRING, &schema, true, 0, 0},      {"name", JSON_FIELD_STRING, &plan->name, true, 0, 0},
        {"title", JSON_FIELD_STRING, &plan->title, false, 0, 0}, {"source", JSON_FIELD_OBJECT, &source, true, 0, 0},
        {"rules", JSON_FIELD_OBJECT, &rules, false, 0, 0},       {0},
    };
    if (json_read_fields(plan->json, plan->path, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (strcmp(schema, PLAN_SCHEMA) != 0)
        return fail(error, "%s: \"schema\" is \"%s\"; this program reads \"%s\"", plan->path, schema, PLAN_SCHEMA);
    plan->title = plan->title ? plan->title : plan->name;
    plan->source = PLAN_SOURCE_IMPORT;
    plan->blocks = 1;
    plan->seed = 1;
    plan->alpha = 0.05;
    return plan_check_name(plan->name, plan->path, error) || plan_read_rules(plan, rules, error) ? -1 : 0;
}

/* --- what was imported -------------------------------------------------------------------------------------------- */

static bool has_arm(const struct plan *plan, const struct arm *arm)
{
    for (int i = 0; i < plan->arm_count; i++)
        if (arm_equal(&plan->arms[i], arm))
            return true;
    return false;
}

static void add_workload(struct plan *plan, const struct attempt *attempt, const char *name)
{
    const json_t *workloads = json_object_get(attempt->header, "workloads");
    const json_t *asked = json_object_get(json_object_get(workloads, name), "max_new_tokens");
    const char *tool = json_string_value(json_object_get(json_object_get(attempt->header, "source"), "tool"));
    plan->workloads = xrealloc(plan->workloads, (size_t)plan->workload_count + 1, sizeof *plan->workloads);
    plan->workloads[plan->workload_count++] = (struct plan_workload){
        .name = name, .prompts = tool ? tool : "imported", .max_new_tokens = (int)json_integer_value(asked)};
}

static void add_arm(struct plan *plan, const struct arm *arm)
{
    plan->arms = xrealloc(plan->arms, (size_t)plan->arm_count + 1, sizeof *plan->arms);
    plan->arms[plan->arm_count++] = *arm;
}

void plan_add_imported(struct plan *plan, const struct run *run)
{
    for (int i = 0; i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        if (!attempt->header || !attempt_is_imported(attempt))
            continue;
        if (!has_arm(plan, &attempt->arm))
            add_arm(plan, &attempt->arm);
        for (int w = 0; w < attempt->workload_count; w++)
            if (!plan_find_workload(plan, attempt->workloads[w].name))
                add_workload(plan, attempt, attempt->workloads[w].name);
        if (plan->source == PLAN_SOURCE_IMPORT && attempt->block > plan->blocks)
            plan->blocks = attempt->block;
    }
}
