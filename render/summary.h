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

/* What latency quantiles are of. */
enum summary_metric { SUMMARY_TTFT, SUMMARY_TPOT, SUMMARY_END_TO_END, SUMMARY_METRIC_COUNT };
extern const char *const summary_metric_names[SUMMARY_METRIC_COUNT];

/* value [low, high]; low and high are NaN where there is a point without an interval. */
struct interval {
    bool present;
    double value, low, high;
    int n;
    const char *over; /* what n counts: "blocks", "prompts", "prompts and blocks", "unpaired blocks" */
};

/* Limits without a point; NaN where there are none. */
struct limits {
    double low, high;
};

/* Why there is no number; rule NULL where there is one. */
struct missing {
    const char *rule, *detail;
};

/* What was taken out for an estimate without suspect data; present where something is suspect. */
struct without {
    bool present;
    const json_t *rules; /* strings: ids; may be NULL */
    int attempts;        /* that are left */
};

struct summary_arm {
    const char *name, *label, *method;
    int tensor_parallel, budget, concurrency;
};

struct summary_workload {
    const char *name, *prompts, *template, *chat;
    int count, max_new_tokens, context_tokens; /* context_tokens: 0 where prompts are as long as they are */
    bool ignore_eos;
};

struct latency {
    enum summary_metric metric;
    double quantile;
    struct interval over_prompts, over_blocks;
};

/* What was compared with auto's output; counts are -1 where unknown. */
struct losslessness {
    bool present;
    int64_t requests, identical, diverged, audited_tokens;
    double audit_regret_max;
};

struct cell {
    int arm, workload;
    int blocks_valid, blocks_planned, tries, excluded, sessions; /* sessions: -1 where unknown */
    const json_t *extended_from;                                 /* integers; may be NULL */
    struct interval tokens_per_s, tpot_ms, ttft_ms, tau, end_to_end_tokens_per_s;
    struct interval aggregate_tokens_per_s, aggregate_per_device;
    struct missing aggregate_missing;
    bool pareto;
    struct latency *latency;
    int latency_count;
    double tau_request_mean, tau_emitted;
    double *histogram; /* [histogram_count]: rounds that committed so many tokens; NULL where there is none */
    int histogram_count;
    double rounds;
    struct interval round_ms, communicate_share, joules_per_token;
    double stages_ms[SUMMARY_STAGE_COUNT], stages_share[SUMMARY_STAGE_COUNT];
    const json_t *memory; /* bytes by kind; may be NULL */
    double peak_memory_bytes;
    struct losslessness losslessness;
    struct without without;
    struct interval without_tokens_per_s, without_tau;
    struct missing missing;
    const json_t *marks; /* strings: ids of rules that found it suspect; may be NULL */
};

struct comparison {
    int arm, baseline, workload; /* workload: SUMMARY_ALL_WORKLOADS over all of them */
    struct interval speedup, speedup_end_to_end, speedup_aggregate, speedup_prompts, speedup_identical;
    struct interval speedup_unpaired; /* where no block pairs: Welch's */
    bool headline, best, within_margin;
    struct limits simultaneous, fieller;
    double p, p_holm, p_bh, sign_flip_p;
    const char *verdict; /* "faster", "slower", "equal", "no difference shown"; NULL where none is due */
    struct interval break_even_tau;
    struct interval round_cost[SUMMARY_STAGE_COUNT]; /* in steps of the baseline */
    struct without without;
    struct interval without_speedup;
    const json_t *blocks;  /* [{"block", "log_ratio", ...}]; may be NULL */
    const json_t *dropped; /* [{"block", "rule", "detail"}]; may be NULL */
    struct missing missing;
    const json_t *marks;
};

struct scaling {
    int arm, reference, workload; /* reference: the arm of the same label with the fewest ranks */
    struct interval speedup, efficiency, communicate_share;
    const char *pairing; /* "paired", "unpaired" or NULL */
    struct missing missing;
    const json_t *marks;
};

