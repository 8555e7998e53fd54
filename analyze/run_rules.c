#include "analyze/run_rules.h"

#include "analyze/repeats.h"
#include "analyze/statistics.h"
#include "collect/base/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- SPEEDUP_GT_ACCEPT -------------------------------------------------------------------------------------------- */

enum { GAIN_BLOCKS_MINIMUM = 3 };      /* for an interval */
static const double GAIN_POINT = 1.05; /* that too few blocks may not exceed */

/* R over tau, on the prompts that both answered. */
static void see_gain(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct interval *gain = context;
    const bool few = gain->count < GAIN_BLOCKS_MINIMUM;
    const double proven = few ? gain->value : gain->low, limit = few ? fmax(GAIN_POINT, threshold) : threshold;
    if (proven > limit)
        verdicts_add(verdicts, RULE_SPEEDUP_GT_ACCEPT, RULE_INVALID, NULL, proven, limit,
                     "the speedup is %.4g times the acceptance length, at least %.4g times", gain->value, proven);
    else if (gain->value > 1)
        verdicts_add(verdicts, RULE_SPEEDUP_GT_ACCEPT, RULE_SUSPECT, NULL, gain->value, 1,
                     "the speedup is %.4g times the acceptance length", gain->value);
}

static struct interval estimate_gain(const struct cells *cells, const struct comparison *comparison)
{
    double *logs = xcalloc((size_t)cells->blocks, sizeof *logs);
    int count = 0;
    for (int block = 0; block < cells->blocks; block++)
        if (!isnan(comparison->pairs[block].log_gain))
            logs[count++] = comparison->pairs[block].log_gain;
    struct interval gain = statistics_log_interval(logs, count, cells->plan->alpha);
    free(logs);
    return gain;
}

static void note_gain(const struct verdict *verdict, const char *workload, struct pair *pair)
{
    if (isnan(pair->log_gain))
        return;
    verdicts_add(&pair->verdicts, verdict->rule, verdict->level, workload, verdict->observed, verdict->threshold, "%s",
                 verdict->detail);
    if (verdict->level != RULE_INVALID)
        return;
    pair->log_ratio = pair->log_end_to_end = NAN;
    pair->reason = reason_from_verdicts(&pair->arm->attempt, &pair->verdicts, workload, RULE_VOIDS_SPEEDUP);
}

void run_rules_judge_speedup(const struct cells *cells, struct comparison *comparison)
{
    if (comparison->baseline->method != METHOD_AUTO || comparison->arm->concurrency > 1)
        return;
    const struct interval gain = estimate_gain(cells, comparison);
    struct verdicts verdicts = {0};
    rule_judge_by(RULE_SPEEDUP_GT_ACCEPT, &cells->plan->rules, see_gain, &gain, &verdicts);
    for (int block = 0; verdicts.count && block < cells->blocks; block++)
        note_gain(&verdicts.items[0], comparison->workload->name, &comparison->pairs[block]);
    verdicts_free(&verdicts);
}

/* --- KNOB_NO_EFFECT ----------------------------------------------------------------------------------------------- */

static const struct sample *next_answered(const struct attempt *attempt, const char *workload, int *at)
{
    const struct sample *sample;
    do
        sample = attempt_next_sample(attempt, workload, at);
    while (sample && !sample->ok);
    return sample;
}

static bool have_equal_rounds(const struct sample *a, const struct sample *b)
{
    return strcmp(a->prompt, b->prompt) == 0 && a->accepted && b->accepted && a->rounds == b->rounds &&
           memcmp(a->accepted, b->accepted, (size_t)a->rounds * sizeof *a->accepted) == 0;
}

/* How many rounds two attempts have, if those are the same in every request; else 0. A block's arms answer the prompts
 * in the same order. */
static int64_t count_equal_rounds(const struct attempt *a, const struct attempt *b, const char *workload)
{
    int64_t rounds = 0;
    int at_a = 0, at_b = 0;
    if (attempt_is_stated(a) && attempt_is_stated(b)) /* to all digits that the files have */
        return a->observed.accept_length == b->observed.accept_length && a->observed.tokens > 0
                   ? (int64_t)((double)a->observed.tokens / a->observed.accept_length)
                   : 0;
    const struct sample *of_a, *of_b;
    do {
        of_a = next_answered(a, workload, &at_a);
        of_b = next_answered(b, workload, &at_b);
        if (of_a && of_b && have_equal_rounds(of_a, of_b))
            rounds += of_a->rounds;
        else if (of_a || of_b)
            return 0;
    } while (of_a);
    return rounds;
}

struct knob {
    const struct attempt *smaller;
    const char *workload;
    int64_t rounds;
};

