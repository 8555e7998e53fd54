/* Speedup by ranks: each arm over the same method with the fewest ranks, block by block where both were measured side
 * by side, else of all their blocks. */
#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOIDS_SCALING = RULE_VOIDS_TIMES | RULE_VOIDS_SPEEDUP | RULE_VOIDS_SCALING };

/* An arm over its reference on one workload. */
struct scaling {
    const struct cell *arm, *reference;
    double *logs; /* blocks: of the reference's time a token over the arm's; NaN: not paired */
};

static const struct judged *usable(const struct cell *cell, int block)
{
    return cell_usable(cell, block, VOIDS_SCALING) ? cell->blocks[block - 1].counted : NULL;
}

static double pair_log(const struct cells *cells, const struct scaling *scaling, int block)
{
    const struct judged *arm = usable(scaling->arm, block), *reference = usable(scaling->reference, block);
    const char *workload = scaling->arm->workload->name;
    if (!arm || !reference || !comparisons_share_session(cells, arm, reference) ||
        !comparisons_may_compare(arm, reference, workload))
        return NAN;
    const struct sample_sums of_arm = samples_sum(&arm->attempt, workload, &reference->attempt);
    const struct sample_sums of_reference = samples_sum(&reference->attempt, workload, &arm->attempt);
    return log(samples_tpot_ns(&of_reference) / samples_tpot_ns(&of_arm));
}

