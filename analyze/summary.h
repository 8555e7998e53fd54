/* summary.json (schema cleanslate.summary/1): every number that a report prints, with its interval, its n and the
 * attempts it came from; every verdict and exclusion; the ledger's head. It depends on the run folder alone: no clock
 * and no host is in it, so that the same run gives the same bytes. What is missing is null, with the rule that says
 * why. */
#ifndef ANALYZE_SUMMARY_H
#define ANALYZE_SUMMARY_H

#include "collect/plan.h"
#include "collect/record/run.h"

#include <jansson.h>

#define SUMMARY_SCHEMA "cleanslate.summary/1"
#define SUMMARY_PROGRAM "cleanslate"
#define SUMMARY_PROGRAM_VERSION "0.1.0"

/* The run's summary under this plan. A new reference, or NULL: where the plan file cannot be hashed, or the ledger's
 * chain is broken. */
json_t *summary_build(const struct run *run, const struct plan *plan, struct error *error);

/* The rules that the summary names anywhere, with what explains them: its "rules". A new reference. */
json_t *summary_make_rules(const json_t *summary);

/* Writes it whole, making the folder. */
int summary_write(const json_t *summary, const char *path, struct error *error);

#endif
