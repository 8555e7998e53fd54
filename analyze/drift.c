#include "analyze/drift.h"

#include "analyze/statistics.h"

#include <math.h>
#include <stdlib.h>

enum { ATTEMPTS_MINIMUM = 6 }; /* fewer have no order that is unlikelier than 1% */

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
        residual->judged = judged;
        residual->sum += logs[block - 1] - sum / count;
        residual->cells++;
    }
    free(logs);
}

static int compare_begin(const void *a, const void *b)
{
    const struct residual *first = a, *second = b;
    if (cells_is_newer(first->run, &first->judged->attempt, &second->judged->attempt))
        return 1;
    return cells_is_newer(first->run, &second->judged->attempt, &first->judged->attempt) ? -1 : 0;
}

static int count_arms(const struct drift *drift)
{
    int arms = 0;
    for (int i = 0; i < drift->count; i++) {
        int first = 0;
        while (!arm_equal(&drift->items[first].judged->attempt.arm, &drift->items[i].judged->attempt.arm))
            first++;
        arms += first == i;
    }
    return arms;
}

/* One value for each attempt that has any. */
static void order_residuals(const struct cells *cells, struct drift *drift)
{
    const int attempts = cells->run->attempt_count;
    drift->items = xcalloc((size_t)attempts + 1, sizeof *drift->items);
    for (int i = 0; i < cells->count; i++)
        add_residuals(cells, &cells->items[i], drift->items);
    for (int i = 0; i < attempts; i++) {
        struct residual residual = drift->items[i];
        if (!residual.cells)
            continue;
        residual.run = cells->run;
        residual.value = residual.sum / residual.cells;
        drift->items[drift->count++] = residual;
    }
    qsort(drift->items, (size_t)drift->count, sizeof *drift->items, compare_begin);
    drift->arms = count_arms(drift);
}

void drift_init(const struct cells *cells, struct drift *drift)
{
    *drift = (struct drift){
        .p = NAN, .change = NAN, .outliers = xcalloc((size_t)cells->run->attempt_count + 1, sizeof *drift->outliers)};
    order_residuals(cells, drift);
    const size_t size = (size_t)drift->count + 1;
    double *order = xcalloc(size, sizeof *order), *values = xcalloc(size, sizeof *values);
    bool *outliers = xcalloc(size, sizeof *outliers);
    for (int i = 0; i < drift->count; i++) {
        order[i] = i;
        values[i] = drift->items[i].value;
    }
    if (drift->count >= ATTEMPTS_MINIMUM)
        drift->p = statistics_spearman_p(order, values, drift->count, drift->arms);
    drift->change = expm1(statistics_slope(values, drift->count) * (drift->count - 1));
    statistics_outliers(values, drift->count, outliers);
    for (int i = 0; i < drift->count; i++) {
        drift->items[i].outlier = outliers[i];
        drift->outliers[drift->items[i].judged - cells->run->attempts] = outliers[i];
    }
    free(order);
    free(values);
    free(outliers);
}

void drift_free(struct drift *drift)
{
    free(drift->items);
    free(drift->outliers);
    *drift = (struct drift){0};
}
