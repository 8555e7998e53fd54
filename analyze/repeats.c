#include "analyze/repeats.h"

#include "analyze/statistics.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SERIES_MINIMUM = 3 };

/* An attempt by what it must share with others. */
struct repeat {
    const struct run *run;
    const struct attempt *attempt;
    const char *settings; /* the workload's cell hash */
    double value;         /* log of a token's time */
};

/* Whether the attempt has a time of the workload. */
static bool measure(const struct cells *cells, const struct judged *judged, const char *workload, struct repeat *repeat)
{
    const struct attempt_workload *own = attempt_find_workload(&judged->attempt, workload);
    if (!own || !attempt_is_imported(&judged->attempt) || !cells_block_of(cells, &judged->attempt) ||
        cells_void_metrics(&judged->verdicts, workload) & RULE_VOIDS_TIMES)
        return false;
    const struct sample_sums sums = samples_sum(&judged->attempt, workload, NULL);
    *repeat = (struct repeat){cells->run, &judged->attempt, own->cell_hash, log(samples_tpot_ns(&sums))};
    return isfinite(repeat->value);
}

static int compare_repeats(const void *a, const void *b)
{
    const struct repeat *first = a, *second = b;
    const int order = strcmp(first->settings, second->settings);
    if (order)
        return order;
    if (cells_is_newer(first->run, first->attempt, second->attempt))
        return 1;
    return cells_is_newer(first->run, second->attempt, first->attempt) ? -1 : 0;
}

/* Answers how many there are; settings by settings, in the order of the ledger. */
static int find_repeats(const struct cells *cells, const char *workload, struct repeat *repeats)
{
    int count = 0;
    for (int i = 0; i < cells->run->attempt_count; i++)
        count += measure(cells, &cells->run->attempts[i], workload, &repeats[count]);
    qsort(repeats, (size_t)count, sizeof *repeats, compare_repeats);
    return count;
}

static struct repeats_series describe(const struct repeat *repeats, const double *values, int count)
{
    int rises = 0, falls = 0;
    for (int i = 1; i < count; i++) {
        rises += values[i] > values[i - 1];
        falls += values[i] < values[i - 1];
    }
    return (struct repeats_series){repeats[0].attempt, repeats[count - 1].attempt,
                                   rises == count - 1 || falls == count - 1,
                                   expm1(statistics_slope(values, count) * (count - 1))};
}

static int compare_changes(const void *a, const void *b)
{
    const double first = fabs(log1p(((const struct repeats_series *)a)->change));
    const double second = fabs(log1p(((const struct repeats_series *)b)->change));
    return (first < second) - (first > second);
}

static double median_change(const struct repeats *repeats)
{
    double *changes = xcalloc((size_t)repeats->count + 1, sizeof *changes);
    for (int i = 0; i < repeats->count; i++)
        changes[i] = repeats->series[i].change;
    gsl_sort(changes, 1, (size_t)repeats->count);
    const double median = repeats->count ? gsl_stats_median_from_sorted_data(changes, 1, (size_t)repeats->count) : NAN;
    free(changes);
    return median;
}

void repeats_init(const struct cells *cells, const char *workload, struct repeats *repeats)
{
    const size_t size = (size_t)cells->run->attempt_count + 1;
    struct repeat *all = xcalloc(size, sizeof *all);
    double *values = xcalloc(size, sizeof *values); /* of all series, one behind the other */
    int *lengths = xcalloc(size, sizeof *lengths), used = 0;
    const int count = find_repeats(cells, workload, all);
    *repeats = (struct repeats){.series = xcalloc(size, sizeof *repeats->series)};
    for (int at = 0, end; at < count; at = end) {
        for (end = at; end < count && strcmp(all[end].settings, all[at].settings) == 0; end++)
            values[used + end - at] = all[end].value;
        if (end - at < SERIES_MINIMUM)
            continue;
        repeats->series[repeats->count] = describe(&all[at], values + used, end - at);
        lengths[repeats->count++] = end - at;
        used += end - at;
    }
    repeats->p = statistics_trend_p(values, lengths, repeats->count);
    repeats->change = median_change(repeats);
    qsort(repeats->series, (size_t)repeats->count, sizeof *repeats->series, compare_changes);
    free(all);
    free(values);
    free(lengths);
}

void repeats_free(struct repeats *repeats)
{
    free(repeats->series);
    *repeats = (struct repeats){0};
}
