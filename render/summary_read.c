#include "render/summary.h"

#include "collect/base/json.h"
#include "collect/record/attempt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_LIMIT 1e15
#define NUMBER_LIMIT 1e150 /* of any number: products and ratios of two must stay finite */

/* Reads one element of an array into the element at `to`; `where` names it. */
typedef int read_element(const json_t *object, const char *where, struct summary *summary, void *to,
                         struct error *error);

static int read_array(const json_t *array, const char *path, const char *key, size_t size, read_element *read,
                      struct summary *summary, void *items, int *count, struct error *error)
{
    size_t length = json_array_size(array);
    char *bytes = xcalloc(length, size);
    memcpy(items, &bytes, sizeof bytes);
    *count = (int)length;
    int result = 0;
    for (size_t i = 0; i < length && !result; i++) {
        char *where = xformat("%s: %s[%zu]", path, key, i);
        result = read(json_array_get(array, i), where, summary, bytes + i * size, error);
        free(where);
    }
    return result;
}

static int read_run(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct summary_run *run = to;
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &run->name, true, 0, 0},
        {"ledger_head", JSON_FIELD_STRING, &run->ledger_head, true, 0, 0},
        {"ledger_lines", JSON_FIELD_INT64, &run->ledger_lines, true, 0, COUNT_LIMIT},
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

static int find_arm(const struct summary *summary, const char *name)
{
    for (int i = 0; i < summary->arm_count; i++)
        if (strcmp(summary->arms[i].name, name) == 0)
            return i;
    return -1;
}

static int read_arm_name(const struct summary *summary, const char *where, const char *name, int *arm,
                         struct error *error)
{
    *arm = find_arm(summary, name);
    return *arm < 0 ? fail(error, "%s: \"arms\" has no arm \"%s\"; run analyze again", where, name) : 0;
}

static int read_workload_name(const struct summary *summary, const char *where, const char *name, int *workload,
                              struct error *error)
{
    for (int i = 0; i < summary->workload_count; i++)
        if (strcmp(summary->workloads[i].name, name) == 0) {
            *workload = i;
            return 0;
        }
    return fail(error, "%s: \"workloads\" has no workload \"%s\"; run analyze again", where, name);
}

