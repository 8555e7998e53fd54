/* Rules of one attempt that only the other attempts and the ledger can show: for run.c alone. */
#ifndef COLLECT_RECORD_RULE_RUN_H
#define COLLECT_RECORD_RULE_RUN_H

#include "collect/record/run.h"

/* rule_throttled.c: appends THROTTLED (suspect) to attempts in which a device's clock fell, under its power cap, below
 * a share of its median over the attempts of the same cells. May be called again. */
void rule_run_throttled(struct run *run, const struct rule_settings *settings);

/* rule_server.c: appends FINGERPRINT to attempts on a server of another version or model than the newest of the same
 * cells that counts. May be called again. */
void rule_run_servers(struct run *run);

/* All of these. Appends DUPLICATE to whatever repeats the times of an attempt that was begun before it, and CLOCK
 * (suspect) to attempts whose clock ran ahead of the ledger's. May be called again. */
void rule_run_judge(struct run *run, const struct rule_settings *settings);

#endif
