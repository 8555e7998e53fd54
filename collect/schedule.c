#include "collect/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block as it stands: for each arm a bit set of workloads. */
struct block_view {
    const struct subject *subject;
    const struct run *run;
    const struct sessions *sessions;
    int block;
    uint64_t *missing, *given_up; /* arm_count */
};

static bool has_bit(uint64_t set, int bit)
{
    return set >> bit & 1;
}

/* Whether the attempt holds the arm's workload with today's hash. */
static bool is_of_cell(const struct subject *subject, const struct judged *judged, int arm, int workload)
{
    const struct attempt_workload *entry =
        attempt_find_workload(&judged->attempt, subject->plan->workloads[workload].name);
    return entry && strcmp(entry->cell_hash, subject_cell_hash(subject, arm, workload)) == 0;
}

/* Whether the attempt came to an end of its own under today's hash. Of a file that is gone, or cannot be read, the
 * ledger says so: nobody gets more tries by removing some. */
static bool is_whole_try(const struct subject *subject, const struct run *run, const struct judged *judged, int arm,
                         int workload)
{
    if (judged->attempt.header)
        return (judged->attempt.complete || judged->attempt.error_code) && is_of_cell(subject, judged, arm, workload);
    const struct history_entry *entry = run_history(run, &judged->attempt);
    const char *hash = history_cell_hash(entry, subject->plan->workloads[workload].name);
    return history_is_over(entry) && hash && strcmp(hash, subject_cell_hash(subject, arm, workload)) == 0;
}

/* Whether what made it invalid would do so again. */
static bool is_hopeless(const struct judged *judged, const char *workload)
{
    for (int i = 0; i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (rule_table[verdict->rule].recurs && verdict->level == RULE_INVALID &&
            (!verdict->workload || strcmp(verdict->workload, workload) == 0))
            return true;
    }
    return false;
}

static bool has_invalid(const struct judged *judged, enum rule_id rule, const char *workload)
{
    for (int i = 0; i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (verdict->rule == rule && verdict->level == RULE_INVALID &&
            (!verdict->workload || strcmp(verdict->workload, workload) == 0))
            return true;
    }
    return false;
}

const struct judged *schedule_find_invalid(const struct subject *subject, const struct run *run, int block, int arm,
                                           int workload, bool *given_up)
{
    const char *name = subject->plan->workloads[workload].name;
    const struct judged *last = NULL;
    int tries = 0, first, count = run_find_tries(run, &subject->plan->arms[arm], block, &first);
    bool hopeless = false;
    for (int i = first; i < first + count; i++) {
        const struct judged *judged = &run->attempts[i];
        if (!is_whole_try(subject, run, judged, arm, workload) || !run_is_void(judged, name) ||
            has_invalid(judged, RULE_SUPERSEDED, name))
            continue;
        last = judged;
        tries++;
        hopeless |= !judged->purged && is_hopeless(judged, name);
    }
    *given_up = tries >= SCHEDULE_TRIES || hopeless;
    return last;
}

/* The next attempt from `from` on that is a valid try of the arm's workload; -1 after the last. */
static int find_valid(const struct block_view *view, int arm, int workload, int from)
{
    const char *name = view->subject->plan->workloads[workload].name;
    int first, count = run_find_tries(view->run, &view->subject->plan->arms[arm], view->block, &first);
    for (int i = from > first ? from : first; i < first + count; i++)
        if (is_of_cell(view->subject, &view->run->attempts[i], arm, workload) &&
            !run_is_void(&view->run->attempts[i], name))
            return i;
    return -1;
}

static bool is_valid_in_session(const struct block_view *view, int arm, int workload, int session)
{
    for (int i = find_valid(view, arm, workload, 0); i >= 0; i = find_valid(view, arm, workload, i + 1))
        if (session >= 0 && view->sessions->of_attempt[i] == session)
            return true;
    return false;
}

/* Whether `baseline` is what `arm` is compared with. */
static bool is_baseline_of(const struct arm *baseline, const struct arm *arm)
{
    return baseline->method < arm->method && !method_has_budget(baseline->method) &&
           baseline->tensor_parallel == arm->tensor_parallel && baseline->concurrency == arm->concurrency;
}

/* Whether one session holds both, or will. */
static bool is_paired(const struct block_view *view, int arm, int baseline, int workload)
{
    for (int i = find_valid(view, arm, workload, 0); i >= 0; i = find_valid(view, arm, workload, i + 1)) {
        int session = view->sessions->of_attempt[i];
        if ((session == view->sessions->current && has_bit(view->missing[baseline], workload)) ||
            is_valid_in_session(view, baseline, workload, session))
            return true;
    }
    return false;
}

