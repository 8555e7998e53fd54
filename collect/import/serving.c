/* vLLM's `bench serve` (plain, with details, appended, sweeps) and SGLang's bench_serving: one object a run. Means are
 * in milliseconds, lists of requests in seconds. */
#include "collect/import/format.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct take_figure figures[] = {
    {"completed", JSON_FIELD_INT, offsetof(struct observed, completed), 1},
    {"num_prompts", JSON_FIELD_INT, offsetof(struct observed, requests), 1},
    {"total_input_tokens", JSON_FIELD_INT64, offsetof(struct observed, prompt_tokens), 1},
    {"total_output_tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), 1},
    {"duration", JSON_FIELD_INT64, offsetof(struct observed, duration_ns), NS_OF_S},
    {"output_throughput", JSON_FIELD_DOUBLE, offsetof(struct observed, tokens_per_s), 1},
    {"max_output_tokens_per_s", JSON_FIELD_DOUBLE, offsetof(struct observed, peak_tokens_per_s), 1},
    {"mean_ttft_ms", JSON_FIELD_DOUBLE, offsetof(struct observed, ttft_ns), NS_OF_MS},
    {"mean_tpot_ms", JSON_FIELD_DOUBLE, offsetof(struct observed, tpot_ns), NS_OF_MS},
    {"mean_itl_ms", JSON_FIELD_DOUBLE, offsetof(struct observed, itl_ns), NS_OF_MS},
    {"mean_e2el_ms", JSON_FIELD_DOUBLE, offsetof(struct observed, e2e_ns), NS_OF_MS},
    {"mean_e2e_latency_ms", JSON_FIELD_DOUBLE, offsetof(struct observed, e2e_ns), NS_OF_MS},
    {"accept_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
    {"spec_decode_acceptance_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
    {0},
};

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* The lists of a run's requests, each of which may be missing. */
struct lists {
    json_t *prompt_tokens, *tokens, *ttfts, *gaps, *latencies, *starts, *errors;
};

static struct lists take_lists(json_t *rest)
{
    return (struct lists){take_node(rest, "input_lens"), take_node(rest, "output_lens"), take_node(rest, "ttfts"),
                          take_node(rest, "itls"),       take_node(rest, "latencies"),   take_node(rest, "start_times"),
                          take_node(rest, "errors")};
}

static void free_lists(struct lists *lists)
{
    json_t *const all[] = {lists->prompt_tokens, lists->tokens, lists->ttfts, lists->gaps,
                           lists->latencies,     lists->starts, lists->errors};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_decref(all[i]);
}

static double number_at(const json_t *list, size_t index)
{
    return document_number(json_array_get(list, index));
}

static int count_at(const json_t *list, size_t index)
{
    const double number = number_at(list, index);
    return number >= 0 && number <= 1 << 24 ? (int)number : ATTEMPT_ABSENT;
}

static void set_failure(struct sample *sample, const char *message)
{
    static const char *const overflows[] = {"longer than the model's context", "exceeds the model's maximum context",
                                            "maximum context length is"};
    sample->ok = false;
    sample->error_message = xstrdup(message && message[0] ? message : "no message");
    for (size_t i = 0; message && i < sizeof overflows / sizeof *overflows; i++)
        if (!sample->error_code && strstr(message, overflows[i]))
            sample->error_code = xstrdup("CONTEXT_OVERFLOW");
}

/* The tools count one token for the first delivery, and so does their time a token. */
static void set_times(struct sample *sample, const struct lists *lists, size_t index, double zero_s)
{
    const double ttft_s = number_at(lists->ttfts, index), start_s = number_at(lists->starts, index) - zero_s;
    const json_t *gaps = json_array_get(lists->gaps, index);
    double rest_s = number_at(lists->latencies, index) - ttft_s;
    if (isnan(rest_s) && json_is_array(gaps)) {
        rest_s = 0;
        for (size_t i = 0; i < json_array_size(gaps); i++)
            rest_s += number_at(gaps, i);
    }
    sample->first_tokens = 1;
    sample->ttft_ns = unit_ns(ttft_s, NS_OF_S);
    sample->decode_ns = unit_ns(rest_s, NS_OF_S);
    sample->start_ns = unit_ns(start_s, NS_OF_S);
    sample->end_ns = sample->start_ns >= 0 ? unit_ns(start_s + ttft_s + rest_s, NS_OF_S) : ATTEMPT_ABSENT;
    sample_set_chunks(sample, ttft_s * NS_OF_S, gaps, NS_OF_S);
}

static double earliest(const json_t *starts)
{
    double first = NAN;
    for (size_t i = 0; i < json_array_size(starts); i++)
        first = fmin(first, number_at(starts, i));
    return first;
}

/* A request without an error and without tokens is one that failed and did not say why. */
static void add_requests(struct imported *imported, const struct lists *lists)
{
    const double zero_s = earliest(lists->starts);
    for (size_t i = 0; i < json_array_size(lists->tokens); i++) {
        char *id = xformat("%zu", i + 1);
        struct sample *sample = imported_add_sample(imported, imported->workload, id);
        const char *message = json_string_value(json_array_get(lists->errors, i));
        sample->prompt_tokens = count_at(lists->prompt_tokens, i);
        sample->tokens = count_at(lists->tokens, i);
        if ((message && message[0]) || (sample->tokens <= 0 && lists->errors))
            set_failure(sample, message);
        else
            set_times(sample, lists, i, zero_s);
        free(id);
    }
}

/* --- arms --------------------------------------------------------------------------------------------------------- */

static bool says(const char *text, const char *word)
{
    return text && strcasestr(text, word);
}

/* A server's arguments: null where it does not speculate. SGLang counts the current token among the drafts. */
static void set_speculation(struct imported *imported, json_t *info)
{
    if (!json_object_get(info, "speculative_algorithm"))
        return;
    char *algorithm = take_text(info, "speculative_algorithm");
    const int64_t steps = take_count(info, "speculative_num_steps"), topk = take_count(info, "speculative_eagle_topk");
    const int64_t drafts = take_count(info, "speculative_num_draft_tokens");
    if (!algorithm)
        imported_set_auto(imported);
    else if (topk > 1 || says(algorithm, "tree"))
        imported_set_tree(imported, drafts - 1, steps);
    else
        imported_set_linear(imported, drafts > 1 ? drafts - 1 : steps);
    if (algorithm)
        json_set(imported->source, "speculation", json_text(algorithm));
    free(algorithm);
}

static void set_ranks(struct imported *imported, json_t *from)
{
    static const char *const keys[] = {"tp_size", "tensor_parallel_size", "tensor_parallel", "tp"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !imported->tensor_parallel; i++) {
        const int64_t ranks = take_count(from, keys[i]);
        imported->tensor_parallel = ranks > 0 && ranks <= 4096 ? (int)ranks : 0;
    }
}

static void set_concurrency(struct imported *imported)
{
    static const char *const keys[] = {"max_concurrency", "multi_turn_concurrency"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !imported->concurrency; i++) {
        const int64_t most = take_count(imported->rest, keys[i]);
        imported->concurrency = most > 0 && most <= 1000000 ? (int)most : 0;
    }
}

static void set_source(struct imported *imported)
{
    static const char *const shown[] = {"model_id", "backend", "endpoint_type", "server_commit"};
    static const char *const compared[] = {"dataset_name",       "random_input_len", "random_output_len",
                                           "random_range_ratio", "request_rate",     "burstiness"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        take_into(imported->rest, shown[i], imported->source, shown[i]);
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        take_into(imported->rest, compared[i], imported->settings, compared[i]);
}

/* Equal numbers of tokens in equal order are as near to equal prompts as these files come. */
static void set_prompts(struct imported *imported, const struct lists *lists)
{
    char hash[FILE_HASH_SIZE];
    if (json_array_size(lists->prompt_tokens)) {
        json_hash(lists->prompt_tokens, hash);
        json_set(imported->settings, "prompts", json_string(hash));
    } else if (imported->observed.prompt_tokens >= 0) {
        json_set(imported->settings, "prompt_tokens", json_integer(imported->observed.prompt_tokens));
    }
}

static void set_workload(struct imported *imported)
{
    const char *dataset = json_string_value(json_object_get(imported->settings, "dataset_name"));
    const double in = document_number(json_object_get(imported->settings, "random_input_len"));
    const double out = document_number(json_object_get(imported->settings, "random_output_len"));
    if (dataset && strncmp(dataset, "random", 6) == 0 && in > 0 && out > 0)
        imported->workload = xformat("%s-%.0f-%.0f", dataset, in, out);
    else if (dataset)
        imported->workload = xstrdup(dataset);
}

static struct imported *read_common(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, record);
    struct lists lists = take_lists(imported->rest);
    const int64_t failed = take_count(imported->rest, "failed");
    const char *date = json_string_value(json_object_get(imported->rest, "date"));
    imported->started_s = date ? clock_parse_utc(date) : ATTEMPT_ABSENT;
    take_figures(imported, figures);
    if (imported->observed.requests < 0 && failed >= 0 && imported->observed.completed >= 0)
        imported->observed.requests = imported->observed.completed + (int)failed;
    set_source(imported);
    set_workload(imported);
    set_prompts(imported, &lists);
    set_ranks(imported, imported->rest);
    set_concurrency(imported);
    if (!imported->workload)
        imported->workload = xstrdup(IMPORTED_WORKLOAD);
    add_requests(imported, &lists);
    free_lists(&lists);
    return imported;
}

/* --- the tools ---------------------------------------------------------------------------------------------------- */

/* Counters are differences over the run. Rates at positions are kept as they are. */
static void set_drafts(struct imported *imported)
{
    static const struct {
        const char *key, *counter;
    } counters[] = {{"spec_decode_num_drafts", "drafts"},
                    {"spec_decode_draft_tokens", "draft_tokens"},
                    {"spec_decode_accepted_tokens", "accepted_tokens"}};
    bool drafted = false;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        const int64_t grown = take_count(imported->rest, counters[i].key);
        if (grown >= 0)
            observed_add_counter(&imported->observed, counters[i].counter, 0, (double)grown);
        drafted |= grown > 0;
    }
    const json_t *rates = json_object_get(imported->rest, "spec_decode_per_position_acceptance_rates");
    if (drafted || imported->observed.accept_length > 0)
        imported_set_linear(imported, (int64_t)json_array_size(rates));
    double length = 1;
    for (size_t i = 0; i < json_array_size(rates); i++)
        length += document_number(json_array_get(rates, i));
    if (json_array_size(rates) && isfinite(length))
        json_set(imported->source, "acceptance_by_position", json_real(length));
}

void serving_read_vllm(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = read_common(document, record, imports);
    set_drafts(imported);
}

/* accept_length is the server's own, since its start: warm-up and whoever else asked it included. */
void serving_read_sglang(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = read_common(document, record, imports);
    json_t *info = json_object_get(imported->rest, "server_info");
    set_ranks(imported, info);
    set_speculation(imported, info);
    take_into(info, "model_path", imported->source, "model_id");
    take_into(info, "version", imported->source, "version");
    take_into(info, "dtype", imported->source, "dtype");
    take_into(info, "quantization", imported->source, "quantization");
    if (imported->observed.accept_length > 0)
        json_set(imported->source, "acceptance", json_string("of the server since its start"));
    const json_t *radix = json_object_get(info, "disable_radix_cache");
    if (json_is_boolean(radix))
        json_set(imported->source, "prefix_cache", json_boolean(json_is_false(radix)));
}
