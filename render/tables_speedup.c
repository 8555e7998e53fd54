#include "render/latex.h"
#include "render/macros.h"
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAXIMUM 4    /* workloads side by side */
#define NARROW_INTERVAL 0.02 /* an interval narrower than this is printed with a decimal more */

/* What a table of speedups shows. */
struct speedup_table {
    const char *baseline;
    bool end_to_end;
    int decimals, digits;
};

static const struct interval *interval_of(const struct speedup_table *table, const struct comparison *comparison)
{
    return table->end_to_end ? &comparison->speedup_end_to_end : &comparison->speedup;
}

static void fit_format(const struct summary *summary, struct speedup_table *table)
{
    table->decimals = 2;
    table->digits = 1;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct interval *interval = interval_of(table, &summary->comparisons[i]);
        if (interval->high - interval->low < NARROW_INTERVAL)
            table->decimals = 3;
    }
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct interval *interval = interval_of(table, &summary->comparisons[i]);
        double largest = isfinite(interval->high) ? interval->high : interval->value;
        if (interval->present && latex_digits(largest, table->decimals) > table->digits)
            table->digits = latex_digits(largest, table->decimals);
    }
}

static void put_cell(FILE *out, const struct speedup_table *table, const struct comparison *comparison,
                     struct notes *notes)
{
    const struct interval *interval = comparison ? interval_of(table, comparison) : NULL;
    if (!interval || !interval->present) {
        const struct missing *missing = comparison ? &comparison->missing : &(struct missing){0};
        fputs(" & \\multicolumn{2}{l}{", out);
        latex_put_missing(out, missing);
        fputs("}", out);
        if (missing->rule)
            notes_add_missing(notes, missing->rule);
        return;
    }
    fprintf(out, " & %s%.*f & ", comparison->best && !table->end_to_end ? "\\best " : "", table->decimals,
            interval->value);
    if (isfinite(interval->low))
        latex_put_range(out, interval->low, interval->high, table->decimals, table->digits);
    notes_put_marks(out, notes, comparison->marks);
}

