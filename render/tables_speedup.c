/* Tables of comparisons. */
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_SPEEDUP TABLE_RATIOS

typedef const struct interval *find_interval(const struct comparison *comparison);

static const struct interval *find_speedup(const struct comparison *comparison)
{
    return &comparison->speedup;
}

static const struct interval *find_end_to_end(const struct comparison *comparison)
{
    return &comparison->speedup_end_to_end;
}

static const struct interval *find_aggregate(const struct comparison *comparison)
{
    return &comparison->speedup_aggregate;
}

/* --- arms by workloads -------------------------------------------------------------------------------------------- */

static bool has_any(const struct summary *summary, const char *baseline, int arm, find_interval *find, bool missing_too)
{
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if ((arm < 0 || comparison->arm == arm) && summary_is_method(summary, comparison->baseline, baseline) &&
            (missing_too || find(comparison)->present))
            return true;
    }
    return false;
}

static void put_comparison(struct table *table, const struct comparison *comparison, find_interval *find)
{
    if (!comparison) {
        table_put_missing(table, NULL);
        return;
    }
    bool decode = find == find_speedup;
    const struct interval *interval = find(comparison);
    if (decode && !interval->present && comparison->speedup_unpaired.present) {
        table_put_interval(table, &comparison->speedup_unpaired, comparison->marks, NULL);
        table_set_mark(table, comparison->missing.rule);
        return;
    }
    table_put_interval(table, interval, comparison->marks, comparison->missing.rule);
    if (decode && interval->present && comparison->best)
        table_set_bold(table);
}

static void fill_matrix(struct table *table, const struct summary *summary, const char *baseline, find_interval *find,
                        bool missing_too)
{
    table_add_column(table, COLUMN_TEXT, "arm", "");
    if (!has_any(summary, baseline, -1, find, missing_too))
        return;
    for (int i = 0; i <= summary->workload_count; i++) {
        const char *name = summary_workload_text(summary, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS);
        table_add_alike(table, COLUMN_INTERVAL, name, name, FORMAT_SPEEDUP);
    }
    int last = -1;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (!has_any(summary, baseline, arm, find, missing_too))
            continue;
        table_add_row(table, NULL);
        if (last >= 0 && !summary_alike(summary, arm, last))
            table_set_apart(table);
        last = arm;
        tables_put_arm(table, summary, arm);
        for (int i = 0; i <= summary->workload_count; i++)
            put_comparison(
                table, summary_compare(summary, arm, baseline, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS),
                find);
    }
}

void tables_fill_speedup(struct table *table, const struct summary *summary)
{
    table->empty = xstrdup("Nothing was compared with auto.");
    fill_matrix(table, summary, "auto", find_speedup, true);
}

void tables_fill_over_linear(struct table *table, const struct summary *summary)
{
    fill_matrix(table, summary, "linear", find_speedup, true);
}

void tables_fill_end_to_end(struct table *table, const struct summary *summary)
{
    fill_matrix(table, summary, "auto", find_end_to_end, false);
}

void tables_fill_aggregate(struct table *table, const struct summary *summary)
{
    fill_matrix(table, summary, "auto", find_aggregate, false);
}

/* --- the headline family ------------------------------------------------------------------------------------------ */

void tables_fill_family(struct table *table, const struct summary *summary)
{
    table->empty = xstrdup(summary_is_imported(summary) ? "No comparison was fixed before the results were known."
                                                        : "The plan names no headline comparison.");
    table->repeated = 2;
    table_add_column(table, COLUMN_TEXT, "comparison", "comparison");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_alike(table, COLUMN_INTERVAL, "speedup", "speedup, pointwise", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_LIMITS, "simultaneous", "simultaneous", FORMAT_SPEEDUP);
    table_add_column(table, COLUMN_P, "p", "p");
    table_add_column(table, COLUMN_P, "p_holm", "p, Holm");
    table_add_column(table, COLUMN_P, "sign_flip_p", "p, sign flip");
    table_add_column(table, COLUMN_TEXT, "verdict", "difference");
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (!comparison->headline)
            continue;
        table_add_row(table, NULL);
        tables_put_pair(table, summary, comparison);
        tables_put_workload(table, summary, comparison->workload);
        table_put_interval(table, &comparison->speedup, comparison->marks, comparison->missing.rule);
        table_put_limits(table, comparison->simultaneous.low, comparison->simultaneous.high);
        table_put_number(table, comparison->p);
        table_put_number(table, comparison->p_holm);
        table_put_number(table, comparison->sign_flip_p);
        tables_put_verdict(table, summary, comparison->verdict);
    }
}

/* --- other estimates ---------------------------------------------------------------------------------------------- */

void tables_fill_estimates(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("comparison");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_alike(table, COLUMN_INTERVAL, "speedup", "blocks", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_LIMITS, "fieller", "Fieller", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "speedup_prompts", "prompts and blocks", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "speedup_identical", "identical outputs", FORMAT_SPEEDUP);
    table_add_column(table, COLUMN_P, "p", "p");
    table_add_column(table, COLUMN_P, "p_bh", "p, BH");
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (comparison->workload == SUMMARY_ALL_WORKLOADS ||
            !(comparison->speedup_prompts.present || comparison->speedup_identical.present ||
              isfinite(comparison->p_bh)))
            continue;
        char *pair = tables_pair_text(summary, comparison);
        table_add_row(table, pair);
        free(pair);
        tables_put_workload(table, summary, comparison->workload);
        table_put_interval(table, &comparison->speedup, comparison->marks, comparison->missing.rule);
        table_put_limits(table, comparison->fieller.low, comparison->fieller.high);
        table_put_interval(table, &comparison->speedup_prompts, comparison->marks, NULL);
        table_put_interval(table, &comparison->speedup_identical, comparison->marks, NULL);
        table_put_number(table, comparison->p);
        table_put_number(table, comparison->p_bh);
    }
}

