/* Imports in a run folder: attempts like any other, whose source is of kind "import". */
#ifndef COLLECT_IMPORT_STORE_H
#define COLLECT_IMPORT_STORE_H

#include "collect/import/imported.h"
#include "collect/plan.h"
#include "collect/record/run.h"

struct store {
    char *folder, *plan_path;
    struct plan plan;
    struct ledger ledger; /* open for writing */
    struct run run;
    char build[FILE_HASH_SIZE]; /* of this program */
};

/* Opens RUNS/NAME, which is made with a plan of imports where it is not there. */
int store_open(const char *runs, const char *name, struct store *store, struct error *error);
void store_close(struct store *store);

/* Adds the import as an attempt of that arm, in the first block that lacks it, with its line in the ledger; *place says
 * where. What the run has already is noted in the ledger and not stored: then *place is the one it repeats. Answers
 * STORE_ADDED, STORE_REPEATED or -1. */
enum store_result { STORE_ADDED, STORE_REPEATED };
int store_add(struct store *store, struct imported *imported, const struct arm *arm, struct attempt_place *place,
              struct error *error);

#endif
