/* What folder and ledger together say of an attempt, whatever its samples say: for run.c alone. */
#ifndef COLLECT_RECORD_RECORD_H
#define COLLECT_RECORD_RECORD_H

#include "collect/record/run.h"

/* Appends the verdicts WITHDRAWN, TAMPERED and VANISHED; of a purged attempt those that the ledger kept. `entry` NULL:
 * the ledger does not know the attempt. */
void record_judge(const struct history_entry *entry, struct judged *judged);

/* Appends SUPERSEDED to the tries of trees that a later valid one of the same arm, block and cell hash replaces. A
 * baseline's earlier try may still stand beside an arm of its own session: which do not, analyze says, which sees the
 * pairs. May be called again. */
void record_supersede(struct run *run);

#endif
