/* Rules of one attempt that only the other attempts and the ledger can show: for run.c alone. */
#ifndef COLLECT_RECORD_RULE_RUN_H
#define COLLECT_RECORD_RULE_RUN_H

#include "collect/record/run.h"

/* Appends DUPLICATE to whatever repeats the times of an attempt that was begun before it, and CLOCK (suspect) to
 * attempts whose clock ran ahead of the ledger's. May be called again. */
void rule_run_judge(struct run *run, const struct rule_settings *settings);

#endif