static void put_part(FILE *out, const struct summary *summary, const struct speedup_table *table, int first, int last,
                     struct notes *notes)
{
    fputs("\\begin{tabular}{@{}l", out);
    for (int i = first; i <= last; i++)
        fprintf(out, " S[table-format=%d.%d] @{\\hspace{.4em}}l", table->digits, table->decimals);
    fputs("@{}}\n\\toprule\n", out);
    for (int i = first; i <= last; i++) {
        fputs(" & \\multicolumn{2}{c}{", out);
        latex_put_narrow(out, summary_workload_text(summary, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS));
        fputs("}", out);
    }
    fputs(" \\\\\n\\midrule\n", out);
    for (int arm = 0; arm < summary->arm_count; arm++) {
        bool any = false;
        for (int i = first; i <= last && !any; i++)
            any =
                summary_compare(summary, arm, table->baseline, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS);
        if (!any)
            continue;
        latex_put(out, summary_arm_text(summary, arm));
        for (int i = first; i <= last; i++)
            put_cell(
                out, table,
                summary_compare(summary, arm, table->baseline, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS),
                notes);
        fputs(" \\\\\n", out);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", out);
}

static void put_table(FILE *out, const struct summary *summary, struct speedup_table table)
{
    struct notes notes = {0};
    fit_format(summary, &table);
    for (int first = 0; first <= summary->workload_count; first += COLUMNS_MAXIMUM) {
        int last = first + COLUMNS_MAXIMUM - 1;
        if (first > 0)
            fputs("\\par\\medskip\n", out);
        put_part(out, summary, &table, first, last < summary->workload_count ? last : summary->workload_count, &notes);
    }
    notes_put(out, &notes, summary);
}

void tables_put_speedup(FILE *out, const struct summary *summary)
{
    put_table(out, summary, (struct speedup_table){.baseline = "auto"});
}

void tables_put_over_linear(FILE *out, const struct summary *summary)
{
    put_table(out, summary, (struct speedup_table){.baseline = "linear"});
}

void tables_put_end_to_end(FILE *out, const struct summary *summary)
{
    put_table(out, summary, (struct speedup_table){.baseline = "auto", .end_to_end = true});
}

static bool has_family(const struct summary *summary)
{
    for (int i = 0; i < summary->comparison_count; i++)
        if (summary->comparisons[i].headline)
            return true;
    return false;
}

static void put_names(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    latex_put(out, summary_arm_text(summary, comparison->arm));
    fputs(" over ", out);
    latex_put(out, summary_arm_text(summary, comparison->baseline));
}

static void put_limits(FILE *out, double low, double high)
{
    fputs(" & ", out);
    if (isfinite(low))
        latex_put_range(out, low, high, 3, 1);
    else
        fputs("---", out);
}

static void put_family_row(FILE *out, const struct summary *summary, const struct comparison *comparison,
                           struct notes *notes)
{
    put_names(out, summary, comparison);
    fputs(" & ", out);
    latex_put_narrow(out, summary_workload_text(summary, comparison->workload));
    if (!comparison->speedup.present) {
        fputs(" & \\multicolumn{7}{l}{", out);
        latex_put_missing(out, &comparison->missing);
        fputs("} \\\\\n", out);
        if (comparison->missing.rule)
            notes_add_missing(notes, comparison->missing.rule);
        return;
    }
    fprintf(out, " & %.3f", comparison->speedup.value);
    notes_put_marks(out, notes, comparison->marks);
    put_limits(out, comparison->speedup.low, comparison->speedup.high);
    put_limits(out, comparison->simultaneous.low, comparison->simultaneous.high);
    put_limits(out, comparison->fieller.low, comparison->fieller.high);
    const double ps[] = {comparison->p, comparison->p_holm, comparison->sign_flip_p};
    for (int i = 0; i < 3; i++) {
        fputs(" & ", out);
        latex_put_p(out, ps[i]);
    }
    fputs(" \\\\\n", out);
}

void tables_put_family(FILE *out, const struct summary *summary)
{
    struct notes notes = {0};
    if (!has_family(summary)) {
        fputs("The plan names no headline comparison.\n", out);
        return;
    }
    fputs("\\begin{tabular}{@{}llrlllrrr@{}}\n\\toprule\n & & & pointwise & simultaneous & Fieller & "
          "\\multicolumn{3}{c@{}}{$p$} \\\\\n"
          "\\cmidrule(l){7-9}\ncomparison & workload & $R$ & interval & interval & interval & log-t & Holm & sign flip "
          "\\\\\n"
          "\\midrule\n",
          out);
    for (int i = 0; i < summary->comparison_count; i++)
        if (summary->comparisons[i].headline)
            put_family_row(out, summary, &summary->comparisons[i], &notes);
    fputs("\\bottomrule\n\\end{tabular}\n", out);
    notes_put(out, &notes, summary);
}

static void put_sentence(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    if (comparison->workload == SUMMARY_ALL_WORKLOADS) {
        fputs("Over all workloads, ", out);
    } else {
        fputs("On ", out);
        latex_put(out, summary_workload_text(summary, comparison->workload));
        fputs(", ", out);
    }
    if (!comparison->speedup.present) {
        put_names(out, summary, comparison);
        fputs(" has no valid number (", out);
        latex_put(out, comparison->missing.rule);
        fputs(").\n", out);
        return;
    }
    char *name = macros_comparison_name(summary, comparison);
    bool simultaneous = isfinite(comparison->simultaneous.low), interval = isfinite(comparison->speedup.low);
    fputs("\\textbf{", out);
    latex_put(out, summary_arm_text(summary, comparison->arm));
    fprintf(out, "} decodes \\textbf{\\%s{}} times as fast as \\textbf{", name);
    latex_put(out, summary_arm_text(summary, comparison->baseline));
    fprintf(out, "} (%s$n=\\%sN{}$ blocks%s", interval ? "" : "too few for an interval: ", name,
            json_array_size(summary->extended_from) ? "\\Extended{}" : "");
    if (interval)
        fprintf(out, ", \\IntervalLevel\\%% interval [\\%sLow{}, \\%sHigh{}]", name, name);
    if (simultaneous)
        fprintf(out, ", simultaneous [\\%sSimultaneousLow{}, \\%sSimultaneousHigh{}]", name, name);
    double low = simultaneous ? comparison->simultaneous.low : comparison->speedup.low;
    double high = simultaneous ? comparison->simultaneous.high : comparison->speedup.high;
    fprintf(out, ")%s.\n", low <= 1 && 1 <= high ? "; no difference is shown" : "");
    free(name);
}

/* Of the headline family, what holds over all workloads; where a plan asks for single workloads only, those. */
void tables_put_sentences(FILE *out, const struct summary *summary)
{
    bool overall = false;
    for (int i = 0; i < summary->comparison_count; i++)
        overall =
            overall || (summary->comparisons[i].headline && summary->comparisons[i].workload == SUMMARY_ALL_WORKLOADS);
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (comparison->headline && (!overall || comparison->workload == SUMMARY_ALL_WORKLOADS))
            put_sentence(out, summary, comparison);
    }
    if (!has_family(summary))
        fputs("The plan names no headline comparison.\n", out);
}
