/* Tables of cells, a section for each workload; and log R of every block. */
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tables_fill_matrix(struct table *table, const struct summary *summary, enum column_kind kind, tables_put_cell *put)
{
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    for (int i = 0; i < summary->workload_count; i++)
        table_add_alike(table, kind, summary_workload_text(summary, i), summary_workload_text(summary, i), 1);
    for (int arm = 0; arm < summary->arm_count && summary->workload_count > 0; arm++) {
        table_add_row(table, NULL);
        if (arm > 0 && !summary_alike(summary, arm, arm - 1))
            table_set_apart(table);
        tables_put_arm(table, summary, arm);
        for (int i = 0; i < summary->workload_count; i++) {
            const struct cell *cell = summary_find_cell(summary, arm, i);
            if (cell)
                put(table, cell);
            else
                table_put_missing(table, NULL);
        }
    }
}

typedef bool shows_cell(const struct cell *cell);
typedef void put_cell(struct table *table, const struct summary *summary, const struct cell *cell);

/* A row for each cell that is shown: the arm, and what `put` puts. */
static void fill_cells(struct table *table, const struct summary *summary, shows_cell *shows, put_cell *put)
{
    table->section_key = xstrdup("workload");
    for (int workload = 0; workload < summary->workload_count; workload++) {
        int last = -1;
        for (int arm = 0; arm < summary->arm_count; arm++) {
            const struct cell *cell = summary_find_cell(summary, arm, workload);
            if (!cell || !shows(cell))
                continue;
            table_add_row(table, summary_workload_text(summary, workload));
            if (last >= 0 && !summary_alike(summary, arm, last))
                table_set_apart(table);
            last = arm;
            tables_put_arm(table, summary, arm);
            put(table, summary, cell);
        }
    }
}

static bool shows_all(const struct cell *cell)
{
    (void)cell;
    return true;
}

/* --- absolute numbers --------------------------------------------------------------------------------------------- */

static void put_absolute(struct table *table, const struct summary *summary, const struct cell *cell)
{
    (void)summary;
    const json_t *marks = cell->marks;
    table_put_marked(table, &cell->tokens_per_s, &marks, cell->missing.rule);
    table_put_marked(table, &cell->end_to_end_tokens_per_s, &marks, NULL);
    table_put_marked(table, &cell->tau, &marks, NULL);
    table_put_marked(table, &cell->joules_per_token, &marks, NULL);
}

void tables_fill_absolute(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, COLUMN_INTERVAL, "tokens_per_s", "tokens/s");
    table_add_column(table, COLUMN_INTERVAL, "end_to_end_tokens_per_s", "end to end");
    table_add_column(table, COLUMN_INTERVAL, "tau", "τ");
    table_add_column(table, COLUMN_INTERVAL, "joules_per_token", "J/token");
    fill_cells(table, summary, shows_all, put_absolute);
}

/* --- blocks, tries and sessions ----------------------------------------------------------------------------------- */

/* "5/6+3; 7 (1); 2": valid of planned blocks, behind a plus those of which results could be seen; tries, excluded ones
 * in brackets; sessions. */
static void put_record(struct table *table, const struct cell *cell)
{
    char *text = xformat("%d/%d", cell->blocks_valid, cell->blocks_planned), *longer;
    for (size_t i = 0; i < json_array_size(cell->extended_from); i++, free(text), text = longer)
        longer = xformat("%s+%lld", text, (long long)json_integer_value(json_array_get(cell->extended_from, i)));
    char *excluded = cell->excluded ? xformat(" (%d)", cell->excluded) : xstrdup("");
    char *sessions = cell->sessions >= 0 ? xformat("; %d", cell->sessions) : xstrdup("");
    table_put_format(table, "%s; %d%s%s", text, cell->tries, excluded, sessions);
    free(sessions);
    free(excluded);
    free(text);
}

void tables_fill_record(struct table *table, const struct summary *summary)
{
    tables_fill_matrix(table, summary, COLUMN_TEXT, put_record);
}

/* --- throughput --------------------------------------------------------------------------------------------------- */

static bool shows_throughput(const struct cell *cell)
{
    return cell->aggregate_tokens_per_s.present || cell->aggregate_missing.rule;
}

/* With one request at a time all together are the one. */
static bool has_several_in_flight(const struct summary *summary)
{
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (summary->arms[arm].concurrency > 1)
            return true;
    return false;
}