static struct scaling make_scaling(const struct cells *cells, int arm, int reference, int workload)
{
    struct scaling scaling = {cells_at(cells, arm, workload), cells_at(cells, reference, workload),
                              xcalloc((size_t)cells->blocks, sizeof *scaling.logs)};
    for (int block = 1; block <= cells->blocks; block++)
        scaling.logs[block - 1] = pair_log(cells, &scaling, block);
    return scaling;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* One workload, or all. */
struct scalings {
    const struct scaling *items;
    int count;
};

static double block_log(const struct scalings *scalings, int block)
{
    double sum = 0;
    for (int i = 0; i < scalings->count; i++)
        sum += scalings->items[i].logs[block];
    return sum / scalings->count;
}

static json_t *make_blocks(const struct cells *cells, const struct scalings *scalings, json_t *attempts)
{
    json_t *blocks = json_array();
    for (int block = 0; block < cells->blocks; block++) {
        const double value = block_log(scalings, block);
        if (isnan(value))
            continue;
        json_t *object = json_object(), *of_block = json_array();
        for (int i = 0; i < scalings->count; i++) {
            summary_append_once(of_block, 0, scalings->items[i].arm->blocks[block].counted->attempt.id);
            summary_append_once(of_block, 0, scalings->items[i].reference->blocks[block].counted->attempt.id);
        }
        json_set(object, "block", json_integer(cells->before + block + 1));
        json_set(object, "log_ratio", json_number(value));
        json_set(object, "attempts", of_block);
        json_array_extend(attempts, of_block);
        json_append(blocks, object);
    }
    return blocks;
}

static void append_usable(const struct cells *cells, const struct cell *cell, json_t *attempts)
{
    for (int block = 1; block <= cells->blocks; block++)
        if (usable(cell, block))
            json_append(attempts, json_text(usable(cell, block)->attempt.id));
}

static struct interval estimate_paired(const struct cells *cells, const struct scalings *scalings)
{
    double *logs = xcalloc((size_t)cells->blocks, sizeof *logs);
    int count = 0;
    for (int block = 0; block < cells->blocks; block++)
        if (!isnan(block_log(scalings, block)))
            logs[count++] = block_log(scalings, block);
    struct interval interval = summary_estimate(cells->plan, logs, count, cells->plan->alpha);
    free(logs);
    return interval;
}

static struct interval times(struct interval interval, double factor)
{
    return (struct interval){interval.value * factor, interval.low * factor, interval.high * factor, interval.count};
}

/* Why nothing scales: of the arm's last block that says so, or of the reference's. */
static json_t *make_missing(const struct cells *cells, const struct scalings *scalings)
{
    struct reason found = {0};
    for (int i = 0; i < scalings->count && !found.rule; i++) {
        const struct cell *const both[] = {scalings->items[i].arm, scalings->items[i].reference};
        for (int j = 0; j < 2 && !found.rule; j++)
            for (int block = cells->blocks; block >= 1 && !found.rule; block--) {
                const struct cell_block *at = &both[j]->blocks[block - 1];
                if (at->counted)
                    found = reason_from_verdicts(&at->counted->attempt, &at->counted->verdicts, both[j]->workload->name,
                                                 VOIDS_SCALING);
                if (!found.rule)
                    found = reason_copy(&at->reason);
            }
    }
    if (!found.rule)
        found = reason_make(RULE_UNPAIRED_RERUN, xformat("never measured side by side"));
    json_t *object = summary_make_reason(&found);
    reason_free(&found);
    return object;
}

static json_t *make_marks(const struct cells *cells, const struct scalings *scalings, int blocks)
{
    bool marks[RULE_COUNT] = {false};
    for (int i = 0; i < scalings->count; i++) {
        const struct cell *const both[] = {scalings->items[i].arm, scalings->items[i].reference};
        for (int j = 0; j < 2; j++)
            for (int block = 1; block <= cells->blocks; block++)
                if (usable(both[j], block)) {
                    summary_note_marks(&usable(both[j], block)->verdicts, both[j]->workload->name, marks);
                    marks[RULE_REPETITION] |=
                        suspects_are_repetitive(cells, both[j]->arm, both[j]->workload, block - 1);
                }
        summary_note_marks(&cells->verdicts, both[0]->workload->name, marks);
    }
    marks[RULE_MIN_BLOCKS] = blocks > 0 && blocks < cells->plan->min_blocks;
    return summary_make_marks(marks);
}

static json_t *make_entry(const struct cells *cells, const struct scalings *scalings, bool over_all)
{
    const struct scaling *first = scalings->items;
    const struct arm *arm = first->arm->arm, *reference = first->reference->arm;
    struct interval speedup = estimate_paired(cells, scalings);
    const bool paired = speedup.count > 0;
    char name[ARM_NAME_SIZE];
    json_t *object = json_object(), *attempts = json_array();
    json_t *blocks = make_blocks(cells, scalings, attempts);
    if (!paired && !over_all)
        speedup = summary_estimate_unpaired(cells, arm, reference, first->arm->workload, VOIDS_SCALING);
    if (!paired && !over_all && isfinite(speedup.value)) {
        append_usable(cells, first->arm, attempts);
        append_usable(cells, first->reference, attempts);
    }
    const bool known = isfinite(speedup.value);
    json_set(object, "arm", json_text(arm_name(arm, name)));
    json_set(object, "reference", json_text(arm_name(reference, name)));
    json_set(object, "label", json_text(arm_method_label(arm, name)));
    json_set(object, "concurrency", json_integer(arm->concurrency));
    json_set(object, "tensor_parallel", json_integer(arm->tensor_parallel));
    json_set(object, "workload", over_all ? json_null() : json_text(first->arm->workload->name));
    json_set(object, "speedup", summary_make_interval(speedup, paired ? "blocks" : "unpaired blocks"));
    json_set(object, "efficiency",
             summary_make_interval(times(speedup, (double)reference->tensor_parallel / arm->tensor_parallel),
                                   paired ? "blocks" : "unpaired blocks"));
    json_set(object, "pairing", !known ? json_null() : json_string(paired ? "paired" : "unpaired"));
    json_set(object, "communicate_share", over_all ? json_null() : summary_make_communicate_share(cells, first->arm));
    json_set(object, "blocks", blocks);
    json_set(object, "attempts", attempts);
    json_set(object, "missing", known ? json_null() : make_missing(cells, scalings));
    json_set(object, "marks", make_marks(cells, scalings, paired ? speedup.count : 0));
    return object;
}

static bool is_same_but_ranks(const struct arm *a, const struct arm *b)
{
    return a->method == b->method && a->budget == b->budget && a->concurrency == b->concurrency;
}

/* The arm with the fewest ranks that is the same otherwise; -1: none has fewer. */
static int find_reference(const struct plan *plan, int arm)
{
    int found = arm;
    for (int i = 0; i < plan->arm_count; i++)
        if (is_same_but_ranks(&plan->arms[i], &plan->arms[arm]) &&
            plan->arms[i].tensor_parallel < plan->arms[found].tensor_parallel)
            found = i;
    return found == arm ? -1 : found;
}

json_t *summary_make_scaling(const struct cells *cells)
{
    const struct plan *plan = cells->plan;
    struct scaling *items = xcalloc((size_t)plan->workload_count, sizeof *items);
    json_t *array = json_array();
    for (int arm = 0; arm < plan->arm_count; arm++) {
        const int reference = find_reference(plan, arm);
        if (reference < 0)
            continue;
        for (int w = 0; w < plan->workload_count; w++)
            items[w] = make_scaling(cells, arm, reference, w);
        for (int w = 0; w < plan->workload_count; w++)
            json_append(array, make_entry(cells, &(struct scalings){&items[w], 1}, false));
        json_append(array, make_entry(cells, &(struct scalings){items, plan->workload_count}, true));
        for (int w = 0; w < plan->workload_count; w++)
            free(items[w].logs);
    }
    free(items);
    return array;
}
