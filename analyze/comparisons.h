/* Comparisons: every arm over auto and every tree over linear, at equal tensor parallelism and concurrency, block by
 * block.
 *
 * A pair is an arm's attempt and the baseline's last valid one of the same block, measured in one session and with
 * equal compare hashes. Without one, or where a pair rule objects, the block is dropped from the comparison and the
 * reason kept. */
#ifndef ANALYZE_COMPARISONS_H
#define ANALYZE_COMPARISONS_H

#include "analyze/drift.h"

struct pair {
    const struct judged *arm, *baseline; /* NULL: none */
    double log_ratio;      /* log of the baseline's time a token over the arm's; NaN: dropped, for `reason` */
    double log_end_to_end; /* the same with the time to the first token; NaN where missing */
    double arm_tpot_ns, baseline_tpot_ns;
    double log_gain; /* log of the baseline's time a token over the arm's time a round: of the ratio over tau; NaN where
                      * missing, or where tau is void */
    struct verdicts verdicts; /* of the pair rules; of all workloads */
    struct reason reason;
};

struct comparison {
    const struct arm *arm, *baseline;
    const struct plan_workload *workload; /* NULL: over all workloads, equally weighted */
    bool headline;                        /* in the family fixed by the plan, which speaks of all workloads */
    struct pair *pairs;                   /* pairs[b - 1]; over workloads without attempts, which `parts` have */
    const struct comparison *parts;       /* workload_count comparisons of single workloads; NULL for those */
};

struct comparisons {
    const struct cells *cells;
    struct comparison *items; /* over auto first; of each pair of arms the workloads in order, then all together */
    int count;
    struct drift drift;
};

/* What a pair rule voids beside auto is noted in the arm's cells as well: an output that is not the target's makes no
 * number. */
void comparisons_init(struct cells *cells, struct comparisons *comparisons);
void comparisons_free(struct comparisons *comparisons);

/* Whether the two were measured in one session. */
bool comparisons_share_session(const struct cells *cells, const struct judged *a, const struct judged *b);

/* Whether the two were measured alike in all but the arm. */
bool comparisons_may_compare(const struct judged *a, const struct judged *b, const char *workload);

#endif
