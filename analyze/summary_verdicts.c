#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The entry for a verdict on an attempt, or on the whole run where it has no id, whoever gave it. A new reference. */
static json_t *make_entry(const struct attempt *attempt, const char *workload, const char *rule, enum rule_level level,
                          double observed, double threshold, const char *detail)
{
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "attempt", summary_text_or_null(attempt->id));
    json_set(object, "arm", attempt->id ? json_text(arm_name(&attempt->arm, name)) : json_null());
    json_set(object, "block", attempt->id ? json_integer(attempt->block) : json_null());
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

static json_t *make_verdict(const struct attempt *attempt, const struct verdict *verdict)
{
    json_t *object = make_entry(attempt, verdict->workload, rule_table[verdict->rule].id, verdict->level,
                                verdict->observed, verdict->threshold, verdict->detail);
    if (verdict->time)
        json_set(object, "time", json_text(verdict->time));
    if (verdict->by_user)
        json_set(object, "actor", json_string("user"));
    return object;
}

/* The entries of one attempt, which stand together from `from` on: two that are equal are one. */
struct entries {
    json_t *array;
    size_t from;
};

/* Takes the reference over. */
static void append_once(const struct entries *entries, json_t *value)
{
    bool known = false;
    for (size_t i = entries->from; i < json_array_size(entries->array) && !known; i++)
        known = json_equal(json_array_get(entries->array, i), value);
    if (known)
        json_decref(value);
    else
        json_append(entries->array, value);
}

/* workload NULL: of all. */
static void append_verdicts(const struct entries *entries, const struct attempt *attempt,
                            const struct verdicts *verdicts, const char *workload)
{
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *verdict = &verdicts->items[i];
        if (verdict->level != RULE_VALID && (!workload || cells_verdict_applies(verdict, workload)))
            append_once(entries, make_verdict(attempt, verdict));
    }
}

/* --- attempts that are left out although no rule objects ---------------------------------------------------------- */

static bool is_used(const struct comparisons *comparisons, const struct cell *cell, const struct judged *judged)
{
    int block = cells_block_of(comparisons->cells, &judged->attempt) - 1;
    bool used = cell->blocks[block].counted == judged;
    for (int i = 0; i < comparisons->count && !used; i++)
        used =
            comparisons->items[i].workload == cell->workload && comparisons->items[i].pairs[block].baseline == judged;
    return used;
}

/* Why an attempt that no rule objects to is left out of a cell. */
enum left_out { LEFT_OUT_NOT, LEFT_OUT_SUPERSEDED, LEFT_OUT_FINGERPRINT, LEFT_OUT_MIXED_DEVICES, LEFT_OUT_COUNT };

static enum left_out left_out_by(const struct comparisons *comparisons, const struct cell *cell,
                                 const struct judged *judged)
{
    const struct attempt_workload *workload = arm_equal(cell->arm, &judged->attempt.arm)
                                                  ? attempt_find_workload(&judged->attempt, cell->workload->name)
                                                  : NULL;
    if (!workload || cells_void_metrics(&judged->verdicts, cell->workload->name) == RULE_VOIDS_ALL ||
        is_used(comparisons, cell, judged))
        return LEFT_OUT_NOT;
    if (strcmp(workload->cell_hash, cell->cell_hash) == 0)
        return LEFT_OUT_SUPERSEDED;
    return cells_other_settings(&judged->attempt, cell->newest) == RULE_FINGERPRINT ? LEFT_OUT_FINGERPRINT
                                                                                    : LEFT_OUT_MIXED_DEVICES;
}

/* One entry where the rule is the same for all workloads of the attempt, else one each. */
static void append_left_out(const struct entries *entries, const struct comparisons *comparisons,
                            const struct judged *judged)
{
    const char *const rules[LEFT_OUT_COUNT] = {NULL, rule_table[RULE_SUPERSEDED].id, rule_table[RULE_FINGERPRINT].id,
                                               rule_table[RULE_MIXED_DEVICES].id};
    static const char *const details[LEFT_OUT_COUNT] = {NULL, "a later valid try of the block counts",
                                                        "measured under other settings than the attempts that count",
                                                        "measured on other devices than the attempts that count"};
    const struct cells *cells = comparisons->cells;
    enum left_out *found = xcalloc((size_t)cells->count, sizeof *found);
    int by_rule[LEFT_OUT_COUNT] = {0};
    for (int i = 0; i < cells->count; i++) {
        found[i] = left_out_by(comparisons, &cells->items[i], judged);
        by_rule[found[i]]++;
    }
    for (int i = 0; i < cells->count; i++) {
        bool of_all = by_rule[found[i]] == judged->attempt.workload_count;
        if (found[i])
            append_once(entries, make_entry(&judged->attempt, of_all ? NULL : cells->items[i].workload->name,
                                            rules[found[i]], RULE_INVALID, NAN, NAN, details[found[i]]));
    }
    free(found);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* Reasons that only the pair has; others are verdicts on one of its attempts. */
static bool is_of_pair(const struct pair *pair)
{
    static const enum rule_id rules[] = {RULE_UNPAIRED_RERUN, RULE_UNPAIRED_IMPORT, RULE_FINGERPRINT,
                                         RULE_MIXED_DEVICES, RULE_NO_SHARED_PROMPT};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (pair->reason.rule == rule_table[rules[i]].id)
            return true;
    return false;
}

/* That imports are no pairs takes nothing away. */
static enum rule_level level_of(const struct pair *pair)
{
    return pair->reason.rule == rule_table[RULE_UNPAIRED_IMPORT].id ? RULE_NOTE : RULE_INVALID;
}

static void append_pairs(const struct entries *entries, const struct comparisons *comparisons,
                         const struct judged *judged)
{
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        const struct pair *pair = &comparison->pairs[cells_block_of(comparisons->cells, &judged->attempt) - 1];
        if (!comparison->workload || pair->arm != judged)
            continue;
        append_verdicts(entries, &judged->attempt, &pair->verdicts, comparison->workload->name);
        if (is_of_pair(pair))
            append_once(entries, make_entry(&judged->attempt, comparison->workload->name, pair->reason.rule,
                                            level_of(pair), NAN, NAN, pair->reason.detail));
    }
}

/* What rules see that look at the run beside the attempt. */
static void append_seen_in_run(const struct entries *entries, const struct cells *cells, const struct judged *judged)
{
    for (int i = 0; i < cells->count; i++) {
        const struct cell_block *at = &cells->items[i].blocks[cells_block_of(cells, &judged->attempt) - 1];
        if (at->counted == judged)
            append_verdicts(entries, &judged->attempt, &at->verdicts, cells->items[i].workload->name);
    }
}

json_t *summary_make_verdicts(const struct comparisons *comparisons, const struct comparisons *tuning)
{
    const struct run *run = comparisons->cells->run;
    json_t *array = json_array();
    for (int i = 0; i < run->attempt_count; i++) {
        const struct judged *judged = &run->attempts[i];
        const struct comparisons *of = tuning && cells_block_of(tuning->cells, &judged->attempt) ? tuning : comparisons;
        const struct entries entries = {array, json_array_size(array)};
        append_verdicts(&entries, &judged->attempt, &judged->verdicts, NULL);
        if (!cells_block_of(of->cells, &judged->attempt))
            continue;
        append_seen_in_run(&entries, of->cells, judged);
        append_left_out(&entries, of, judged);
        append_pairs(&entries, of, judged);
    }
    const struct attempt of_none = {0};
    const struct entries of_run = {array, json_array_size(array)};
    append_verdicts(&of_run, &of_none, &comparisons->cells->verdicts, NULL);
    return array;
}
