/* What is still to be measured in a block.
 *
 * Missing is an arm's workload that has no valid attempt with today's cell hash, or none in one session with its
 * baselines' (auto and linear at the same TP). Missing arms are measured together with those baselines that were not
 * yet measured in this session. A cell is given up after SCHEDULE_TRIES invalid attempts, or one whose reason is
 * certain to come again; attempts that were interrupted are no results and count as no tries. One that was purged, or
 * whose file vanished, remains a try; that its reason is certain to come again is no longer held against the cell. */
#ifndef COLLECT_SCHEDULE_H
#define COLLECT_SCHEDULE_H

#include "collect/record/run.h"
#include "collect/session.h"
#include "collect/subject.h"

#include <stdint.h>

#define SCHEDULE_TRIES 3

/* One attempt to make. */
struct task {
    int arm;            /* index in the plan */
    uint64_t workloads; /* bit w: the plan's workload w */
    const struct judged
        *invalid; /* the invalid attempt that this one repeats, borrowed from the run; NULL where there is none */
};

/* The tasks of a block in the order of plan_arm_order(), in tasks[arm_count]; answers how many. only[arm_count] (NULL:
 * all): the arms that are asked for; their baselines are added. */
int schedule_block(const struct subject *subject, const struct run *run, const struct sessions *sessions, int block,
                   const bool *only, struct task *tasks);

/* The last invalid attempt for the cell in this block, and in *given_up whether no other will be made; NULL where there
 * is none. */
const struct judged *schedule_find_invalid(const struct subject *subject, const struct run *run, int block, int arm,
                                           int workload, bool *given_up);

/* The number of the next try for (arm, block): no number that a file or the ledger knows is used again. */
int schedule_next_try(const struct run *run, const struct arm *arm, int block);

#endif
