/* What the ledger says of each attempt, found at once by its place: the ledger is read through once, whatever is asked
 * of it afterwards. */
#ifndef COLLECT_RECORD_HISTORY_H
#define COLLECT_RECORD_HISTORY_H

#include "collect/record/ledger.h"
#include "collect/record/place.h"

#include <stddef.h>

/* The newest line of each kind on one attempt, borrowed from the ledger; NULL: none. */
struct history_entry {
    struct attempt_place place;
    const char *id; /* as the ledger spells it */
    int begun;      /* sequence number of `begin`; 0: none */
    size_t last;    /* index of the newest line on the attempt */
    const json_t *begin, *end;
    const json_t *invalidate, *reinstate; /* by a person */
    const json_t *purge;
};

struct history {
    struct history_entry *entries; /* in the order in which the ledger came to them */
    int count, capacity;
    json_t *index; /* entries by the names of their places */
    size_t lines;  /* of the ledger, taken in so far */
};

/* Zero-initialised: an empty one. Takes in the ledger's lines behind those that it has. */
void history_update(struct history *history, const struct ledger *ledger);
void history_free(struct history *history);

/* NULL where the ledger does not know the attempt. */
const struct history_entry *history_find(const struct history *history, const struct attempt_place *place);

/* The cell hash that the attempt was begun with for the workload; NULL where the ledger does not say. */
const char *history_cell_hash(const struct history_entry *entry, const char *workload);

/* Whether the attempt came to an end of its own, "complete" or "failed". */
bool history_is_over(const struct history_entry *entry);

/* Whether a person withdrew the attempt, and has not reinstated it since. */
bool history_is_withdrawn(const struct history_entry *entry);

#endif
