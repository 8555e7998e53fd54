/* FINGERPRINT of servers: what a server is shows only once it runs, so no hash covers it. */
#include "collect/record/rule_run.h"

#include <math.h>
#include <string.h>

static const char *say(const struct attempt *attempt, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(attempt->header, "server"), key));
    return text ? text : "";
}

static bool is_known(const struct attempt *attempt)
{
    return say(attempt, "version")[0] || say(attempt, "model")[0];
}

static bool is_same_server(const struct attempt *a, const struct attempt *b)
{
    return strcmp(say(a, "version"), say(b, "version")) == 0 && strcmp(say(a, "model"), say(b, "model")) == 0;
}

static bool is_same_cell(const struct attempt *a, const struct attempt *b)
{
    for (int i = 0; i < a->workload_count; i++) {
        const struct attempt_workload *other = attempt_find_workload(b, a->workloads[i].name);
        if (other && strcmp(other->cell_hash, a->workloads[i].cell_hash) == 0)
            return true;
    }
    return false;
}

static int begun(const struct run *run, const struct attempt *attempt)
{
    const struct history_entry *entry = run_history(run, attempt);
    return entry ? entry->begun : 0;
}

/* The newest attempt of the cells that counts and says what its server is. Those of an arm stand together, from index
 * `first` on. */
static const struct judged *find_newest(const struct run *run, int first, const struct attempt *attempt)
{
    const struct judged *newest = NULL;
    for (int i = first; i < run->attempt_count && arm_equal(&run->attempts[i].attempt.arm, &attempt->arm); i++) {
        const struct judged *judged = &run->attempts[i];
        if (is_known(&judged->attempt) && is_same_cell(&judged->attempt, attempt) && !run_is_all_void(judged) &&
            (!newest || begun(run, &judged->attempt) > begun(run, &newest->attempt)))
            newest = judged;
    }
    return newest;
}

void rule_run_servers(struct run *run)
{
    for (int i = 0, first = 0; i < run->attempt_count; i++) {
        struct judged *judged = &run->attempts[i];
        const struct attempt *attempt = &judged->attempt;
        if (!arm_equal(&run->attempts[first].attempt.arm, &attempt->arm))
            first = i;
        if (!is_known(attempt) || run_is_all_void(judged))
            continue;
        const struct judged *newest = find_newest(run, first, attempt);
        if (newest && !is_same_server(attempt, &newest->attempt))
            verdicts_add(
                &judged->verdicts, RULE_FINGERPRINT, RULE_INVALID, NULL, NAN, NAN,
                "the server was \"%.80s\" with \"%.80s\"; in %s, which is newer, it is \"%.80s\" with \"%.80s\"",
                say(attempt, "version"), say(attempt, "model"), newest->attempt.id, say(&newest->attempt, "version"),
                say(&newest->attempt, "model"));
    }
}
