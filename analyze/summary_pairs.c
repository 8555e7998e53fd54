/* What pairs of attempts say beside the speedup: all requests in flight, the same outputs, prompts as a second factor,
 * what a round costs, what nothing pairs, and all without what is suspect. */
#include "analyze/summary_parts.h"

#include "analyze/prompts.h"
#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

const struct comparison *summary_parts_of(const struct comparisons *comparisons, const struct comparison *comparison,
                                          int *count)
{
    *count = comparison->parts ? comparisons->cells->plan->workload_count : 1;
    return comparison->parts ? comparison->parts : comparison;
}

/* --- one number a pair -------------------------------------------------------------------------------------------- */

/* The logarithm of a ratio in favour of the arm; NaN where missing. */
typedef double pair_metric(const struct pair *pair, const char *workload, enum samples_kept kept);

static double log_ratio(const struct pair *pair, const char *workload, enum samples_kept kept)
{
    const struct attempt *arm = &pair->arm->attempt, *baseline = &pair->baseline->attempt;
    const struct sample_sums of_arm = samples_sum_kept(arm, workload, baseline, kept);
    const struct sample_sums of_baseline = samples_sum_kept(baseline, workload, arm, kept);
    return log(samples_tpot_ns(&of_baseline) / samples_tpot_ns(&of_arm));
}

static double log_aggregate(const struct pair *pair, const char *workload, enum samples_kept kept)
{
    (void)kept;
    if (rule_worst(&pair->arm->verdicts, workload, SUMMARY_VOIDS_AGGREGATE) == RULE_INVALID ||
        rule_worst(&pair->baseline->verdicts, workload, SUMMARY_VOIDS_AGGREGATE) == RULE_INVALID)
        return NAN;
    return log(samples_aggregate_tokens_per_s(&pair->arm->attempt, workload) /
               samples_aggregate_tokens_per_s(&pair->baseline->attempt, workload));
}

static double log_break_even(const struct pair *pair, const char *workload, enum samples_kept kept)
{
    (void)workload, (void)kept;
    return -pair->log_gain;
}

/* In one block, the mean over the workloads; NaN where one lacks it or the block is dropped. without: of each part, or
 * NULL. */
static double block_log(const struct comparison *parts, int count, int block, pair_metric *metric,
                        enum samples_kept kept, const struct suspects *without)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const struct pair *pair = &parts[i].pairs[block];
        const bool left_out = isnan(pair->log_ratio) || (without && without[i].left_out[block]);
        sum += left_out ? NAN : metric(pair, parts[i].workload->name, without ? without[i].kept : kept);
    }
    return sum / count;
}

static struct interval estimate(const struct comparisons *comparisons, const struct comparison *comparison,
                                pair_metric *metric, enum samples_kept kept, const struct suspects *without)
{
    int count, used = 0;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    double *logs = xcalloc((size_t)comparisons->cells->blocks, sizeof *logs);
    for (int block = 0; block < comparisons->cells->blocks; block++) {
        const double value = block_log(parts, count, block, metric, kept, without);
        if (isfinite(value))
            logs[used++] = value;
    }
    struct interval interval = summary_estimate_pairs(comparisons, comparison, logs, used);
    free(logs);
    return interval;
}

/* Whether some outputs of the pairs are the same, and some are not. */
static bool differ_in_part(const struct comparisons *comparisons, const struct comparison *comparison)
{
    int count, all = 0, identical = 0;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    for (int i = 0; i < count; i++)
        for (int block = 0; block < comparisons->cells->blocks; block++) {
            const struct pair *pair = &parts[i].pairs[block];
            if (isnan(pair->log_ratio))
                continue;
            const struct attempt *arm = &pair->arm->attempt, *baseline = &pair->baseline->attempt;
            all += samples_sum(arm, parts[i].workload->name, baseline).prompts;
            identical += samples_sum_kept(arm, parts[i].workload->name, baseline, SAMPLES_IDENTICAL).prompts;
        }
    return identical > 0 && identical < all;
}

/* --- prompts and blocks ------------------------------------------------------------------------------------------- */

