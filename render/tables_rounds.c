/* Tables of what a round costs: stages and break-even, the model of a round, ranks, memory. */
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_COST 1
#define MEMORY_KINDS_MAXIMUM 12

/* --- what explains why an arm wins or loses ----------------------------------------------------------------------- */

static void put_interval_of(struct table *table, const struct interval *interval)
{
    table_put_interval(table, interval, NULL, NULL);
}

/* Stages that decide; the others' intervals would fill the line and say nothing. */
static bool is_large(int stage)
{
    return stage == SUMMARY_DRAFT || stage == SUMMARY_VERIFY;
}

void tables_fill_rounds(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("workload");
    table->decimals = 2;
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, COLUMN_INTERVAL, "tau", "τ");
    table_add_column(table, COLUMN_INTERVAL, "break_even_tau", "break-even τ");
    for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++)
        table_add_column(table, is_large(stage) ? COLUMN_INTERVAL : COLUMN_NUMBER, summary_stage_names[stage],
                         summary_stage_names[stage]);
    for (int workload = 0; workload < summary->workload_count; workload++)
        for (int arm = 0; arm < summary->arm_count; arm++) {
            const struct comparison *comparison = summary_compare(summary, arm, "auto", workload);
            const struct cell *cell = summary_find_cell(summary, arm, workload);
            if (!comparison || !comparison->break_even_tau.present)
                continue;
            table_add_row(table, summary_workload_text(summary, workload));
            tables_put_arm(table, summary, arm);
            const json_t *marks = cell ? cell->marks : NULL;
            table_put_marked(table, cell ? &cell->tau : &(struct interval){0}, &marks, NULL);
            table_put_marked(table, &comparison->break_even_tau, &marks, NULL);
            for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++)
                if (is_large(stage))
                    put_interval_of(table, &comparison->round_cost[stage]);
                else
                    table_put_number(table,
                                     comparison->round_cost[stage].present ? comparison->round_cost[stage].value : NAN);
        }
}

/* --- the model of a round ----------------------------------------------------------------------------------------- */

void tables_fill_model(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("ranks");
    table_add_column(table, COLUMN_TEXT, "term", "term");
    table_add_column(table, COLUMN_TEXT, "unit", "unit");
    table_add_column(table, COLUMN_INTERVAL, "estimate", "estimate");
    for (int i = 0; i < summary->round_model_count; i++) {
        const struct round_model *model = &summary->round_models[i];
        char *section =
            isfinite(model->r_squared)
                ? xformat("TP %d: %d points, %.2f%% of the variance explained, largest misfit %.1f%%",
                          model->tensor_parallel, model->points, 100 * fmin(floor(1e4 * model->r_squared) / 1e4, .9999),
                          100 * model->largest_misfit)
                : xformat("TP %d: %d points", model->tensor_parallel, model->points);
        for (int j = 0; j < model->term_count; j++) {
            table_add_row(table, section);
            table_put_text(table, model->terms[j].name);
            table_put_text(table, model->terms[j].unit);
            put_interval_of(table, &model->terms[j].estimate);
        }
        free(section);
    }
}

/* A mean of trees that were not always full is none. */
static bool has_whole_nodes(const struct summary *summary)
{
    for (int i = 0; i < summary->round_model_count; i++)
        for (int j = 0; j < summary->round_models[i].fit_count; j++) {
            const double nodes = summary->round_models[i].fits[j].nodes;
            if (nodes != floor(nodes))
                return false;
        }
    return true;
}

void tables_fill_fits(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("workload");
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, has_whole_nodes(summary) ? COLUMN_COUNT : COLUMN_NUMBER, "nodes", "nodes");
    table_add_column(table, COLUMN_NUMBER, "context", "context / tokens");
    table_add_alike(table, COLUMN_NUMBER, "observed_ms", "observed / ms", FORMAT_COST);
    table_add_alike(table, COLUMN_NUMBER, "fitted_ms", "fitted / ms", FORMAT_COST);
    table_add_column(table, COLUMN_NUMBER, "break_even_tau", "break-even τ");
    for (int workload = 0; workload < summary->workload_count; workload++)
        for (int i = 0; i < summary->round_model_count; i++)
            for (int j = 0; j < summary->round_models[i].fit_count; j++) {
                const struct model_fit *fit = &summary->round_models[i].fits[j];
                if (fit->workload != workload)
                    continue;
                table_add_row(table, summary_workload_text(summary, workload));
                tables_put_arm(table, summary, fit->arm);
                table_put_number(table, fit->nodes);
                table_put_number(table, fit->context);
                table_put_number(table, fit->observed_ms);
                table_put_number(table, fit->fitted_ms);
                table_put_number(table, fit->break_even_tau);
            }
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

