#include "collect/record/record.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what the ledger says ----------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

/* A verdict on all of the attempt. `line`: the ledger's, which says when and by whom; NULL: none does. `detail` is
 * taken over. */
static void add(struct judged *judged, enum rule_id rule, enum rule_level level, const json_t *line, char *detail)
{
    verdicts_add(&judged->verdicts, rule, level, NULL, NAN, NAN, "%s", detail);
    struct verdict *verdict = &judged->verdicts.items[judged->verdicts.count - 1];
    verdict->time = line ? xstrdup(text_of(line, "time")) : NULL;
    verdict->by_user = line && strcmp(text_of(line, "actor"), "user") == 0;
    free(detail);
}

static void judge_withdrawal(const struct history_entry *entry, struct judged *judged)
{
    if (!entry || !entry->invalidate)
        return;
    const char *reason = text_of(entry->invalidate, "reason");
    if (history_is_withdrawn(entry))
        add(judged, RULE_WITHDRAWN, RULE_INVALID, entry->invalidate, xstrdup(reason));
    else
        add(judged, RULE_WITHDRAWN, RULE_NOTE, entry->reinstate,
            xformat("withdrawn at %s (%s), and reinstated since", text_of(entry->invalidate, "time"), reason));
}

static void judge_file(const struct history_entry *entry, struct judged *judged)
{
    const char *hash = judged->attempt.sha256;
    if (!entry || !entry->begin)
        add(judged, RULE_TAMPERED, RULE_INVALID, NULL, xstrdup("the ledger has no begin for it"));
    else if (entry->end && strcmp(text_of(entry->end, "sha256"), hash) != 0)
        add(judged, RULE_TAMPERED, RULE_INVALID, NULL,
            !hash[0] ? xformat("its file cannot be read; its SHA-256 was %.12s... when it ended",
                               text_of(entry->end, "sha256"))
                     : xformat("its SHA-256 is %.12s..., but was %.12s... when it ended", hash,
                               text_of(entry->end, "sha256")));
}

static void judge_absence(const struct history_entry *entry, struct judged *judged)
{
    if (entry->end)
        add(judged, RULE_VANISHED, RULE_INVALID, entry->end,
            xformat("it ended as \"%s\", but its file is gone", text_of(entry->end, "status")));
    else
        add(judged, RULE_VANISHED, RULE_INVALID, entry->begin,
            xstrdup("it was begun, but has no file: removed, or the program was ended before it wrote one"));
}

/* --- purged attempts ---------------------------------------------------------------------------------------------- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static enum rule_level level_of(const json_t *verdict)
{
    for (enum rule_level level = RULE_NOTE; level < RULE_INVALID; level++)
        if (strcmp(text_of(verdict, "level"), rule_level_names[level]) == 0)
            return level;
    return RULE_INVALID;
}

/* A rule that is no more, or not yet, is told by its name. */
static void add_kept(const json_t *kept, const json_t *purge, struct judged *judged)
{
    int known = rule_find(text_of(kept, "rule"));
    const char *workload = json_string_value(json_object_get(kept, "workload"));
    verdicts_add(&judged->verdicts, known < 0 ? RULE_INCOMPLETE : (enum rule_id)known, level_of(kept), workload,
                 number_of(kept, "observed"), number_of(kept, "threshold"), "purged; before that %s: %s",
                 text_of(kept, "rule"), text_of(kept, "detail"));
    struct verdict *verdict = &judged->verdicts.items[judged->verdicts.count - 1];
    verdict->time = xstrdup(text_of(purge, "time"));
    verdict->by_user = true;
}

static void judge_purged(const json_t *purge, struct judged *judged)
{
    size_t i;
    const json_t *kept;
    json_array_foreach(json_object_get(purge, "verdicts"), i, kept) add_kept(kept, purge, judged);
    if (rule_worst(&judged->verdicts, NULL, RULE_VOIDS_ALL) != RULE_INVALID)
        add(judged, RULE_INCOMPLETE, RULE_INVALID, purge, xstrdup("purged"));
}

void record_judge(const struct history_entry *entry, struct judged *judged)
{
    if (judged->purged) {
        judge_purged(entry->purge, judged);
        return;
    }
    judge_withdrawal(entry, judged);
    if (judged->attempt.sha256[0] || file_exists(judged->attempt.path))
        judge_file(entry, judged);
    else if (entry)
        judge_absence(entry, judged);
}

/* --- tries that later ones replace -------------------------------------------------------------------------------- */

static const struct judged *find_later(const struct run *run, int index, const struct attempt_workload *workload)
{
    const struct judged *judged = &run->attempts[index];
    for (int i = index + 1; i < run->attempt_count; i++) {
        const struct judged *later = &run->attempts[i];
        if (later->attempt.block != judged->attempt.block || strcmp(later->arm, judged->arm) != 0)
            break;
        const struct attempt_workload *held = attempt_find_workload(&later->attempt, workload->name);
        if (held && strcmp(held->cell_hash, workload->cell_hash) == 0 && !run_is_void(later, workload->name))
            return later;
    }
    return NULL;
}

static void supersede(const struct run *run, int index)
{
    struct judged *judged = &run->attempts[index];
    const struct attempt *attempt = &judged->attempt;
    const struct judged **later = xcalloc((size_t)attempt->workload_count, sizeof *later);
    int count = 0;
    for (int w = 0; w < attempt->workload_count; w++) {
        if (!run_is_void(judged, attempt->workloads[w].name))
            later[w] = find_later(run, index, &attempt->workloads[w]);
        count += later[w] != NULL;
    }
    bool all = count && count == attempt->workload_count;
    for (int w = 0; w < attempt->workload_count && !(all && w); w++)
        if (later[w])
            verdicts_add(&judged->verdicts, RULE_SUPERSEDED, RULE_INVALID, all ? NULL : attempt->workloads[w].name, NAN,
                         NAN, "a later valid try of the block counts: %s", later[w]->attempt.id);
    free(later);
}

void record_supersede(struct run *run)
{
    for (int i = 0; i < run->attempt_count; i++)
        if (method_has_budget(run->attempts[i].attempt.arm.method))
            supersede(run, i);
}
