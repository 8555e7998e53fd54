#include "analyze/summary.h"

#include "analyze/summary_parts.h"
#include "collect/base/json.h"

#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what the parts share ----------------------------------------------------------------------------------------- */

json_t *summary_text_or_null(const char *text)
{
    return text ? json_text(text) : json_null();
}

json_t *summary_make_interval(struct interval interval, const char *over)
{
    if (!isfinite(interval.value))
        return json_null();
    json_t *object = json_object();
    json_set(object, "value", json_number(interval.value));
    json_set(object, "low", json_number(interval.low));
    json_set(object, "high", json_number(interval.high));
    json_set(object, "n", json_integer(interval.count));
    json_set(object, "over", json_string(over));
    return object;
}

struct interval summary_estimate(const struct plan *plan, const double *logs, int count, double alpha)
{
    struct interval interval = statistics_log_interval(logs, count, alpha);
    if (count < plan->min_blocks)
        interval.low = interval.high = NAN;
    return interval;
}

json_t *summary_make_reason(const struct reason *reason)
{
    if (!reason->rule)
        return json_null();
    json_t *object = json_object();
    json_set(object, "rule", json_text(reason->rule));
    json_set(object, "detail", summary_text_or_null(reason->detail));
    return object;
}

void summary_note_marks(const struct verdicts *verdicts, const char *workload, bool *marks)
{
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].level == RULE_SUSPECT && cells_verdict_applies(&verdicts->items[i], workload))
            marks[verdicts->items[i].rule] = true;
}

json_t *summary_make_marks(const bool *marks)
{
    json_t *array = json_array();
    for (int i = 0; i < RULE_COUNT; i++)
        if (marks[i])
            json_append(array, json_string(rule_table[i].id));
    return array;
}

json_t *summary_make_without(const struct suspects *suspects, json_t *attempts, json_t *outliers)
{
    json_t *object = json_object();
    json_set(object, "rules", summary_make_marks(suspects->rules));
    json_set(object, "outliers", outliers);
    json_set(object, "attempts", attempts);
    return object;
}

/* --- provenance --------------------------------------------------------------------------------------------------- */

static int count_sessions(const struct cells *cells)
{
    int last = -1, count = 0;
    for (bool more = true; more; count += more) {
        int next = -1;
        for (int i = 0; i < cells->run->attempt_count; i++) {
            int session = cells->sessions.of_attempt[i];
            if (session > last && (next < 0 || session < next))
                next = session;
        }
        more = next >= 0;
        last = next;
    }
    return count;
}

static void set_times(const struct run *run, json_t *object)
{
    const char *first = NULL, *last = NULL;
    for (int i = 0; i < run->attempt_count; i++) {
        const char *started = run->attempts[i].attempt.started;
        if (!started)
            continue;
        first = !first || strcmp(started, first) < 0 ? started : first;
        last = !last || strcmp(started, last) > 0 ? started : last;
    }
    json_set(object, "first_started", summary_text_or_null(first));
    json_set(object, "last_started", summary_text_or_null(last));
}

/* Attempts with an invalid verdict; those of one attempt stand together. */
static int count_invalid(const json_t *verdicts)
{
    const char *last = "";
    int count = 0;
    for (size_t i = 0; i < json_array_size(verdicts); i++) {
        const json_t *verdict = json_array_get(verdicts, i);
        const char *attempt = json_string_value(json_object_get(verdict, "attempt"));
        const char *level = json_string_value(json_object_get(verdict, "level"));
        if (strcmp(level, rule_level_names[RULE_INVALID]) != 0 || strcmp(attempt, last) == 0)
            continue;
        last = attempt;
        count++;
    }
    return count;
}

static json_t *make_run(const struct cells *cells, const char *plan_hash, const json_t *verdicts)
{
    const struct run *run = cells->run;
    json_t *object = json_object();
    json_set(object, "name", json_text(run->name));
    json_set(object, "ledger_head", json_text(run->ledger.head));
    json_set(object, "ledger_lines", json_integer((json_int_t)json_array_size(run->ledger.lines)));
    json_set(object, "plan_sha256", json_text(plan_hash));
    set_times(run, object);
    json_set(object, "sessions", json_integer(count_sessions(cells)));
    json_set(object, "attempts", json_integer(run->attempt_count));
    json_set(object, "attempts_invalid", json_integer(count_invalid(verdicts)));
    return object;
}

