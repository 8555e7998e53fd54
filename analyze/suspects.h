/* What is suspect in a cell or a comparison, for estimates without it beside those with it. Suspect attempts are left
 * out; of workloads that go round in circles (REPETITION) the outputs that do; outliers of the run as well. What speaks
 * of the whole run (DRIFT) leaves nothing to compare with, and is only a mark. */
#ifndef ANALYZE_SUSPECTS_H
#define ANALYZE_SUSPECTS_H

#include "analyze/comparisons.h"

struct suspects {
    bool any;
    bool *left_out; /* blocks */
    bool *outliers; /* blocks that are left out for that */
    bool rules[RULE_COUNT];
    enum samples_kept kept;
};

/* Whether the workload goes round in circles (REPETITION), which is found in plain decoding's outputs of the block
 * (from 0) and is true of every arm beside it: all write the same. */
bool suspects_are_repetitive(const struct cells *cells, const struct arm *arm, const struct plan_workload *workload,
                             int block);

void suspects_of_cell(const struct comparisons *comparisons, const struct cell *cell, struct suspects *suspects);

/* Of a comparison on one workload. */
void suspects_of_comparison(const struct comparisons *comparisons, const struct comparison *comparison,
                            struct suspects *suspects);
void suspects_free(struct suspects *suspects);

#endif
