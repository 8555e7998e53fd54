#include "render/macros.h"

#include "render/latex.h"
#include "render/table.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const small_numbers[] = {
    "Zero", "One",    "Two",    "Three",    "Four",     "Five",    "Six",     "Seven",     "Eight",    "Nine",
    "Ten",  "Eleven", "Twelve", "Thirteen", "Fourteen", "Fifteen", "Sixteen", "Seventeen", "Eighteen", "Nineteen",
};
static const char *const tens[] = {"",      "",      "Twenty",  "Thirty", "Forty",
                                   "Fifty", "Sixty", "Seventy", "Eighty", "Ninety"};

static void put_number(FILE *out, unsigned long number)
{
    if (number >= 1000) {
        put_number(out, number / 1000);
        fputs("Thousand", out);
        number %= 1000;
        if (number == 0)
            return;
    }
    if (number >= 100) {
        fprintf(out, "%sHundred", small_numbers[number / 100]);
        number %= 100;
        if (number == 0)
            return;
    }
    if (number < 20)
        fputs(small_numbers[number], out);
    else
        fprintf(out, "%s%s", tens[number / 10], number % 10 ? small_numbers[number % 10] : "");
}

/* Long runs of digits are spelled digit by digit. */
static size_t put_digits(FILE *out, const char *text)
{
    size_t length = strspn(text, "0123456789");
    if (length <= 6)
        put_number(out, strtoul(text, NULL, 10));
    for (size_t i = 0; i < length && length > 6; i++)
        fputs(small_numbers[text[i] - '0'], out);
    return length;
}

char *macros_spell(const char *text)
{
    char *bytes;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    bool begins = true;
    for (size_t i = 0; text[i];) {
        unsigned char letter = (unsigned char)text[i];
        if (isdigit(letter)) {
            i += put_digits(out, text + i);
            begins = true;
            continue;
        }
        if (letter < 0x80 && isalpha(letter))
            fputc(begins ? toupper(letter) : letter, out);
        begins = !(letter < 0x80 && isalpha(letter));
        i++;
    }
    fclose(out);
    return bytes;
}

/* A name that an earlier one spells alike, or that has no letters, is told apart by its number. */
static char *spell_workload(const struct summary *summary, int workload)
{
    char *name = macros_spell(summary->workloads[workload].name);
    bool clear = name[0] != '\0';
    for (int i = 0; i < workload && clear; i++) {
        char *other = macros_spell(summary->workloads[i].name);
        clear = strcmp(other, name) != 0;
        free(other);
    }
    if (clear)
        return name;
    char *number = xformat("%d", workload + 1), *spelled = macros_spell(number);
    char *numbered = xformat("%sWorkload%s", name, spelled);
    free(number);
    free(spelled);
    free(name);
    return numbered;
}

char *macros_comparison_name(const struct summary *summary, const struct comparison *comparison)
{
    bool all = comparison->workload == SUMMARY_ALL_WORKLOADS;
    char *arm = macros_spell(summary_arm_text(summary, comparison->arm));
    char *baseline = macros_spell(summary_arm_text(summary, comparison->baseline));
    char *workload = all ? xstrdup("") : spell_workload(summary, comparison->workload);
    char *name = xformat("Speedup%sOver%s%s%s", arm, baseline, all ? "" : "On", workload);
    free(arm);
    free(baseline);
    free(workload);
    return name;
}

static void put_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\\newcommand{\\%s}{", name);
    latex_put(out, text);
    fputs("}\n", out);
}

static void put_count(FILE *out, const char *name, long long count)
{
    fprintf(out, "\\newcommand{\\%s}{\\num{%lld}}\n", name, count);
}

/* Of all numbers of a comparison, which stand beside each other. */
static int comparison_decimals(const struct comparison *comparison)
{
    const struct interval *speedup = &comparison->speedup;
    const int pointwise = table_ratio_decimals(speedup->value, speedup->low, speedup->high);
    const int simultaneous =
        table_ratio_decimals(speedup->value, comparison->simultaneous.low, comparison->simultaneous.high);
    return pointwise > simultaneous ? pointwise : simultaneous;
}

