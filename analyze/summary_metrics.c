/* What is estimated from one number an attempt: times, rates, energy. */
#include "analyze/summary_parts.h"

#include "collect/base/json.h"
#include "collect/record/energy.h"

#include <math.h>
#include <stdlib.h>

/* --- of an attempt ------------------------------------------------------------------------------------------------ */

/* A metric of one attempt, such as its time a token. */
typedef double attempt_metric(const struct attempt *attempt, const char *workload, enum samples_kept kept);

static double tpot_ms(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    const struct sample_sums sums = samples_sum_kept(attempt, workload, NULL, kept);
    return samples_tpot_ns(&sums) / 1e6;
}

static double tokens_per_s(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    return 1e3 / tpot_ms(attempt, workload, kept);
}

static double ttft_ms(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    const struct sample_sums sums = samples_sum_kept(attempt, workload, NULL, kept);
    return samples_ttft_ns(&sums) / 1e6;
}

static double end_to_end_tokens_per_s(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    const struct sample_sums sums = samples_sum_kept(attempt, workload, NULL, kept);
    return 1e9 / samples_end_to_end_ns(&sums);
}

static double aggregate_tokens_per_s(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    (void)kept;
    return samples_aggregate_tokens_per_s(attempt, workload);
}

static double aggregate_per_device(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    return aggregate_tokens_per_s(attempt, workload, kept) / attempt->arm.tensor_parallel;
}

static double round_ms(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    (void)kept;
    struct stage_sums sums = {0};
    samples_add_stages(attempt, workload, NULL, &sums);
    return samples_round_ns(&sums) / 1e6;
}

static double communicate_share(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    (void)kept;
    struct stage_sums sums = {0};
    samples_add_stages(attempt, workload, NULL, &sums);
    return sums.communicate_ns / sums.decode_ns;
}

static double joules_per_token(const struct attempt *attempt, const char *workload, enum samples_kept kept)
{
    (void)kept;
    return energy_joules_a_token(attempt, workload);
}

enum { VOIDS_END_TO_END = RULE_VOIDS_TIMES | RULE_VOIDS_TTFT };

static const struct metric {
    const char *key;
    attempt_metric *of;
    unsigned voided_by;
    bool without_suspects; /* estimated a second time */
} metrics[] = {
    {"tokens_per_s", tokens_per_s, RULE_VOIDS_TIMES, true},
    {"tpot_ms", tpot_ms, RULE_VOIDS_TIMES, true},
    {"ttft_ms", ttft_ms, RULE_VOIDS_TTFT, true},
    {"end_to_end_tokens_per_s", end_to_end_tokens_per_s, VOIDS_END_TO_END, false},
    {"aggregate_tokens_per_s", aggregate_tokens_per_s, SUMMARY_VOIDS_AGGREGATE, false},
    {"aggregate_per_device", aggregate_per_device, SUMMARY_VOIDS_AGGREGATE, false},
    {"round_ms", round_ms, SUMMARY_VOIDS_ROUND, false},
    {"communicate_share", communicate_share, RULE_VOIDS_TIMES, false},
    {"joules_per_token", joules_per_token, VOIDS_END_TO_END, false},
};
enum { METRIC_COUNT = sizeof metrics / sizeof *metrics };

/* --- of a cell ---------------------------------------------------------------------------------------------------- */

static struct interval estimate(const struct cells *cells, const struct cell *cell, const struct metric *metric,
                                const struct suspects *without)
{
    double *logs = xcalloc((size_t)cells->blocks, sizeof *logs);
    int count = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, metric->voided_by);
        if (!attempt || (without && without->left_out[block - 1]))
            continue;
        const double value = metric->of(attempt, cell->workload->name, without ? without->kept : SAMPLES_ALL);
        if (value > 0)
            logs[count++] = log(value);
    }
    struct interval interval = summary_estimate(cells->plan, logs, count, cells->plan->alpha);
    free(logs);
    return interval;
}

void summary_set_metrics(const struct cells *cells, const struct cell *cell, const struct suspects *without,
                         json_t *object)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (!without || metrics[i].without_suspects)
            json_set(object, metrics[i].key,
                     summary_make_interval(estimate(cells, cell, &metrics[i], without), "blocks"));
}

json_t *summary_make_communicate_share(const struct cells *cells, const struct cell *cell)
{
    static const struct metric metric = {NULL, communicate_share, RULE_VOIDS_TIMES, false};
    return summary_make_interval(estimate(cells, cell, &metric, NULL), "blocks");
}