static void put_throughput(struct table *table, const struct summary *summary, const struct cell *cell)
{
    const json_t *marks = cell->marks;
    table_put_number(table, summary->arms[cell->arm].concurrency);
    table_put_marked(table, &cell->tokens_per_s, &marks, cell->missing.rule);
    table_put_marked(table, &cell->aggregate_tokens_per_s, &marks, cell->aggregate_missing.rule);
    table_put_marked(table, &cell->aggregate_per_device, &marks, NULL);
    table_put_text(table, cell->pareto ? "front" : "");
}

void tables_fill_throughput(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, COLUMN_COUNT, "in_flight", "in flight");
    table_add_column(table, COLUMN_INTERVAL, "tokens_per_s", "per user");
    table_add_column(table, COLUMN_INTERVAL, "aggregate_tokens_per_s", "all together");
    table_add_column(table, COLUMN_INTERVAL, "aggregate_per_device", "per device");
    table_add_column(table, COLUMN_TEXT, "pareto", "Pareto");
    if (has_several_in_flight(summary))
        fill_cells(table, summary, shows_throughput, put_throughput);
}

/* --- latency ------------------------------------------------------------------------------------------------------ */

static const double quantiles[] = {.5, .9, .95, .99};
enum { QUANTILE_COUNT = sizeof quantiles / sizeof *quantiles };

static const struct interval *latency_of(const struct cell *cell, enum summary_metric metric, double quantile,
                                         bool prompts)
{
    for (int i = 0; i < cell->latency_count; i++) {
        const struct latency *latency = &cell->latency[i];
        if (latency->metric == metric && fabs(latency->quantile - quantile) < 1e-9)
            return prompts ? &latency->over_prompts : &latency->over_blocks;
    }
    return NULL;
}

static bool any_has(const struct summary *summary, enum summary_metric metric, double quantile, bool prompts)
{
    for (int i = 0; i < summary->cell_count; i++) {
        const struct interval *interval = latency_of(&summary->cells[i], metric, quantile, prompts);
        if (interval && interval->present)
            return true;
    }
    return false;
}

static void add_latency_column(struct table *table, enum summary_metric metric, double quantile)
{
    static const char *const heads[] = {
        [SUMMARY_TTFT] = "TTFT", [SUMMARY_TPOT] = "TPOT", [SUMMARY_END_TO_END] = "end to end"};
    char *key = xformat("%s_p%.0f", summary_metric_names[metric], 100 * quantile);
    char *head = xformat("%s p%.0f", heads[metric], 100 * quantile);
    table_add_column(table, COLUMN_INTERVAL, key, head);
    free(key);
    free(head);
}

static void put_quantiles(struct table *table, const struct summary *summary, const struct cell *cell, bool prompts,
                          const json_t **marks)
{
    for (int metric = 0; metric < SUMMARY_METRIC_COUNT; metric++)
        for (int i = 0; i < QUANTILE_COUNT; i++) {
            if (!any_has(summary, (enum summary_metric)metric, quantiles[i], prompts))
                continue;
            const struct interval *interval = latency_of(cell, (enum summary_metric)metric, quantiles[i], prompts);
            table_put_marked(table, interval ? interval : &(struct interval){0}, marks, NULL);
        }
}

/* Over prompts: the means as well, which are over blocks. */
static void fill_latency(struct table *table, const struct summary *summary, bool prompts)
{
    table->section_key = xstrdup("workload");
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    if (prompts) {
        table_add_column(table, COLUMN_INTERVAL, "ttft_ms", "TTFT, mean");
        table_add_column(table, COLUMN_INTERVAL, "tpot_ms", "TPOT, mean");
    }
    for (int metric = 0; metric < SUMMARY_METRIC_COUNT; metric++)
        for (int i = 0; i < QUANTILE_COUNT; i++)
            if (any_has(summary, (enum summary_metric)metric, quantiles[i], prompts))
                add_latency_column(table, (enum summary_metric)metric, quantiles[i]);
    if (table->column_count == 1)
        return;
    for (int workload = 0; workload < summary->workload_count; workload++)
        for (int arm = 0; arm < summary->arm_count; arm++) {
            const struct cell *cell = summary_find_cell(summary, arm, workload);
            if (!cell || (!prompts && cell->latency_count == 0))
                continue;
            table_add_row(table, summary_workload_text(summary, workload));
            tables_put_arm(table, summary, arm);
            const json_t *marks = cell->marks;
            if (prompts) {
                table_put_marked(table, &cell->ttft_ms, &marks, cell->missing.rule);
                table_put_marked(table, &cell->tpot_ms, &marks, NULL);
            }
            put_quantiles(table, summary, cell, prompts, &marks);
        }
}