/* The log of a token's time for each prompt that the attempt answered; for others NaN stays. */
static void fill_column(const struct attempt *attempt, const char *workload, int column, struct prompt_table *table)
{
    const struct sample *sample;
    for (int at = 0; (sample = samples_next(attempt, workload, &at));) {
        double *place = prompt_table_at(table, sample->prompt, column);
        if (place)
            *place = log(samples_times(sample).tpot_ns);
    }
}

/* The log ratio of each prompt in each of the columns' blocks; prompts without one in each, for want of an answer of
 * the arm or of the baseline, are left out. */
static void read_prompts(const struct comparison *part, const int *blocks, int columns, struct prompt_table *table)
{
    const struct attempt **attempts = xcalloc((size_t)columns + 1, sizeof *attempts);
    const char *workload = part->workload->name;
    struct prompt_table of_arm;
    for (int j = 0; j < columns; j++)
        attempts[j] = &part->pairs[blocks[j]].arm->attempt;
    prompt_table_init(attempts, columns, workload, table);
    prompt_table_init(attempts, columns, workload, &of_arm);
    for (int j = 0; j < columns; j++) {
        fill_column(attempts[j], workload, j, &of_arm);
        fill_column(&part->pairs[blocks[j]].baseline->attempt, workload, j, table);
    }
    for (int i = 0; i < table->count * columns; i++)
        table->values[i] -= of_arm.values[i];
    prompt_table_complete(table);
    prompt_table_free(&of_arm);
    free(attempts);
}

static struct interval estimate_prompts(const struct comparisons *comparisons, const struct comparison *comparison)
{
    int count, columns = 0, *blocks = xcalloc((size_t)comparisons->cells->blocks, sizeof *blocks);
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    for (int block = 0; block < comparisons->cells->blocks; block++)
        if (!isnan(comparison->pairs[block].log_ratio))
            blocks[columns++] = block;
    struct prompt_table *prompts = xcalloc((size_t)count, sizeof *prompts);
    struct statistics_table *tables = xcalloc((size_t)count, sizeof *tables);
    for (int i = 0; i < count; i++) {
        read_prompts(&parts[i], blocks, columns, &prompts[i]);
        tables[i] = (struct statistics_table){prompts[i].values, prompts[i].count};
    }
    const struct plan *plan = comparisons->cells->plan;
    struct interval interval = statistics_crossed_log_interval(tables, columns ? count : 0, columns, plan->alpha);
    if (columns < plan->min_blocks || !summary_is_paired(comparisons, comparison))
        interval.low = interval.high = NAN;
    for (int i = 0; i < count; i++)
        prompt_table_free(&prompts[i]);
    free(prompts);
    free(tables);
    free(blocks);
    return interval;
}

/* --- what nothing pairs ------------------------------------------------------------------------------------------- */

static int gather_logs(const struct cells *cells, const struct cell *cell, unsigned voided_by, double *logs,
                       const struct judged **one)
{
    int count = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, voided_by);
        if (!attempt)
            continue;
        const struct sample_sums sums = samples_sum(attempt, cell->workload->name, NULL);
        if (!(samples_tpot_ns(&sums) > 0))
            continue;
        logs[count++] = log(samples_tpot_ns(&sums));
        *one = cell->blocks[block - 1].counted;
    }
    return count;
}

static const struct cell *find_cell(const struct cells *cells, const struct arm *arm,
                                    const struct plan_workload *workload)
{
    return cells_at(cells, (int)(arm - cells->plan->arms), (int)(workload - cells->plan->workloads));
}