void tables_fill_scaling(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("workload");
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_column(table, COLUMN_TEXT, "reference", "over");
    table_add_column(table, COLUMN_COUNT, "ranks", "ranks");
    table_add_alike(table, COLUMN_INTERVAL, "speedup", "speedup", TABLE_RATIOS);
    table_add_alike(table, COLUMN_INTERVAL, "efficiency", "efficiency", TABLE_RATIOS);
    table_add_column(table, COLUMN_TEXT, "pairing", "blocks");
    table_add_column(table, COLUMN_INTERVAL, "communicate_share", "share of time between ranks");
    for (int workload = SUMMARY_ALL_WORKLOADS; workload < summary->workload_count; workload++)
        for (int i = 0; i < summary->scaling_count; i++) {
            const struct scaling *scaling = &summary->scaling[i];
            if (scaling->workload != workload)
                continue;
            table_add_row(table, summary_workload_text(summary, workload));
            table_put_text(table, summary->arms[scaling->arm].name);
            table_put_text(table, summary->arms[scaling->reference].name);
            table_put_number(table, summary->arms[scaling->arm].tensor_parallel);
            table_put_interval(table, &scaling->speedup, scaling->marks, scaling->missing.rule);
            put_interval_of(table, &scaling->efficiency);
            table_put_text(table, scaling->pairing);
            put_interval_of(table, &scaling->communicate_share);
        }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct memory_kinds {
    const char *keys[MEMORY_KINDS_MAXIMUM];
    int count;
};

static void note_kind(struct memory_kinds *kinds, const char *key)
{
    for (int i = 0; i < kinds->count; i++)
        if (strcmp(kinds->keys[i], key) == 0)
            return;
    if (kinds->count < MEMORY_KINDS_MAXIMUM)
        kinds->keys[kinds->count++] = key;
}

static bool is_bytes(const char *key)
{
    size_t length = strlen(key);
    return length > 6 && strcmp(key + length - 6, "_bytes") == 0;
}

static struct memory_kinds find_kinds(const struct summary *summary)
{
    struct memory_kinds kinds = {0};
    const char *key;
    json_t *value;
    for (int i = 0; i < summary->cell_count; i++)
        json_object_foreach((json_t *)summary->cells[i].memory, key, value)
        {
            if (json_is_number(value) && (is_bytes(key) || strcmp(key, "capacity_tokens") == 0))
                note_kind(&kinds, key);
        }
    return kinds;
}

/* Bytes are told in MiB, by its name in CSV as well. */
static void add_memory_column(struct table *table, const char *key)
{
    const int length = (int)strlen(key) - 6;
    char *head = is_bytes(key) ? xformat("%.*s / MiB", length, key) : xstrdup("capacity / tokens");
    char *in_csv = is_bytes(key) ? xformat("%.*s_mib", length, key) : xstrdup(key);
    for (char *at = head; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    table_add_column(table, is_bytes(key) ? COLUMN_NUMBER : COLUMN_COUNT, in_csv, head);
    free(head);
    free(in_csv);
}

static double memory_value(const json_t *memory, const char *key)
{
    const json_t *value = json_object_get(memory, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return is_bytes(key) ? number / (1 << 20) : number;
}

/* The arm's first cell with such a plan that differs from its plan in the cell before. */
static bool is_new_plan(const struct summary *summary, int arm, int workload)
{
    const struct cell *cell = summary_find_cell(summary, arm, workload);
    if (!cell || !cell->memory)
        return false;
    for (int i = 0; i < workload; i++) {
        const struct cell *other = summary_find_cell(summary, arm, i);
        if (other && json_equal(other->memory, cell->memory))
            return false;
    }
    return true;
}

void tables_fill_memory(struct table *table, const struct summary *summary)
{
    struct memory_kinds kinds = find_kinds(summary);
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    for (int i = 0; i < kinds.count; i++)
        add_memory_column(table, kinds.keys[i]);
    int last = -1;
    for (int arm = 0; arm < summary->arm_count && kinds.count > 0; arm++)
        for (int workload = 0; workload < summary->workload_count; workload++) {
            if (!is_new_plan(summary, arm, workload))
                continue;
            table_add_row(table, NULL);
            if (last >= 0 && !summary_alike(summary, arm, last))
                table_set_apart(table);
            last = arm;
            tables_put_arm(table, summary, arm);
            for (int i = 0; i < kinds.count; i++)
                table_put_number(table, memory_value(summary_find_cell(summary, arm, workload)->memory, kinds.keys[i]));
        }
}

static void put_peak(struct table *table, const struct cell *cell)
{
    table_put_number(table, cell->peak_memory_bytes / (1 << 20));
}

void tables_fill_peak(struct table *table, const struct summary *summary)
{
    for (int i = 0; i < summary->cell_count; i++)
        if (isfinite(summary->cells[i].peak_memory_bytes)) {
            tables_fill_matrix(table, summary, COLUMN_NUMBER, put_peak);
            return;
        }
}
