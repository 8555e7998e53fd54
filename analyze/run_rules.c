#include "analyze/run_rules.h"

#include "analyze/statistics.h"

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
                     "all %lld rounds commit what those of %s do", (long long)knob->rounds,
                     arm_name(&knob->smaller->arm, name));
}

static bool are_budgets_apart(const struct arm *smaller, const struct arm *larger)
{
    return smaller->method == METHOD_DDTREE && larger->method == METHOD_DDTREE &&
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

static void judge_knobs(struct cells *cells)
{
    for (int i = 0; i < cells->count; i++)
        for (int j = 0; j < cells->count; j++)
            if (cells->items[i].workload == cells->items[j].workload &&
                are_budgets_apart(cells->items[i].arm, cells->items[j].arm))
                judge_knob(cells, &cells->items[i], &cells->items[j]);
}

/* --- DRIFT -------------------------------------------------------------------------------------------------------- */

enum { DRIFT_ATTEMPTS_MINIMUM = 6 }; /* fewer have no order that is unlikelier than 1% */
static const double DRIFT_P = .01;

/* How far the logarithm of an attempt's time a token lies from its cells' means. */
struct residual {
    const struct run *run;
    const struct attempt *attempt;
    double sum;
    int cells;
};

static double log_tpot(const struct cell *cell, const struct attempt *attempt)
{
    const struct sample_sums sums = samples_sum(attempt, cell->workload->name, NULL);
    return log(samples_tpot_ns(&sums));
}

/* A cell of one block is its own mean. */
static void add_residuals(const struct cells *cells, const struct cell *cell, struct residual *residuals)
{
    double *logs = xcalloc((size_t)cells->blocks, sizeof *logs), sum = 0;
    int count = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, RULE_VOIDS_TIMES);
        logs[block - 1] = attempt ? log_tpot(cell, attempt) : NAN;
        if (isnan(logs[block - 1]))
            continue;
        sum += logs[block - 1];
        count++;
    }
    for (int block = 1; block <= cells->blocks; block++) {
        if (count < 2 || isnan(logs[block - 1]))
            continue;
        const struct judged *judged = cell->blocks[block - 1].counted;
        struct residual *residual = &residuals[judged - cells->run->attempts];
        residual->attempt = &judged->attempt;
        residual->sum += logs[block - 1] - sum / count;
        residual->cells++;
    }
    free(logs);
}

static int compare_begin(const void *a, const void *b)
{
    const struct residual *first = a, *second = b;
    if (cells_is_newer(first->run, first->attempt, second->attempt))
        return 1;
    return cells_is_newer(first->run, second->attempt, first->attempt) ? -1 : 0;
}

static int count_arms(const struct residual *residuals, int count)
{
    int arms = 0;
    for (int i = 0; i < count; i++) {
        int first = 0;
        while (!arm_equal(&residuals[first].attempt->arm, &residuals[i].attempt->arm))
            first++;
        arms += first == i;
    }
    return arms;
}

/* In the order in which the attempts were begun, one value each. */
static double *order_residuals(const struct cells *cells, int *count, int *arms)
{
    const int attempts = cells->run->attempt_count;
    struct residual *residuals = xcalloc((size_t)attempts, sizeof *residuals);
    double *values = xcalloc((size_t)attempts, sizeof *values);
    for (int i = 0; i < cells->count; i++)
        add_residuals(cells, &cells->items[i], residuals);
    *count = 0;
    for (int i = 0; i < attempts; i++) {
        residuals[i].run = cells->run;
        if (residuals[i].cells)
            residuals[(*count)++] = residuals[i];
    }
    if (*count)
        qsort(residuals, (size_t)*count, sizeof *residuals, compare_begin);
    for (int i = 0; i < *count; i++)
        values[i] = residuals[i].sum / residuals[i].cells;
    *arms = count_arms(residuals, *count);
    free(residuals);
    return values;
}

/* How much longer a token takes at one end of the run than at the other; 0 where chance explains it. */
static double measure_drift(const double *values, int count, int arms)
{
    double *order = xcalloc((size_t)count, sizeof *order);
    for (int i = 0; i < count; i++)
        order[i] = i;
    const double p = count < DRIFT_ATTEMPTS_MINIMUM ? NAN : statistics_spearman_p(order, values, count, arms);
    free(order);
    return p < DRIFT_P ? expm1(fabs(statistics_slope(values, count)) * (count - 1)) : 0;
}

static void see_drift(const void *context, double threshold, struct verdicts *verdicts)
{
    const double drift = *(const double *)context;
    if (drift > threshold)
        verdicts_add(verdicts, RULE_DRIFT, RULE_SUSPECT, NULL, drift, threshold,
                     "from one end of the run to the other times a token change by %.3g %%", 100 * drift);
}

void run_rules_judge_cells(struct cells *cells)
{
    int count, arms;
    double *values = order_residuals(cells, &count, &arms), drift = measure_drift(values, count, arms);
    free(values);
    rule_judge_by(RULE_DRIFT, &cells->plan->rules, see_drift, &drift, &cells->verdicts);
    judge_knobs(cells);
}
