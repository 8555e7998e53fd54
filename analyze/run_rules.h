/* Rules that judge what the attempts of a run say together: rows of rule_table that no single attempt can break. */
#ifndef ANALYZE_RUN_RULES_H
#define ANALYZE_RUN_RULES_H

#include "analyze/comparisons.h"

/* SPEEDUP_GT_ACCEPT, of a comparison over auto on one workload: a round costs at least a step of the target, so its
 * tokens bound the speedup. Where it is invalid the blocks are dropped. */
void run_rules_judge_speedup(const struct cells *cells, struct comparison *comparison);

/* KNOB_NO_EFFECT, noted at the blocks of the larger budget; DRIFT, noted at the run, of imports' repeats at their
 * workloads. */
void run_rules_judge_cells(struct cells *cells, const struct drift *drift);

#endif