/* Whether the arm is valid, and a baseline is or will be, but in other sessions. */
static bool lacks_pair(const struct block_view *view, int arm, int workload)
{
    const struct plan *plan = view->subject->plan;
    for (int b = 0; b < plan->arm_count; b++)
        if (is_baseline_of(&plan->arms[b], &plan->arms[arm]) && !has_bit(view->given_up[b], workload) &&
            (has_bit(view->missing[b], workload) || find_valid(view, b, workload, 0) >= 0) &&
            !is_paired(view, arm, b, workload))
            return true;
    return false;
}

static void find_given_up(struct block_view *view)
{
    const struct plan *plan = view->subject->plan;
    for (int a = 0; a < plan->arm_count; a++)
        for (int w = 0; w < plan->workload_count; w++) {
            bool given_up;
            schedule_find_invalid(view->subject, view->run, view->block, a, w, &given_up);
            view->given_up[a] |= (uint64_t)given_up << w;
        }
}

/* A block that takes longer than a session may last, or a clock that jumps, would ask for another for ever. */
static bool has_all_tries(const struct block_view *view, int arm, int workload)
{
    int whole = 0, first, count = run_find_tries(view->run, &view->subject->plan->arms[arm], view->block, &first);
    for (int i = first; i < first + count; i++)
        whole += is_whole_try(view->subject, view->run, &view->run->attempts[i], arm, workload);
    return whole >= SCHEDULE_TRIES;
}

/* By methods, so that a baseline is decided on before what is compared with it. */
static void find_missing(struct block_view *view, const bool *only)
{
    const struct plan *plan = view->subject->plan;
    for (int method = 0; method < METHOD_COUNT; method++)
        for (int a = 0; a < plan->arm_count; a++)
            for (int w = 0; plan->arms[a].method == (enum method)method && w < plan->workload_count; w++)
                if ((!only || only[a]) && !has_bit(view->given_up[a], w) &&
                    (find_valid(view, a, w, 0) < 0 || (!has_all_tries(view, a, w) && lacks_pair(view, a, w))))
                    view->missing[a] |= (uint64_t)1 << w;
}

static void add_baselines(struct block_view *view)
{
    const struct plan *plan = view->subject->plan;
    for (int a = 0; a < plan->arm_count; a++)
        for (int b = 0; b < plan->arm_count; b++)
            for (int w = 0; is_baseline_of(&plan->arms[b], &plan->arms[a]) && w < plan->workload_count; w++)
                if (has_bit(view->missing[a], w) && !has_bit(view->given_up[b], w) &&
                    !is_valid_in_session(view, b, w, view->sessions->current))
                    view->missing[b] |= (uint64_t)1 << w;
}

static const struct judged *find_repeated(const struct block_view *view, int arm)
{
    const struct judged *repeated = NULL;
    bool given_up;
    for (int w = 0; !repeated && w < view->subject->plan->workload_count; w++)
        if (has_bit(view->missing[arm], w) && find_valid(view, arm, w, 0) < 0)
            repeated = schedule_find_invalid(view->subject, view->run, view->block, arm, w, &given_up);
    return repeated;
}

int schedule_block(const struct subject *subject, const struct run *run, const struct sessions *sessions, int block,
                   const bool *only, struct task *tasks)
{
    size_t arm_count = (size_t)subject->plan->arm_count;
    struct block_view view = {.subject = subject,
                              .run = run,
                              .sessions = sessions,
                              .block = block,
                              .missing = xcalloc(arm_count, sizeof(uint64_t)),
                              .given_up = xcalloc(arm_count, sizeof(uint64_t))};
    find_given_up(&view);
    find_missing(&view, only);
    add_baselines(&view);

    int count = 0, *order = xcalloc(arm_count, sizeof *order);
    plan_arm_order(subject->plan, block, order);
    for (size_t i = 0; i < arm_count; i++)
        if (view.missing[order[i]])
            tasks[count++] = (struct task){order[i], view.missing[order[i]], find_repeated(&view, order[i])};
    free(order);
    free(view.missing);
    free(view.given_up);
    return count;
}

int schedule_next_try(const struct run *run, const struct arm *arm, int block)
{
    int first, count = run_find_tries(run, arm, block, &first);
    return count ? run->attempts[first + count - 1].attempt.try_number + 1 : 1;
}
