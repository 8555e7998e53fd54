/* What was excluded or marked, and where it all comes from. */
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HASH_DIGITS 64
#define HASH_SHOWN 12
#define DEPTH_MAXIMUM 6

char *tables_value_text(const json_t *value)
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

void tables_add_fact(struct table *table, const char *label, const char *text)
{
    table_add_row(table, NULL);
    table_put_text(table, label);
    table_put_text(table, text);
}

/* --- what was excluded, what is marked ---------------------------------------------------------------------------- */

static bool is_invalid(const struct summary_verdict *verdict)
{
    return strcmp(verdict->level, "invalid") == 0;
}

static void put_seen(struct table *table, const struct summary_verdict *verdict)
{
    char *limit = isfinite(verdict->threshold) ? xformat(", limit %.4g", verdict->threshold) : xstrdup("");
    const char *detail = verdict->detail ? verdict->detail : "";
    if (isfinite(verdict->observed))
        table_put_format(table, "%s%ssaw %.4g%s", detail, *detail ? "; " : "", verdict->observed, limit);
    else
        table_put_text(table, detail);
    free(limit);
}

/* "2026-11-29 17:35:51Z" can be broken between date and time. */
static void put_time(struct table *table, const char *time)
{
    size_t date = time ? strcspn(time, "T") : 0;
    if (time && time[date])
        table_put_format(table, "%.*s %s", (int)date, time, time + date + 1);
    else
        table_put_text(table, time);
}

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_case(const struct summary_verdict *a, const struct summary_verdict *b)
{
    return text_equal(a->attempt, b->attempt) && text_equal(a->rule, b->rule) && text_equal(a->detail, b->detail) &&
           is_invalid(a) == is_invalid(b);
}

/* "code, maths": workloads of verdicts that say the same of one attempt; NULL at all but the first of them. free() it.
 */
static char *join_workloads(const struct summary *summary, int index)
{
    const struct summary_verdict *verdict = &summary->verdicts[index];
    for (int i = 0; i < index; i++)
        if (same_case(&summary->verdicts[i], verdict))
            return NULL;
    char *joined = xstrdup(verdict->workload ? verdict->workload : "all");
    for (int i = index + 1; i < summary->verdict_count; i++) {
        if (!same_case(&summary->verdicts[i], verdict) || !summary->verdicts[i].workload)
            continue;
        char *longer = xformat("%s, %s", joined, summary->verdicts[i].workload);
        free(joined);
        joined = longer;
    }
    return joined;
}

void tables_fill_exclusions(struct table *table, const struct summary *summary)
{
    static const char *const columns[][2] = {{"attempt", "attempt"},    {"workload", "workload"}, {"rule", "rule"},
                                             {"seen", "what was seen"}, {"time", "when"},         {"actor", "by"}};
    for (int i = 0; i < 6; i++)
        table_add_column(table, COLUMN_TEXT, columns[i][0], columns[i][1]);
    for (int i = 0; i < summary->verdict_count; i++) {
        const struct summary_verdict *verdict = &summary->verdicts[i];
        char *workloads = is_invalid(verdict) ? join_workloads(summary, i) : NULL;
        if (!workloads)
            continue;
        table_add_row(table, NULL);
        table_set_apart(table);
        table_put_text(table, verdict->attempt);
        table_put_text(table, workloads);
        table_put_text(table, verdict->rule);
        put_seen(table, verdict);
        put_time(table, verdict->time);
        table_put_text(table, verdict->actor);
        free(workloads);
    }
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

static int count_alike(const struct summary *summary, int first)
{
    int count = 0;
    for (int i = first; i < summary->verdict_count; i++)
        count += same_mark(&summary->verdicts[i], &summary->verdicts[first]);
    return count;
}

void tables_fill_marks(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "rule", "rule");
    table_add_column(table, COLUMN_TEXT, "level", "level");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_column(table, COLUMN_COUNT, "attempts", "attempts");
    table_add_column(table, COLUMN_TEXT, "first", "first attempt");
    table_add_column(table, COLUMN_TEXT, "seen", "what was seen");
    for (int i = 0; i < summary->verdict_count; i++) {
        const struct summary_verdict *verdict = &summary->verdicts[i];
        if (is_invalid(verdict) || !is_first_of_its_kind(summary, i))
            continue;
        table_add_row(table, NULL);
        table_set_apart(table);
        table_put_text(table, verdict->rule);
        table_put_text(table, verdict->level);
        table_put_text(table, verdict->workload ? verdict->workload : "all");
        table_put_number(table, count_alike(summary, i));
        table_put_text(table, verdict->attempt ? verdict->attempt : "");
        put_seen(table, verdict);
    }
}

/* --- where it all comes from -------------------------------------------------------------------------------------- */

