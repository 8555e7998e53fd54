#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A verdict on an attempt, whoever gave it. A new reference. */
static json_t *make_entry(const struct attempt *attempt, const char *workload, const char *rule, enum rule_level level,
                          double observed, double threshold, const char *detail)
{
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "attempt", summary_text_or_null(attempt->id));
    json_set(object, "arm", json_text(arm_name(&attempt->arm, name)));
    json_set(object, "block", json_integer(attempt->block));
    json_set(object, "workload", summary_text_or_null(workload));
    json_set(object, "rule", json_text(rule));
    json_set(object, "level", json_text(rule_level_names[level]));
    json_set(object, "observed", json_number(observed));
    json_set(object, "threshold", json_number(threshold));
    json_set(object, "detail", summary_text_or_null(detail));
    json_set(object, "time", summary_text_or_null(attempt->started));
    json_set(object, "actor", json_string("rule"));
    return object;
}

/* Takes the reference over. */
static void append_once(json_t *array, json_t *value)
{
    bool known = false;
    for (size_t i = 0; i < json_array_size(array) && !known; i++)
        known = json_equal(json_array_get(array, i), value);
    if (known)
        json_decref(value);
    else
        json_append(array, value);
}

/* workload NULL: of all. */
static void append_verdicts(json_t *array, const struct attempt *attempt, const struct verdicts *verdicts,
                            const char *workload)
{
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *verdict = &verdicts->items[i];
        if (verdict->level != RULE_VALID && (!workload || cells_verdict_applies(verdict, workload)))
            append_once(array, make_entry(attempt, verdict->workload, rule_table[verdict->rule].id, verdict->level,
                                          verdict->observed, verdict->threshold, verdict->detail));
    }
}

/* --- attempts that are left out although no rule objects ---------------------------------------------------------- */

static bool is_used(const struct comparisons *comparisons, const struct cell *cell, const struct judged *judged)
{
    int block = judged->attempt.block - 1;
    bool used = cell->blocks[block].counted == judged;
    for (int i = 0; i < comparisons->count && !used; i++)
        used =
            comparisons->items[i].workload == cell->workload && comparisons->items[i].pairs[block].baseline == judged;
    return used;
}

/* The rule that leaves the attempt out of the cell; CELLS_RULE_COUNT where none does. */
static enum cells_rule left_out_by(const struct comparisons *comparisons, const struct cell *cell,
                                   const struct judged *judged)
{
    const struct attempt_workload *workload = attempt_find_workload(&judged->attempt, cell->workload->name);
    if (!workload || !arm_equal(cell->arm, &judged->attempt.arm) ||
        cells_void_metrics(&judged->verdicts, cell->workload->name) == RULE_VOIDS_ALL ||
        is_used(comparisons, cell, judged))
        return CELLS_RULE_COUNT;
    return strcmp(workload->cell_hash, cell->cell_hash) == 0 ? CELLS_SUPERSEDED : CELLS_FINGERPRINT;
}

/* One entry where the rule is the same for all workloads of the attempt, else one each. */
static void append_left_out(json_t *array, const struct comparisons *comparisons, const struct judged *judged)
{
    static const char *const details[CELLS_RULE_COUNT] = {
        [CELLS_SUPERSEDED] = "a later valid try of the block counts",
        [CELLS_FINGERPRINT] = "measured under other settings than the attempts that count"};
    const struct cells *cells = comparisons->cells;
    int by_rule[CELLS_RULE_COUNT + 1] = {0};
    for (int i = 0; i < cells->count; i++)
        by_rule[left_out_by(comparisons, &cells->items[i], judged)]++;
    for (int i = 0; i < cells->count; i++) {
        enum cells_rule rule = left_out_by(comparisons, &cells->items[i], judged);
        if (rule == CELLS_RULE_COUNT)
            continue;
        bool of_all = by_rule[rule] == judged->attempt.workload_count;
        append_once(array, make_entry(&judged->attempt, of_all ? NULL : cells->items[i].workload->name,
                                      cells_rule_table[rule].id, RULE_INVALID, NAN, NAN, details[rule]));
    }
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* Reasons that only the pair has; others are verdicts on one of its attempts. */
static bool is_of_pair(const struct pair *pair)
{
    static const enum cells_rule rules[] = {CELLS_UNPAIRED_RERUN, CELLS_FINGERPRINT, CELLS_NO_SHARED_PROMPT};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (pair->reason.rule == cells_rule_table[rules[i]].id)
            return true;
    return false;
}

static void append_pairs(json_t *array, const struct comparisons *comparisons, const struct judged *judged)
{
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        for (int block = 0; block < comparisons->cells->blocks && comparison->workload; block++) {
            const struct pair *pair = &comparison->pairs[block];
            if (pair->arm != judged)
                continue;
            append_verdicts(array, &judged->attempt, &pair->verdicts, comparison->workload->name);
            if (is_of_pair(pair))
                append_once(array, make_entry(&judged->attempt, comparison->workload->name, pair->reason.rule,
                                              RULE_INVALID, NAN, NAN, pair->reason.detail));
        }
    }
}

json_t *summary_make_verdicts(const struct comparisons *comparisons)
{
    const struct run *run = comparisons->cells->run;
    json_t *array = json_array();
    for (int i = 0; i < run->attempt_count; i++) {
        append_verdicts(array, &run->attempts[i].attempt, &run->attempts[i].verdicts, NULL);
        append_left_out(array, comparisons, &run->attempts[i]);
        append_pairs(array, comparisons, &run->attempts[i]);
    }
    return array;
}