static void put_comparison(FILE *out, const struct summary *summary, const struct comparison *comparison)
{
    const struct interval *speedup = &comparison->speedup;
    const struct {
        const char *ending;
        double value;
    } parts[] = {
        {"", speedup->value},
        {"Low", speedup->low},
        {"High", speedup->high},
        {"SimultaneousLow", comparison->simultaneous.low},
        {"SimultaneousHigh", comparison->simultaneous.high},
    };
    const int decimals = comparison_decimals(comparison);
    char *name = macros_comparison_name(summary, comparison);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (isfinite(parts[i].value))
            fprintf(out, "\\newcommand{\\%s%s}{\\num{%.*f}}\n", name, parts[i].ending, decimals, parts[i].value);
        else
            fprintf(out, "\\newcommand{\\%s%s}{---}\n", name, parts[i].ending);
    fprintf(out, "\\newcommand{\\%sN}{%d}\n", name, speedup->n);
    free(name);
}

/* "6 blocks", or "5--6 blocks" where comparisons differ in the number of blocks behind them; and what intervals are,
 * where there are any. */
static void put_blocks(FILE *out, const struct summary *summary)
{
    int least = 0, most = 0;
    bool any = false, unpaired = false;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct interval *speedup = &summary->comparisons[i].speedup;
        unpaired = unpaired || (!speedup->present && isfinite(summary->comparisons[i].speedup_unpaired.low));
        if (!speedup->present)
            continue;
        least = least == 0 || speedup->n < least ? speedup->n : least;
        most = speedup->n > most ? speedup->n : most;
        any = any || isfinite(speedup->low);
    }
    fputs("\\newcommand{\\BlocksValid}{", out);
    if (most == 0)
        fputs("---", out);
    else if (least == most)
        fprintf(out, "%d block%s", most, most == 1 ? "" : "s");
    else
        fprintf(out, "%d--%d blocks", least, most);
    fprintf(out, "}\n\\newcommand{\\Pointwise}{%s}\n",
            any ? "\\IntervalLevel\\% \\IntervalKind{} intervals, pointwise" : "points without intervals");
    fprintf(out, "\\newcommand{\\IfUnpaired}[1]{%s}\n", unpaired ? "#1" : "");
}

/* ", extended after n = 6", which stands beside every n; empty where no block was added after looking. What is to be
 * said then alone is the argument of the other. */
static void put_extensions(FILE *out, const struct summary *summary)
{
    size_t i;
    const json_t *blocks;
    fputs("\\newcommand{\\Extended}{", out);
    json_array_foreach(summary->extended_from, i, blocks)
        fprintf(out, "%s%lld", i ? " and " : ", extended after $n$~=~", (long long)json_integer_value(blocks));
    fprintf(out, "}\n\\newcommand{\\IfExtended}[1]{%s}\n", json_array_size(summary->extended_from) ? "#1" : "");
}

static bool is_first_with_rule(const struct summary *summary, int index)
{
    for (int i = 0; i < index; i++)
        if (strcmp(summary->verdicts[i].rule, summary->verdicts[index].rule) == 0 &&
            strcmp(summary->verdicts[i].level, "invalid") == 0)
            return false;
    return true;
}

/* "No exclusions", or what stands in every caption: "3 of 48 attempts excluded at least in part (INCOMPLETE,
 * WITHDRAWN)": of some a pair, a workload or a metric alone. */
static void put_excluded(FILE *out, const struct summary *summary)
{
    int invalid = summary_invalid_attempts(summary), rules = 0;
    fputs("\\newcommand{\\Excluded}{", out);
    if (invalid == 0)
        fputs("No exclusions", out);
    else
        fprintf(out, "%d of %d attempts excluded at least in part", invalid, summary_attempts(summary));
    for (int i = 0; i < summary->verdict_count && invalid > 0; i++) {
        const struct summary_verdict *verdict = &summary->verdicts[i];
        if (strcmp(verdict->level, "invalid") != 0 || !is_first_with_rule(summary, i))
            continue;
        fputs(rules++ ? ", " : " (", out);
        latex_put_breakable(out, verdict->rule);
    }
    fputs(rules ? ")}\n" : "}\n", out);
}

