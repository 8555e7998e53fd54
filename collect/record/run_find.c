/* What is in a run that was read, and which of it counts. */
#include "collect/record/run.h"

#include <string.h>

static int compare(const struct judged *judged, const char *arm, int block, int try_number)
{
    int order = strcmp(judged->arm, arm);
    if (order)
        return order;
    if (judged->attempt.block != block)
        return judged->attempt.block < block ? -1 : 1;
    return (judged->attempt.try_number > try_number) - (judged->attempt.try_number < try_number);
}

/* Index of the first attempt that is not before that place. */
static int find_from(const struct run *run, const struct arm *arm, int block, int try_number)
{
    char name[ARM_NAME_SIZE];
    int low = 0, high = run->attempt_count;
    arm_name(arm, name);
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare(&run->attempts[middle], name, block, try_number) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_try_of(const struct judged *judged, const struct arm *arm, int block)
{
    return judged->attempt.block == block && arm_equal(&judged->attempt.arm, arm);
}

const struct judged *run_find(const struct run *run, const struct attempt_place *place)
{
    int at = find_from(run, &place->arm, place->block, place->try_number);
    const struct judged *judged = &run->attempts[at];
    return at < run->attempt_count && is_try_of(judged, &place->arm, place->block) &&
                   judged->attempt.try_number == place->try_number
               ? judged
               : NULL;
}

const struct history_entry *run_history(const struct run *run, const struct attempt *attempt)
{
    const struct attempt_place place = {attempt->arm, attempt->block, attempt->try_number};
    return history_find(&run->history, &place);
}

int run_find_tries(const struct run *run, const struct arm *arm, int block, int *first)
{
    int count = 0;
    *first = find_from(run, arm, block, 0);
    while (*first + count < run->attempt_count && is_try_of(&run->attempts[*first + count], arm, block))
        count++;
    return count;
}

bool run_is_void(const struct judged *judged, const char *workload)
{
    if (!attempt_find_workload(&judged->attempt, workload))
        return true;
    for (unsigned metric = 1; metric & RULE_VOIDS_ALL; metric <<= 1)
        if (rule_worst(&judged->verdicts, workload, metric) != RULE_INVALID)
            return false;
    return true;
}

bool run_is_all_void(const struct judged *judged)
{
    for (int i = 0; i < judged->attempt.workload_count; i++)
        if (!run_is_void(judged, judged->attempt.workloads[i].name))
            return false;
    return true;
}

const struct judged *run_counted(const struct run *run, const struct arm *arm, int block, const char *workload,
                                 const char *cell_hash)
{
    int first, count = run_find_tries(run, arm, block, &first);
    for (int i = first + count - 1; i >= first; i--) {
        const struct judged *judged = &run->attempts[i];
        const struct attempt_workload *held = attempt_find_workload(&judged->attempt, workload);
        if (held && (!cell_hash || strcmp(held->cell_hash, cell_hash) == 0) && !run_is_void(judged, workload))
            return judged;
    }
    return NULL;
}

const struct judged *run_last_try(const struct run *run, const struct arm *arm, int block, const char *workload)
{
    int first, count = run_find_tries(run, arm, block, &first);
    for (int i = first + count - 1; i >= first; i--) {
        const struct judged *judged = &run->attempts[i];
        if (!judged->attempt.header || attempt_find_workload(&judged->attempt, workload))
            return judged;
    }
    return NULL;
}
