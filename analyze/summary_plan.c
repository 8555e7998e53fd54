/* What was asked for: of the newest plan what the report claims, and of the one that what counts was measured under
 * how it was. */
#include "analyze/summary_parts.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

/* The newest attempt that counts and was measured here, of that workload (NULL: of any); NULL where there is none. */
static const struct attempt *find_counted(const struct cells *cells, const struct plan_workload *workload)
{
    const struct attempt *newest = NULL;
    for (int i = 0; i < cells->count; i++)
        for (int block = 0; block < cells->blocks; block++) {
            const struct judged *counted = cells->items[i].blocks[block].counted;
            if (!counted || attempt_is_imported(&counted->attempt) ||
                (workload && cells->items[i].workload != workload))
                continue;
            if (!newest || cells_is_newer(cells->run, &counted->attempt, newest))
                newest = &counted->attempt;
        }
    return newest;
}

/* The plan under which it was begun, as the run folder keeps it: the newest may ask for what is not measured yet.
 * Answers whether it is known. */
static bool read_plan_of(const struct run *run, const struct attempt *attempt, struct plan *plan)
{
    const char *name = attempt ? json_string_value(json_object_get(attempt->header, "plan")) : NULL;
    struct error ignored = {0};
    char *path = name ? file_join(run->folder, name) : NULL;
    const bool known = path && plan_read(path, plan, &ignored) == 0;
    free(path);
    return known;
}

/* Of the prompts that an attempt which counts was given; null where none says so. */
static json_t *find_prompts_hash(const struct cells *cells, const struct plan_workload *workload)
{
    for (int i = 0; i < cells->count; i++)
        for (int block = 0; cells->items[i].workload == workload && block < cells->blocks; block++) {
            const struct judged *counted = cells->items[i].blocks[block].counted;
            const json_t *workloads = counted ? json_object_get(counted->attempt.header, "workloads") : NULL;
            json_t *hash = json_object_get(json_object_get(workloads, workload->name), "prompts_sha256");
            if (hash)
                return json_incref(hash);
        }
    return json_null();
}

static json_t *make_workload(const struct cells *cells, const struct plan_workload *newest)
{
    struct plan plan = {0};
    const bool known = read_plan_of(cells->run, find_counted(cells, newest), &plan);
    const struct plan_workload *measured = known ? plan_find_workload(&plan, newest->name) : NULL;
    const struct plan_workload *workload = measured ? measured : newest;
    json_t *object = json_object();
    json_set(object, "name", json_text(workload->name));
    json_set(object, "prompts", json_text(workload->prompts));
    json_set(object, "count", json_integer(workload->count));
    json_set(object, "max_new_tokens", json_integer(workload->max_new_tokens));
    json_set(object, "ignore_eos", json_boolean(workload->ignore_eos));
    json_set(object, "context_tokens", workload->context_tokens ? json_integer(workload->context_tokens) : json_null());
    json_set(object, "template", json_text(prompt_template_names[workload->template]));
    json_set(object, "chat", json_text(prompt_chat_names[workload->chat]));
    json_set(object, "prompts_sha256", find_prompts_hash(cells, newest));
    plan_free(&plan);
    return object;
}

static json_t *make_headline(const struct plan *plan)
{
    json_t *array = json_array();
    for (int i = 0; i < plan->comparison_count; i++) {
        json_t *pair = json_array();
        json_append(pair, json_text(plan->comparisons[i].method));
        json_append(pair, json_text(plan->comparisons[i].baseline));
        json_append(array, pair);
    }
    return array;
}

static json_t *make_tuning(const struct plan *plan)
{
    if (!plan->tuning_blocks)
        return json_null();
    json_t *object = json_object();
    json_set(object, "blocks", json_integer(plan->tuning_blocks));
    json_set(object, "prompts", json_string("half"));
    return object;
}

json_t *summary_make_plan(const struct cells *cells)
{
    const struct plan *plan = cells->plan;
    struct plan former = {0};
    const struct plan *measured = read_plan_of(cells->run, find_counted(cells, NULL), &former) ? &former : plan;
    json_t *object = json_object(), *workloads = json_array();
    const bool imported = plan->source == PLAN_SOURCE_IMPORT;
    json_set(object, "blocks", json_integer(plan->blocks));
    json_set(object, "extended_from", summary_make_extensions(plan, cells->run));
    json_set(object, "seed", imported ? json_null() : json_integer(measured->seed));
    json_set(object, "warmup", imported ? json_null() : json_integer(measured->warmup));
    json_set(object, "temperature", json_number(imported ? NAN : measured->sampling.temperature));
    json_set(object, "alpha", json_number(plan->alpha));
    json_set(object, "min_blocks", json_integer(plan->min_blocks));
    json_set(object, "equivalence_margin", json_number(SUMMARY_MARGIN));
    for (int i = 0; i < plan->workload_count; i++)
        json_append(workloads, make_workload(cells, &plan->workloads[i]));
    json_set(object, "workloads", workloads);
    json_set(object, "headline", make_headline(plan));
    json_set(object, "tuning", make_tuning(plan));
    plan_free(&former);
    return object;
}
