/* A run folder as it stands: its attempts, each judged, and which of them count.
 *
 *   RUN/plan.json  plan-2.json ...   the plan, and its amendments
 *   RUN/ledger.jsonl  RUN/lock
 *   RUN/attempts/ARM/BLOCK-TRY.jsonl
 *
 * Folder and ledger are held against each other: a file that the ledger does not know or has another hash of is
 * TAMPERED, an attempt without its file VANISHED unless somebody purged it. Reading writes nothing: `status` and
 * `analyze` share this view. */
#ifndef COLLECT_RECORD_RUN_H
#define COLLECT_RECORD_RUN_H

#include "collect/base/error.h"
#include "collect/record/attempt.h"
#include "collect/record/history.h"
#include "collect/record/ledger.h"
#include "collect/record/rule.h"

/* An attempt with what is said of it: by the rules of scope sample to attempt, by the ledger, and by persons. One that
 * cannot be read counts as INCOMPLETE: arm, block, try and id are those of its path, and header, started and workloads
 * are NULL. So are those of attempts that have no file: VANISHED, or purged, whose verdicts are those that the ledger
 * kept. */
struct judged {
    struct attempt attempt;
    char arm[ARM_NAME_SIZE];
    struct verdicts verdicts;
    bool purged;
};

struct run {
    char *folder;
    char *name;
    struct ledger ledger;
    struct history history;  /* of the ledger */
    struct judged *attempts; /* sorted by arm name, block, try */
    int attempt_count;
};

/* Reads and judges all attempts under `folder`; other files there are passed over. -1 where the folder or its ledger
 * cannot be read. */
int run_read(const char *folder, const struct rule_settings *settings, struct run *run, struct error *error);
void run_free(struct run *run);

/* Takes in the lines that `ledger`, open for writing on this run's folder, has got since the run was read, and reads
 * the attempts that they speak of, and no others. Pointers to attempts are void afterwards. */
void run_update(struct run *run, const struct ledger *ledger, const struct rule_settings *settings);

/* The attempt at that place, or NULL. */
const struct judged *run_find(const struct run *run, const struct attempt_place *place);

/* What the ledger says of the attempt; NULL: nothing. */
const struct history_entry *run_history(const struct run *run, const struct attempt *attempt);

/* The tries of an arm in a block: *first is the index of the first; answers how many there are. */
int run_find_tries(const struct run *run, const struct arm *arm, int block, int *first);

/* Whether no number may be made of the attempt's workload: it lacks it, or every metric is void. */
bool run_is_void(const struct judged *judged, const char *workload);

/* Whether that is so for all of the attempt. */
bool run_is_all_void(const struct judged *judged);

/* The attempt that counts for (arm, block, workload): the last try that holds the workload and is not invalid for all
 * of it; where every try is invalid, NULL. `cell_hash` NULL: any, else only tries with that hash. */
const struct judged *run_counted(const struct run *run, const struct arm *arm, int block, const char *workload,
                                 const char *cell_hash);

/* The last try that holds the workload, or may have held it (unreadable), valid or not: what an em dash's reason is
 * read from. NULL where none was made. */
const struct judged *run_last_try(const struct run *run, const struct arm *arm, int block, const char *workload);

#endif
