/* The summary (schema cleanslate.summary/1) as render reads it: every number that is printed, with its interval and its
 * n.
 *
 * Strings are borrowed from the JSON document, which the summary owns. What is missing is NaN, NULL or an interval that
 * is not present; it is never 0. Arms and workloads are referred to by their index. */
#ifndef RENDER_SUMMARY_H
#define RENDER_SUMMARY_H

#include "collect/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SUMMARY_SCHEMA "cleanslate.summary/1"
#define SUMMARY_ALL_WORKLOADS (-1)

enum summary_stage { SUMMARY_DRAFT, SUMMARY_BUILD, SUMMARY_VERIFY, SUMMARY_COMMIT, SUMMARY_OTHER, SUMMARY_STAGE_COUNT };
extern const char *const summary_stage_names[SUMMARY_STAGE_COUNT];

/* value [low, high]; low and high are NaN where there is a point without an interval. */
struct interval {
    bool present;
    double value, low, high;
    int n;
    const char *over; /* "blocks" or "prompts" */
};

/* Limits without a point; NaN where there are none. */
struct limits {
    double low, high;
};

/* Why there is no number; rule NULL where there is one. */
struct missing {
    const char *rule, *detail;
};

struct summary_arm {
    const char *name, *label, *method;
    int tensor_parallel, budget, concurrency;
};

struct summary_workload {
    const char *name, *prompts;
    int count, max_new_tokens;
    bool ignore_eos;
};

struct cell {
    int arm, workload;
    int blocks_valid, blocks_planned, tries, excluded;
    struct interval tokens_per_s, tpot_ms, ttft_ms, tau;
    double tau_request_mean, tau_emitted;
    double *histogram; /* [histogram_count]: rounds that committed so many tokens; NULL where there is none */
    int histogram_count;
    double rounds;
    double stages_ms[SUMMARY_STAGE_COUNT], stages_share[SUMMARY_STAGE_COUNT];
    struct missing missing;
    const json_t *marks; /* strings: ids of rules that found it suspect; may be NULL */
};

struct comparison {
    int arm, baseline, workload; /* workload: SUMMARY_ALL_WORKLOADS over all of them */
    struct interval speedup, speedup_end_to_end;
    bool headline, best;
    struct limits simultaneous, fieller;
    double p, p_holm, sign_flip_p;
    const json_t *blocks;  /* [{"block", "log_ratio", ...}]; may be NULL */
    const json_t *dropped; /* [{"block", "rule", "detail"}]; may be NULL */
    struct missing missing;
    const json_t *marks;
};

struct summary_verdict {
    const char *attempt, *workload, *rule, *level, *detail, *time, *actor;
    double observed, threshold;
};

struct summary_run {
    const char *name, *ledger_head, *plan_sha256, *first_started, *last_started;
    int64_t ledger_lines;
    int sessions, attempts, attempts_invalid;
};

struct summary {
    json_t *json;
    const char *name, *title, *program_name, *program_version;
    const json_t *machine, *source;
    int blocks, warmup, min_blocks;
    const json_t
        *extended_from; /* integers: of how many blocks results could be seen when others were added; or NULL */
    int64_t seed;
    double temperature, alpha, level;
    const char *interval_kind, *multiplicity;
    const char *tokens_counted; /* a sentence on what counts as a token */
    struct summary_run *runs;
    struct summary_arm *arms;
    struct summary_workload *workloads;
    struct cell *cells;
    struct comparison *comparisons;
    struct summary_verdict *verdicts;
    const json_t *rules;
    int run_count, arm_count, workload_count, cell_count, comparison_count, verdict_count;
    bool labels_unique;
};

/* Reads and checks the file: one line that names file and place for whatever is damaged. */
int summary_read(const char *path, struct summary *summary, struct error *error);
void summary_free(struct summary *summary);

const struct cell *summary_find_cell(const struct summary *summary, int arm, int workload);

/* The comparison of `arm` with the arm of method `baseline` ("auto", "linear") that it was paired with; NULL where
 * there is none. */
const struct comparison *summary_compare(const struct summary *summary, int arm, const char *baseline, int workload);

/* What tables and figures call an arm: its label, or its name where two arms share a label. */
const char *summary_arm_text(const struct summary *summary, int arm);

/* The workload's name; "all workloads" for SUMMARY_ALL_WORKLOADS. */
const char *summary_workload_text(const struct summary *summary, int workload);

bool summary_is_method(const struct summary *summary, int arm, const char *method);

/* The sentence that explains a rule, or NULL. */
const char *summary_explain(const struct summary *summary, const char *rule);

/* Seconds since 1970 of the last attempt's start, 0 where no run says: the date that files are stamped with. */
int64_t summary_date(const struct summary *summary);

#endif
