#include "analyze/comparisons.h"

#include "analyze/run_rules.h"
#include "collect/base/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOIDS_RATIO = RULE_VOIDS_TIMES | RULE_VOIDS_SPEEDUP, VOIDS_END_TO_END = VOIDS_RATIO | RULE_VOIDS_TTFT };

/* --- one pair ----------------------------------------------------------------------------------------------------- */

/* Nobody can say when and where results of other tools came about, but requests of the same prompts can be held against
 * each other; rule UNPAIRED_IMPORT says so of the pair. */
static bool share_requests(const struct judged *a, const struct judged *b)
{
    return attempt_is_imported(&a->attempt) && attempt_is_imported(&b->attempt) && !attempt_is_stated(&a->attempt) &&
           !attempt_is_stated(&b->attempt);
}

bool comparisons_share_session(const struct cells *cells, const struct judged *a, const struct judged *b)
{
    int session = cells->sessions.of_attempt[a - cells->run->attempts];
    return session >= 0 && session == cells->sessions.of_attempt[b - cells->run->attempts];
}

static const json_t *drafter_hash(const struct judged *judged)
{
    return json_object_get(json_object_get(json_object_get(judged->attempt.header, "source"), "drafter"), "sha256");
}

/* A tree is not compared with a linear block of another drafter; auto has none. */
static bool share_drafter(const struct judged *a, const struct judged *b)
{
    const json_t *of_a = drafter_hash(a), *of_b = drafter_hash(b);
    return !of_a || !of_b || json_equal(of_a, of_b);
}

bool comparisons_may_compare(const struct judged *a, const struct judged *b, const char *workload)
{
    const struct attempt_workload *of_a = attempt_find_workload(&a->attempt, workload);
    const struct attempt_workload *of_b = attempt_find_workload(&b->attempt, workload);
    return of_a && of_b && strcmp(of_a->compare_hash, of_b->compare_hash) == 0 && share_drafter(a, b);
}

/* Whether times of this attempt, a try of the cell's in that block, may stand for it. */
static bool is_usable(const struct cell *cell, int block, const struct judged *judged)
{
    const struct attempt_workload *workload = attempt_find_workload(&judged->attempt, cell->workload->name);
    const struct cell_block *at = &cell->blocks[block - 1];
    return workload && cell->cell_hash && strcmp(workload->cell_hash, cell->cell_hash) == 0 &&
           rule_worst(&judged->verdicts, cell->workload->name, VOIDS_RATIO) != RULE_INVALID &&
           !(judged == at->counted && at->voided & VOIDS_RATIO);
}

static const struct judged *find_baseline(const struct cells *cells, const struct cell *baseline, int block,
                                          const struct judged *arm)
{
    int first, count = run_find_tries(cells->run, baseline->arm, cells->before + block, &first);
    for (int i = first + count - 1; i >= first; i--) {
        const struct judged *judged = &cells->run->attempts[i];
        if (is_usable(baseline, block, judged) &&
            (comparisons_share_session(cells, arm, judged) || share_requests(arm, judged)) &&
            comparisons_may_compare(arm, judged, baseline->workload->name))
            return judged;
    }
    return NULL;
}

/* A baseline that a later try replaced was not held against auto with its cell: what voids it beside auto of its own
 * session. Empty: nothing does. */
static struct reason refuse_replaced(const struct cells *cells, const struct cell *baseline, int block,
                                     const struct judged *replaced)
{
    const struct cell *plain = cells_find_auto(cells, baseline->arm, baseline->workload);
    if (baseline->arm->method == METHOD_AUTO || replaced == baseline->blocks[block - 1].counted || !plain)
        return (struct reason){0};
    const struct judged *beside = find_baseline(cells, plain, block, replaced);
    struct verdicts verdicts = {0};
    if (beside)
        rule_judge_pair(&replaced->attempt, &beside->attempt, &cells->plan->rules, &verdicts);
    struct reason reason = reason_from_verdicts(&replaced->attempt, &verdicts, baseline->workload->name, VOIDS_RATIO);
    verdicts_free(&verdicts);
    return reason;
}

static struct reason explain_unusable(const struct cell *cell, int block)
{
    const struct cell_block *at = &cell->blocks[block - 1];
    struct reason reason = {0};
    if (at->counted)
        reason = reason_from_verdicts(&at->counted->attempt, &at->counted->verdicts, cell->workload->name, VOIDS_RATIO);
    return reason.rule ? reason : reason_copy(&at->reason);
}