void tables_fill_latency(struct table *table, const struct summary *summary)
{
    fill_latency(table, summary, true);
}

void tables_fill_latency_blocks(struct table *table, const struct summary *summary)
{
    fill_latency(table, summary, false);
}

/* --- losslessness ------------------------------------------------------------------------------------------------- */

static bool shows_losslessness(const struct cell *cell)
{
    return cell->losslessness.present;
}

static double count_or_nothing(int64_t count)
{
    return count < 0 ? NAN : (double)count;
}

static void put_losslessness(struct table *table, const struct summary *summary, const struct cell *cell)
{
    const struct losslessness *of = &cell->losslessness;
    const struct comparison *comparison = summary_compare(summary, cell->arm, "auto", cell->workload);
    const int64_t counts[] = {of->requests, of->identical, of->diverged, of->audited_tokens};
    for (int i = 0; i < 4; i++)
        table_put_number(table, count_or_nothing(counts[i]));
    table_put_number(table, of->audit_regret_max);
    table_put_interval(table, comparison ? &comparison->speedup_identical : &(struct interval){0},
                       comparison ? comparison->marks : NULL, NULL);
}

void tables_fill_losslessness(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, COLUMN_COUNT, "requests", "requests");
    table_add_column(table, COLUMN_COUNT, "identical", "identical");
    table_add_column(table, COLUMN_COUNT, "diverged", "diverged");
    table_add_column(table, COLUMN_COUNT, "audited_tokens", "tokens audited");
    table_add_column(table, COLUMN_NUMBER, "audit_regret_max", "largest regret");
    table_add_column(table, COLUMN_INTERVAL, "speedup_identical", "speedup, identical");
    table_keep_column(table);
    fill_cells(table, summary, shows_losslessness, put_losslessness);
}

/* --- log R of every block ----------------------------------------------------------------------------------------- */

static int last_block(const struct summary *summary)
{
    int last = 0;
    for (int i = 0; i < summary->comparison_count; i++) {
        const json_t *const lists[] = {summary->comparisons[i].blocks, summary->comparisons[i].dropped};
        for (int list = 0; list < 2; list++)
            for (size_t j = 0; j < json_array_size(lists[list]); j++) {
                int block = (int)json_integer_value(json_object_get(json_array_get(lists[list], j), "block"));
                last = block > last ? block : last;
            }
    }
    return last;
}

static const json_t *find_block(const json_t *blocks, int block)
{
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *object = json_array_get(blocks, i);
        if (json_integer_value(json_object_get(object, "block")) == block)
            return object;
    }
    return NULL;
}

static void put_block(struct table *table, const struct comparison *comparison, int block)
{
    const json_t *object = find_block(comparison->blocks, block), *dropped = find_block(comparison->dropped, block);
    if (object) {
        table_put_number(table, json_number_value(json_object_get(object, "log_ratio")));
        return;
    }
    table_put_missing(table, NULL);
    if (dropped)
        table_set_mark(table, json_string_value(json_object_get(dropped, "rule")));
}

void tables_fill_blocks(struct table *table, const struct summary *summary)
{
    int last = last_block(summary);
    table->decimals = 3;
    table->repeated = 2;
    table_add_column(table, COLUMN_TEXT, "comparison", "comparison");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    for (int block = 1; block <= last; block++) {
        char *key = xformat("block_%d", block), *head = xformat("%d", block);
        table_add_column(table, COLUMN_NUMBER, key, head);
        free(key);
        free(head);
    }
    for (int i = 0; i < summary->comparison_count && last > 0; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        table_add_row(table, NULL);
        if (i > 0 && (comparison->arm != comparison[-1].arm || comparison->baseline != comparison[-1].baseline))
            table_set_apart(table);
        tables_put_pair(table, summary, comparison);
        tables_put_workload(table, summary, comparison->workload);
        for (int block = 1; block <= last; block++)
            put_block(table, comparison, block);
    }
}
