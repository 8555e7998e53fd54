/* Several files, or rows, that speak of one run become one. */
#ifndef COLLECT_IMPORT_MERGE_H
#define COLLECT_IMPORT_MERGE_H

#include "collect/import/imported.h"

/* The mean times that a run states, or that its requests have: to the nanosecond they are those of no other run. */
struct timing {
    double ttft_ns, tpot_ns, itl_ns, e2e_ns; /* NaN: unknown */
};

struct timing timing_of(const struct observed *observed, const struct sample *samples, int count);

/* Whether at least three times are known of both, and all that are known of both are equal. */
bool timing_is_same(const struct timing *a, const struct timing *b);

/* Puts together what is of one run: equal times, or files of one tool in one folder of which each has what the other
 * lacks. What the first of them says counts, the others fill in what it lacks. Notes are taken into the runs that they
 * hold of. -1 where a note has none. */
int merge_imports(struct imports *imports, struct error *error);

#endif