struct interval summary_estimate_unpaired(const struct cells *cells, const struct arm *arm, const struct arm *baseline,
                                          const struct plan_workload *workload, unsigned voided_by)
{
    const size_t blocks = (size_t)cells->blocks;
    double *of_arm = xcalloc(blocks, sizeof *of_arm), *of_baseline = xcalloc(blocks, sizeof *of_baseline);
    const struct judged *a = NULL, *b = NULL;
    const int arm_count = gather_logs(cells, find_cell(cells, arm, workload), voided_by, of_arm, &a);
    const int baseline_count = gather_logs(cells, find_cell(cells, baseline, workload), voided_by, of_baseline, &b);
    struct interval interval = {NAN, NAN, NAN, 0};
    if (a && b && comparisons_may_compare(a, b, workload->name))
        interval = statistics_welch_log_interval(of_baseline, baseline_count, of_arm, arm_count, cells->plan->alpha);
    if (arm_count < cells->plan->min_blocks || baseline_count < cells->plan->min_blocks)
        interval.low = interval.high = NAN;
    free(of_arm);
    free(of_baseline);
    return interval;
}

enum { VOIDS_UNPAIRED = RULE_VOIDS_TIMES | RULE_VOIDS_SPEEDUP };

/* Whether there is a pair of which no speedup may be made: then none may be made of its attempts otherwise. */
static bool is_refused(const struct pair *pair)
{
    return pair->baseline && pair->reason.rule && rule_table[rule_find(pair->reason.rule)].voids == RULE_VOIDS_SPEEDUP;
}

/* Only where no interval can be made of pairs. */
static struct interval estimate_unpaired(const struct comparisons *comparisons, const struct comparison *comparison)
{
    bool paired = false, refused = false;
    for (int block = 0; block < comparisons->cells->blocks; block++) {
        paired |= !isnan(comparison->pairs[block].log_ratio);
        refused |= is_refused(&comparison->pairs[block]);
    }
    if (!comparison->workload || refused || (paired && summary_is_paired(comparisons, comparison)))
        return (struct interval){NAN, NAN, NAN, 0};
    return summary_estimate_unpaired(comparisons->cells, comparison->arm, comparison->baseline, comparison->workload,
                                     VOIDS_UNPAIRED);
}

static void note_cell_marks(const struct cells *cells, const struct cell *cell, bool *marks)
{
    for (int block = 1; block <= cells->blocks; block++) {
        const struct cell_block *at = &cell->blocks[block - 1];
        if (!cell_usable(cell, block, VOIDS_UNPAIRED))
            continue;
        summary_note_marks(&at->counted->verdicts, cell->workload->name, marks);
        summary_note_marks(&at->verdicts, cell->workload->name, marks);
    }
}

void summary_note_unpaired_marks(const struct comparisons *comparisons, const struct comparison *comparison,
                                 bool *marks)
{
    const struct cells *cells = comparisons->cells;
    if (isnan(estimate_unpaired(comparisons, comparison).value))
        return;
    note_cell_marks(cells, find_cell(cells, comparison->arm, comparison->workload), marks);
    note_cell_marks(cells, find_cell(cells, comparison->baseline, comparison->workload), marks);
    summary_note_marks(&cells->verdicts, comparison->workload->name, marks);
}

/* --- what a round costs ------------------------------------------------------------------------------------------- */

enum { COST_OTHER = STAGE_COUNT, COST_COUNT };

/* A part of the arm's round, in steps of the baseline, on the prompts that both answered. */
static double cost_of(const struct pair *pair, const char *workload, int part)
{
    struct stage_sums sums = {0};
    samples_add_stages(&pair->arm->attempt, workload, &pair->baseline->attempt, &sums);
    double ns = part < STAGE_COUNT ? sums.stage_ns[part] : sums.decode_ns;
    for (int stage = 0; part == COST_OTHER && stage < STAGE_COUNT; stage++)
        ns -= isnan(sums.stage_ns[stage]) ? 0 : sums.stage_ns[stage];
    return ns / sums.rounds / pair->baseline_tpot_ns;
}

static json_t *make_round_cost(const struct comparisons *comparisons, const struct comparison *comparison)
{
    json_t *object = json_object();
    double *values = xcalloc((size_t)comparisons->cells->blocks, sizeof *values);
    for (int part = 0; part < COST_COUNT; part++) {
        int count = 0;
        for (int block = 0; block < comparisons->cells->blocks; block++) {
            const struct pair *pair = &comparison->pairs[block];
            const double cost =
                isnan(pair->log_ratio) || isnan(pair->log_gain) ? NAN : cost_of(pair, comparison->workload->name, part);
            if (isfinite(cost))
                values[count++] = cost;
        }
        struct interval interval = statistics_mean_interval(values, count, comparisons->cells->plan->alpha);
        if (count < comparisons->cells->plan->min_blocks)
            interval.low = interval.high = NAN;
        json_set(object, part < STAGE_COUNT ? stage_names[part] : "other", summary_make_interval(interval, "blocks"));
    }
    free(values);
    return object;
}

