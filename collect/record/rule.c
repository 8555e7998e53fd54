#include "collect/record/rule.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const rule_level_names[] = {"valid", "note", "suspect", "invalid"};
const char *const rule_scope_names[] = {
    [RULE_SAMPLE] = "sample", [RULE_WORKLOAD] = "workload", [RULE_ATTEMPT] = "attempt", [RULE_PAIR] = "pair",
    [RULE_BLOCK] = "block",   [RULE_CELL] = "cell",         [RULE_RUN] = "run",
};

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

void verdicts_add(struct verdicts *verdicts, enum rule_id rule, enum rule_level level, const char *workload,
                  double observed, double threshold, const char *format, ...)
{
    char detail[ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    make_printable(detail);
    verdicts->items = xrealloc(verdicts->items, (size_t)verdicts->count + 1, sizeof *verdicts->items);
    verdicts->items[verdicts->count++] = (struct verdict){
        rule, level, workload ? xstrdup(workload) : NULL, observed, threshold, xstrdup(detail), NULL, false,
    };
}

void verdicts_free(struct verdicts *verdicts)
{
    for (int i = 0; i < verdicts->count; i++) {
        free(verdicts->items[i].workload);
        free(verdicts->items[i].detail);
        free(verdicts->items[i].time);
    }
    free(verdicts->items);
    *verdicts = (struct verdicts){0};
}

/* Whether what was said of `scope` (NULL: the whole attempt) holds for `workload`. */
static bool covers(const char *scope, const char *workload)
{
    return !scope || (workload && strcmp(scope, workload) == 0);
}

enum rule_level rule_worst(const struct verdicts *verdicts, const char *workload, unsigned metrics)
{
    enum rule_level worst = RULE_VALID;
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *verdict = &verdicts->items[i];
        if ((rule_table[verdict->rule].voids & metrics) && covers(verdict->workload, workload) &&
            verdict->level > worst)
            worst = verdict->level;
    }
    return worst;
}

json_t *verdict_to_json(const struct verdict *verdict)
{
    json_t *object = json_object();
    json_set(object, "rule", json_string(rule_table[verdict->rule].id));
    json_set(object, "rule_version", json_integer(rule_table[verdict->rule].version));
    json_set(object, "level", json_string(rule_level_names[verdict->level]));
    json_set(object, "workload", verdict->workload ? json_text(verdict->workload) : json_null());
    json_set(object, "observed", json_number(verdict->observed));
    json_set(object, "threshold", json_number(verdict->threshold));
    json_set(object, "detail", json_text(verdict->detail));
    return object;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

int rule_find(const char *id)
{
    for (int i = 0; i < RULE_COUNT; i++)
        if (strcmp(rule_table[i].id, id) == 0)
            return i;
    return -1;
}

int rule_settings_read(const json_t *object, const char *where, struct rule_settings *settings, struct error *error)
{
    struct json_field fields[RULE_COUNT + 1] = {0};
    int count = 0;
    for (int i = 0; i < RULE_COUNT; i++) {
        settings->threshold[i] = NAN;
        if (rule_table[i].settable_to > 0)
            fields[count++] = (struct json_field){rule_table[i].id, JSON_FIELD_DOUBLE, &settings->threshold[i],
                                                  .maximum = rule_table[i].settable_to};
        else if (json_object_get(object, rule_table[i].id))
            return fail(error, "%s: rule %s has no threshold that a plan may set; remove it", where, rule_table[i].id);
    }
    if (!object || json_is_null(object))
        return 0;
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error);
}

/* --- judging ------------------------------------------------------------------------------------------------------ */

static bool has_verdict(const struct verdicts *verdicts, int from, const struct verdict *like)
{
    for (int i = from; i < verdicts->count; i++) {
        const struct verdict *verdict = &verdicts->items[i];
        if (verdict->rule == like->rule && covers(verdict->workload, like->workload))
            return true;
    }
    return false;
}

/* What only a loosened threshold saved is not silently well: it is marked, one level below the rule's own. */
static void mark_saved(const struct verdicts *by_default, double threshold, struct verdicts *verdicts, int from)
{
    for (int i = 0; i < by_default->count; i++) {
        const struct verdict *saved = &by_default->items[i];
        if (!has_verdict(verdicts, from, saved))
            verdicts_add(verdicts, saved->rule, saved->level - 1, saved->workload, saved->observed, threshold,
                         "%s (the plan's threshold %g lets it pass, the usual %g does not)", saved->detail, threshold,
                         saved->threshold);
    }
}

void rule_judge_by(enum rule_id rule, const struct rule_settings *settings, rule_see *see, const void *context,
                   struct verdicts *verdicts)
{
    const double usual = rule_table[rule].threshold, set = settings ? settings->threshold[rule] : NAN;
    const int from = verdicts->count;
    see(context, isnan(set) ? usual : set, verdicts);
    if (isnan(set))
        return;
    struct verdicts by_default = {0};
    see(context, usual, &by_default);
    mark_saved(&by_default, set, verdicts, from);
    verdicts_free(&by_default);
}

/* What a rule of the table judges: an attempt, beside its baseline where it is a pair's. */
struct matter {
    const struct rule *rule;
    const struct attempt *attempt, *baseline;
};

static void see_attempts(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct matter *matter = context;
    if (matter->baseline)
        matter->rule->judge_pair(matter->attempt, matter->baseline, threshold, verdicts);
    else
        matter->rule->judge(matter->attempt, threshold, verdicts);
}

static void judge(const struct attempt *attempt, const struct attempt *baseline, const struct rule_settings *settings,
                  struct verdicts *verdicts)
{
    for (int i = 0; i < RULE_COUNT; i++) {
        const struct matter matter = {&rule_table[i], attempt, baseline};
        if (baseline ? matter.rule->judge_pair != NULL : matter.rule->judge != NULL)
            rule_judge_by((enum rule_id)i, settings, see_attempts, &matter, verdicts);
    }
}

void rule_judge_attempt(const struct attempt *attempt, const struct rule_settings *settings, struct verdicts *verdicts)
{
    judge(attempt, NULL, settings, verdicts);
}

void rule_judge_pair(const struct attempt *attempt, const struct attempt *baseline,
                     const struct rule_settings *settings, struct verdicts *verdicts)
{
    judge(attempt, baseline, settings, verdicts);
}