/* "none is invalid", "1 is invalid at least in part", "3 are invalid at least in part". */
static void put_invalid(FILE *out, int invalid)
{
    fputs("\\newcommand{\\AreInvalid}{", out);
    if (invalid == 0)
        fputs("none is", out);
    else
        fprintf(out, "\\AttemptsInvalid{} %s", invalid == 1 ? "is" : "are");
    fputs(invalid ? " invalid at least in part}\n" : " invalid}\n", out);
}

static void put_record(FILE *out, const struct summary *summary)
{
    const struct summary_run none = {0}, *run = summary->run_count ? summary->runs : &none;
    put_count(out, "LedgerLines", run->ledger_lines);
    put_count(out, "Sessions", summary_sessions(summary));
    put_count(out, "Attempts", summary_attempts(summary));
    put_count(out, "AttemptsInvalid", summary_invalid_attempts(summary));
    put_invalid(out, summary_invalid_attempts(summary));
    put_excluded(out, summary);
    fputs("\\newcommand{\\LedgerHeads}{", out);
    for (int i = 0; i < summary->run_count; i++) {
        if (i)
            fprintf(out, " \\\\ of the run before \\num{%lld} lines, head ", (long long)summary->runs[i].ledger_lines);
        fputs("\\texttt{", out);
        latex_put(out, summary->runs[i].ledger_head);
        fputs("}", out);
    }
    fputs("}\n", out);
    put_text(out, "FirstStarted", run->first_started);
    put_text(out, "LastStarted", run->last_started);
}

static void put_drift(FILE *out, const struct drift *drift)
{
    bool tested = drift->present && isfinite(drift->p) && isfinite(drift->change);
    fprintf(out, "\\newcommand{\\IfDrift}[1]{%s}\n", tested ? "#1" : "");
    if (!tested)
        return;
    fprintf(out, "\\newcommand{\\DriftP}{%s%.3f}\n", drift->p < .001 ? "$<$~" : "$=$~", fmax(drift->p, .001));
    fprintf(out, "\\newcommand{\\DriftChange}{\\num{%.2f}}\n", 100 * drift->change);
}

void macros_put(FILE *out, const struct summary *summary)
{
    put_text(out, "CampaignName", summary->name);
    put_text(out, "CampaignTitle", summary->title ? summary->title : summary->name);
    put_text(out, "ProgramName", summary->program_name);
    put_text(out, "ProgramVersion", summary->program_version);
    put_text(out, "IntervalKind", summary->interval_kind);
    put_text(out, "Multiplicity", summary->multiplicity ? summary->multiplicity : "");
    put_text(out, "TokensCounted", summary->tokens_counted ? summary->tokens_counted : "");
    fprintf(out, "\\newcommand{\\IntervalLevel}{%.4g}\n", 100 * summary->level);
    fprintf(out, "\\newcommand{\\FamilyAlpha}{%.4g}\n", summary->alpha);
    fprintf(out, "\\newcommand{\\EquivalenceMargin}{%.3g}\n", 100 * summary->equivalence_margin);
    fprintf(out, "\\newcommand{\\Temperature}{%.4g}\n", summary->temperature);
    put_count(out, "BlocksPlanned", summary->blocks);
    put_count(out, "BlocksMinimum", summary->min_blocks);
    put_count(out, "WarmupRequests", summary->warmup);
    put_count(out, "Arms", summary->arm_count);
    put_count(out, "Workloads", summary->workload_count);
    put_blocks(out, summary);
    fprintf(out, "\\newcommand{\\IfImported}[2]{%s}\n", summary_is_imported(summary) ? "#1" : "#2");
    put_extensions(out, summary);
    int family = 0;
    for (int i = 0; i < summary->comparison_count; i++)
        family += summary->comparisons[i].headline;
    put_count(out, "FamilySize", family);
    fprintf(out, "\\newcommand{\\IfFamily}[1]{%s}\n", family ? "#1" : "");
    put_drift(out, &summary->drift);
    if (summary->versus.present) {
        put_text(out, "RunBefore", summary->versus.before);
        put_text(out, "RunAfter", summary->versus.after);
        put_count(out, "VersusSize", summary->versus.cell_count);
    }
    put_record(out, summary);
    for (int i = 0; i < summary->comparison_count; i++)
        put_comparison(out, summary, &summary->comparisons[i]);
}