/* The header of an attempt that counts; of one that was measured here if one was, and of an arm with a drafter. */
static const json_t *find_header(const struct cells *cells)
{
    const json_t *header = NULL;
    int best = -1;
    for (int i = 0; i < cells->count; i++)
        for (int block = 0; block < cells->blocks; block++) {
            const struct judged *counted = cells->items[i].blocks[block].counted;
            if (!counted || !counted->attempt.header)
                continue;
            const int rank = 2 * !attempt_is_imported(&counted->attempt) + (cells->items[i].arm->method != METHOD_AUTO);
            if (rank > best)
                header = counted->attempt.header;
            best = rank > best ? rank : best;
        }
    return header;
}

/* What a server says that it is, without its answers as a whole. */
static json_t *summarise_server(const json_t *server)
{
    json_t *summary = json_copy((json_t *)server);
    json_object_del(summary, "said");
    return summary;
}

/* What belongs to the arm alone (the drafter) stands beside the rest. */
static json_t *make_source(const struct cells *cells, const json_t *header)
{
    json_t *source = json_deep_copy(json_object_get(header, "source"));
    if (json_object_get(header, "import"))
        summary_keep_common_source(cells, source);
    json_t *of_arm = json_object_get(source, "arm");
    if (json_is_object(of_arm)) {
        json_incref(of_arm);
        json_object_del(source, "arm");
        json_object_update_missing(source, of_arm);
        json_decref(of_arm);
    }
    if (json_is_object(json_object_get(header, "server")))
        json_set(source, "server", summarise_server(json_object_get(header, "server")));
    return source ? source : json_null();
}

static json_t *copy_or_null(const json_t *value)
{
    return value ? json_deep_copy(value) : json_null();
}

/* --- method and names --------------------------------------------------------------------------------------------- */

/* Of imports nothing was planned, and their tools counted. */
static json_t *make_method(const struct plan *plan)
{
    const bool imported = plan->source == PLAN_SOURCE_IMPORT;
    json_t *object = json_object();
    json_set(object, "interval", json_string(imported ? "Welch's, on logarithms" : "paired log-t"));
    json_set(object, "level", json_number(1 - plan->alpha));
    json_set(object, "multiplicity",
             imported ? json_null() : json_string("Bonferroni over the headline family; Holm p values"));
    json_set(object, "tokens",
             json_string(imported ? "Tokens and rounds are those that the tools counted."
                                  : "Where an output was cut at its limit, time and tokens count the last round whole; "
                                    "tokens behind an end token are not counted."));
    return object;
}

static json_t *make_arms(const struct plan *plan)
{
    json_t *array = json_array();
    for (int i = 0; i < plan->arm_count; i++) {
        const struct arm *arm = &plan->arms[i];
        char text[ARM_NAME_SIZE];
        json_t *object = json_object();
        json_set(object, "name", json_text(arm_name(arm, text)));
        json_set(object, "label", json_text(arm_method_label(arm, text)));
        json_set(object, "tensor_parallel", json_integer(arm->tensor_parallel));
        json_set(object, "method", json_text(method_names[arm->method]));
        json_set(object, "budget", method_has_budget(arm->method) ? json_integer(arm->budget) : json_null());
        json_set(object, "concurrency", json_integer(arm->concurrency));
        json_append(array, object);
    }
    return array;
}

