/* The table of dialects. */
#include "collect/server/dialect_parts.h"

#include "collect/base/json.h"

#include <string.h>

/* Names are those of python/sglang/srt in the sources of 0.5 (entrypoints/http_server.py, managers/scheduler.py,
 * observability/metrics_collector.py), where prometheus_client writes "_total" behind a counter's name. */
#define SGLANG_ROUTES                                                                                                  \
    .health = "/health", .models = "/v1/models", .info = {"/server_info", "/model_info"},                              \
    .formerly = "/get_server_info", .tokenize = "/tokenize", .tokenize_text = "prompt", .flush = "/flush_cache",       \
    .metrics = "/metrics", .context = {{"/server_info", "context_length"}, {"/v1/models", "data.0.max_model_len"}},    \
    .slots = {{"/server_info", "internal_states.*.effective_max_running_requests_per_dp"},                             \
              {"/server_info", "max_running_requests"}},                                                               \
    .cache = {{"/server_info", "internal_states.*.memory_usage.token_capacity"},                                       \
              {"/server_info", "max_total_num_tokens"}},                                                               \
    .ranks = {"/server_info", "dp_size"}, .version = {{"/server_info", "version"}},                                    \
    .log_slots = "max_running_requests=", .log_cache = "max_total_num_tokens=",                                        \
    .log_states = "max_mamba_cache_size: ",                                                                            \
    .counters = {.rounds = "sglang:spec_verify_calls",                                                                 \
                 .generated = "sglang:generation_tokens",                                                              \
                 .cached = "sglang:cached_tokens",                                                                     \
                 .running = "sglang:num_running_reqs",                                                                 \
                 .waiting = "sglang:num_queue_reqs"},                                                                  \
    .acceptance = "sglang: verify steps of each request (spec_verify_ct) with their histogram, else generated tokens " \
                  "less the first over verify steps (spec_verify_calls)"

/* Of vLLM's V1 engine (v1/metrics/loggers.py, v1/spec_decode/metrics.py); what it is asked for stands in its
 * configuration, which it tells where VLLM_SERVER_DEV_MODE is 1. */
#define VLLM_CONFIG "/server_info?config_format=json"
#define VLLM_ROUTES                                                                                                    \
    .health = "/health", .models = "/v1/models", .info = {"/version", VLLM_CONFIG}, .tokenize = "/tokenize",           \
    .tokenize_text = "prompt", .flush = "/reset_prefix_cache", .metrics = "/metrics",                                  \
    .context = {{"/v1/models", "data.0.max_model_len"}}, .version = {{"/version", "version"}},                         \
    .slots_a_rank = {VLLM_CONFIG, "vllm_config.scheduler_config.max_num_seqs"},                                        \
    .ranks = {VLLM_CONFIG, "vllm_config.parallel_config.data_parallel_size"},                                          \
    .log_cache = "GPU KV cache size: ", .cache_metric = "vllm:cache_config_info",                                      \
    .counters = {.rounds = "vllm:spec_decode_num_drafts",                                                              \
                 .drafted = "vllm:spec_decode_num_draft_tokens",                                                       \
                 .accepted = "vllm:spec_decode_num_accepted_tokens",                                                   \
                 .generated = "vllm:generation_tokens",                                                                \
                 .cached = "vllm:prefix_cache_hits",                                                                   \
                 .running = "vllm:num_requests_running",                                                               \
                 .waiting = "vllm:num_requests_waiting"},                                                              \
    .acceptance = "vllm: drafts of each request (num_spec_steps) with their histogram, else 1 + accepted tokens over " \
                  "drafts (spec_decode_num_*) and steps without one"

#define LLAMA_ROUTES                                                                                                   \
    .health = "/health", .models = "/v1/models", .info = {"/props"}, .tokenize = "/tokenize",                          \
    .tokenize_text = "content", .metrics = "/metrics",                                                                 \
    .context = {{"/props", "default_generation_settings.n_ctx"}, {"/v1/models", "data.0.meta.n_ctx"}},                 \
    .slots = {{"/props", "total_slots"}}, .version = {{"/props", "build_info"}}, .log_slots = "n_slots = ",            \
    .counters = {.rounds = "llamacpp:spec_decode_num_drafts",                                                          \
                 .drafted = "llamacpp:spec_decode_num_draft_tokens",                                                   \
                 .accepted = "llamacpp:spec_decode_num_accepted_tokens",                                               \
                 .generated = "llamacpp:tokens_predicted",                                                             \
                 .cached = "llamacpp:prompt_tokens_cached",                                                            \
                 .running = "llamacpp:requests_processing",                                                            \
                 .waiting = "llamacpp:requests_deferred"},                                                             \
    .acceptance = "llama: predicted tokens less the first less accepted ones among them as rounds of each request "    \
                  "(timings)"

