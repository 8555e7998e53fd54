/* The parts of a summary, for summary.c alone. Each answers a new reference. */
#ifndef ANALYZE_SUMMARY_PARTS_H
#define ANALYZE_SUMMARY_PARTS_H

#include "analyze/statistics.h"
#include "analyze/suspects.h"

#include <jansson.h>

#define SUMMARY_MARGIN 0.02 /* times that differ by less are equal for most purposes */

/* What takes the throughput of all requests together, their prefills among them. */
enum { SUMMARY_VOIDS_AGGREGATE = RULE_VOIDS_TIMES | RULE_VOIDS_TTFT | RULE_VOIDS_THROUGHPUT };

/* What takes the time of a round: where tau is void, so is the number of rounds. */
enum { SUMMARY_VOIDS_ROUND = RULE_VOIDS_TIMES | RULE_VOIDS_TAU };

/* "cells", "comparisons", "verdicts". tuning NULL: the plan has no tuning blocks. */
json_t *summary_make_cells(const struct comparisons *comparisons);
json_t *summary_make_comparisons(const struct comparisons *comparisons);
json_t *summary_make_verdicts(const struct comparisons *comparisons, const struct comparisons *tuning);

json_t *summary_make_best_budgets(const struct comparisons *comparisons, const struct comparisons *tuning);

/* "scaling", "round_models", "drift", "telemetry", "gpus". */
json_t *summary_make_scaling(const struct cells *cells);
json_t *summary_make_round_models(const struct cells *cells);
json_t *summary_make_drift(const struct drift *drift);
json_t *summary_make_telemetry(const struct run *run);
json_t *summary_make_gpus(const struct run *run);

/* Sets a cell's INTERVALs made of one number an attempt; `without` not NULL: those that are estimated a second time. */
void summary_set_metrics(const struct cells *cells, const struct cell *cell, const struct suspects *without,
                         json_t *object);

json_t *summary_make_communicate_share(const struct cells *cells, const struct cell *cell);

/* Sets "tau" alone; all that is said of rounds. */
void summary_set_tau(const struct cells *cells, const struct cell *cell, const struct suspects *without,
                     json_t *object);
void summary_set_rounds(const struct cells *cells, const struct cell *cell, json_t *object);

/* A cell's quantiles. */
json_t *summary_make_latency(const struct cells *cells, const struct cell *cell);

/* The single workloads that a comparison is made of: itself, or *count parts. */
const struct comparison *summary_parts_of(const struct comparisons *comparisons, const struct comparison *comparison,
                                          int *count);

/* Whether blocks were measured side by side, which an interval over their ratios assumes; and the log interval of what
 * pairs gave, a point where they were not. */
bool summary_is_paired(const struct comparisons *comparisons, const struct comparison *comparison);
struct interval summary_estimate_pairs(const struct comparisons *comparisons, const struct comparison *comparison,
                                       const double *logs, int count);

/* The interval of a comparison's speedup, simultaneous with those of `family` comparisons. */
struct interval summary_estimate_speedup(const struct comparisons *comparisons, const struct comparison *comparison,
                                         int family);

/* REASON why a comparison has no pair. */
json_t *summary_make_pairs_missing(const struct comparisons *comparisons, const struct comparison *comparison);

/* Welch's interval for the speedup of `arm` over `baseline` on a workload, of all their blocks that are not void. */
struct interval summary_estimate_unpaired(const struct cells *cells, const struct arm *arm, const struct arm *baseline,
                                          const struct plan_workload *workload, unsigned voided_by);

/* The rules that suspect what an unpaired speedup of the comparison is made of; none where it has no such. */
void summary_note_unpaired_marks(const struct comparisons *comparisons, const struct comparison *comparison,
                                 bool *marks);

/* Sets a comparison's further INTERVALs. */
void summary_set_pairs(const struct comparisons *comparisons, const struct comparison *comparison, json_t *object);

/* Unless the array has the text, from index `from` on. */
void summary_append_once(json_t *array, size_t from, const char *text);

/* {"rules", "outliers", "attempts"}; takes both arrays over. */
json_t *summary_make_without(const struct suspects *suspects, json_t *attempts, json_t *outliers);

/* What was asked for: the report's claims by the newest plan; how it was measured, by that of the newest attempt that
 * counts. */
json_t *summary_make_plan(const struct cells *cells);

/* For each time that blocks were added to the plan when results could be seen: of how many blocks. */
json_t *summary_make_extensions(const struct plan *plan, const struct run *run);

/* {"value", "low", "high", "n", "over"}; null without a value. */
json_t *summary_make_interval(struct interval interval, const char *over);

/* {"low", "high"}; null where one is missing or infinite. */
json_t *summary_make_limits(struct interval interval);

/* "verdict" and "within_margin": what may be said by an interval of a ratio. */
void summary_set_verdict(struct interval of, json_t *object);

/* The log interval of what the blocks gave: without limits below the plan's MIN_BLOCKS. */
struct interval summary_estimate(const struct plan *plan, const double *logs, int count, double alpha);

/* {"rule", "detail"}; null for an empty reason. */
json_t *summary_make_reason(const struct reason *reason);

json_t *summary_text_or_null(const char *text);

/* Rules with a suspect verdict for the workload are noted in marks[RULE_COUNT]. */
void summary_note_marks(const struct verdicts *verdicts, const char *workload, bool *marks);
json_t *summary_make_marks(const bool *marks);

/* The files that imports were read from: "file", "sha256", "attempts" (ids). Empty where there are none. */
json_t *summary_make_imports(const struct run *run);

/* Of an import's "source" what all imports that count have in common, and the tools of them all. */
void summary_keep_common_source(const struct cells *cells, json_t *source);

#endif
