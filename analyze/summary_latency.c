/* Quantiles of latencies, where they have intervals: over distinct prompts by order statistics, each prompt averaged
 * over its blocks first; and for these prompts, by the quantile of each block. */
#include "analyze/summary_parts.h"

#include "analyze/prompts.h"
#include "collect/base/json.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

static double tpot_ms(const struct sample *sample)
{
    return samples_times(sample).tpot_ns / 1e6;
}

static double ttft_ms(const struct sample *sample)
{
    return samples_times(sample).ttft_ns / 1e6;
}

static double end_to_end_ms(const struct sample *sample)
{
    return samples_times(sample).end_to_end_ns / 1e6;
}

static const struct latency {
    const char *key;
    double (*of)(const struct sample *sample);
    unsigned voided_by;
} latencies[] = {
    {"ttft_ms", ttft_ms, RULE_VOIDS_TTFT},
    {"tpot_ms", tpot_ms, RULE_VOIDS_TIMES},
    {"end_to_end_ms", end_to_end_ms, RULE_VOIDS_TIMES | RULE_VOIDS_TTFT},
};
enum { LATENCY_COUNT = sizeof latencies / sizeof *latencies };

static const double quantiles[] = {0.5, 0.9, 0.95, 0.99};
enum { QUANTILE_COUNT = sizeof quantiles / sizeof *quantiles };

/* A column for each block that is usable. */
static void read_table(const struct cells *cells, const struct cell *cell, const struct latency *latency,
                       struct prompt_table *table)
{
    const struct attempt **attempts = xcalloc((size_t)cells->blocks, sizeof *attempts);
    int columns = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, latency->voided_by);
        if (attempt)
            attempts[columns++] = attempt;
    }
    prompt_table_init(attempts, columns, cell->workload->name, table);
    for (int column = 0; column < columns; column++) {
        const struct sample *sample;
        for (int at = 0; (sample = samples_next(attempts[column], cell->workload->name, &at));)
            *prompt_table_at(table, sample->prompt, column) = latency->of(sample);
    }
    free(attempts);
}

/* Means of the rows over what they have, NaN left out; answers how many there are. */
static int average_rows(const struct prompt_table *table, double *means)
{
    int count = 0;
    for (int i = 0; i < table->count; i++) {
        double sum = 0;
        int known = 0;
        for (int j = 0; j < table->columns; j++) {
            const double value = table->values[(size_t)i * (size_t)table->columns + (size_t)j];
            sum += isnan(value) ? 0 : value;
            known += !isnan(value);
        }
        if (known)
            means[count++] = sum / known;
    }
    return count;
}

/* The columns of complete rows, each sorted: columns x count. */
static double *sort_columns(const struct prompt_table *table)
{
    const size_t rows = (size_t)table->count, columns = (size_t)table->columns;
    double *sorted = xcalloc(rows * columns + 1, sizeof *sorted);
    for (size_t j = 0; j < columns; j++) {
        for (size_t i = 0; i < rows; i++)
            sorted[j * rows + i] = table->values[i * columns + j];
        gsl_sort(sorted + j * rows, 1, rows);
    }
    return sorted;
}

static struct interval estimate_by_block(const struct plan *plan, const double *sorted, int rows, int columns, double q)
{
    double *logs = xcalloc((size_t)columns + 1, sizeof *logs);
    for (int j = 0; j < columns; j++)
        logs[j] = log(gsl_stats_quantile_from_sorted_data(sorted + (size_t)j * (size_t)rows, 1, (size_t)rows, q));
    struct interval interval = summary_estimate(plan, logs, rows ? columns : 0, plan->alpha);
    free(logs);
    return interval;
}

static json_t *make_quantile(const struct latency *latency, double q, struct interval over_prompts,
                             struct interval over_blocks)
{
    json_t *object = json_object();
    json_set(object, "metric", json_string(latency->key));
    json_set(object, "quantile", json_number(q));
    json_set(object, "over_prompts", summary_make_interval(over_prompts, "prompts"));
    json_set(object, "over_blocks", summary_make_interval(over_blocks, "blocks"));
    return object;
}

static void append_latency(const struct cells *cells, const struct cell *cell, const struct latency *latency,
                           json_t *array)
{
    struct prompt_table table;
    read_table(cells, cell, latency, &table);
    double *means = xcalloc((size_t)table.count + 1, sizeof *means);
    const int count = average_rows(&table, means), rows = prompt_table_complete(&table);
    double *sorted = sort_columns(&table);
    for (int i = 0; i < QUANTILE_COUNT; i++) {
        struct interval over_prompts = statistics_quantile_interval(means, count, quantiles[i], cells->plan->alpha);
        if (!isnan(over_prompts.low))
            json_append(array,
                        make_quantile(latency, quantiles[i], over_prompts,
                                      estimate_by_block(cells->plan, sorted, rows, table.columns, quantiles[i])));
    }
    free(sorted);
    free(means);
    prompt_table_free(&table);
}

json_t *summary_make_latency(const struct cells *cells, const struct cell *cell)
{
    json_t *array = json_array();
    for (int i = 0; i < LATENCY_COUNT; i++)
        append_latency(cells, cell, &latencies[i], array);
    return array;
}
