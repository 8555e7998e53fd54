#include "collect/record/attempt.h"
#include "render/summary_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int read_run(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct summary_run *run = to;
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &run->name, true, 0, 0},
        {"ledger_head", JSON_FIELD_STRING, &run->ledger_head, true, 0, 0},
        {"ledger_lines", JSON_FIELD_INT64, &run->ledger_lines, true, 0, SUMMARY_COUNT_LIMIT},
        {"plan_sha256", JSON_FIELD_STRING, &run->plan_sha256, false, 0, 0},
        {"first_started", JSON_FIELD_STRING, &run->first_started, false, 0, 0},
        {"last_started", JSON_FIELD_STRING, &run->last_started, false, 0, 0},
        {"sessions", JSON_FIELD_INT, &run->sessions, false, 0, 1e9},
        {"attempts", JSON_FIELD_INT, &run->attempts, false, 0, 1e9},
        {"attempts_invalid", JSON_FIELD_INT, &run->attempts_invalid, false, 0, 1e9},
        {0},
    };
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int read_arm(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct summary_arm *arm = to;
    *arm = (struct summary_arm){.tensor_parallel = 1, .concurrency = 1};
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &arm->name, true, 0, 0},
        {"label", JSON_FIELD_STRING, &arm->label, true, 0, 0},
        {"method", JSON_FIELD_STRING, &arm->method, true, 0, 0},
        {"tensor_parallel", JSON_FIELD_INT, &arm->tensor_parallel, false, 1, 1e6},
        {"budget", JSON_FIELD_INT, &arm->budget, false, 0, 1e6},
        {"concurrency", JSON_FIELD_INT, &arm->concurrency, false, 1, 1e6},
        {0},
    };
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int read_verdict(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct summary_verdict *verdict = to;
    *verdict = (struct summary_verdict){.observed = NAN, .threshold = NAN};
    const struct json_field fields[] = {
        {"attempt", JSON_FIELD_STRING, &verdict->attempt, false, 0, 0},
        {"workload", JSON_FIELD_STRING, &verdict->workload, false, 0, 0},
        {"rule", JSON_FIELD_STRING, &verdict->rule, true, 0, 0},
        {"level", JSON_FIELD_STRING, &verdict->level, true, 0, 0},
        {"detail", JSON_FIELD_STRING, &verdict->detail, false, 0, 0},
        {"time", JSON_FIELD_STRING, &verdict->time, false, 0, 0},
        {"actor", JSON_FIELD_STRING, &verdict->actor, false, 0, 0},
        {"observed", JSON_FIELD_DOUBLE, &verdict->observed, false, 0, 0},
        {"threshold", JSON_FIELD_DOUBLE, &verdict->threshold, false, 0, 0},
        {0},
    };
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int read_workload(const json_t *object, const char *where, struct summary *summary, void *to,
                         struct error *error)
{
    (void)summary;
    struct summary_workload *workload = to;
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &workload->name, true, 0, 0},
        {"prompts", JSON_FIELD_STRING, &workload->prompts, false, 0, 0},
        {"count", JSON_FIELD_INT, &workload->count, false, 0, 1e9},
        {"max_new_tokens", JSON_FIELD_INT, &workload->max_new_tokens, false, 0, 1e9},
        {"ignore_eos", JSON_FIELD_BOOL, &workload->ignore_eos, false, 0, 0},
        {"context_tokens", JSON_FIELD_INT, &workload->context_tokens, false, 0, 1e9},
        {"template", JSON_FIELD_STRING, &workload->template, false, 0, 0},
        {"chat", JSON_FIELD_STRING, &workload->chat, false, 0, 0},
        {0},
    };
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

/* Top level "workloads" holds names; the plan tells more of those it has. */
static int read_workloads(const json_t *names, const json_t *planned, const char *path, struct summary *summary,
                          struct error *error)
{
    summary->workload_count = (int)json_array_size(names);
    summary->workloads = xcalloc((size_t)summary->workload_count, sizeof *summary->workloads);
    for (int i = 0; i < summary->workload_count; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        if (!name)
            return fail(error, "%s: workloads[%d] must be a string; run analyze again", path, i);
        summary->workloads[i].name = name;
        for (size_t j = 0; j < json_array_size(planned); j++) {
            const json_t *object = json_array_get(planned, j);
            const char *other = json_string_value(json_object_get(object, "name"));
            if (other && strcmp(other, name) == 0 &&
                read_workload(object, path, summary, &summary->workloads[i], error))
                return -1;
        }
    }
    return 0;
}

static int method_rank(const char *method)
{
    static const char *const methods[] = {"auto", "linear", "ddtree"};
    int rank = 0;
    while (rank < 3 && strcmp(method, methods[rank]) != 0)
        rank++;
    return rank;
}

/* What is compared stands together: by ranks, concurrency, method, budget, then name. */
static int compare_arms(const void *a, const void *b)
{
    const struct summary_arm *one = a, *other = b;
    const int keys[][2] = {
        {one->tensor_parallel, other->tensor_parallel},
        {one->concurrency, other->concurrency},
        {method_rank(one->method), method_rank(other->method)},
        {one->budget, other->budget},
    };
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return strcmp(one->name, other->name);
}

static bool labels_unique(const struct summary *summary)
{
    for (int i = 0; i < summary->arm_count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(summary->arms[i].label, summary->arms[j].label) == 0)
                return false;
    return true;
}