/* An object under a key: read by `fields`, untouched where it is null or absent. */
static int read_inner(const json_t *object, const char *where, const char *key, const struct json_field *fields,
                      struct error *error)
{
    const json_t *inner = json_object_get(object, key);
    if (!inner || json_is_null(inner))
        return 0;
    char *place = xformat("%s: \"%s\"", where, key);
    int result = json_read_fields(inner, place, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
    free(place);
    return result;
}

static int read_interval(const json_t *object, const char *where, const char *key, struct interval *interval,
                         struct error *error)
{
    *interval = (struct interval){.value = NAN, .low = NAN, .high = NAN};
    const struct json_field fields[] = {
        {"value", JSON_FIELD_DOUBLE, &interval->value, true, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"low", JSON_FIELD_DOUBLE, &interval->low, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"high", JSON_FIELD_DOUBLE, &interval->high, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"n", JSON_FIELD_INT, &interval->n, true, 0, 1e9},
        {"over", JSON_FIELD_STRING, &interval->over, false, 0, 0},
        {0},
    };
    if (read_inner(object, where, key, fields, error))
        return -1;
    interval->present = isfinite(interval->value);
    if (isnan(interval->low) != isnan(interval->high))
        return fail(error, "%s: \"%s\" has one limit without the other; run analyze again", where, key);
    if (interval->low > interval->value || interval->value > interval->high)
        return fail(error, "%s: \"%s\" lies outside its own interval; run analyze again", where, key);
    return 0;
}

static int read_limits(const json_t *object, const char *where, const char *key, struct limits *limits,
                       struct error *error)
{
    *limits = (struct limits){NAN, NAN};
    const struct json_field fields[] = {
        {"low", JSON_FIELD_DOUBLE, &limits->low, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"high", JSON_FIELD_DOUBLE, &limits->high, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {0},
    };
    return read_inner(object, where, key, fields, error);
}

static int read_missing(const json_t *object, const char *where, struct missing *missing, struct error *error)
{
    const struct json_field fields[] = {
        {"rule", JSON_FIELD_STRING, &missing->rule, true, 0, 0},
        {"detail", JSON_FIELD_STRING, &missing->detail, false, 0, 0},
        {0},
    };
    return read_inner(object, where, "missing", fields, error);
}

static int read_stages(const json_t *object, const char *where, const char *key, double *stages, struct error *error)
{
    struct json_field fields[SUMMARY_STAGE_COUNT + 1] = {0};
    for (int i = 0; i < SUMMARY_STAGE_COUNT; i++) {
        stages[i] = NAN;
        fields[i] = (struct json_field){summary_stage_names[i], JSON_FIELD_DOUBLE, &stages[i], false,
                                        -NUMBER_LIMIT,          NUMBER_LIMIT};
    }
    return read_inner(object, where, key, fields, error);
}

static int check_marks(const json_t *marks, const char *where, struct error *error)
{
    for (size_t i = 0; i < json_array_size(marks); i++)
        if (!json_is_string(json_array_get(marks, i)))
            return fail(error, "%s: \"marks\" must hold rule ids; run analyze again", where);
    return 0;
}

static int read_histogram(const json_t *array, const char *where, struct cell *cell, struct error *error)
{
    cell->histogram_count = (int)json_array_size(array);
    cell->histogram = cell->histogram_count ? xcalloc((size_t)cell->histogram_count, sizeof *cell->histogram) : NULL;
    for (int i = 0; i < cell->histogram_count; i++) {
        const json_t *rounds = json_array_get(array, (size_t)i);
        if (!json_is_number(rounds) || json_number_value(rounds) < 0 || json_number_value(rounds) > COUNT_LIMIT)
            return fail(error, "%s: \"accepted_histogram\" must hold counts of rounds; run analyze again", where);
        cell->histogram[i] = json_number_value(rounds);
    }
    return 0;
}

static int read_cell(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    struct cell *cell = to;
    *cell = (struct cell){.tau_request_mean = NAN, .tau_emitted = NAN, .rounds = NAN};
    const char *arm, *workload;
    const json_t *histogram = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, true, 0, 0},
        {"blocks_valid", JSON_FIELD_INT, &cell->blocks_valid, true, 0, 1e6},
        {"blocks_planned", JSON_FIELD_INT, &cell->blocks_planned, true, 0, 1e6},
        {"tries", JSON_FIELD_INT, &cell->tries, false, 0, 1e6},
        {"excluded", JSON_FIELD_INT, &cell->excluded, false, 0, 1e6},
        {"tau_request_mean", JSON_FIELD_DOUBLE, &cell->tau_request_mean, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"tau_emitted", JSON_FIELD_DOUBLE, &cell->tau_emitted, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"accepted_histogram", JSON_FIELD_ARRAY, &histogram, false, 0, 0},
        {"rounds", JSON_FIELD_DOUBLE, &cell->rounds, false, -NUMBER_LIMIT, NUMBER_LIMIT},
        {"marks", JSON_FIELD_ARRAY, &cell->marks, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_arm_name(summary, where, arm, &cell->arm, error) ||
        read_workload_name(summary, where, workload, &cell->workload, error) ||
        read_interval(object, where, "tokens_per_s", &cell->tokens_per_s, error) ||
        read_interval(object, where, "tpot_ms", &cell->tpot_ms, error) ||
        read_interval(object, where, "ttft_ms", &cell->ttft_ms, error) ||
        read_interval(object, where, "tau", &cell->tau, error) ||
        read_stages(object, where, "stages_ms", cell->stages_ms, error) ||
        read_stages(object, where, "stages_share", cell->stages_share, error) ||
        read_missing(object, where, &cell->missing, error) || check_marks(cell->marks, where, error))
        return -1;
    return read_histogram(histogram, where, cell, error);
}

static int check_blocks(const json_t *blocks, const char *where, const char *key, bool numbered, struct error *error)
{
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        const json_t *value = json_object_get(block, numbered ? "log_ratio" : "rule");
        json_int_t number = json_integer_value(json_object_get(block, "block"));
        if (number < 1 || number > ATTEMPT_BLOCK_MAXIMUM || !(numbered ? json_is_number(value) : json_is_string(value)))
            return fail(error, "%s: %s[%zu] must have \"block\", from 1 to %d, and \"%s\"; run analyze again", where,
                        key, i, ATTEMPT_BLOCK_MAXIMUM, numbered ? "log_ratio" : "rule");
    }
    return 0;
}

