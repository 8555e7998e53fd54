#include "render/latex.h"
#include "render/tables.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HASH_DIGITS 64
#define HASH_SHOWN 12
#define DEPTH_MAXIMUM 6

/* --- machine and plan
 * --------------------------------------------------------------------------------------------------- */

/* A value as a person reads it; hashes by their first digits. free() it. */
static char *value_text(const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && strlen(text) == HASH_DIGITS && strspn(text, "0123456789abcdef") == HASH_DIGITS)
        return xformat("%.*s…", HASH_SHOWN, text);
    if (text)
        return xstrdup(text);
    if (json_is_integer(value))
        return xformat("%lld", (long long)json_integer_value(value));
    if (json_is_real(value))
        return xformat("%.6g", json_real_value(value));
    if (json_is_boolean(value))
        return xstrdup(json_is_true(value) ? "yes" : "no");
    return xstrdup("—");
}

/* The object's scalar under `key`, or NULL. free() it. */
static char *scalar_text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) || json_is_object(value) || json_is_array(value) ? NULL : value_text(value);
}

/* A row of what the object has of up to three keys; no row where it has none. */
static void put_known(FILE *out, const char *label, const json_t *object, const char *const keys[3])
{
    bool any = false;
    for (int i = 0; i < 3 && keys[i]; i++) {
        char *text = scalar_text(object, keys[i]);
        if (!text)
            continue;
        fputs(any ? ", " : label, out);
        fputs(any ? "" : " & ", out);
        latex_put_breakable(out, text);
        any = true;
        free(text);
    }
    fputs(any ? " \\\\\n" : "", out);
}

static void put_cpu(FILE *out, const json_t *machine)
{
    const json_t *cores = json_object_get(machine, "cores"), *bytes = json_object_get(machine, "memory_bytes");
    fputs("CPU & ", out);
    latex_put_breakable(out, json_string_value(json_object_get(machine, "cpu")));
    if (json_is_integer(cores))
        fprintf(out, ", %lld cores", (long long)json_integer_value(cores));
    if (json_is_number(bytes))
        fprintf(out, ", \\qty{%.1f}{\\gibi\\byte} of memory", json_number_value(bytes) / 1073741824.0);
    fputs(" \\\\\n", out);
}

static void put_gpus(FILE *out, const json_t *machine)
{
    const json_t *gpus = json_object_get(machine, "gpus");
    if (!json_is_array(gpus))
        return;
    fputs("GPUs & ", out);
    if (json_array_size(gpus) == 0)
        fputs("none", out);
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i), *name = json_object_get(gpu, "name");
        fputs(i ? "; " : "", out);
        latex_put(out, json_is_string(gpu) ? json_string_value(gpu) : json_string_value(name));
    }
    fputs(" \\\\\n", out);
}

/* A model is a folder's name, or an object that has one. */
static void put_model(FILE *out, const char *label, const json_t *source, const char *key)
{
    const json_t *model = json_object_get(source, key);
    if (json_is_object(model))
        put_known(out, label, model, (const char *const[]){"path", "name", "architecture"});
    else
        put_known(out, label, source, (const char *const[]){key, NULL, NULL});
}

static void put_workloads(FILE *out, const struct summary *summary)
{
    for (int i = 0; i < summary->workload_count; i++) {
        const struct summary_workload *workload = &summary->workloads[i];
        fputs(i ? " & " : "Workloads & ", out);
        latex_put(out, workload->name);
        if (workload->count > 0)
            fprintf(out, ": %d prompts", workload->count);
        if (workload->max_new_tokens > 0)
            fprintf(out, ", up to %d new tokens%s", workload->max_new_tokens,
                    workload->ignore_eos ? ", end token ignored" : "");
        fputs(" \\\\\n", out);
    }
}

/* How other tools came to their results, nobody can say. */
static void put_plan(FILE *out, const struct summary *summary)
{
    const char *kind = json_string_value(json_object_get(summary->source, "kind"));
    if (kind && strcmp(kind, "import") == 0)
        fputs("Plan & none: results of other tools, unpaired, imported; when, in which order and how warm they were "
              "measured is theirs to say \\\\\n",
              out);
    else
        fprintf(out,
                "Plan & %d blocks, arms shuffled in each from seed %lld; temperature %.4g; %d warm-up request%s an "
                "attempt \\\\\n",
                summary->blocks, (long long)summary->seed, summary->temperature, summary->warmup,
                summary->warmup == 1 ? "" : "s");
}