/* --- without what is suspect -------------------------------------------------------------------------------------- */

static void append_left(const struct comparison *parts, int count, int block, const struct suspects *suspects,
                        json_t *left, json_t *outliers)
{
    const size_t left_from = json_array_size(left), outliers_from = json_array_size(outliers);
    bool out = false, outlier = false;
    for (int i = 0; i < count; i++) {
        out |= isnan(parts[i].pairs[block].log_ratio) || suspects[i].left_out[block];
        outlier |= suspects[i].outliers[block];
    }
    for (int i = 0; i < count; i++) {
        const struct pair *pair = &parts[i].pairs[block];
        const struct judged *const both[] = {pair->arm, pair->baseline};
        for (int j = 0; j < 2 && both[j]; j++) {
            if (!out)
                summary_append_once(left, left_from, both[j]->attempt.id);
            if (outlier)
                summary_append_once(outliers, outliers_from, both[j]->attempt.id);
        }
    }
}

static json_t *make_without(const struct comparisons *comparisons, const struct comparison *comparison)
{
    int count;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    struct suspects *suspects = xcalloc((size_t)count, sizeof *suspects), all = {0};
    json_t *object = json_null(), *left = json_array(), *outliers = json_array();
    for (int i = 0; i < count; i++) {
        suspects_of_comparison(comparisons, &parts[i], &suspects[i]);
        all.any |= suspects[i].any;
        for (int rule = 0; rule < RULE_COUNT; rule++)
            all.rules[rule] |= suspects[i].rules[rule];
    }
    for (int block = 0; all.any && block < comparisons->cells->blocks; block++)
        append_left(parts, count, block, suspects, left, outliers);
    if (all.any) {
        object = summary_make_without(&all, json_incref(left), json_incref(outliers));
        json_set(object, "speedup",
                 summary_make_interval(estimate(comparisons, comparison, log_ratio, SAMPLES_ALL, suspects), "blocks"));
    }
    json_decref(left);
    json_decref(outliers);
    for (int i = 0; i < count; i++)
        suspects_free(&suspects[i]);
    free(suspects);
    return object;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

void summary_set_pairs(const struct comparisons *comparisons, const struct comparison *comparison, json_t *object)
{
    const bool over_auto = comparison->workload && comparison->baseline->method == METHOD_AUTO;
    const struct interval nothing = {NAN, NAN, NAN, 0};
    const struct interval aggregate = comparison->arm->concurrency > 1
                                          ? estimate(comparisons, comparison, log_aggregate, SAMPLES_ALL, NULL)
                                          : nothing;
    const struct interval identical = differ_in_part(comparisons, comparison)
                                          ? estimate(comparisons, comparison, log_ratio, SAMPLES_IDENTICAL, NULL)
                                          : nothing;
    const struct interval break_even =
        over_auto ? estimate(comparisons, comparison, log_break_even, SAMPLES_ALL, NULL) : nothing;
    json_set(object, "speedup_aggregate", summary_make_interval(aggregate, "blocks"));
    json_set(object, "speedup_prompts",
             summary_make_interval(estimate_prompts(comparisons, comparison), "prompts and blocks"));
    json_set(object, "speedup_identical", summary_make_interval(identical, "blocks"));
    json_set(object, "speedup_unpaired",
             summary_make_interval(estimate_unpaired(comparisons, comparison), "unpaired blocks"));
    json_set(object, "break_even_tau", summary_make_interval(break_even, "blocks"));
    json_set(object, "round_cost", isnan(break_even.value) ? json_null() : make_round_cost(comparisons, comparison));
    json_set(object, "without_suspect", make_without(comparisons, comparison));
}
