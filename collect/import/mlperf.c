/* MLPerf LoadGen: the summary's lines and the log's entries say the same under different names, in nanoseconds. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a run says, under the names of either file. */
struct names {
    const char *validity, *scenario, *mode, *query_count, *errors;
    const char *ttft, *tpot, *latency, *requests_per_s, *tokens_per_s, *sut;
    const char *reason; /* of an invalid run */
};

static const struct names summary_names = {
    .validity = "Result is",
    .scenario = "Scenario",
    .mode = "Mode",
    .query_count = "query_count",
    .errors = "num_errors",
    .ttft = "Mean First Token latency (ns)",
    .tpot = "Mean Time to Output Token (ns)",
    .latency = "Mean latency (ns)",
    .requests_per_s = "Completed samples per second",
    .tokens_per_s = "Completed tokens per second",
    .sut = "SUT name",
    .reason = "Recommendations",
};

static const struct names log_names = {
    .validity = "result_validity",
    .scenario = "effective_scenario",
    .mode = "effective_test_mode",
    .query_count = "result_query_count",
    .errors = "num_errors",
    .ttft = "result_first_token_mean_latency_ns",
    .tpot = "result_time_to_output_token_mean",
    .latency = "result_mean_latency_ns",
    .requests_per_s = "result_completed_samples_per_sec",
    .tokens_per_s = "result_completed_tokens_per_second",
    .sut = "sut_name",
    .reason = "result_invalid_reason",
};

static void set_validity(struct imported *imported, const struct names *names)
{
    char *validity = take_text(imported->rest, names->validity);
    char *reason = take_text(imported->rest, names->reason);
    if (validity && strcmp(validity, "VALID") != 0)
        imported->invalid = xformat("%s%s%s", validity, reason ? ": " : "", reason ? reason : "");
    free(validity);
    free(reason);
}

/* Queries come at a rate; how many at a time follows from that and how long they take, not from a setting. */
static void read_run(struct imported *imported, const struct names *names)
{
    struct observed *observed = &imported->observed;
    const int64_t queries = take_count(imported->rest, names->query_count);
    const int64_t errors = take_count(imported->rest, names->errors);
    char *scenario = take_text(imported->rest, names->scenario);
    observed->ttft_ns = take_number(imported->rest, names->ttft);
    observed->tpot_ns = take_number(imported->rest, names->tpot);
    observed->e2e_ns = take_number(imported->rest, names->latency);
    observed->requests_per_s = take_number(imported->rest, names->requests_per_s);
    observed->tokens_per_s = take_number(imported->rest, names->tokens_per_s);
    if (queries >= 0 && queries <= 1 << 24) {
        observed->requests = (int)queries;
        observed->completed = errors > 0 && errors <= queries ? (int)(queries - errors) : (int)queries;
    }
    set_validity(imported, names);
    take_into(imported->rest, names->mode, imported->settings, "mode");
    take_into(imported->rest, names->sut, imported->source, "sut");
    imported->workload = xstrdup(scenario ? scenario : IMPORTED_WORKLOAD);
    free(scenario);
}

void mlperf_read_summary(const struct document *document, const json_t *record, struct imports *imports)
{
    read_run(imports_add(imports, document, record), &summary_names);
}

/* The last entry of a key counts. */
void mlperf_read_log(const struct document *document, const json_t *records, struct imports *imports)
{
    json_t *run = json_object();
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *record = json_array_get(records, i);
        const char *key = json_string_value(json_object_get(record, "key"));
        if (key)
            json_set(run, key, json_incref(json_object_get(record, "value")));
    }
    if (json_object_get(run, log_names.validity))
        read_run(imports_add(imports, document, run), &log_names);
    json_decref(run);
}
