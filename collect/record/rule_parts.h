/* The judges that rule_table.c lists, and what they share. Each rule's is named after it: it appends a verdict where it
 * fires, and nothing where it does not. For the files rule_*.c alone. */
#ifndef COLLECT_RECORD_RULE_PARTS_H
#define COLLECT_RECORD_RULE_PARTS_H

#include "collect/record/rule.h"

/* rule_sample.c: what one request says of itself */
rule_judge rule_zero_tokens, rule_empty_stream, rule_zero_latency, rule_inband_error, rule_tokens_mismatch, rule_clock,
    rule_accept_sum;

/* rule_workload.c: what the requests of a workload say together */
rule_judge rule_all_failed, rule_failed_request, rule_context_overflow, rule_output_short, rule_output_long,
    rule_repetition, rule_past_eos, rule_prefix_cache_hit, rule_itl_per_chunk;

/* rule_attempt.c: what an attempt says as a whole */
rule_judge rule_incomplete, rule_accept_out_of_range, rule_audit_regret, rule_synthetic_acceptance, rule_shared_device,
    rule_too_few_requests, rule_cold_first, rule_short_run;

/* rule_throttled.c: what devices said meanwhile */
rule_judge rule_throttled;

/* rule_source.c: what the source says of itself */
rule_judge rule_concurrency_capped, rule_cache_starved, rule_littles_law, rule_peak_lt_mean, rule_server_died,
    rule_out_of_memory, rule_silent, rule_counter_reset, rule_spec_metrics_missing;

/* rule_import.c: what another tool's file says, or does not */
rule_judge rule_declared_invalid, rule_source_damaged, rule_times_unknown, rule_prefill_included;

/* The same of a workload for rules of other files, where the file has no requests: it is stated. */
void rule_stated_failures(const struct attempt *attempt, double threshold, struct verdicts *verdicts);
void rule_stated_acceptance(const struct attempt *attempt, struct verdicts *verdicts);
void rule_stated_rate(const struct attempt *attempt, struct verdicts *verdicts);
void rule_stated_short(const struct attempt *attempt, double threshold, struct verdicts *verdicts);

/* rule_pair.c: an attempt beside its baseline */
rule_judge_beside rule_output_diverges, rule_unpaired_import, rule_mixed_servers;

/* --- what they look at: rule_parts.c ------------------------------------------------------------------------------ */

/* A value within the header's "source", or within an object of it; NULL where there is none. */
const json_t *rule_source_value(const struct attempt *attempt, const char *object, const char *key);
bool rule_source_is(const struct attempt *attempt, const char *key, const char *text);

/* How far below the best logit a chosen token may lie before it is suspect, and before it is wrong. */
struct rule_regret_limits {
    double suspect, invalid;
};

struct rule_regret_limits rule_regret_limits(const struct attempt *attempt);

typedef bool rule_sample_test(const struct attempt *attempt, const struct sample *sample);

rule_sample_test rule_any, rule_ok;

struct rule_tally {
    int seen, found;
    const struct sample *first; /* of those found */
};

/* Of the workload's measured samples that `counts`, those for which `test` holds. */
struct rule_tally rule_tally(const struct attempt *attempt, const char *workload, rule_sample_test *counts,
                             rule_sample_test *test);

/* A verdict for each workload that has a sample for which `test` holds. */
void rule_judge_each(const struct attempt *attempt, enum rule_id rule, rule_sample_test *counts, rule_sample_test *test,
                     const char *what, struct verdicts *verdicts);

/* Requests, as stated where the attempt has none. */
int rule_count_measured(const struct attempt *attempt);

/* From the first start of a measured sample to the last end, where they are known; NaN where none is. */
struct rule_span {
    double first_ns, last_ns;
};

struct rule_span rule_measured_span(const struct attempt *attempt);

/* Of values, which are sorted thereby; NaN of none. */
double rule_median(double *values, int count);

#endif
