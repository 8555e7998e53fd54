/* The plan as a run folder keeps it: plan.json, and every amendment beside it as plan-2.json, plan-3.json, ... */
#ifndef COLLECT_PLAN_STORE_H
#define COLLECT_PLAN_STORE_H

#include "collect/plan.h"
#include "collect/record/ledger.h"

/* The folder of a run: `name` itself where it is a path, otherwise runs/name; to be free()d. */
char *plan_store_folder(const char *runs, const char *name);

/* What the number-th plan of a run is called, from 1: plan.json, plan-2.json; to be free()d. */
char *plan_store_name(int number);

/* Path of the newest plan in the folder, to be free()d; NULL where there is none. */
char *plan_store_find(const char *folder);

enum plan_stored { PLAN_STORED_FIRST, PLAN_STORED_SAME, PLAN_STORED_AMENDED };

/* Stores the plan unless the newest one says the same; an amendment is noted in the ledger with the hash of its file.
 * Answers enum plan_stored, or -1. *path: where it lies, to be free()d. */
int plan_store(const struct plan *plan, const char *folder, struct ledger *ledger, char **path, struct error *error);

#endif
