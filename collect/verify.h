/* Whether a run's record holds together: the ledger's chain, what lines and attempts carry of it, and the hashes of
 * files.
 */
#ifndef COLLECT_VERIFY_H
#define COLLECT_VERIFY_H

#include "collect/record/run.h"

struct verification {
    int lines, files; /* how many were held against their hashes */
    char **problems;  /* what does not hold, a line each */
    int problem_count;
};

void verify_run(const struct run *run, struct verification *verification);
void verify_free(struct verification *verification);

#endif