void tables_put_setting(FILE *out, const struct summary *summary)
{
    fputs("\\begin{tabular}{@{}l>{\\raggedright\\arraybackslash}p{0.86\\textwidth}@{}}\n\\toprule\n", out);
    put_cpu(out, summary->machine);
    put_gpus(out, summary->machine);
    put_known(out, "System", summary->machine, (const char *const[]){"os", "kernel", NULL});
    put_model(out, "Target", summary->source, "target");
    put_model(out, "Drafter", summary->source, "drafter");
    put_known(out, "GPU", summary->source, (const char *const[]){"gpu", NULL, NULL});
    put_known(out, "Runs on", summary->source, (const char *const[]){"kind", "device", "dtype"});
    put_known(out, "Imported from", summary->source, (const char *const[]){"tool", "model_id", "version"});
    put_known(out, "Server", summary->source, (const char *const[]){"dialect", "route", NULL});
    put_known(out, "Serves", json_object_get(summary->source, "server"),
              (const char *const[]){"model", "version", NULL});
    put_workloads(out, summary);
    put_plan(out, summary);
    fputs("\\bottomrule\n\\end{tabular}\n", out);
}

/* --- what was excluded, what is marked
 * ---------------------------------------------------------------------------------- */

static bool is_invalid(const struct summary_verdict *verdict)
{
    return strcmp(verdict->level, "invalid") == 0;
}

static void put_seen(FILE *out, const struct summary_verdict *verdict)
{
    latex_put_breakable(out, verdict->detail ? verdict->detail : "");
    if (isfinite(verdict->observed)) {
        fprintf(out, "%s%.4g", verdict->detail ? "; saw " : "saw ", verdict->observed);
        if (isfinite(verdict->threshold))
            fprintf(out, ", limit %.4g", verdict->threshold);
    }
}

static void put_exclusion(FILE *out, const struct summary_verdict *verdict)
{
    latex_put_breakable(out, verdict->attempt);
    fputs(" & ", out);
    latex_put_narrow(out, verdict->workload ? verdict->workload : "all");
    fputs(" & ", out);
    latex_put_breakable(out, verdict->rule);
    fputs(" & ", out);
    put_seen(out, verdict);
    fputs(" & ", out);
    latex_put_time(out, verdict->time);
    fputs(" & ", out);
    latex_put(out, verdict->actor);
    fputs(" \\\\[1.5pt]\n", out);
}

void tables_put_exclusions(FILE *out, const struct summary *summary)
{
    int count = 0;
    for (int i = 0; i < summary->verdict_count; i++)
        count += is_invalid(&summary->verdicts[i]);
    if (count == 0) {
        fputs("{\\normalsize No exclusions.\\par}\n", out);
        return;
    }
    static const char head[] = "\\toprule\nattempt & workload & rule & what was seen & when & by \\\\\n\\midrule\n";
    fprintf(out,
            "\\begin{longtable}{@{}P{0.17\\textwidth}lP{0.15\\textwidth}P{0.31\\textwidth}P{0.135\\textwidth}l@{}}\n"
            "\\caption{\\ExclusionsCaption}\\\\\n%s\\endfirsthead\n%s\\endhead\n\\bottomrule\n\\endfoot\n",
            head, head);
    for (int i = 0; i < summary->verdict_count; i++)
        if (is_invalid(&summary->verdicts[i]))
            put_exclusion(out, &summary->verdicts[i]);
    fputs("\\end{longtable}\n", out);
}

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_mark(const struct summary_verdict *a, const struct summary_verdict *b)
{
    return text_equal(a->rule, b->rule) && text_equal(a->level, b->level) && text_equal(a->workload, b->workload);
}

static bool is_first_of_its_kind(const struct summary *summary, int index)
{
    for (int i = 0; i < index; i++)
        if (same_mark(&summary->verdicts[i], &summary->verdicts[index]))
            return false;
    return true;
}

static void put_mark(FILE *out, const struct summary *summary, int first)
{
    const struct summary_verdict *verdict = &summary->verdicts[first];
    int attempts = 0;
    for (int i = first; i < summary->verdict_count; i++)
        attempts += same_mark(&summary->verdicts[i], verdict);
    latex_put_breakable(out, verdict->rule);
    fputs(" & ", out);
    latex_put(out, verdict->level);
    fputs(" & ", out);
    latex_put_narrow(out, verdict->workload ? verdict->workload : "all");
    fprintf(out, " & %d & ", attempts);
    latex_put_breakable(out, verdict->attempt);
    fputs(" & ", out);
    put_seen(out, verdict);
    fputs(" \\\\[1.5pt]\n", out);
}