#define OPENAI_ROUTES                                                                                                  \
    .models = "/v1/models", .context = {{"/v1/models", "data.0.max_model_len"}}, .acceptance = "openai: none"

#define USAGE "{\"stream_options\": {\"include_usage\": true}}"
#define USAGE_ALWAYS "\"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}"
#define SGLANG_ALSO "{" USAGE_ALWAYS ", \"return_spec_tokens_details\": true}"
#define VLLM_ALSO "{" USAGE_ALWAYS ", \"return_token_ids\": true}"
#define LLAMA_ALSO "{\"cache_prompt\": false, \"stream_options\": {\"include_usage\": true}}"
#define COMPLETIONS .route = "completions", .path = "/v1/completions", .write_body = dialect_write_completions
#define CHAT .route = "chat", .path = "/v1/chat/completions", .write_body = dialect_write_chat

static const struct dialect dialects[] = {
    {.name = "sglang",
     .route = "native",
     .path = "/generate",
     .write_body = dialect_write_sglang,
     .read_event = dialect_read_sglang,
     SGLANG_ROUTES},
    {.name = "sglang", COMPLETIONS, .read_event = dialect_read_openai, .also = SGLANG_ALSO, SGLANG_ROUTES},
    {.name = "sglang", CHAT, .read_event = dialect_read_openai, .also = SGLANG_ALSO, SGLANG_ROUTES},
    {.name = "vllm", COMPLETIONS, .read_event = dialect_read_openai, .also = VLLM_ALSO, VLLM_ROUTES},
    {.name = "vllm", CHAT, .read_event = dialect_read_openai, .also = VLLM_ALSO, VLLM_ROUTES},
    {.name = "llama",
     .route = "native",
     .path = "/completion",
     .write_body = dialect_write_llama,
     .read_event = dialect_read_llama,
     .also = "{\"cache_prompt\": false, \"return_tokens\": true}",
     LLAMA_ROUTES},
    {.name = "llama", COMPLETIONS, .read_event = dialect_read_openai, .also = LLAMA_ALSO, LLAMA_ROUTES},
    {.name = "llama", CHAT, .read_event = dialect_read_openai, .also = LLAMA_ALSO, LLAMA_ROUTES},
    {.name = "openai", COMPLETIONS, .read_event = dialect_read_openai, .also = USAGE, OPENAI_ROUTES},
    {.name = "openai", CHAT, .read_event = dialect_read_openai, .also = USAGE, OPENAI_ROUTES},
};

const char *const dialect_names[] = {"sglang", "vllm", "llama", "openai"};
const int dialect_name_count = sizeof dialect_names / sizeof *dialect_names;

const struct dialect *dialect_find(const char *name, const char *route)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (strcmp(dialects[i].name, name) == 0 && (!route || strcmp(dialects[i].route, route) == 0))
            return &dialects[i];
    return NULL;
}

/* Merges object into object; null takes away. */
static void merge(json_t *into, const json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        json_t *there = json_object_get(into, key);
        if (json_is_null(value))
            json_object_del(into, key);
        else if (json_is_object(value) && json_is_object(there))
            merge(there, value);
        else
            json_set(into, key, json_deep_copy(value));
    }
}

char *dialect_body(const struct dialect *dialect, const char *model, const struct request *request,
                   const struct plan_sampling *sampling, const json_t *extra)
{
    json_t *body = json_object(), *also = dialect->also ? json_loads(dialect->also, 0, NULL) : NULL;
    if (model)
        json_set(body, "model", json_text(model));
    json_set(body, "stream", json_true());
    dialect->write_body(dialect, request, sampling, body);
    merge(body, also);
    merge(body, extra);
    char *text = json_dumps(body, JSON_COMPACT);
    if (!text)
        die("cannot write JSON");
    json_decref(also);
    json_decref(body);
    return text;
}
