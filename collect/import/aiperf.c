/* AIPerf: its export, one object a run (older ones keep the metrics under "records"), and its records, a request a
 * line. Every metric names its unit. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* metrics[key].member in nanoseconds where it has a unit of time, else as it is; NaN where it is not there. The first
 * of two names counts, which newer and older versions give it. */
static double read_metric(const json_t *metrics, const char *key, const char *older, const char *member)
{
    const json_t *metric = json_object_get(metrics, key);
    metric = metric ? metric : json_object_get(metrics, older);
    const double factor = unit_factor(json_string_value(json_object_get(metric, "unit")));
    const double value = document_number(json_object_get(metric, member));
    return isnan(factor) ? value : value * factor;
}

static int64_t count_of(double value)
{
    return value >= 0 && value <= 1e15 ? llround(value) : ATTEMPT_ABSENT;
}

/* --- the export --------------------------------------------------------------------------------------------------- */

static int count_cancelled(const json_t *summary)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(summary); i++) {
        const json_t *entry = json_array_get(summary, i);
        const char *type = json_string_value(json_object_get(json_object_get(entry, "error_details"), "type"));
        if (type && strcmp(type, "RequestCancellationError") == 0)
            count += (int)json_integer_value(json_object_get(entry, "count"));
    }
    return count;
}

static void set_invalid(struct imported *imported, const json_t *record)
{
    const json_t *reasons = json_object_get(record, "runtime_submission_invalid_reasons");
    char *list = json_array_size(reasons) ? json_dumps(reasons, JSON_COMPACT) : NULL;
    if (json_is_true(json_object_get(record, "was_cancelled")))
        imported->invalid = xstrdup("the run was cancelled");
    else if (list)
        imported->invalid = xstrdup(list);
    free(list);
}

static void set_load(struct imported *imported, const json_t *record)
{
    const json_t *config = json_object_get(record, "input_config"), *load = json_object_get(config, "loadgen");
    const json_t *models = json_object_get(json_object_get(config, "endpoint"), "model_names");
    const json_t *most = json_object_get(load, "concurrency"), *asked = json_object_get(config, "input");
    if (json_is_integer(most) && json_integer_value(most) > 0 && json_integer_value(most) <= 1000000)
        imported->concurrency = (int)json_integer_value(most);
    if (json_array_size(models) == 1)
        json_set(imported->source, "model_id", json_incref(json_array_get(models, 0)));
    if (asked)
        json_set(imported->settings, "input", json_incref((json_t *)asked));
}

