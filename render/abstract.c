#include "render/abstract.h"

#include "render/latex.h"
#include "render/macros.h"
#include "render/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_headline(const struct summary *summary, const struct comparison *comparison)
{
    bool overall = false;
    for (int i = 0; i < summary->comparison_count; i++)
        overall =
            overall || (summary->comparisons[i].headline && summary->comparisons[i].workload == SUMMARY_ALL_WORKLOADS);
    return comparison->headline && (!overall || comparison->workload == SUMMARY_ALL_WORKLOADS);
}

static void put_baseline(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    latex_put(out, summary_baseline_text(summary, comparison));
}

static void put_arm(FILE *out, const struct summary *summary, int arm)
{
    fputs("\\textbf{", out);
    latex_put(out, summary_arm_text(summary, arm));
    fputs("}", out);
}

/* --- what was measured -------------------------------------------------------------------------------------------- */

/* " (NVIDIA H200)": the GPU, or the processor, that the engine ran on. Of a server it is not known. */
static void put_machine(FILE *out, const struct summary *summary)
{
    const char *kind = json_string_value(json_object_get(summary->source, "kind"));
    const char *gpu = json_string_value(json_object_get(summary->source, "gpu"));
    const char *name = gpu ? gpu : json_string_value(json_object_get(summary->machine, "cpu"));
    if (!name || !kind || strcmp(kind, "engine") != 0)
        return;
    fputs(" (", out);
    latex_put(out, name);
    fputs(")", out);
}

static void put_measured(FILE *out, const struct summary *summary)
{
    if (summary_is_imported(summary)) {
        fprintf(
            out,
            "These are results of other tools for \\Arms{} configuration%s on \\Workloads{} workload%s, unpaired and "
            "imported: nothing shows that they were measured side by side.\n",
            summary->arm_count == 1 ? "" : "s", summary->workload_count == 1 ? "" : "s");
        return;
    }
    const json_t *target = json_object_get(summary->source, "target");
    const char *model =
        json_is_string(target) ? json_string_value(target) : json_string_value(json_object_get(target, "path"));
    fputs("We measured decoding", out);
    if (model) {
        fputs(" of \\texttt{", out);
        latex_put_breakable(out, model);
        fputs("}", out);
    }
    put_machine(out, summary);
    fprintf(
        out,
        " under \\Arms{} configuration%s on \\Workloads{} workload%s, in \\BlocksPlanned{} block%s of shuffled order "
        "and \\Sessions{} session%s.\n",
        summary->arm_count == 1 ? "" : "s", summary->workload_count == 1 ? "" : "s", summary->blocks == 1 ? "" : "s",
        summary_sessions(summary) == 1 ? "" : "s");
}

/* --- headline comparisons ----------------------------------------------------------------------------------------- */

/* "; suspect: REPETITION, without which it is 1.64 [1.63, 1.65]". Too few blocks are told where the interval would be.
 */
static void put_suspicion(FILE *out, const struct comparison *comparison)
{
    const json_t *marks = comparison ? comparison->marks : NULL;
    int rules = 0;
    for (size_t i = 0; i < json_array_size(marks); i++) {
        const char *rule = json_string_value(json_array_get(marks, i));
        if (strcmp(rule, "MIN_BLOCKS") == 0)
            continue;
        fputs(rules++ ? ", " : "; suspect: ", out);
        latex_put_breakable(out, rule);
    }
    if (rules == 0)
        return;
    const struct interval *without = &comparison->without_speedup;
    const int decimals = without->present ? table_ratio_decimals(without->value, without->low, without->high) : 0;
    if (!without->present)
        fputs(", without which nothing is left", out);
    else if (isfinite(without->low))
        fprintf(out, ", without which it is \\num{%.*f} [\\num{%.*f}, \\num{%.*f}]", decimals, without->value, decimals,
                without->low, decimals, without->high);
    else
        fprintf(out, ", without which it is \\num{%.*f}", decimals, without->value);
}

static void put_factor(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    char *name = macros_comparison_name(summary, comparison);
    bool simultaneous = isfinite(comparison->simultaneous.low), interval = isfinite(comparison->speedup.low);
    fprintf(out, " (\\textbf{\\%s{}} times the speed; ", name);
    if (simultaneous)
        fprintf(out, "simultaneous \\IntervalLevel\\%% interval [\\%sSimultaneousLow{}, \\%sSimultaneousHigh{}], ",
                name, name);
    else if (interval)
        fprintf(out, "\\IntervalLevel\\%% interval [\\%sLow{}, \\%sHigh{}], ", name, name);
    else
        fputs("too few blocks for an interval, ", out);
    fprintf(out, "$n=\\%sN{}$ blocks%s", name, json_array_size(summary->extended_from) ? "\\Extended{}" : "");
    put_suspicion(out, comparison);
    fputs(")", out);
    free(name);
}