/* "REPETITION, COLD_FIRST". free() it. */
static char *join(const json_t *rules)
{
    char *joined = xstrdup("");
    for (size_t i = 0; i < json_array_size(rules); i++) {
        char *longer = xformat("%s%s%s", joined, i ? ", " : "", json_string_value(json_array_get(rules, i)));
        free(joined);
        joined = longer;
    }
    if (json_array_size(rules) > 0)
        return joined;
    free(joined);
    return xstrdup("outliers");
}

void tables_fill_suspect(struct table *table, const struct summary *summary)
{
    table->repeated = 2;
    table_add_column(table, COLUMN_TEXT, "comparison", "comparison");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_column(table, COLUMN_TEXT, "rules", "taken out by");
    table_add_alike(table, COLUMN_INTERVAL, "speedup", "with suspect data", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "without_suspect", "without", FORMAT_SPEEDUP);
    table_keep_column(table);
    table_add_column(table, COLUMN_COUNT, "attempts_left", "attempts left");
    const struct comparison *last = NULL;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (!comparison->without.present || !comparison->speedup.present)
            continue;
        char *rules = join(comparison->without.rules);
        table_add_row(table, NULL);
        if (last && (last->arm != comparison->arm || last->baseline != comparison->baseline))
            table_set_apart(table);
        last = comparison;
        tables_put_pair(table, summary, comparison);
        tables_put_workload(table, summary, comparison->workload);
        table_put_text(table, rules);
        table_put_interval(table, &comparison->speedup, NULL, NULL);
        table_put_interval(table, &comparison->without_speedup, NULL, NULL);
        table_put_number(table, comparison->without.attempts);
        free(rules);
    }
}

/* --- budgets ------------------------------------------------------------------------------------------------------ */

static void put_over(struct table *table, const struct summary *summary, int arm, const char *baseline)
{
    put_comparison(table, summary_compare(summary, arm, baseline, SUMMARY_ALL_WORKLOADS), find_speedup);
}

void tables_fill_budgets(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_COUNT, "budget", "nodes");
    table->section_key = xstrdup("group");
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_alike(table, COLUMN_INTERVAL, "over_auto", "over auto", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "over_linear", "over linear", FORMAT_SPEEDUP);
    for (int i = 0; i < summary->workload_count; i++) {
        char *key = xformat("tau_%s", summary_workload_text(summary, i)),
             *head = xformat("τ, %s", summary_workload_text(summary, i));
        table_add_column(table, COLUMN_INTERVAL, key, head);
        free(key);
        free(head);
    }
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (!summary_is_method(summary, arm, "ddtree"))
            continue;
        char *group = summary_group_text(summary, arm);
        table_add_row(table, group);
        table_put_number(table, summary->arms[arm].budget);
        tables_put_arm(table, summary, arm);
        put_over(table, summary, arm, "auto");
        put_over(table, summary, arm, "linear");
        for (int i = 0; i < summary->workload_count; i++) {
            const struct cell *cell = summary_find_cell(summary, arm, i);
            if (cell)
                table_put_interval(table, &cell->tau, cell->marks, cell->missing.rule);
            else
                table_put_missing(table, NULL);
        }
        free(group);
    }
}

static bool has_best(const struct summary *summary)
{
    for (int i = 0; i < summary->best_budget_count; i++)
        if (summary->best_budgets[i].speedup.present)
            return true;
    return false;
}

void tables_fill_best(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("group");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_column(table, COLUMN_TEXT, "arm", "best");
    table_add_column(table, COLUMN_COUNT, "budgets", "of");
    table_add_column(table, COLUMN_TEXT, "selected_on", "chosen on");
    table_add_alike(table, COLUMN_INTERVAL, "tuning_speedup", "when chosen", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "speedup", "reported", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_LIMITS, "bound", "valid after choosing", FORMAT_SPEEDUP);
    for (int i = 0; i < summary->best_budget_count && has_best(summary); i++) {
        const struct best_budget *best = &summary->best_budgets[i];
        if (best->arm < 0 && !best->missing.rule)
            continue;
        char *group = best->arm >= 0 ? summary_group_text(summary, best->arm)
                                     : xformat("TP %d, %d in flight", best->tensor_parallel, best->concurrency);
        table_add_row(table, group);
        tables_put_workload(table, summary, best->workload);
        if (best->arm >= 0)
            tables_put_arm(table, summary, best->arm);
        else
            table_put_missing(table, best->missing.rule);
        table_put_number(table, best->budgets);
        table_put_text(table, best->selected_on);
        table_put_interval(table, &best->tuning_speedup, NULL, NULL);
        const struct comparison *of =
            best->arm < 0 ? NULL : summary_compare(summary, best->arm, "auto", best->workload);
        table_put_interval(table, &best->speedup, of ? of->marks : NULL, best->missing.rule);
        table_put_limits(table, best->bound.low, best->bound.high);
        free(group);
    }
}