void aiperf_read_export(const struct document *document, const json_t *record, struct imports *imports)
{
    const json_t *older = json_object_get(record, "records"), *metrics = json_is_object(older) ? older : record;
    struct imported *imported = imports_add(imports, document, record);
    struct observed *observed = &imported->observed;
    const int64_t completed = count_of(read_metric(metrics, "request_count", NULL, "avg"));
    const int64_t failed = count_of(read_metric(metrics, "error_request_count", NULL, "avg"));
    observed->completed = completed >= 0 ? (int)completed : ATTEMPT_ABSENT;
    observed->requests = completed >= 0 && failed >= 0 ? (int)(completed + failed) : ATTEMPT_ABSENT;
    observed->cancelled = count_cancelled(json_object_get(record, "error_summary"));
    observed->ttft_ns = read_metric(metrics, "time_to_first_token", "ttft", "avg");
    observed->e2e_ns = read_metric(metrics, "request_latency", NULL, "avg");
    observed->tpot_ns = read_metric(metrics, "inter_token_latency", NULL, "avg");
    observed->itl_ns = read_metric(metrics, "inter_chunk_latency", NULL, "avg");
    observed->duration_ns = count_of(read_metric(metrics, "benchmark_duration", NULL, "avg"));
    observed->tokens = count_of(read_metric(metrics, "total_osl", NULL, "avg"));
    observed->tokens_per_s = read_metric(metrics, "output_token_throughput", NULL, "avg");
    set_load(imported, record);
    set_invalid(imported, record);
    take_into(imported->rest, "aiperf_version", imported->source, "version");
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* The first of the three that names the request alike in every run. */
static char *name_prompt(const json_t *metadata, size_t index)
{
    const json_t *session = json_object_get(metadata, "session_num"), *turn = json_object_get(metadata, "turn_index");
    const char *id = json_string_value(json_object_get(metadata, "conversation_id"));
    const long long number = json_is_integer(turn) ? json_integer_value(turn) : 0;
    if (json_is_integer(session))
        return xformat("%lld-%lld", (long long)json_integer_value(session), number);
    return id ? xformat("%.100s-%lld", id, number) : xformat("%zu", index + 1);
}

static int64_t time_of(const json_t *object, const char *key, const char *older)
{
    const json_t *value = json_object_get(object, key);
    value = value ? value : json_object_get(object, older);
    return json_is_integer(value) ? json_integer_value(value) : ATTEMPT_ABSENT;
}

static int64_t start_of(const json_t *record)
{
    return time_of(json_object_get(record, "metadata"), "request_start_ns", "timestamp_ns");
}

static void set_error(struct sample *sample, const json_t *error)
{
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const json_int_t code = json_integer_value(json_object_get(error, "code"));
    const bool cancelled = type && strcmp(type, "RequestCancellationError") == 0;
    sample->ok = false;
    sample->error_code = cancelled ? xstrdup(SAMPLE_CANCELLED) : NULL;
    sample->error_http_status = code > 0 && code <= 999 ? (int)code : ATTEMPT_ABSENT;
    sample->error_message = xformat("%s: %s", type ? type : "error", message ? message : "no message");
}

static int tokens_of(const json_t *metrics)
{
    const double all = read_metric(metrics, "output_sequence_length", NULL, "value");
    const double text = read_metric(metrics, "output_token_count", NULL, "value");
    const double thought = read_metric(metrics, "reasoning_token_count", NULL, "value");
    const double sum = isnan(text) ? thought : text + (isnan(thought) ? 0 : thought);
    const int64_t count = count_of(isnan(all) ? sum : all);
    return count > 0 && count <= 1 << 24 ? (int)count : ATTEMPT_ABSENT;
}

/* A time a token is of those behind the first chunk, where the server said how many that held; else behind one. */
static int first_tokens_of(const json_t *metrics, int tokens, double decode_ns)
{
    const double others = decode_ns / read_metric(metrics, "inter_token_latency", NULL, "value");
    return others >= 0.5 && others < tokens - 1 ? tokens - (int)lround(others) : 1;
}

/* Times of day are kept as differences, which doubles of today's nanoseconds could not tell apart. */
static void set_times(struct sample *sample, const json_t *record, int64_t zero_ns)
{
    const json_t *metrics = json_object_get(record, "metrics"), *metadata = json_object_get(record, "metadata");
    const json_t *last = json_object_get(json_object_get(metrics, "max_response_timestamp"), "value");
    const int64_t start_ns = start_of(record);
    int64_t end_ns = time_of(metadata, "request_end_ns", NULL);
    const double ttft_ns = read_metric(metrics, "time_to_first_token", "ttft", "value");
    const double whole_ns = read_metric(metrics, "request_latency", NULL, "value");
    end_ns = end_ns < 0 && json_is_integer(last) ? json_integer_value(last) : end_ns;
    const json_t *gaps = json_object_get(metrics, "inter_chunk_latency");
    const double factor = unit_factor(json_string_value(json_object_get(gaps, "unit")));
    sample_set_chunks(sample, ttft_ns, json_object_get(gaps, "value"), factor);
    sample->first_tokens = first_tokens_of(metrics, sample->tokens, whole_ns - ttft_ns);
    sample->ttft_ns = unit_ns(ttft_ns, 1);
    sample->decode_ns = unit_ns(whole_ns - ttft_ns, 1);
    sample->start_ns = start_ns >= zero_ns ? unit_ns((double)(start_ns - zero_ns), 1) : ATTEMPT_ABSENT;
    sample->end_ns =
        sample->start_ns >= 0 && end_ns >= zero_ns ? unit_ns((double)(end_ns - zero_ns), 1) : ATTEMPT_ABSENT;
}

static void add_request(struct imported *imported, const json_t *record, size_t index, int64_t zero_ns)
{
    const json_t *metadata = json_object_get(record, "metadata"), *metrics = json_object_get(record, "metrics");
    const json_t *error = json_object_get(record, "error");
    const char *phase = json_string_value(json_object_get(metadata, "benchmark_phase"));
    phase = phase ? phase : json_string_value(json_object_get(metadata, "credit_phase"));
    char *prompt = name_prompt(metadata, index);
    struct sample *sample = imported_add_sample(imported, IMPORTED_WORKLOAD, prompt);
    const int64_t in = count_of(read_metric(metrics, "input_sequence_length", NULL, "value"));
    sample->warmup = phase && strcmp(phase, "warmup") == 0;
    sample->prompt_tokens = in >= 0 && in <= 1 << 24 ? (int)in : ATTEMPT_ABSENT;
    if (json_is_object(error)) {
        set_error(sample, error);
    } else {
        sample->tokens = tokens_of(metrics);
        set_times(sample, record, zero_ns);
    }
    static const char *const known[] = {"error", NULL};
    imported_keep(imported, record, known);
    free(prompt);
}

void aiperf_read_requests(const struct document *document, const json_t *records, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, NULL);
    int64_t zero_ns = INT64_MAX;
    for (size_t i = 0; i < json_array_size(records); i++) {
        const int64_t start_ns = start_of(json_array_get(records, i));
        zero_ns = start_ns >= 0 && start_ns < zero_ns ? start_ns : zero_ns;
    }
    imported->started_s = zero_ns < INT64_MAX ? zero_ns / 1000000000 : ATTEMPT_ABSENT;
    for (size_t i = 0; i < json_array_size(records); i++)
        add_request(imported, json_array_get(records, i), i, zero_ns);
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
}