static int read_plan(const json_t *object, const char *path, struct summary *summary, const json_t **workloads,
                     struct error *error)
{
    char *where = xformat("%s: \"plan\"", path);
    const struct json_field fields[] = {
        {"blocks", JSON_FIELD_INT, &summary->blocks, true, 0, ATTEMPT_BLOCK_MAXIMUM},
        {"extended_from", JSON_FIELD_ARRAY, &summary->extended_from, false, 0, 0},
        {"seed", JSON_FIELD_INT64, &summary->seed, false, 0, 0},
        {"warmup", JSON_FIELD_INT, &summary->warmup, false, 0, 1e6},
        {"min_blocks", JSON_FIELD_INT, &summary->min_blocks, false, 0, 1e6},
        {"temperature", JSON_FIELD_DOUBLE, &summary->temperature, false, 0, 0},
        {"alpha", JSON_FIELD_DOUBLE, &summary->alpha, false, 0, 1},
        {"equivalence_margin", JSON_FIELD_DOUBLE, &summary->equivalence_margin, false, 0, 1},
        {"workloads", JSON_FIELD_ARRAY, workloads, false, 0, 0},
        {0},
    };
    int result = json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
    if (!result)
        result = summary_check_counts(summary->extended_from, where, "extended_from", ATTEMPT_BLOCK_MAXIMUM, error);
    free(where);
    return result;
}

static int read_method(const json_t *object, const char *path, struct summary *summary, struct error *error)
{
    char *where = xformat("%s: \"method\"", path);
    const struct json_field fields[] = {
        {"interval", JSON_FIELD_STRING, &summary->interval_kind, true, 0, 0},
        {"level", JSON_FIELD_DOUBLE, &summary->level, true, 0, 1},
        {"multiplicity", JSON_FIELD_STRING, &summary->multiplicity, false, 0, 0},
        {"tokens", JSON_FIELD_STRING, &summary->tokens_counted, false, 0, 0},
        {0},
    };
    int result = json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
    free(where);
    return result;
}

static int read_document(const char *path, struct summary *summary, struct error *error)
{
    const char *schema;
    const json_t *program = NULL, *runs, *arms, *names, *cells, *comparisons, *verdicts, *plan, *method,
                 *planned = NULL;
    const struct json_field fields[] = {
        {"schema", JSON_FIELD_STRING, &schema, true, 0, 0},
        {"name", JSON_FIELD_STRING, &summary->name, true, 0, 0},
        {"title", JSON_FIELD_STRING, &summary->title, false, 0, 0},
        {"program", JSON_FIELD_OBJECT, &program, false, 0, 0},
        {"runs", JSON_FIELD_ARRAY, &runs, true, 0, 0},
        {"machine", JSON_FIELD_OBJECT, &summary->machine, false, 0, 0},
        {"source", JSON_FIELD_OBJECT, &summary->source, false, 0, 0},
        {"imports", JSON_FIELD_ARRAY, &summary->imports, false, 0, 0},
        {"gpus", JSON_FIELD_ARRAY, &summary->gpus, false, 0, 0},
        {"plan", JSON_FIELD_OBJECT, &plan, true, 0, 0},
        {"method", JSON_FIELD_OBJECT, &method, true, 0, 0},
        {"arms", JSON_FIELD_ARRAY, &arms, true, 0, 0},
        {"workloads", JSON_FIELD_ARRAY, &names, true, 0, 0},
        {"cells", JSON_FIELD_ARRAY, &cells, true, 0, 0},
        {"comparisons", JSON_FIELD_ARRAY, &comparisons, true, 0, 0},
        {"verdicts", JSON_FIELD_ARRAY, &verdicts, true, 0, 0},
        {"rules", JSON_FIELD_ARRAY, &summary->rules, false, 0, 0},
        {0},
    };
    if (json_read_fields(summary->json, path, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    if (strcmp(schema, SUMMARY_SCHEMA) != 0)
        return fail(error, "%s: schema \"%s\" is not \"%s\"; run analyze again", path, schema, SUMMARY_SCHEMA);
    const struct json_field program_fields[] = {
        {"name", JSON_FIELD_STRING, &summary->program_name, false, 0, 0},
        {"version", JSON_FIELD_STRING, &summary->program_version, false, 0, 0},
        {0},
    };
    if (summary_read_inner(summary->json, path, "program", program_fields, error) ||
        read_plan(plan, path, summary, &planned, error) || read_method(method, path, summary, error) ||
        read_workloads(names, planned, path, summary, error))
        return -1;
    const struct {
        const json_t *array;
        const char *key;
        size_t size;
        summary_read_element *read;
        void *items;
        int *count;
    } lists[] = {
        {runs, "runs", sizeof *summary->runs, read_run, &summary->runs, &summary->run_count},
        {arms, "arms", sizeof *summary->arms, read_arm, &summary->arms, &summary->arm_count},
        {cells, "cells", sizeof *summary->cells, summary_read_cell, &summary->cells, &summary->cell_count},
        {comparisons, "comparisons", sizeof *summary->comparisons, summary_read_comparison, &summary->comparisons,
         &summary->comparison_count},
        {verdicts, "verdicts", sizeof *summary->verdicts, read_verdict, &summary->verdicts, &summary->verdict_count},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (summary_read_array(lists[i].array, path, lists[i].key, lists[i].size, lists[i].read, summary,
                               lists[i].items, lists[i].count, error))
            return -1;
        else if (lists[i].read == read_arm)
            qsort(summary->arms, (size_t)summary->arm_count, sizeof *summary->arms, compare_arms);
    summary->labels_unique = labels_unique(summary);
    return summary_read_whole(summary->json, path, summary, error);
}

int summary_read(const char *path, struct summary *summary, struct error *error)
{
    *summary = (struct summary){0};
    summary->json = json_read_file(path, error);
    if (!summary->json)
        return -1;
    if (read_document(path, summary, error)) {
        summary_free(summary);
        return -1;
    }
    return 0;
}
