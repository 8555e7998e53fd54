/* "cells" and "comparisons" of a summary. */
#include "collect/record/attempt.h"
#include "render/summary_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT SUMMARY_NUMBER_LIMIT

static int read_stages(const json_t *object, const char *where, const char *key, double *stages, struct error *error)
{
    struct json_field fields[SUMMARY_STAGE_COUNT + 1] = {0};
    for (int i = 0; i < SUMMARY_STAGE_COUNT; i++) {
        stages[i] = NAN;
        fields[i] = (struct json_field){summary_stage_names[i], JSON_FIELD_DOUBLE, &stages[i], false, -LIMIT, LIMIT};
    }
    return summary_read_inner(object, where, key, fields, error);
}

static int read_histogram(const json_t *array, const char *where, struct cell *cell, struct error *error)
{
    cell->histogram_count = (int)json_array_size(array);
    cell->histogram = cell->histogram_count ? xcalloc((size_t)cell->histogram_count, sizeof *cell->histogram) : NULL;
    for (int i = 0; i < cell->histogram_count; i++) {
        const json_t *rounds = json_array_get(array, (size_t)i);
        if (!json_is_number(rounds) || json_number_value(rounds) < 0 || json_number_value(rounds) > SUMMARY_COUNT_LIMIT)
            return fail(error, "%s: \"accepted_histogram\" must hold counts of rounds; run analyze again", where);
        cell->histogram[i] = json_number_value(rounds);
    }
    return 0;
}

static int read_latency(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct latency *latency = to;
    const char *metric;
    const struct json_field fields[] = {
        {"metric", JSON_FIELD_STRING, &metric, true, 0, 0},
        {"quantile", JSON_FIELD_DOUBLE, &latency->quantile, true, 0, 1},
        {0},
    };
    const struct interval_field intervals[] = {
        {"over_prompts", &latency->over_prompts, false},
        {"over_blocks", &latency->over_blocks, false},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        summary_read_intervals(object, where, intervals, error))
        return -1;
    for (int i = 0; i < SUMMARY_METRIC_COUNT; i++)
        if (strcmp(metric, summary_metric_names[i]) == 0) {
            latency->metric = (enum summary_metric)i;
            return 0;
        }
    return fail(error, "%s: there is no metric \"%s\"; run analyze again", where, metric);
}

static int read_losslessness(const json_t *object, const char *where, struct losslessness *of, struct error *error)
{
    *of = (struct losslessness){json_is_object(json_object_get(object, "losslessness")), -1, -1, -1, -1, NAN};
    const struct json_field fields[] = {
        {"requests", JSON_FIELD_INT64, &of->requests, false, 0, SUMMARY_COUNT_LIMIT},
        {"identical", JSON_FIELD_INT64, &of->identical, false, 0, SUMMARY_COUNT_LIMIT},
        {"diverged", JSON_FIELD_INT64, &of->diverged, false, 0, SUMMARY_COUNT_LIMIT},
        {"audited_tokens", JSON_FIELD_INT64, &of->audited_tokens, false, 0, SUMMARY_COUNT_LIMIT},
        {"audit_regret_max", JSON_FIELD_DOUBLE, &of->audit_regret_max, false, -LIMIT, LIMIT},
        {0},
    };
    return summary_read_inner(object, where, "losslessness", fields, error);
}

static int read_cell_intervals(const json_t *object, const char *where, struct cell *cell, struct error *error)
{
    const json_t *without;
    const struct interval_field intervals[] = {
        {"tokens_per_s", &cell->tokens_per_s, true},
        {"tpot_ms", &cell->tpot_ms, false},
        {"ttft_ms", &cell->ttft_ms, false},
        {"tau", &cell->tau, false},
        {"end_to_end_tokens_per_s", &cell->end_to_end_tokens_per_s, false},
        {"aggregate_tokens_per_s", &cell->aggregate_tokens_per_s, true},
        {"aggregate_per_device", &cell->aggregate_per_device, true},
        {"round_ms", &cell->round_ms, false},
        {"communicate_share", &cell->communicate_share, false},
        {"joules_per_token", &cell->joules_per_token, false},
        {0},
    };
    const struct interval_field remaining[] = {
        {"tokens_per_s", &cell->without_tokens_per_s, false}, {"tau", &cell->without_tau, false}, {0}};
    if (summary_read_intervals(object, where, intervals, error) ||
        summary_read_without(object, where, &cell->without, &without, error))
        return -1;
    return summary_read_intervals(without, where, remaining, error);
}

