/* How times changed in the course of a run: of each attempt, how far the logarithm of its time a token lies from the
 * means of its cells, in the order in which attempts were begun. */
#ifndef ANALYZE_DRIFT_H
#define ANALYZE_DRIFT_H

#include "analyze/cells.h"

struct residual {
    const struct run *run;
    const struct judged *judged;
    double sum; /* over its cells */
    int cells;
    double value; /* sum / cells */
    bool outlier;
};

struct drift {
    struct residual *items; /* in the order of the run; attempts whose cells have several blocks */
    int count, arms;
    bool *outliers; /* of the run's attempts, by their index */
    double p;       /* that they have no trend; NaN below 6 */
    double change;  /* of a token's time from one end of the run to the other, by the line through them: 0.01 is 1% */
};

void drift_init(const struct cells *cells, struct drift *drift);
void drift_free(struct drift *drift);

#endif