static int read_comparison(const json_t *object, const char *where, struct summary *summary, void *to,
                           struct error *error)
{
    struct comparison *comparison = to;
    *comparison = (struct comparison){.workload = SUMMARY_ALL_WORKLOADS, .p = NAN, .p_holm = NAN, .sign_flip_p = NAN};
    const char *arm, *baseline, *workload = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"baseline", JSON_FIELD_STRING, &baseline, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, false, 0, 0},
        {"headline", JSON_FIELD_BOOL, &comparison->headline, false, 0, 0},
        {"best", JSON_FIELD_BOOL, &comparison->best, false, 0, 0},
        {"p", JSON_FIELD_DOUBLE, &comparison->p, false, 0, 1},
        {"p_holm", JSON_FIELD_DOUBLE, &comparison->p_holm, false, 0, 1},
        {"sign_flip_p", JSON_FIELD_DOUBLE, &comparison->sign_flip_p, false, 0, 1},
        {"blocks", JSON_FIELD_ARRAY, &comparison->blocks, false, 0, 0},
        {"dropped", JSON_FIELD_ARRAY, &comparison->dropped, false, 0, 0},
        {"marks", JSON_FIELD_ARRAY, &comparison->marks, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_arm_name(summary, where, arm, &comparison->arm, error) ||
        read_arm_name(summary, where, baseline, &comparison->baseline, error) ||
        (workload && read_workload_name(summary, where, workload, &comparison->workload, error)) ||
        read_interval(object, where, "speedup", &comparison->speedup, error) ||
        read_interval(object, where, "speedup_end_to_end", &comparison->speedup_end_to_end, error) ||
        read_limits(object, where, "simultaneous", &comparison->simultaneous, error) ||
        read_limits(object, where, "fieller", &comparison->fieller, error) ||
        read_missing(object, where, &comparison->missing, error) || check_marks(comparison->marks, where, error) ||
        check_blocks(comparison->blocks, where, "blocks", true, error) ||
        check_blocks(comparison->dropped, where, "dropped", false, error))
        return -1;
    const double ratios[] = {comparison->speedup.value, comparison->speedup.low, comparison->simultaneous.low};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++)
        if (ratios[i] < 1 / NUMBER_LIMIT)
            return fail(error, "%s: \"speedup\" and its limits must be above 0; run analyze again", where);
    return 0;
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

static bool labels_unique(const struct summary *summary)
{
    for (int i = 0; i < summary->arm_count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(summary->arms[i].label, summary->arms[j].label) == 0)
                return false;
    return true;
}

static int check_extensions(const json_t *array, const char *where, struct error *error)
{
    size_t i;
    const json_t *value;
    json_array_foreach(array, i, value)
    {
        json_int_t blocks = json_integer_value(value);
        if (!json_is_integer(value) || blocks < 1 || blocks > ATTEMPT_BLOCK_MAXIMUM)
            return fail(error, "%s: \"extended_from\"[%zu] must be an integer from 1 to %d", where, i,
                        ATTEMPT_BLOCK_MAXIMUM);
    }
    return 0;
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
        {"workloads", JSON_FIELD_ARRAY, workloads, false, 0, 0},
        {0},
    };
    int result = json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
    if (!result)
        result = check_extensions(summary->extended_from, where, error);
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
    if (read_inner(summary->json, path, "program", program_fields, error) ||
        read_plan(plan, path, summary, &planned, error) || read_method(method, path, summary, error) ||
        read_workloads(names, planned, path, summary, error))
        return -1;
    const struct {
        const json_t *array;
        const char *key;
        size_t size;
        read_element *read;
        void *items;
        int *count;
    } lists[] = {
        {runs, "runs", sizeof *summary->runs, read_run, &summary->runs, &summary->run_count},
        {arms, "arms", sizeof *summary->arms, read_arm, &summary->arms, &summary->arm_count},
        {cells, "cells", sizeof *summary->cells, read_cell, &summary->cells, &summary->cell_count},
        {comparisons, "comparisons", sizeof *summary->comparisons, read_comparison, &summary->comparisons,
         &summary->comparison_count},
        {verdicts, "verdicts", sizeof *summary->verdicts, read_verdict, &summary->verdicts, &summary->verdict_count},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (read_array(lists[i].array, path, lists[i].key, lists[i].size, lists[i].read, summary, lists[i].items,
                       lists[i].count, error))
            return -1;
    summary->labels_unique = labels_unique(summary);
    return 0;
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