static json_t *make_workload_names(const struct plan *plan)
{
    json_t *array = json_array();
    for (int i = 0; i < plan->workload_count; i++)
        json_append(array, json_text(plan->workloads[i].name));
    return array;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* Notes the rules that stand anywhere in the value as a "rule", or among "marks" or "rules". */
static void note_named(const json_t *value, bool holds_rules, bool *named)
{
    const char *key;
    json_t *inner;
    if (json_is_string(value) && holds_rules) {
        const int rule = rule_find(json_string_value(value));
        if (rule >= 0)
            named[rule] = true;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        note_named(json_array_get(value, i), holds_rules, named);
    json_object_foreach((json_t *)value, key, inner)
        note_named(inner, strcmp(key, "rule") == 0 || strcmp(key, "marks") == 0 || strcmp(key, "rules") == 0, named);
}

json_t *summary_make_rules(const json_t *summary)
{
    static const char *const parts[] = {"cells", "comparisons", "scaling", "best_budgets", "verdicts", "versus"};
    bool named[RULE_COUNT] = {false};
    json_t *array = json_array();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        note_named(json_object_get(summary, parts[i]), false, named);
    for (int i = 0; i < RULE_COUNT; i++)
        if (named[i]) {
            json_t *object = json_object();
            json_set(object, "id", json_text(rule_table[i].id));
            json_set(object, "scope", json_text(rule_scope_names[rule_table[i].scope]));
            json_set(object, "explanation", json_text(rule_table[i].explanation));
            json_append(array, object);
        }
    return array;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static json_t *make_summary(const struct comparisons *comparisons, const struct comparisons *tuning,
                            const char *plan_hash)
{
    const struct plan *plan = comparisons->cells->plan;
    const json_t *header = find_header(comparisons->cells);
    json_t *summary = json_object(), *program = json_object(), *runs = json_array();
    json_t *verdicts = summary_make_verdicts(comparisons, tuning);
    json_set(program, "name", json_string(SUMMARY_PROGRAM));
    json_set(program, "version", json_string(SUMMARY_PROGRAM_VERSION));
    json_append(runs, make_run(comparisons->cells, plan_hash, verdicts));
    json_set(summary, "schema", json_string(SUMMARY_SCHEMA));
    json_set(summary, "name", json_text(plan->name));
    json_set(summary, "title", json_text(plan->title));
    json_set(summary, "program", program);
    json_set(summary, "runs", runs);
    json_set(summary, "machine", copy_or_null(json_object_get(header, "machine")));
    json_set(summary, "source", make_source(comparisons->cells, header));
    json_set(summary, "gpus", summary_make_gpus(comparisons->cells->run));
    json_set(summary, "imports", summary_make_imports(comparisons->cells->run));
    json_set(summary, "plan", summary_make_plan(comparisons->cells));
    json_set(summary, "method", make_method(plan));
    json_set(summary, "arms", make_arms(plan));
    json_set(summary, "workloads", make_workload_names(plan));
    json_set(summary, "cells", summary_make_cells(comparisons));
    json_set(summary, "comparisons", summary_make_comparisons(comparisons));
    json_set(summary, "best_budgets", summary_make_best_budgets(comparisons, tuning));
    json_set(summary, "scaling", summary_make_scaling(comparisons->cells));
    json_set(summary, "round_models", summary_make_round_models(comparisons->cells));
    json_set(summary, "drift", summary_make_drift(&comparisons->drift));
    json_set(summary, "telemetry", summary_make_telemetry(comparisons->cells->run));
    json_set(summary, "verdicts", verdicts);
    json_set(summary, "rules", summary_make_rules(summary));
    return summary;
}

json_t *summary_build(const struct run *run, const struct plan *plan, struct error *error)
{
    char plan_hash[FILE_HASH_SIZE];
    struct cells cells, tuning_cells;
    struct comparisons comparisons, tuning;
    if (run->ledger.broken_at) {
        ledger_refuse_broken(&run->ledger, error);
        return NULL;
    }
    if (file_hash(plan->path, plan_hash, error))
        return NULL;
    cells_init(plan, run, CELLS_REPORTED, &cells);
    comparisons_init(&cells, &comparisons);
    cells_init(plan, run, CELLS_TUNING, &tuning_cells);
    comparisons_init(&tuning_cells, &tuning);
    json_t *summary = make_summary(&comparisons, plan->tuning_blocks ? &tuning : NULL, plan_hash);
    comparisons_free(&tuning);
    cells_free(&tuning_cells);
    comparisons_free(&comparisons);
    cells_free(&cells);
    return summary;
}

int summary_write(const json_t *summary, const char *path, struct error *error)
{
    char *json = json_dumps(summary, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (!json)
        die("cannot write the summary as JSON");
    const size_t size = strlen(json);
    char *text = xrealloc(json, size + 2, 1), *copy = xstrdup(path);
    memcpy(text + size, "\n", 2);
    int result = file_make_folder(dirname(copy), error);
    if (!result)
        result = file_write_whole(path, text, size + 1, error);
    free(text);
    free(copy);
    return result;
}
