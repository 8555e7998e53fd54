/* Cells: for each arm and workload of a plan, the attempt that counts in each block, what may be made of it, and why
 * there is none.
 *
 * Everything is borrowed from the plan and the run, which must outlive the cells. */
#ifndef ANALYZE_CELLS_H
#define ANALYZE_CELLS_H

#include "analyze/samples.h"
#include "collect/plan.h"
#include "collect/record/run.h"
#include "collect/session.h"

#include <stdbool.h>

/* Why something is missing. Zero-initialised: nothing is. */
struct reason {
    const char *rule; /* id */
    char *detail;
};

/* `detail` is taken over. */
struct reason reason_make(enum rule_id rule, char *detail);

/* From the first invalid verdict on the attempt that voids any of `metrics` for the workload; empty where there is
 * none. */
struct reason reason_from_verdicts(const struct attempt *attempt, const struct verdicts *verdicts, const char *workload,
                                   unsigned metrics);
struct reason reason_copy(const struct reason *reason);
void reason_free(struct reason *reason);

struct cell_block {
    const struct judged *counted; /* NULL: none, for `reason` */
    unsigned voided;              /* enum rule_metric: what no number may be made of, although the attempt counts */
    struct reason reason;         /* also of what is voided */
    struct verdicts verdicts;     /* of rules that see the run beside the attempt */
};

struct cell {
    const struct arm *arm;
    const struct plan_workload *workload;
    const char *cell_hash;        /* of the attempts that count; NULL where there is no attempt, "" where none counts,
                                   * since all are of other settings than the other cells */
    const struct attempt *newest; /* of that hash; where it is "" one of the settings that count */
    int tries;                    /* attempts of any hash */
    struct cell_block *blocks;    /* blocks[b - 1] */
};

struct cells {
    const struct plan *plan;
    const struct run *run;
    struct sessions sessions;
    int before; /* blocks of the run that precede those of these cells, which are counted from 1 */
    int blocks; /* the plan's, or more where more were measured */
    struct cell *items;
    int count;                /* arms x workloads, arm by arm */
    struct verdicts verdicts; /* of rules of scope run */
};

/* The blocks that are reported; or those of tuning before them, where the plan has such. */
enum cells_part { CELLS_REPORTED, CELLS_TUNING };
void cells_init(const struct plan *plan, const struct run *run, enum cells_part part, struct cells *cells);
void cells_free(struct cells *cells);

/* The attempt's block among those of the cells, from 1; 0 where it is of none. */
int cells_block_of(const struct cells *cells, const struct attempt *attempt);

struct cell *cells_at(const struct cells *cells, int arm, int workload);

/* The cell of plain decoding on as many ranks and with as many requests in flight; NULL where there is none. */
const struct cell *cells_find_auto(const struct cells *cells, const struct arm *arm,
                                   const struct plan_workload *workload);

/* The attempt to make `metrics` of in that block; NULL where there is none. */
const struct attempt *cell_usable(const struct cell *cell, int block, unsigned metrics);

/* FINGERPRINT, or MIXED_DEVICES where the attempt did not run on what the other one ran on. */
enum rule_id cells_other_settings(const struct attempt *attempt, const struct attempt *other);

/* Whether `a` was begun after `b`: by the ledger; by the clock only where the ledger is silent. */
bool cells_is_newer(const struct run *run, const struct attempt *a, const struct attempt *b);

/* Notes what an invalid verdict beside the baseline voids in the arm's own cell. */
void cell_void(struct cell *cell, int block, const struct verdicts *verdicts);

/* The metrics that invalid verdicts void for the workload: a bit set of enum rule_metric. */
unsigned cells_void_metrics(const struct verdicts *verdicts, const char *workload);

/* Whether the verdict speaks of the workload. */
bool cells_verdict_applies(const struct verdict *verdict, const char *workload);

#endif