/* `baseline` has no attempt to pair with `arm`. */
static struct reason explain_unpaired(const struct cell *baseline, int block, const struct judged *arm)
{
    const struct cell_block *at = &baseline->blocks[block - 1];
    if (!at->counted || at->voided & VOIDS_RATIO)
        return explain_unusable(baseline, block);
    if (!comparisons_may_compare(arm, at->counted, baseline->workload->name))
        return reason_make(
            cells_other_settings(&arm->attempt, &at->counted->attempt),
            xformat("%s and %s were measured under different settings", arm->attempt.id, at->counted->attempt.id));
    if (attempt_is_imported(&arm->attempt) || attempt_is_imported(&at->counted->attempt))
        return reason_make(RULE_UNPAIRED_IMPORT, xformat("unpaired, imported: %s and %s are not both known request by "
                                                         "request",
                                                         arm->attempt.id, at->counted->attempt.id));
    return reason_make(RULE_UNPAIRED_RERUN, xformat("%s and %s were measured in different sessions", arm->attempt.id,
                                                    at->counted->attempt.id));
}

static void measure_pair(const struct cell *arm, struct pair *pair)
{
    const char *workload = arm->workload->name;
    struct sample_sums of_arm = samples_sum(&pair->arm->attempt, workload, &pair->baseline->attempt);
    struct sample_sums of_baseline = samples_sum(&pair->baseline->attempt, workload, &pair->arm->attempt);
    if (!of_arm.prompts) {
        pair->reason = reason_make(RULE_NO_SHARED_PROMPT, xformat("%s and %s share no answered prompt",
                                                                  pair->arm->attempt.id, pair->baseline->attempt.id));
        return;
    }
    pair->arm_tpot_ns = samples_tpot_ns(&of_arm);
    pair->baseline_tpot_ns = samples_tpot_ns(&of_baseline);
    pair->log_ratio = log(pair->baseline_tpot_ns / pair->arm_tpot_ns);
    if (rule_worst(&pair->arm->verdicts, workload, RULE_VOIDS_TAU) != RULE_INVALID)
        pair->log_gain = log(pair->baseline_tpot_ns * of_arm.rounds / of_arm.decode_ns);
    if (rule_worst(&pair->arm->verdicts, workload, VOIDS_END_TO_END) != RULE_INVALID &&
        rule_worst(&pair->baseline->verdicts, workload, VOIDS_END_TO_END) != RULE_INVALID &&
        rule_worst(&pair->verdicts, workload, VOIDS_END_TO_END) != RULE_INVALID)
        pair->log_end_to_end = log(samples_end_to_end_ns(&of_baseline) / samples_end_to_end_ns(&of_arm));
}

static void fill_pair(const struct cells *cells, struct cell *arm, const struct cell *baseline, int block,
                      struct pair *pair)
{
    *pair = (struct pair){
        .log_ratio = NAN, .log_end_to_end = NAN, .arm_tpot_ns = NAN, .baseline_tpot_ns = NAN, .log_gain = NAN};
    if (!cell_usable(arm, block, VOIDS_RATIO)) {
        pair->reason = explain_unusable(arm, block);
        return;
    }
    pair->arm = arm->blocks[block - 1].counted;
    pair->baseline = find_baseline(cells, baseline, block, pair->arm);
    if (!pair->baseline) {
        pair->reason = explain_unpaired(baseline, block, pair->arm);
        return;
    }
    rule_judge_pair(&pair->arm->attempt, &pair->baseline->attempt, &cells->plan->rules, &pair->verdicts);
    if (baseline->arm->method == METHOD_AUTO)
        cell_void(arm, block, &pair->verdicts);
    pair->reason = reason_from_verdicts(&pair->arm->attempt, &pair->verdicts, arm->workload->name, VOIDS_RATIO);
    if (!pair->reason.rule)
        pair->reason = refuse_replaced(cells, baseline, block, pair->baseline);
    if (!pair->reason.rule)
        measure_pair(arm, pair);
}

/* --- comparisons -------------------------------------------------------------------------------------------------- */

static bool is_headline(const struct plan *plan, const struct arm *arm, const struct arm *baseline)
{
    char method[ARM_NAME_SIZE], over[ARM_NAME_SIZE];
    arm_method_label(arm, method);
    arm_method_label(baseline, over);
    for (int i = 0; i < plan->comparison_count; i++)
        if (strcmp(plan->comparisons[i].method, method) == 0 && strcmp(plan->comparisons[i].baseline, over) == 0)
            return true;
    return false;
}