/* "b16 decodes faster than auto (…)", in the words that its verdict allows. */
static void put_claim(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    static const struct {
        const char *verdict, *before, *after;
    } words[] = {
        {"faster", " decodes faster than ", ""},
        {"slower", " decodes slower than ", ""},
        {"equal", " decodes as fast as ", " within \\EquivalenceMargin\\%"},
        {"no difference shown", " is not shown to differ in speed from ", ""},
        {NULL, " beside ", ""},
    };
    if (comparison->workload != SUMMARY_ALL_WORKLOADS) {
        fputs("on ", out);
        latex_put(out, summary_workload_text(summary, comparison->workload));
        fputs(" ", out);
    }
    put_arm(out, summary, comparison->arm);
    if (!comparison->speedup.present) {
        fputs(" over ", out);
        put_baseline(out, summary, comparison);
        fputs(" has no valid number (", out);
        latex_put(out, comparison->missing.rule);
        fputs(")", out);
        return;
    }
    int word = 0;
    while (words[word].verdict && !(comparison->verdict && strcmp(comparison->verdict, words[word].verdict) == 0))
        word++;
    fputs(words[word].before, out);
    put_baseline(out, summary, comparison);
    fputs(words[word].after, out);
    put_factor(out, summary, comparison);
}

/* One sentence of all claims over a baseline; whether there was one. */
static bool put_claims(FILE *out, const struct summary *summary, bool over_auto)
{
    bool any = false, overall = false;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (!is_headline(summary, comparison) || summary_is_method(summary, comparison->baseline, "auto") != over_auto)
            continue;
        if (!any) {
            overall = comparison->workload == SUMMARY_ALL_WORKLOADS;
            fprintf(out, "%s ", overall ? "Over all workloads," : "Decoding alone,");
        } else {
            fputs("; ", out);
        }
        put_claim(out, summary, comparison);
        any = true;
    }
    fputs(any ? ".\n" : "", out);
    return any;
}

/* --- the best budget ---------------------------------------------------------------------------------------------- */

/* One that is rounded up would say too much. */
static double round_down(double value, int decimals)
{
    const double unit = pow(10, -decimals);
    return floor(value / unit + 1e-9) * unit;
}

static void put_best(FILE *out, const struct summary *summary)
{
    for (int i = 0; i < summary->best_budget_count; i++) {
        const struct best_budget *best = &summary->best_budgets[i];
        if (best->workload != SUMMARY_ALL_WORKLOADS || best->arm < 0 || best->budgets < 2 ||
            !isfinite(best->bound.low) || !best->speedup.present)
            continue;
        bool tuned = best->selected_on && strcmp(best->selected_on, "tuning") == 0;
        const int decimals = table_ratio_decimals(best->speedup.value, best->bound.low, best->bound.high);
        fprintf(out, "Of %d budgets, ", best->budgets);
        put_arm(out, summary, best->arm);
        fputs(tuned ? "'s was chosen, on blocks that are reported nowhere else; on those that are it decodes"
                    : "'s came out fastest,",
              out);
        fprintf(out,
                " at \\num{%.*f} times the speed of auto%s at least \\num{%.*f} with \\IntervalLevel\\%% confidence",
                decimals, best->speedup.value, tuned ? "," : "; allowing for the choice among them it is", decimals,
                round_down(best->bound.low, decimals));
        put_suspicion(out, summary_compare(summary, best->arm, "auto", best->workload));
        fputs(".\n", out);
        return;
    }
}

/* --- what was excluded -------------------------------------------------------------------------------------------- */

static void put_excluded(FILE *out, const struct summary *summary)
{
    int invalid = summary_invalid_attempts(summary);
    if (invalid == 0)
        fputs("Of \\Attempts{} attempts none was excluded", out);
    else
        fprintf(out,
                "Of \\Attempts{} attempts, \\AttemptsInvalid{} %s excluded at least in part, each by a written rule",
                invalid == 1 ? "was" : "were");
    fputs(summary_is_imported(summary) ? ".\n"
                                       : "; speedups of this machine, model and these prompts say nothing of others.\n",
          out);
}

void abstract_put(FILE *out, const struct summary *summary)
{
    put_measured(out, summary);
    bool automatic = put_claims(out, summary, true), linear = put_claims(out, summary, false);
    if (!automatic && !linear && !summary_is_imported(summary))
        fputs("The plan names no headline comparison.\n", out);
    if (!automatic || !linear)
        put_best(out, summary);
    put_excluded(out, summary);
}
