#include "collect/verify.h"

#include "collect/base/json.h"
#include "collect/plan_check.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* `problem` is taken over. */
static void add(struct verification *verification, char *problem)
{
    size_t count = (size_t)verification->problem_count++;
    verification->problems = xrealloc(verification->problems, count + 1, sizeof *verification->problems);
    verification->problems[count] = problem;
}

/* --- the ledger --------------------------------------------------------------------------------------------------- */

/* Whether `object` carries count and head of the ledger's first so many lines; so does what carries nothing. A line's
 * hash stands in the line behind it. */
static bool is_carried(const struct ledger *ledger, const json_t *object)
{
    const json_t *lines = json_object_get(object, "ledger_lines");
    json_int_t count = json_integer_value(lines), all = (json_int_t)json_array_size(ledger->lines);
    if (!lines)
        return true;
    if (!json_is_integer(lines) || count < 0 || count > all)
        return false;
    const char *head = count < all ? text_of(json_array_get(ledger->lines, (size_t)count), "prev") : ledger->head;
    return strcmp(text_of(object, "ledger_head"), head) == 0;
}

static void verify_chain(const struct ledger *ledger, struct verification *verification)
{
    size_t i;
    const json_t *line;
    if (ledger->broken_at)
        add(verification, xformat("%s:%d: does not follow from the line before", ledger->path, ledger->broken_at));
    json_array_foreach(ledger->lines, i, line)
    {
        verification->lines++;
        if (!is_carried(ledger, line))
            add(verification,
                xformat("%s:%zu: carries another head or count than the lines before it have", ledger->path, i + 1));
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void add_problem(void *context, char *problem)
{
    add(context, problem);
}

/* In older runs attempts name their plan, and begins do not. */
static void verify_plan_of(const struct run *run, const struct attempt *attempt, json_t *seen,
                           struct verification *verification)
{
    const char *plan = text_of(attempt->header, "plan");
    const struct history_entry *entry = run_history(run, attempt);
    if (!plan[0] || json_object_get(seen, plan) || (entry && entry->begin && json_object_get(entry->begin, "plan")))
        return;
    json_set(seen, plan, json_true());
    char *path = file_join(run->folder, plan);
    if (!file_exists(path))
        add(verification, xformat("%s: is gone, and attempts were measured under it", path));
    free(path);
}

static void verify_plans(const struct run *run, struct verification *verification)
{
    json_t *seen = json_object();
    verification->files += plan_check_each(run->folder, &run->ledger, add_problem, verification);
    for (int i = 0; i < run->attempt_count; i++)
        verify_plan_of(run, &run->attempts[i].attempt, seen, verification);
    json_decref(seen);
}

/* An attempt that was begun and left no file is what a crash leaves; one that ended had a file. */
static void verify_attempt(const struct run *run, const struct judged *judged, struct verification *verification)
{
    const struct attempt *attempt = &judged->attempt;
    const struct history_entry *entry = run_history(run, attempt);
    bool there = file_exists(attempt->path);
    verification->files += there;
    for (int i = 0; i < judged->verdicts.count && !judged->purged; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (verdict->rule == RULE_TAMPERED || (verdict->rule == RULE_VANISHED && entry->end))
            add(verification, xformat("%s: %s: %s", attempt->id, rule_table[verdict->rule].id, verdict->detail));
    }
    if (judged->purged && there)
        add(verification, xformat("%s: was purged, but is still there; `collect purge` removes it", attempt->path));
    if (attempt->end_status && entry && !entry->end)
        add(verification,
            xformat("%s: has ended, but the ledger has no hash of it; `collect run` notes it", attempt->id));
    if (!is_carried(&run->ledger, attempt->header))
        add(verification, xformat("%s: was measured beside another ledger, or this one was cut", attempt->id));
}

void verify_run(const struct run *run, struct verification *verification)
{
    *verification = (struct verification){0};
    verify_chain(&run->ledger, verification);
    verify_plans(run, verification);
    for (int i = 0; i < run->attempt_count; i++)
        verify_attempt(run, &run->attempts[i], verification);
}

void verify_free(struct verification *verification)
{
    for (int i = 0; i < verification->problem_count; i++)
        free(verification->problems[i]);
    free(verification->problems);
    *verification = (struct verification){0};
}