void tables_put_marks(FILE *out, const struct summary *summary)
{
    int count = 0;
    for (int i = 0; i < summary->verdict_count; i++)
        count += !is_invalid(&summary->verdicts[i]);
    if (count == 0) {
        fputs("{\\normalsize No number carries a mark.\\par}\n", out);
        return;
    }
    static const char head[] =
        "\\toprule\nrule & level & workload & attempts & first & what was seen there \\\\\n\\midrule\n";
    fprintf(out,
            "\\begin{longtable}{@{}P{0.18\\textwidth}llrP{0.18\\textwidth}P{0.30\\textwidth}@{}}\n"
            "\\caption{\\MarksCaption}\\\\\n%s\\endfirsthead\n%s\\endhead\n\\bottomrule\n\\endfoot\n",
            head, head);
    for (int i = 0; i < summary->verdict_count; i++)
        if (!is_invalid(&summary->verdicts[i]) && is_first_of_its_kind(summary, i))
            put_mark(out, summary, i);
    fputs("\\end{longtable}\n", out);
}

/* --- where it all comes from
 * -------------------------------------------------------------------------------------------- */

/* "target.files.config.json" and its value, one row for each leaf. */
static void put_leaves(FILE *out, const char *name, const json_t *value, int depth)
{
    const char *key;
    json_t *inner;
    if (json_is_object(value) && depth < DEPTH_MAXIMUM) {
        json_object_foreach((json_t *)value, key, inner)
        {
            char *longer = xformat("%s.%s", name, key);
            put_leaves(out, longer, inner, depth + 1);
            free(longer);
        }
        return;
    }
    if (json_is_array(value) && depth < DEPTH_MAXIMUM) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            char *longer = xformat("%s[%zu]", name, i);
            put_leaves(out, longer, json_array_get(value, i), depth + 1);
            free(longer);
        }
        return;
    }
    char *text = value_text(value);
    latex_put_breakable(out, name);
    fputs(" & ", out);
    latex_put_breakable(out, text);
    fputs(" \\\\\n", out);
    free(text);
}

static void put_hash(FILE *out, const char *hash)
{
    char *shown = hash ? xformat("%.*s…", HASH_SHOWN, hash) : NULL;
    fputs("\\texttt{", out);
    latex_put(out, shown);
    fputs("}", out);
    free(shown);
}

static void put_run(FILE *out, const struct summary_run *run)
{
    fputs("\\addlinespace[2pt]\nrun & ", out);
    latex_put_breakable(out, run->name);
    fprintf(out, " \\\\\nattempts & %d, of which %d invalid; %d session%s \\\\\nstarted & ", run->attempts,
            run->attempts_invalid, run->sessions, run->sessions == 1 ? "" : "s");
    latex_put_time(out, run->first_started);
    fputs(" to ", out);
    latex_put_time(out, run->last_started);
    fprintf(out, " \\\\\nledger & %lld lines, head ", (long long)run->ledger_lines);
    put_hash(out, run->ledger_head);
    fputs(" \\\\\nplan & SHA-256 ", out);
    put_hash(out, run->plan_sha256);
    fputs(" \\\\\n", out);
}

void tables_put_provenance(FILE *out, const struct summary *summary)
{
    fputs("\\begin{longtable}{@{}P{0.34\\textwidth}P{0.60\\textwidth}@{}}\n\\caption{\\ProvenanceCaption}\\\\\n"
          "\\toprule\n\\endfirsthead\n\\toprule\n\\endhead\n\\bottomrule\n\\endfoot\nprogram & ",
          out);
    latex_put(out, summary->program_name);
    fputs(" ", out);
    latex_put(out, summary->program_version);
    fputs(" \\\\\n", out);
    for (int i = 0; i < summary->run_count; i++)
        put_run(out, &summary->runs[i]);
    fputs("\\addlinespace[2pt]\n", out);
    put_leaves(out, "machine", summary->machine, 0);
    fputs("\\addlinespace[2pt]\n", out);
    put_leaves(out, "source", summary->source, 0);
    fputs("\\end{longtable}\n", out);
}