struct best_budget {
    int tensor_parallel, concurrency, workload, budgets;
    int arm, baseline; /* -1 where there is none */
    const char *selected_on;
    struct interval tuning_speedup, speedup;
    struct limits bound;
    struct missing missing;
};

struct model_term {
    const char *name, *unit;
    struct interval estimate;
};

struct model_fit {
    int arm, workload;
    double nodes, context, observed_ms, fitted_ms, break_even_tau;
};

struct round_model {
    int tensor_parallel, points; /* points: cells by blocks that the model is made of */
    double r_squared, largest_misfit;
    struct model_term *terms;
    struct model_fit *fits;
    int term_count, fit_count;
};

struct residual {
    int arm, block;
    double residual; /* of log TPOT from the arm's mean */
    bool outlier;
};

struct drift {
    bool present;
    double p, change;
    int n;
    struct residual *residuals; /* in the order of the run */
    int residual_count;
};

/* NaN where there is none. */
struct reading {
    double mean, minimum, maximum;
};

struct device_readings {
    int arm, device;
    double start_s; /* from the run's first attempt */
    struct reading clock_mhz, temperature_c, power_w;
    bool slowdown, power_cap;
};

/* A speedup of two runs; tokens/s stand beside it and are not covered by any interval between runs. */
struct versus_cell {
    int arm, baseline, workload;
    struct interval before, after, change, tokens_before, tokens_after;
    struct limits simultaneous;
    const char *verdict;
    struct missing missing;
    const json_t *marks, *tokens_marks; /* of either run */
};

/* This run beside one before it; present where that was given. */
struct versus {
    bool present;
    const char *before, *after; /* the runs' names */
    struct versus_cell *cells;
    int cell_count;
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
    const json_t *gpus;    /* how they were set, or NULL */
    const json_t *imports; /* files of other tools, or NULL */
    int blocks, warmup, min_blocks;
    const json_t
        *extended_from; /* integers: of how many blocks results could be seen when others were added; or NULL */
    int64_t seed;
    double temperature, alpha, level, equivalence_margin;
    const char *interval_kind, *multiplicity;
    const char *tokens_counted; /* a sentence on what counts as a token */
    struct summary_run *runs;   /* the one that is reported; where versus is present, behind it the one before */
    struct summary_arm *arms;
    struct summary_workload *workloads;
    struct cell *cells;
    struct comparison *comparisons;
    struct scaling *scaling;
    struct best_budget *best_budgets;
    struct round_model *round_models;
    struct device_readings *telemetry;
    struct summary_verdict *verdicts;
    struct drift drift;
    struct versus versus;
    const json_t *rules;
    int run_count, arm_count, workload_count, cell_count, comparison_count, verdict_count;
    int scaling_count, best_budget_count, round_model_count, telemetry_count;
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

/* What a baseline is called beside the arm that is compared with it: its method where ranks and concurrency are the
 * arm's, as they are wherever it says nothing else. */
const char *summary_baseline_text(const struct summary *summary, const struct comparison *comparison);

/* The workload's name; "all workloads" for SUMMARY_ALL_WORKLOADS. */
const char *summary_workload_text(const struct summary *summary, int workload);

/* Whether two arms have equal ranks and concurrency: what is compared side by side. */
bool summary_alike(const struct summary *summary, int arm, int other);

/* "TP 4, 8 in flight": what alike arms share. free() it. */
char *summary_group_text(const struct summary *summary, int arm);

bool summary_is_method(const struct summary *summary, int arm, const char *method);

/* The sentence that explains a rule, or NULL. */
const char *summary_explain(const struct summary *summary, const char *rule);

/* Whether results are other tools' alone, of which nobody can say how they were measured. */
bool summary_is_imported(const struct summary *summary);

/* Of the run that is reported, the first, and not of the one before it. */
int summary_sessions(const struct summary *summary);
int summary_attempts(const struct summary *summary);
int summary_invalid_attempts(const struct summary *summary);

/* Seconds since 1970 of its last attempt's start, 0 where it does not say: the date that files are stamped with. */
int64_t summary_date(const struct summary *summary);

#endif