static void see_knob(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct knob *knob = context;
    char name[ARM_NAME_SIZE];
    if (knob->rounds > 0 && (double)knob->rounds >= threshold)
        verdicts_add(verdicts, RULE_KNOB_NO_EFFECT, RULE_SUSPECT, knob->workload, (double)knob->rounds, threshold,
                     attempt_is_stated(knob->smaller)
                         ? "%lld rounds commit on average, to all digits, what those of %s do"
                         : "all %lld rounds commit what those of %s do",
                     (long long)knob->rounds, arm_name(&knob->smaller->arm, name));
}

static bool are_budgets_apart(const struct arm *smaller, const struct arm *larger)
{
    return method_has_budget(smaller->method) && larger->method == smaller->method &&
           larger->budget >= 2 * smaller->budget && larger->tensor_parallel == smaller->tensor_parallel &&
           larger->concurrency == smaller->concurrency;
}

static void judge_knob(const struct cells *cells, const struct cell *smaller, struct cell *larger)
{
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *a = cell_usable(smaller, block, RULE_VOIDS_TAU);
        const struct attempt *b = cell_usable(larger, block, RULE_VOIDS_TAU);
        if (!a || !b)
            continue;
        const char *workload = larger->workload->name;
        const struct knob knob = {a, workload, count_equal_rounds(a, b, workload)};
        rule_judge_by(RULE_KNOB_NO_EFFECT, &cells->plan->rules, see_knob, &knob, &larger->blocks[block - 1].verdicts);
    }
}

/* The larger cell is the one that is judged. */
static void judge_knobs_of(void *context, int index)
{
    struct cells *cells = context;
    struct cell *larger = &cells->items[index];
    for (int i = 0; i < cells->count; i++)
        if (cells->items[i].workload == larger->workload && are_budgets_apart(cells->items[i].arm, larger->arm))
            judge_knob(cells, &cells->items[i], larger);
}

/* --- DRIFT -------------------------------------------------------------------------------------------------------- */

static const double DRIFT_P = .01;

static void see_drift(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct drift *drift = context;
    const double change = expm1(fabs(log1p(drift->change))); /* of the shorter time */
    if (drift->p < DRIFT_P && change > threshold)
        verdicts_add(verdicts, RULE_DRIFT, RULE_SUSPECT, NULL, change, threshold,
                     "from one end of the run to the other times a token change by %.3g%%", 100 * change);
}

/* --- DRIFT, of imports -------------------------------------------------------------------------------------------- */

enum { SERIES_NAMED = 4 };

struct seen_repeats {
    const struct repeats *repeats;
    const char *workload;
};

/* "tp1-b8/1-1 to 3-1 by 18%, …": those that went one way by more than the threshold. free() it. */
static char *name_steady(const struct repeats *repeats, double threshold)
{
    char *names = xstrdup("");
    int named = 0, left = 0;
    for (int i = 0; i < repeats->count; i++) {
        const struct repeats_series *series = &repeats->series[i];
        if (!series->steady || expm1(fabs(log1p(series->change))) <= threshold)
            continue;
        if (named == SERIES_NAMED) {
            left++;
            continue;
        }
        char *longer = xformat("%s%s%s to %s by %+.3g%%", names, named++ ? ", " : "; ", series->first->id,
                               strrchr(series->last->id, '/') + 1, 100 * series->change);
        free(names);
        names = longer;
    }
    char *all = left ? xformat("%s, and %d more", names, left) : xstrdup(names);
    free(names);
    return all;
}

static void see_repeats(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct seen_repeats *seen = context;
    const struct repeats *repeats = seen->repeats;
    const double change = expm1(fabs(log1p(repeats->change)));
    if (!(repeats->p < DRIFT_P && change > threshold))
        return;
    char *steady = name_steady(repeats, threshold);
    verdicts_add(verdicts, RULE_DRIFT, RULE_SUSPECT, seen->workload, change, threshold,
                 "repeats of the same settings change in their order (p = %.2g): a token's time by %+.3g%% from first "
                 "to last, the median of %d settings%s",
                 repeats->p, 100 * repeats->change, repeats->count, steady);
    free(steady);
}

/* What was measured beside imports has an order of its own. */
static void judge_repeats(struct cells *cells)
{
    for (int i = 0; i < cells->plan->workload_count; i++) {
        struct repeats repeats;
        const struct seen_repeats seen = {&repeats, cells->plan->workloads[i].name};
        repeats_init(cells, seen.workload, &repeats);
        rule_judge_by(RULE_DRIFT, &cells->plan->rules, see_repeats, &seen, &cells->verdicts);
        repeats_free(&repeats);
    }
}

void run_rules_judge_cells(struct cells *cells, const struct drift *drift)
{
    rule_judge_by(RULE_DRIFT, &cells->plan->rules, see_drift, drift, &cells->verdicts);
    judge_repeats(cells);
    parallel_for(cells->count, judge_knobs_of, cells);
}
