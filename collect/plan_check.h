/* Whether the plans that a run folder keeps are those that its ledger noted: with an `amend` before it was written, and
 * with each `begin` of an attempt that was measured under it. Runs whose begins note no plan are older than that. */
#ifndef COLLECT_PLAN_CHECK_H
#define COLLECT_PLAN_CHECK_H

#include "collect/record/ledger.h"

/* Puts into a begin's details under which plan it is (`plan`, `plan_sha256`), the file `name` of the folder. */
int plan_check_note(const char *folder, const char *name, json_t *details, struct error *error);

/* Told of each problem, a line that is taken over. */
typedef void plan_on_problem(void *context, char *problem);

/* Answers how many files were held against their hashes. */
int plan_check_each(const char *folder, const struct ledger *ledger, plan_on_problem *tell, void *context);

/* -1 with the first problem: nothing is made of a plan that was changed behind the ledger. */
int plan_check(const char *folder, const struct ledger *ledger, struct error *error);

#endif