/* What the threads share that fill the pairs of a comparison: each touches its block of the cells, and no other. */
struct filling {
    const struct cells *cells;
    struct cell *arm;
    const struct cell *baseline;
    struct pair *pairs;
};

static void fill_block(void *context, int index)
{
    struct filling *filling = context;
    fill_pair(filling->cells, filling->arm, filling->baseline, index + 1, &filling->pairs[index]);
}

static void compare_workload(struct cells *cells, int arm, int baseline, int workload, struct comparison *comparison)
{
    struct cell *of_arm = cells_at(cells, arm, workload), *of_baseline = cells_at(cells, baseline, workload);
    *comparison = (struct comparison){of_arm->arm, of_baseline->arm, of_arm->workload};
    comparison->pairs = xcalloc((size_t)cells->blocks, sizeof *comparison->pairs);
    parallel_for(cells->blocks, fill_block, &(struct filling){cells, of_arm, of_baseline, comparison->pairs});
    run_rules_judge_speedup(cells, comparison);
}

/* One block over all workloads: the mean of the logarithms, if each has one. */
static void average_block(const struct comparison *parts, int count, int block, struct pair *pair)
{
    *pair = (struct pair){.arm_tpot_ns = NAN, .baseline_tpot_ns = NAN, .log_gain = NAN};
    for (int i = 0; i < count; i++) {
        const struct pair *part = &parts[i].pairs[block - 1];
        pair->log_ratio += part->log_ratio / count;
        pair->log_end_to_end += part->log_end_to_end / count;
        if (part->reason.rule && !pair->reason.rule)
            pair->reason =
                (struct reason){part->reason.rule, xformat("%s: %s", parts[i].workload->name, part->reason.detail)};
    }
}

static void compare_over_workloads(const struct cells *cells, const struct comparison *parts,
                                   struct comparison *comparison)
{
    *comparison = (struct comparison){parts->arm, parts->baseline, .parts = parts};
    comparison->headline = is_headline(cells->plan, parts->arm, parts->baseline);
    comparison->pairs = xcalloc((size_t)cells->blocks, sizeof *comparison->pairs);
    for (int block = 1; block <= cells->blocks; block++)
        average_block(parts, cells->plan->workload_count, block, &comparison->pairs[block - 1]);
}

static bool are_compared(const struct arm *arm, const struct arm *baseline, enum method over)
{
    bool method = over == METHOD_AUTO ? arm->method != METHOD_AUTO : method_has_budget(arm->method);
    return method && baseline->method == over && arm->tensor_parallel == baseline->tensor_parallel &&
           arm->concurrency == baseline->concurrency;
}

static void compare_all_over(struct cells *cells, enum method over, struct comparisons *comparisons)
{
    const struct plan *plan = cells->plan;
    for (int arm = 0; arm < plan->arm_count; arm++)
        for (int baseline = 0; baseline < plan->arm_count; baseline++) {
            if (!are_compared(&plan->arms[arm], &plan->arms[baseline], over))
                continue;
            struct comparison *parts = &comparisons->items[comparisons->count];
            for (int workload = 0; workload < plan->workload_count; workload++)
                compare_workload(cells, arm, baseline, workload, &parts[workload]);
            compare_over_workloads(cells, parts, &parts[plan->workload_count]);
            comparisons->count += plan->workload_count + 1;
        }
}

void comparisons_init(struct cells *cells, struct comparisons *comparisons)
{
    const struct plan *plan = cells->plan;
    size_t most = 2 * (size_t)plan->arm_count * ((size_t)plan->workload_count + 1);
    *comparisons = (struct comparisons){.cells = cells, .items = xcalloc(most, sizeof *comparisons->items)};
    compare_all_over(cells, METHOD_AUTO, comparisons);
    compare_all_over(cells, METHOD_LINEAR, comparisons);
    drift_init(cells, &comparisons->drift);
    run_rules_judge_cells(cells, &comparisons->drift);
}

void comparisons_free(struct comparisons *comparisons)
{
    for (int i = 0; i < comparisons->count; i++) {
        for (int block = 0; block < comparisons->cells->blocks; block++) {
            verdicts_free(&comparisons->items[i].pairs[block].verdicts);
            reason_free(&comparisons->items[i].pairs[block].reason);
        }
        free(comparisons->items[i].pairs);
    }
    free(comparisons->items);
    drift_free(&comparisons->drift);
    *comparisons = (struct comparisons){0};
}