/* "target.files.config.json" and its value, one row for each leaf. */
static void add_leaves(struct table *table, const char *name, const json_t *value, int depth)
{
    const char *key;
    json_t *inner;
    if (json_is_object(value) && depth < DEPTH_MAXIMUM) {
        json_object_foreach((json_t *)value, key, inner)
        {
            char *longer = xformat("%s.%s", name, key);
            add_leaves(table, longer, inner, depth + 1);
            free(longer);
        }
        return;
    }
    for (size_t i = 0; i < json_array_size(value) && depth < DEPTH_MAXIMUM; i++) {
        char *longer = xformat("%s[%zu]", name, i);
        add_leaves(table, longer, json_array_get(value, i), depth + 1);
        free(longer);
    }
    if (json_is_array(value) || !value || json_is_null(value))
        return;
    char *text = tables_value_text(value);
    tables_add_fact(table, name, text);
    free(text);
}

static void add_run(struct table *table, const struct summary_run *run)
{
    char *sessions =
        run->sessions > 0 ? xformat("; %d session%s", run->sessions, run->sessions == 1 ? "" : "s") : xstrdup("");
    char *attempts = xformat("%d, of which %d invalid%s", run->attempts, run->attempts_invalid, sessions);
    free(sessions);
    char *started =
        xformat("%s to %s", run->first_started ? run->first_started : "—", run->last_started ? run->last_started : "—");
    char *ledger = xformat("%lld lines, head %.*s…", (long long)run->ledger_lines, HASH_SHOWN, run->ledger_head);
    tables_add_fact(table, "run", run->name);
    table_set_apart(table);
    tables_add_fact(table, "attempts", attempts);
    if (started)
        tables_add_fact(table, "started", started);
    tables_add_fact(table, "ledger", ledger);
    if (run->plan_sha256) {
        char *plan = xformat("SHA-256 %.*s…", HASH_SHOWN, run->plan_sha256);
        tables_add_fact(table, "plan", plan);
        free(plan);
    }
    free(ledger);
    free(started);
    free(attempts);
}

/* Each file once, however many runs it holds. */
static void add_imports(struct table *table, const json_t *imports)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(imports, i, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        const char *hash = json_string_value(json_object_get(entry, "sha256"));
        const size_t count = json_array_size(json_object_get(entry, "attempts"));
        char *text = xformat("%s, SHA-256 %.*s…, %zu attempt%s", file ? file : "?", HASH_SHOWN, hash ? hash : "?",
                             count, count == 1 ? "" : "s");
        tables_add_fact(table, "imported file", text);
        free(text);
    }
}

/* "application clock 1500 MHz, set (default 1980 MHz)"; what a GPU does not say is left out. free() it. */
static char *describe_clocks(const json_t *settings)
{
    const json_t *clock = json_object_get(settings, "application_clock_mhz");
    const json_t *usual = json_object_get(settings, "default_application_clock_mhz");
    const char *clocks = json_string_value(json_object_get(settings, "clocks"));
    if (!json_is_number(clock))
        return xstrdup("clocks not told");
    if (!clocks || !json_is_number(usual))
        return xformat("application clock %.6g MHz", json_number_value(clock));
    if (strcmp(clocks, "default") == 0)
        return xformat("application clock %.6g MHz, the default", json_number_value(clock));
    return xformat("application clock %.6g MHz, set (default %.6g MHz)", json_number_value(clock),
                   json_number_value(usual));
}

/* Those that were set alike, a row; in how many attempts, for settings may change in the course of a run. */
static void add_gpus(struct table *table, const json_t *gpus)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(gpus, i, entry)
    {
        const json_t *settings = json_object_get(entry, "settings");
        const json_t *limit = json_object_get(settings, "power_limit_w");
        const json_t *persistence = json_object_get(settings, "persistence");
        const char *name = json_string_value(json_object_get(settings, "name"));
        const long long attempts = (long long)json_integer_value(json_object_get(entry, "attempts"));
        char *clocks = describe_clocks(settings);
        char *power = json_is_number(limit) ? xformat("; power limit %.6g W", json_number_value(limit)) : xstrdup("");
        const char *mode = !json_is_boolean(persistence) ? ""
                           : json_is_true(persistence)   ? "; persistence on"
                                                         : "; persistence off";
        char *text = xformat("%zu × %s in %lld attempt%s: %s%s%s", json_array_size(json_object_get(entry, "uuids")),
                             name ? name : "GPU", attempts, attempts == 1 ? "" : "s", clocks, power, mode);
        tables_add_fact(table, "GPU settings", text);
        free(text);
        free(power);
        free(clocks);
    }
}

void tables_fill_provenance(struct table *table, const struct summary *summary)
{
    char *program = xformat("%s %s", summary->program_name ? summary->program_name : "",
                            summary->program_version ? summary->program_version : "");
    table_add_column(table, COLUMN_TEXT, "what", "");
    table_add_column(table, COLUMN_TEXT, "value", "");
    tables_add_fact(table, "program", program);
    for (int i = 0; i < summary->run_count; i++)
        add_run(table, &summary->runs[i]);
    add_imports(table, summary->imports);
    add_gpus(table, summary->gpus);
    add_leaves(table, "machine", summary->machine, 0);
    add_leaves(table, "source", summary->source, 0);
    free(program);
}