int summary_read_cell(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    struct cell *cell = to;
    *cell = (struct cell){
        .tau_request_mean = NAN, .tau_emitted = NAN, .rounds = NAN, .peak_memory_bytes = NAN, .sessions = -1};
    const char *arm, *workload;
    const json_t *histogram = NULL, *latency = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, true, 0, 0},
        {"blocks_valid", JSON_FIELD_INT, &cell->blocks_valid, true, 0, 1e6},
        {"blocks_planned", JSON_FIELD_INT, &cell->blocks_planned, true, 0, 1e6},
        {"tries", JSON_FIELD_INT, &cell->tries, false, 0, 1e6},
        {"excluded", JSON_FIELD_INT, &cell->excluded, false, 0, 1e6},
        {"sessions", JSON_FIELD_INT, &cell->sessions, false, 0, 1e6},
        {"extended_from", JSON_FIELD_ARRAY, &cell->extended_from, false, 0, 0},
        {"pareto", JSON_FIELD_BOOL, &cell->pareto, false, 0, 0},
        {"latency", JSON_FIELD_ARRAY, &latency, false, 0, 0},
        {"tau_request_mean", JSON_FIELD_DOUBLE, &cell->tau_request_mean, false, -LIMIT, LIMIT},
        {"tau_emitted", JSON_FIELD_DOUBLE, &cell->tau_emitted, false, -LIMIT, LIMIT},
        {"accepted_histogram", JSON_FIELD_ARRAY, &histogram, false, 0, 0},
        {"rounds", JSON_FIELD_DOUBLE, &cell->rounds, false, -LIMIT, LIMIT},
        {"memory", JSON_FIELD_OBJECT, &cell->memory, false, 0, 0},
        {"peak_memory_bytes", JSON_FIELD_DOUBLE, &cell->peak_memory_bytes, false, 0, LIMIT},
        {"marks", JSON_FIELD_ARRAY, &cell->marks, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        summary_read_arm_name(summary, where, arm, &cell->arm, error) ||
        summary_read_workload_name(summary, where, workload, &cell->workload, error) ||
        read_cell_intervals(object, where, cell, error) ||
        summary_read_array(latency, where, "latency", sizeof *cell->latency, read_latency, summary, &cell->latency,
                           &cell->latency_count, error) ||
        read_stages(object, where, "stages_ms", cell->stages_ms, error) ||
        read_stages(object, where, "stages_share", cell->stages_share, error) ||
        read_losslessness(object, where, &cell->losslessness, error) ||
        summary_read_missing(object, where, "missing", &cell->missing, error) ||
        summary_read_missing(object, where, "aggregate_missing", &cell->aggregate_missing, error) ||
        summary_check_counts(cell->extended_from, where, "extended_from", ATTEMPT_BLOCK_MAXIMUM, error) ||
        summary_check_strings(cell->marks, where, "marks", error))
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

static int read_round_cost(const json_t *object, const char *where, struct comparison *comparison, struct error *error)
{
    struct interval_field fields[SUMMARY_STAGE_COUNT + 1] = {0};
    for (int i = 0; i < SUMMARY_STAGE_COUNT; i++)
        fields[i] = (struct interval_field){summary_stage_names[i], &comparison->round_cost[i], false};
    return summary_read_intervals(json_object_get(object, "round_cost"), where, fields, error);
}

static int read_comparison_intervals(const json_t *object, const char *where, struct comparison *comparison,
                                     struct error *error)
{
    const json_t *without;
    const struct interval_field intervals[] = {
        {"speedup", &comparison->speedup, true},
        {"speedup_end_to_end", &comparison->speedup_end_to_end, true},
        {"speedup_aggregate", &comparison->speedup_aggregate, true},
        {"speedup_prompts", &comparison->speedup_prompts, true},
        {"speedup_identical", &comparison->speedup_identical, true},
        {"speedup_unpaired", &comparison->speedup_unpaired, true},
        {"break_even_tau", &comparison->break_even_tau, true},
        {0},
    };
    const struct interval_field remaining[] = {{"speedup", &comparison->without_speedup, true}, {0}};
    if (summary_read_intervals(object, where, intervals, error) || read_round_cost(object, where, comparison, error) ||
        summary_read_without(object, where, &comparison->without, &without, error) ||
        summary_read_intervals(without, where, remaining, error) ||
        summary_read_limits(object, where, "simultaneous", true, &comparison->simultaneous, error))
        return -1;
    return summary_read_limits(object, where, "fieller", false, &comparison->fieller, error);
}

int summary_read_comparison(const json_t *object, const char *where, struct summary *summary, void *to,
                            struct error *error)
{
    struct comparison *comparison = to;
    *comparison = (struct comparison){
        .workload = SUMMARY_ALL_WORKLOADS, .p = NAN, .p_holm = NAN, .p_bh = NAN, .sign_flip_p = NAN};
    const char *arm, *baseline, *workload = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"baseline", JSON_FIELD_STRING, &baseline, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, false, 0, 0},
        {"headline", JSON_FIELD_BOOL, &comparison->headline, false, 0, 0},
        {"best", JSON_FIELD_BOOL, &comparison->best, false, 0, 0},
        {"within_margin", JSON_FIELD_BOOL, &comparison->within_margin, false, 0, 0},
        {"verdict", JSON_FIELD_STRING, &comparison->verdict, false, 0, 0},
        {"p", JSON_FIELD_DOUBLE, &comparison->p, false, 0, 1},
        {"p_holm", JSON_FIELD_DOUBLE, &comparison->p_holm, false, 0, 1},
        {"p_bh", JSON_FIELD_DOUBLE, &comparison->p_bh, false, 0, 1},
        {"sign_flip_p", JSON_FIELD_DOUBLE, &comparison->sign_flip_p, false, 0, 1},
        {"blocks", JSON_FIELD_ARRAY, &comparison->blocks, false, 0, 0},
        {"dropped", JSON_FIELD_ARRAY, &comparison->dropped, false, 0, 0},
        {"marks", JSON_FIELD_ARRAY, &comparison->marks, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        summary_read_arm_name(summary, where, arm, &comparison->arm, error) ||
        summary_read_arm_name(summary, where, baseline, &comparison->baseline, error) ||
        (workload && summary_read_workload_name(summary, where, workload, &comparison->workload, error)) ||
        read_comparison_intervals(object, where, comparison, error) ||
        summary_read_missing(object, where, "missing", &comparison->missing, error) ||
        summary_check_strings(comparison->marks, where, "marks", error) ||
        check_blocks(comparison->blocks, where, "blocks", true, error))
        return -1;
    return check_blocks(comparison->dropped, where, "dropped", false, error);
}
