/* A run folder as it stands: its attempts, each judged, and which of them count.
 *
 *   RUN/plan.json  plan-2.json ...   the plan, and its amendments
 *   RUN/ledger.jsonl  RUN/lock
 *   RUN/attempts/ARM/BLOCK-TRY.jsonl
 *   RUN/logs/
 *
 * Reading writes nothing: `status` and `analyze` share this view. */
#ifndef COLLECT_RECORD_RUN_H
#define COLLECT_RECORD_RUN_H

#include "collect/base/error.h"
#include "collect/record/attempt.h"
#include "collect/record/ledger.h"
#include "collect/record/rule.h"

/* An attempt with what the rules of scope sample to attempt say of it. One that cannot be read counts as INCOMPLETE:
 * arm, block, try and id are those of its path, and header, started and workloads are NULL. */
struct judged {
    struct attempt attempt;
    struct verdicts verdicts;
};

struct run {
    char *folder;
    char *name;
    struct ledger ledger;
    struct judged *attempts; /* sorted by arm name, block, try */
    int attempt_count;
};

/* Reads and judges all attempts under `folder`; other files there are passed over. -1 where the folder or its ledger
 * cannot be read. */
int run_read(const char *folder, const struct rule_settings *settings, struct run *run, struct error *error);
void run_free(struct run *run);

/* The attempt that counts for (arm, block, workload): the last try that holds the workload and is not invalid for all
 * of it; where every try is invalid, NULL. `cell_hash` NULL: any, else only tries with that hash. */
const struct judged *run_counted(const struct run *run, const struct arm *arm, int block, const char *workload,
                                 const char *cell_hash);

/* The last try that holds the workload, or may have held it (unreadable), valid or not: what an em dash's reason is
 * read from. NULL where none was made. */
const struct judged *run_last_try(const struct run *run, const struct arm *arm, int block, const char *workload);

#endif
