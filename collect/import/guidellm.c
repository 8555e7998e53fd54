/* GuideLLM's benchmarks.json: a run for each strategy, with its requests where the file has all of them. Times of day
 * and latencies are in seconds, what is called _ms in milliseconds; its time per output token includes the first, so
 * that it is made anew from the inter token latency. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number_of(const json_t *object, const char *key)
{
    return document_number(json_object_get(object, key));
}

static double mean_of(const json_t *metrics, const char *key)
{
    return number_of(json_object_get(json_object_get(metrics, key), "successful"), "mean");
}

static int count_of(double value)
{
    return value >= 0 && value <= 1 << 24 ? (int)value : ATTEMPT_ABSENT;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static double start_of(const json_t *request)
{
    const double start_s = number_of(request, "request_start_time");
    return isnan(start_s) ? number_of(request, "start_time") : start_s;
}

static double end_of(const json_t *request)
{
    const double end_s = number_of(request, "request_end_time");
    return isnan(end_s) ? number_of(request, "end_time") : end_s;
}

static void add_request(struct imported *imported, const json_t *request, bool ok, double zero_s)
{
    char *prompt = xformat("%d", imported->sample_count + 1);
    struct sample *sample = imported_add_sample(imported, IMPORTED_WORKLOAD, prompt);
    const char *message = json_string_value(json_object_get(request, "error"));
    const double gap_ms = number_of(request, "inter_token_latency_ms");
    sample->prompt_tokens = count_of(number_of(request, "prompt_tokens"));
    sample->tokens = count_of(number_of(request, "output_tokens"));
    sample->ok = ok;
    sample->error_message = ok ? NULL : xstrdup(message ? message : "no message");
    sample->start_ns = unit_ns(start_of(request) - zero_s, NS_OF_S);
    sample->end_ns = sample->start_ns >= 0 ? unit_ns(end_of(request) - zero_s, NS_OF_S) : ATTEMPT_ABSENT;
    if (ok) {
        sample->first_tokens = 1;
        sample->ttft_ns = unit_ns(number_of(request, "time_to_first_token_ms"), NS_OF_MS);
        sample->decode_ns = unit_ns(gap_ms * (sample->tokens - 1), NS_OF_MS);
    }
    static const char *const known[] = {
        "prompt_tokens",    "output_tokens",          "error", "inter_token_latency_ms", "request_start_time",
        "request_end_time", "time_to_first_token_ms", NULL};
    imported_keep(imported, request, known);
    free(prompt);
}

/* What was under way when the time was up is neither answered nor failed. */
static void add_requests(struct imported *imported, const json_t *requests)
{
    static const char *const kinds[] = {"successful", "errored"};
    double zero_s = NAN;
    for (int kind = 0; kind < 2; kind++) {
        const json_t *list = json_object_get(requests, kinds[kind]);
        for (size_t i = 0; i < json_array_size(list); i++)
            zero_s = fmin(zero_s, start_of(json_array_get(list, i)));
    }
    for (int kind = 0; kind < 2; kind++) {
        const json_t *list = json_object_get(requests, kinds[kind]);
        for (size_t i = 0; i < json_array_size(list); i++)
            add_request(imported, json_array_get(list, i), kind == 0, zero_s);
    }
    char hash[FILE_HASH_SIZE];
    json_t *lengths = json_array();
    for (int i = 0; i < imported->sample_count; i++)
        json_append(lengths, json_integer(imported->samples[i].prompt_tokens));
    json_hash(lengths, hash);
    json_set(imported->settings, "prompts", json_string(hash));
    json_decref(lengths);
    imported->started_s = zero_s > 0 && zero_s < 1e11 ? (int64_t)zero_s : ATTEMPT_ABSENT;
}

/* --- benchmarks --------------------------------------------------------------------------------------------------- */

static void set_concurrency(struct imported *imported, const json_t *strategy)
{
    static const char *const keys[] = {"streams", "max_concurrency"};
    const char *type = json_string_value(json_object_get(strategy, "type_"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *most = json_object_get(strategy, keys[i]);
        if (json_is_integer(most) && json_integer_value(most) > 0 && json_integer_value(most) <= 1000000)
            imported->concurrency = (int)json_integer_value(most);
    }
    if (type && strcmp(type, "synchronous") == 0)
        imported->concurrency = 1;
}

static void set_figures(struct imported *imported, const json_t *benchmark)
{
    const json_t *metrics = json_object_get(benchmark, "metrics"), *totals = json_object_get(metrics, "request_totals");
    const json_t *tokens = json_object_get(json_object_get(metrics, "output_token_count"), "successful");
    const double failed = number_of(totals, "errored"), completed = number_of(totals, "successful");
    const double sum = number_of(tokens, "total_sum");
    struct observed *observed = &imported->observed;
    observed->completed = count_of(completed);
    observed->requests = count_of(completed + failed);
    observed->duration_ns = unit_ns(number_of(benchmark, "duration"), NS_OF_S);
    observed->ttft_ns = mean_of(metrics, "time_to_first_token_ms") * NS_OF_MS;
    observed->tpot_ns = mean_of(metrics, "inter_token_latency_ms") * NS_OF_MS;
    observed->e2e_ns = mean_of(metrics, "request_latency") * NS_OF_S;
    observed->tokens = sum >= 0 && sum < 1e15 ? llround(sum) : ATTEMPT_ABSENT;
}

/* The lists may be a sample of the requests. */
static bool are_all(const struct imported *imported, const json_t *requests)
{
    const size_t count = json_array_size(json_object_get(requests, "successful"));
    return count > 0 && (size_t)imported->observed.completed == count;
}

static void read_benchmark(const struct document *document, const json_t *benchmark, const json_t *metadata,
                           struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, benchmark);
    json_t *requests = take_node(imported->rest, "requests");
    const json_t *config = json_object_get(benchmark, "config");
    const json_t *strategy = json_object_get(config, "strategy");
    strategy = strategy ? strategy : json_object_get(json_object_get(benchmark, "args"), "strategy");
    set_concurrency(imported, strategy);
    set_figures(imported, benchmark);
    if (are_all(imported, requests))
        add_requests(imported, requests);
    if (json_object_get(metadata, "guidellm_version"))
        json_set(imported->source, "version", json_incref(json_object_get(metadata, "guidellm_version")));
    if (strategy)
        json_set(imported->settings, "strategy", json_incref((json_t *)strategy));
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
    json_decref(requests);
}

void guidellm_read(const struct document *document, const json_t *record, struct imports *imports)
{
    const json_t *benchmarks = json_object_get(record, "benchmarks");
    for (size_t i = 0; i < json_array_size(benchmarks); i++)
        read_benchmark(document, json_array_get(benchmarks, i), json_object_get(record, "metadata"), imports);
}
