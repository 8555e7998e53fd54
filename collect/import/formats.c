#include "collect/import/format.h"

#include <stdlib.h>
#include <string.h>

/* The first row that fits counts: those with more to tell stand first. */
static const struct format formats[] = {
    {"SGLang bench_serving", {"request_throughput", "mean_ttft_ms", "mean_e2e_latency_ms"}, serving_read_sglang},
    {"InferenceX (vLLM)", {"request_throughput", "mean_ttft_ms", "request_goodput:"}, serving_read_vllm},
    {"vLLM bench serve", {"request_throughput", "mean_ttft_ms", "completed"}, serving_read_vllm},
    {"InferenceX", {"tput_per_gpu", "mean_ttft", "conc"}, inferencex_read},
    {"InferenceX synthetic acceptance",
     {"synthetic_acceptance_rates", "speculative_config"},
     inferencex_read_synthetic},
    {"SGLang bench_one_batch_server",
     {"batch_size", "input_len", "output_len", "latency", "last_ttft"},
     offline_read_one_batch},
    {"SpecForge", {"batch_size", "steps", "topk", "num_draft_tokens"}, offline_read_speculative},
    {"SpecForge",
     {"dataset", "output_tokens", "latency_seconds", "throughput_tokens_per_second"},
     offline_read_specforge},
    {"Lucebox sweep", {"config", "trial", "ddtree_budget", "decode_path"}, offline_read_lucebox},
    {"llama-bench", {"model_type", "n_prompt", "n_gen", "avg_ns"}, llama_bench_read},
    {"llama-bench", {"model", "params", "test", "t/s"}, llama_bench_read_markdown},
    {"AIPerf", {"input_config", "request_latency"}, aiperf_read_export, NULL, "aiperf"},
    {"AIPerf", {"input_config", "records"}, aiperf_read_export, NULL, "aiperf"},
    {"AIPerf", {"metadata", "metrics"}, NULL, aiperf_read_requests, "aiperf"},
    {"GuideLLM", {"benchmarks"}, guidellm_read},
    {"Spec-Bench", {"question_id", "choices"}, NULL, spec_bench_read},
    {"JetSpec", {"sample", "num_tokens", "decode_time_s"}, NULL, jetspec_read},
    {"specdec_bench", {"Acceptance_Length_Histogram"}, specdec_bench_read_acceptance, NULL, "specdec_bench"},
    {"specdec_bench", {"Output TPS", "TTFT Time"}, specdec_bench_read_timing, NULL, "specdec_bench"},
    {"MLPerf LoadGen", {"Result is", "Scenario"}, mlperf_read_summary, NULL, "mlperf"},
    {"MLPerf LoadGen", {"key", "value"}, NULL, mlperf_read_log, "mlperf"},
};

enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

static bool fits(const struct format *format, const json_t *record)
{
    const char *const *key = format->keys;
    while (*key && json_object_get(record, *key))
        key++;
    return !*key && json_is_object(record);
}

static const struct format *find(const json_t *record)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (fits(&formats[i], record))
            return &formats[i];
    return NULL;
}

/* The document's values; of arrays, what is in them. A new reference. */
static json_t *flatten(const json_t *values)
{
    json_t *records = json_array(), *value, *inner;
    size_t i, j;
    json_array_foreach((json_t *)values, i, value)
    {
        if (!json_is_array(value))
            json_array_append(records, value);
        json_array_foreach(value, j, inner) json_array_append(records, inner);
    }
    return records;
}

/* The format of the first record that has one. */
static const struct format *find_first(const json_t *records)
{
    const struct format *format = NULL;
    for (size_t i = 0; i < json_array_size(records) && !format; i++)
        format = find(json_array_get(records, i));
    return format;
}

static void mark(struct imports *imports, int first, const struct format *format)
{
    for (int i = first; i < imports->count; i++)
        imports->items[i].format = format;
}

static void read_each(const struct document *document, const json_t *records, struct imports *imports, int *passed_over)
{
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *record = json_array_get(records, i);
        const struct format *format = find(record);
        const int before = imports->count;
        if (format && format->read_record)
            format->read_record(document, record, imports);
        *passed_over += imports->count == before;
        mark(imports, before, format);
    }
}

static void read_all(const struct format *format, const struct document *document, const json_t *records,
                     struct imports *imports, int *passed_over)
{
    json_t *fitting = json_array();
    for (size_t i = 0; i < json_array_size(records); i++)
        if (fits(format, json_array_get(records, i)))
            json_array_append(fitting, json_array_get(records, i));
    const int before = imports->count;
    *passed_over += (int)(json_array_size(records) - json_array_size(fitting));
    format->read_records(document, fitting, imports);
    mark(imports, before, format);
    json_decref(fitting);
}

int format_read(const struct document *document, struct imports *imports, int *passed_over, struct error *error)
{
    json_t *records = flatten(document->values);
    const struct format *format = find_first(records);
    const int before = imports->count;
    *passed_over = 0;
    if (format && format->read_records)
        read_all(format, document, records, imports, passed_over);
    else if (format)
        read_each(document, records, imports, passed_over);
    json_decref(records);
    for (int i = before; i < imports->count; i++)
        imports->items[i].value = i - before;
    if (imports->count > before)
        return 0;
    char *list = format_list();
    fail(error, "%s: %s; known are %s", document->path, format ? "nothing in it was measured" : "is of no known format",
         list);
    free(list);
    return -1;
}

char *format_list(void)
{
    char *list = xstrdup("");
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (i && strcmp(formats[i].name, formats[i - 1].name) == 0)
            continue;
        char *longer = xformat("%s%s%s", list, i ? ", " : "", formats[i].name);
        free(list);
        list = longer;
    }
    return list;
}
