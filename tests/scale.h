/* Run folders of any size, written fast: nothing is flushed to the disk. Who makes one says what its plan is and what
 * happened in each attempt; header, ledger and files are made here. */
#ifndef TESTS_SCALE_H
#define TESTS_SCALE_H

#include "collect/plan.h"
#include "collect/record/attempt.h"
#include "collect/record/place.h"

#include <stdio.h>

#define SCALE_ARMS 10

/* Writes RUN with its plan, SCALE_ARMS attempts in each block and a ledger that knows them: two workloads of so
 * many prompts, with outputs of so many tokens, one more than a multiple of 3. Every seventh attempt of the trees was
 * cut off, and its second try is well. Answers the number of attempts. */
int scale_make(const char *run, int blocks, int prompts, int tokens);

struct scale_source {
    /* How many tries the arm had in the block; all but the last were cut off. */
    int (*count_tries)(const struct plan *plan, const struct attempt_place *place);
    /* What the requests of a workload gave: samples[count] have names, asked tokens and everything else absent. */
    void (*fill)(const struct plan *plan, const struct attempt_place *place, int workload, struct sample *samples);
    /* Writes further lines behind the samples, and answers the largest regret of the audit; NULL: none, and no audit.
     */
    double (*finish)(const struct plan *plan, const struct attempt_place *place, FILE *out);
};

/* The same for a plan, given as JSON, and a source. An attempt begins 4 s after the one before. */
int scale_write(const char *run, const char *plan, const struct scale_source *source);

/* How many prompts a workload has: the plan's count. */
int scale_prompts(const struct plan *plan, int workload);

/* Whether a prompt, from 0, is measured in the block: where the plan has tuning blocks, every other one is in those. */
bool scale_is_measured(const struct plan *plan, int block, int prompt);

#endif
