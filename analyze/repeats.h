/* How the repeats of imported runs changed in their order. Other tools repeat one setting until they are done with it,
 * so that a run's order tells nothing of drift that its settings do not explain as well; what is left is each
 * setting against itself. */
#ifndef ANALYZE_REPEATS_H
#define ANALYZE_REPEATS_H

#include "analyze/cells.h"

/* Imported attempts of one arm and workload under the same settings, in the order in which they were taken in. */
struct repeats_series {
    const struct attempt *first, *last;
    bool steady;   /* each time lies above the one before it, or each below */
    double change; /* of a token's time from first to last, by the line through them: 0.01 is 1% */
};

struct repeats {
    struct repeats_series *series; /* of 3 attempts or more, the largest change first */
    int count;
    double p;      /* that none has a trend */
    double change; /* the median of theirs */
};

/* Of one workload. */
void repeats_init(const struct cells *cells, const char *workload, struct repeats *repeats);
void repeats_free(struct repeats *repeats);

#endif
