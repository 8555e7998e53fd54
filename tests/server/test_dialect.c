/* What each dialect's servers say, in the form in which they say it, becomes counts, times and facts. */
#include "collect/server/dialect.h"

#include "analyze/summary.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/campaign.h"
#include "collect/record/run.h"
#include "collect/server/server_info.h"
#include "tests/record/fixture.h"
#include "tests/server/dialect_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- SGLang ------------------------------------------------------------------------------------------------------- */

#define META(tokens, rest) "\"meta_info\": {\"prompt_tokens\": 5, \"completion_tokens\": " tokens ", " rest "}}\n\n"
#define SGLANG_END                                                                                                     \
    "\"finish_reason\": {\"type\": \"length\", \"length\": 8}, \"cached_tokens\": 0, \"e2e_latency\": 0.1, "           \
    "\"spec_verify_ct\": 2, \"spec_accept_length\": 4.0, \"spec_correct_drafts_histogram\": [0, 0, 1, 1]"

/* Text and ids as the whole so far: the default. */
static const char sglang_whole[] = "data: {\"text\": \"a\", \"output_ids\": [40], " META(
    "1", "\"finish_reason\": null") "data: {\"text\": \"abcd\", "
                                    "\"output_ids\": [40, 41, "
                                    "42, 43], " META("4", "\"finish_reason\":"
                                                          " null") "data: "
                                                                   "{\"text\""
                                                                   ": "
                                                                   "\"abcdefg"
                                                                   "h\", "
                                                                   "\"output_"
                                                                   "ids\": "
                                                                   "[40, 41, "
                                                                   "42, 43, "
                                                                   "44, 45, "
                                                                   "46, "
                                                                   "47],"
                                                                   " " META("8", SGLANG_END) "data: [DONE]\n\n";

/* What is new since: where the server was started with incremental streaming. */
static const char sglang_pieces[] = "data: {\"text\": \"ab\", \"output_ids\": [40, 41], " META(
    "2",
    "\"finish_reason\": null") "data: {\"text\": \"cd\", \"output_ids\": [42, 43], " META("4",
                                                                                          "\"finish_reason\": "
                                                                                          "null") "data: "
                                                                                                  "{\"text\": "
                                                                                                  "\"efgh\", "
                                                                                                  "\"output_ids\":"
                                                                                                  " [44, 45, 46, "
                                                                                                  "47], " META(
                                                                                                      "8",
                                                                                                      SGLANG_END) "data"
                                                                                                                  ": "
                                                                                                                  "[DON"
                                                                                                                  "E]"
                                                                                                                  "\n"
                                                                                                                  "\n";

static const struct loopback_page sglang_pages[] = {
    {.path = "/health"},
    {.path = "/v1/models", .body = "{\"data\": [{\"id\": \"qwen\", \"max_model_len\": 4096}]}"},
    {.path = "/server_info",
     .body = "{\"version\": \"0.5.5\", \"context_length\": null, \"api_key\": \"sk-1\", \"max_running_requests\": 48,"
             " \"internal_states\": [{\"effective_max_running_requests_per_dp\": 2,"
             " \"memory_usage\": {\"token_capacity\": 20}}]}"},
    {.path = "/flush_cache"},
    {.path = "/generate", .content_type = STREAM, .body = sglang_whole, .piece = 90, .delay_ms = 2},
    {0},
};

static void sglang_native(void **state)
{
    (void)state;
    struct bench bench;
    open_bench(&bench, sglang_pages, "tp1-linear", "'dialect': 'sglang'");
    const struct sample *sample = first_sample(&bench);
    expect_counts(sample, 5, 8, 1, 2);
    expect_ids(sample, 40);
    assert_int_equal(sample->cached_tokens, 0);
    assert_int_equal(sample->accepted[0] + sample->accepted[1], 7);
    assert_int_equal(sample->chunks, 3);
    assert_int_equal(loopback_count(bench.loopback, "/flush_cache"), 1);
    assert_int_equal(bench.measured.attempt.observed.prefix_cache_flushed, 1);
    assert_int_equal(bench.measured.attempt.observed.slots, 2);
    json_t *body = read_body(&bench, "/generate"), *parameters = json_object_get(body, "sampling_params");
    assert_string_equal(json_string_value(json_object_get(body, "text")), "p2");
    assert_true(json_is_true(json_object_get(body, "stream")));
    assert_int_equal(json_integer_value(json_object_get(parameters, "max_new_tokens")), 8);
    assert_true(json_is_true(json_object_get(parameters, "ignore_eos")));
    json_decref(body);
    measured_expect(&bench.measured, "ITL_PER_CHUNK");
    close_bench(&bench);
}

static void sglang_native_in_pieces(void **state)
{
    (void)state;
    struct bench bench;
    struct loopback_page pages[6];
    memcpy(pages, sglang_pages, sizeof pages);
    pages[4].body = sglang_pieces;
    open_bench(&bench, pages, "tp1-linear", "'dialect': 'sglang'");
    expect_counts(first_sample(&bench), 5, 8, 2, 2);
    expect_ids(first_sample(&bench), 40);
    close_bench(&bench);
}

/* Two requests of 13 positions in a cache of 20; four in slots for two. */
static void room_is_judged(void **state)
{
    (void)state;
    struct bench bench;
    open_bench(&bench, sglang_pages, "tp1-linear-c2", "'dialect': 'sglang'");
    measured_expect(&bench.measured, "CACHE_STARVED TOO_FEW_REQUESTS ITL_PER_CHUNK");
    close_bench(&bench);
    open_bench(&bench, sglang_pages, "tp1-linear-c3", "'dialect': 'sglang'");
    measured_expect(&bench.measured, "CONCURRENCY_CAPPED CACHE_STARVED TOO_FEW_REQUESTS ITL_PER_CHUNK");
    close_bench(&bench);
}

/* In the attempt's header, for good. */
static void what_the_server_says_is_kept_without_secrets(void **state)
{
    (void)state;
    struct bench bench;
    open_bench(&bench, sglang_pages, "tp1-auto", "'dialect': 'sglang'");
    const json_t *server = json_object_get(bench.measured.attempt.header, "server");
    const json_t *said = json_object_get(json_object_get(server, "said"), "/server_info");
    assert_string_equal(json_string_value(json_object_get(server, "model")), "qwen");
    assert_string_equal(json_string_value(json_object_get(server, "version")), "0.5.5");
    assert_int_equal(json_integer_value(json_object_get(server, "context_tokens")), 4096);
    assert_int_equal(json_integer_value(json_object_get(server, "slots")), 2);
    assert_int_equal(json_integer_value(json_object_get(server, "cache_tokens")), 20);
    assert_string_equal(json_string_value(json_object_get(said, "api_key")), "removed");
    close_bench(&bench);
}

/* What a server made of it, else what its log says for each rank, else what it was asked for; of a cache also what
 * metrics say. */
static void sizes_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *dialect, *path, *answer, *log;
        int slots, cache, states;
    } cases[] = {
        {"sglang", "/server_info",
         "{\"max_running_requests\": 9, \"internal_states\": [{\"effective_max_running_requests_per_dp\": 2, "
         "\"memory_usage\": {\"token_capacity\": 50}}, {\"effective_max_running_requests_per_dp\": 3, "
         "\"memory_usage\": {\"token_capacity\": 60}}]}",
         "max_running_requests=7, ", 5, 110, -1},
        {"sglang", "/get_server_info", "{\"max_running_requests\": 8, \"dp_size\": 2}",
         "Mamba Cache is allocated. max_mamba_cache_size: 20, conv_state size: 1GB\n"
         "max_total_num_tokens=1000, max_running_requests=2, context_len=4096\n",
         4, 2000, 40},
        {"sglang", "/server_info", "{\"max_running_requests\": 8, \"max_total_num_tokens\": 77}", "INFO\n", 8, 77, -1},
        {"vllm", "/version", "{\"version\": \"1\"}", "GPU KV cache size: 686,320 tokens\n", -1, 686320, -1},
        {"vllm", "/metrics", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n", "", -1, 1600, -1},
        {"vllm", "/server_info",
         "{\"vllm_config\": {\"scheduler_config\": {\"max_num_seqs\": 128}, \"parallel_config\": "
         "{\"data_parallel_size\": 2}}}",
         "GPU KV cache size: 1,000 tokens\n", 256, 2000, -1},
        {"vllm", "/server_info", "{\"vllm_config\": \"model='m', max_seq_len=4096\"}", "", -1, -1, -1},
        {"llama", "/props", "{\"total_slots\": 4}", "n_slots = 1, n_ctx\n", 4, -1, -1},
        {"llama", "/health", "{}", "load_model: initializing, n_slots = 3, n_ctx_slot = 2048\n", 3, -1, -1},
        {"llama", "/props", "<html>", "", -1, -1, -1},
    };
    char *folder = fixture_make_folder(), *log = file_join(folder, "log");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct loopback_page pages[] = {{.path = cases[i].path, .body = cases[i].answer}, {0}};
        struct loopback *loopback = loopback_start(pages, 0);
        struct error error = {0};
        struct server_info info;
        struct http *http = http_open(loopback_url(loopback), NULL, &error);
        fixture_write(log, cases[i].log, strlen(cases[i].log));
        server_info_ask(http, dialect_find(cases[i].dialect, NULL), log, NULL, &info);
        assert_int_equal(info.slots, cases[i].slots);
        assert_int_equal(info.cache, cases[i].cache);
        assert_int_equal(info.states, cases[i].states);
        server_info_free(&info);
        http_close(http);
        loopback_stop(loopback);
    }
    free(log);
    fixture_remove_folder(folder);
}

/* --- vLLM --------------------------------------------------------------------------------------------------------- */

#define VLLM_CHUNK(text, ids, tokens, finish)                                                                          \
    "data: {\"choices\": [{\"index\": 0, \"text\": \"" text "\", \"token_ids\": [" ids "], \"finish_reason\": " finish \
    "}], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": " tokens "}}\n\n"
#define VLLM_METRICS(generated, drafts, accepted)                                                                      \
    "# TYPE vllm:generation_tokens_total counter\n"                                                                    \
    "vllm:generation_tokens_total{engine=\"0\",model_name=\"q}w\"} " generated "\n"                                    \
    "vllm:generation_tokens_total{engine=\"1\",model_name=\"q}w\"} 1e+02\n"                                            \
    "vllm:generation_tokens_created{engine=\"0\"} 1.7e+09\n"                                                           \
    "vllm:prefix_cache_hits_total{engine=\"0\"} 16\n"                                                                  \
    "vllm:spec_decode_num_drafts_total{engine=\"0\"} " drafts "\n"                                                     \
    "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} " accepted "\n"                                          \
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 99\n"

static const char vllm_stream[] = VLLM_CHUNK("", "40", "1", "null") VLLM_CHUNK("abc", "41, 42, 43", "4", "null")
    VLLM_CHUNK("defg", "44, 45, 46, 47", "8", "\"length\"") "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, "
                                                            "\"completion_tokens\": 8, \"prompt_tokens_details\": "
                                                            "{\"cached_tokens\": 0}}}\n\ndata: [DONE]\n\n";

/* As it is without --enable-prompt-tokens-details. */
static const char vllm_uncounted[] = VLLM_CHUNK("", "40", "1", "null") VLLM_CHUNK("abc", "41, 42, 43", "4", "null")
    VLLM_CHUNK("defg", "44, 45, 46, 47", "8", "\"length\"") "data: [DONE]\n\n";

static const char *const vllm_metrics[] = {VLLM_METRICS("4", "10", "30"), VLLM_METRICS("12", "12", "35"),
                                           VLLM_METRICS("20", "14", "40"), VLLM_METRICS("28", "17", "44"), NULL};
static const char *const vllm_reset[] = {VLLM_METRICS("4000", "10", "30"), VLLM_METRICS("28", "3", "7"), NULL};

static struct loopback_page vllm_pages[] = {
    {.path = "/health"},
    {.path = "/version", .body = "{\"version\": \"0.11.0\"}"},
    {.path = "/v1/models", .body = "{\"data\": [{\"id\": \"qwen\", \"max_model_len\": 100}]}"},
    {.path = "/tokenize", .body = "{\"count\": 5, \"max_model_len\": 100, \"tokens\": [1, 2, 3, 4, 5]}"},
    {.path = "/metrics", .content_type = "text/plain", .bodies = vllm_metrics, .by = "/v1/completions"},
    {.path = "/v1/completions", .content_type = STREAM, .body = vllm_stream, .piece = 120, .delay_ms = 2},
    {0},
};

/* One request at a time: the counters' growth from request to request is that of each. A first delivery may hold no
 * text. */
static void vllm_rounds_from_counters(void **state)
{
    (void)state;
    struct bench bench;
    vllm_pages[4].bodies = vllm_metrics;
    open_bench(&bench, vllm_pages, "tp1-linear", "'dialect': 'vllm', 'request': {'seed': 7, 'ignore_eos': null}");
    const struct observed *observed = &bench.measured.attempt.observed;
    expect_counts(first_sample(&bench), 5, 8, 1, 2);
    expect_ids(first_sample(&bench), 40);
    assert_int_equal(bench.measured.attempt.samples[2].rounds, 3);
    assert_int_equal(bench.measured.attempt.samples[2].cached_tokens, 0);
    assert_float_equal(observed_growth(observed, "drafts"), 7, 0);
    assert_float_equal(observed_growth(observed, "accepted_tokens"), 14, 0);
    assert_float_equal(observed_growth(observed, "generation_tokens"), 24, 0);
    assert_int_equal(observed->prefix_cache_flushed, 0);
    json_t *body = read_body(&bench, "/v1/completions");
    assert_string_equal(json_string_value(json_object_get(body, "model")), "qwen");
    assert_int_equal(json_integer_value(json_object_get(body, "seed")), 7);
    assert_null(json_object_get(body, "ignore_eos"));
    json_decref(body);
    measured_expect(&bench.measured, "ITL_PER_CHUNK");
    close_bench(&bench);
}

/* Several at a time: the counters' growth over a workload is all that is known, and a point in the summary. */
static void expect_tau_together(const char *const *bodies, double drafts, double expected)
{
    struct error error = {0};
    struct run run;
    struct measured measured;
    struct loopback_page pages[7];
    memcpy(pages, vllm_pages, sizeof pages);
    pages[4].bodies = bodies;
    pages[4].by = "/v1/completions";
    struct loopback *loopback = loopback_start(pages, 0);
    char *source = xformat("{'kind': 'server', 'dialect': 'vllm', 'url': '%s'}", loopback_url(loopback));
    measured_open(&measured, "tp1-linear-c2", source, "");
    char *runs = file_join(measured.folder, "runs"), *folder = file_join(runs, "m");
    struct campaign_options options = {.runs = runs};
    assert_int_equal(campaign_run(&measured.plan, measured.source, &options, &error), 0);
    assert_int_equal(run_read(folder, NULL, &run, &error), 0);
    assert_int_equal(run.attempt_count, 1);
    assert_float_equal(observed_growth(&run.attempts[0].attempt.observed, "code/drafts"), drafts, 0);
    json_t *summary = summary_build(&run, &measured.plan, &error);
    const json_t *tau = json_object_get(json_array_get(json_object_get(summary, "cells"), 0), "tau");
    assert_float_equal(json_number_value(json_object_get(tau, "value")), expected, 1e-9);
    assert_true(json_is_null(json_object_get(tau, "low")));
    json_decref(summary);
    run_free(&run);
    free(folder);
    free(runs);
    free(source);
    measured_close(&measured);
    loopback_stop(loopback);
}

static void vllm_rounds_of_requests_together(void **state)
{
    (void)state;
    /* after the first answer, the warm-up, and what is measured: 5 accepted of 2 drafts; 2 of one, and 4 rounds without
     */
    static const char *const all[] = {VLLM_METRICS("4", "10", "30"), VLLM_METRICS("4", "10", "30"),
                                      VLLM_METRICS("12", "12", "35"), NULL};
    static const char *const some[] = {VLLM_METRICS("4", "10", "30"), VLLM_METRICS("4", "10", "30"),
                                       VLLM_METRICS("12", "11", "32"), NULL};
    expect_tau_together(all, 2, 1 + 5. / 2);
    expect_tau_together(some, 1, 1 + 2. / 5);
}

/* Emptying a prefix cache may answer 200 and do nothing: its counter tells, and TTFT is void. */
static void hits_of_the_prefix_cache_are_seen(void **state)
{
    (void)state;
    static const char *const bodies[] = {"vllm:generation_tokens_total 8\nvllm:prefix_cache_hits_total 0\n",
                                         "vllm:generation_tokens_total 16\nvllm:prefix_cache_hits_total 4\n",
                                         "vllm:generation_tokens_total 24\nvllm:prefix_cache_hits_total 8\n",
                                         "vllm:generation_tokens_total 32\nvllm:prefix_cache_hits_total 12\n", NULL};
    struct bench bench;
    struct loopback_page pages[8] = {0};
    memcpy(pages, vllm_pages, sizeof vllm_pages);
    pages[4].bodies = bodies;
    pages[5].body = vllm_uncounted;
    pages[6] = (struct loopback_page){.path = "/reset_prefix_cache"};
    open_bench(&bench, pages, "tp1-auto", "'dialect': 'vllm'");
    assert_int_equal(bench.measured.attempt.observed.prefix_cache_flushed, 1);
    assert_int_equal(first_sample(&bench)->cached_tokens, 4);
    measured_expect(&bench.measured, "PREFIX_CACHE_HIT ITL_PER_CHUNK");
    close_bench(&bench);
}

/* SGLang's counter of hits, by source, is not there before the first of them. */
static void a_counter_may_appear_with_its_first_hit(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "sglang:generation_tokens_total 8\n",
        "sglang:generation_tokens_total 16\nsglang:cached_tokens_total{cache_source=\"device\"} 4\n",
        "sglang:generation_tokens_total 24\nsglang:cached_tokens_total{cache_source=\"device\"} 4\n"
        "sglang:cached_tokens_total{cache_source=\"host\"} 2\n",
        "sglang:generation_tokens_total 32\nsglang:cached_tokens_total{cache_source=\"device\"} 4\n"
        "sglang:cached_tokens_total{cache_source=\"host\"} 2\n",
        NULL};
    struct bench bench;
    struct loopback_page pages[8] = {0};
    memcpy(pages, vllm_pages, sizeof vllm_pages);
    pages[4].bodies = bodies;
    pages[5].body = vllm_uncounted;
    pages[6] = (struct loopback_page){.path = "/flush_cache"};
    open_bench(&bench, pages, "tp1-auto", "'dialect': 'sglang', 'route': 'completions'");
    assert_int_equal(bench.measured.attempt.samples[0].cached_tokens, 4);
    assert_int_equal(bench.measured.attempt.samples[1].cached_tokens, 2);
    assert_int_equal(bench.measured.attempt.samples[2].cached_tokens, 0);
    assert_float_equal(observed_growth(&bench.measured.attempt.observed, "cached_tokens"), 6, 0);
    measured_expect(&bench.measured, "PREFIX_CACHE_HIT ITL_PER_CHUNK");
    close_bench(&bench);
}

static void counters_that_fall_are_seen(void **state)
{
    (void)state;
    struct bench bench;
    vllm_pages[4].bodies = vllm_reset;
    open_bench(&bench, vllm_pages, "tp1-auto", "'dialect': 'vllm'");
    measured_expect(&bench.measured, "ITL_PER_CHUNK COUNTER_RESET");
    close_bench(&bench);
}

/* A drafter may find nothing to draft, as n-grams do: a round without drafts is a round of one token, in no counter. */
static void rounds_without_drafts_are_rounds(void **state)
{
    (void)state;
    static const char *const metrics[] = {VLLM_METRICS("4", "10", "30"), VLLM_METRICS("12", "11", "32"),
                                          VLLM_METRICS("20", "11", "32"), VLLM_METRICS("28", "13", "37"), NULL};
    struct bench bench;
    struct loopback_page pages[7];
    memcpy(pages, vllm_pages, sizeof pages);
    pages[4].bodies = metrics;
    open_bench(&bench, pages, "tp1-linear", "'dialect': 'vllm'");
    assert_int_equal(bench.measured.attempt.samples[0].rounds, 5);
    assert_int_equal(bench.measured.attempt.samples[1].rounds, 7);
    assert_int_equal(bench.measured.attempt.samples[2].rounds, 2);
    close_bench(&bench);
    static const char *const zeros[] = {VLLM_METRICS("4", "0", "0"), VLLM_METRICS("12", "0", "0"),
                                        VLLM_METRICS("20", "0", "0"), VLLM_METRICS("28", "0", "0"), NULL};
    pages[4].bodies = zeros;
    open_bench(&bench, pages, "tp1-linear", "'dialect': 'vllm'");
    assert_int_equal(first_sample(&bench)->rounds, ATTEMPT_ABSENT);
    measured_expect(&bench.measured, "ITL_PER_CHUNK SPEC_METRICS_MISSING");
    close_bench(&bench);
}

/* What a failed request did before it failed, and may still do, is not the next one's. */
static void counters_of_a_failed_request_are_nobodys(void **state)
{
    (void)state;
    static const char *const metrics[] = {VLLM_METRICS("4", "10", "30"),  VLLM_METRICS("12", "12", "35"),
                                          VLLM_METRICS("15", "14", "36"), VLLM_METRICS("23", "17", "41"),
                                          VLLM_METRICS("31", "19", "47"), NULL};
    static const char *const answers[] = {vllm_stream, vllm_stream, "data: {\"error\": {\"message\": \"boom\"}}\n\n",
                                          vllm_stream, NULL};
    struct measured measured;
    struct loopback_page pages[7];
    memcpy(pages, vllm_pages, sizeof pages);
    pages[4].bodies = metrics;
    pages[5].bodies = answers;
    struct loopback *loopback = loopback_start(pages, 0);
    char *source = xformat("{'kind': 'server', 'dialect': 'vllm', 'url': '%s'}", loopback_url(loopback));
    measured_open(&measured, "tp1-linear", source, "");
    measured_run(&measured, "tp1-linear", 4);
    assert_int_equal(measured.attempt.sample_count, 4);
    assert_int_equal(measured.attempt.samples[0].rounds, 2);
    assert_false(measured.attempt.samples[1].ok);
    assert_int_equal(measured.attempt.samples[2].rounds, ATTEMPT_ABSENT);
    assert_int_equal(measured.attempt.samples[3].rounds, 2);
    free(source);
    measured_close(&measured);
    loopback_stop(loopback);
}

/* 5 tokens and 8 of output in a context of 12: known before anything is sent. */
static void what_does_not_fit_is_not_sent(void **state)
{
    (void)state;
    struct bench bench;
    const char *former = vllm_pages[2].body;
    vllm_pages[2].body = "{\"data\": [{\"id\": \"qwen\", \"max_model_len\": 12}]}";
    vllm_pages[4].bodies = vllm_metrics;
    open_bench(&bench, vllm_pages, "tp1-auto-c2", "'dialect': 'vllm'");
    vllm_pages[2].body = former;
    assert_int_equal(loopback_count(bench.loopback, "/v1/completions"), 1); /* the first answer, before */
    assert_string_equal(first_sample(&bench)->error_code, "CONTEXT_OVERFLOW");
    assert_int_equal(first_sample(&bench)->prompt_tokens, 5);
    measured_expect(&bench.measured, "CONTEXT_OVERFLOW FAILED_REQUEST ALL_FAILED TOO_FEW_REQUESTS");
    close_bench(&bench);
}

/* --- chats, and what is said to all ------------------------------------------------------------------------------- */

/* What reasons delivers, too: its first word is the first token. */
static void chats_and_reasoning(void **state)
{
    (void)state;
    static const struct loopback_page pages[] = {
        {.path = "/v1/models", .body = "{\"data\": [{\"id\": \"m\"}]}"},
        {.path = "/v1/chat/completions",
         .content_type = STREAM,
         .body = "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
                 "data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"hm\"}}]}\n\n"
                 "data: {\"choices\": [{\"delta\": {\"content\": \"yes\"}, \"finish_reason\": \"length\"}]}\n\n"
                 "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 8}}\n\n"
                 "data: [DONE]\n\n",
         .piece = 60,
         .delay_ms = 2},
        {0},
    };
    struct bench bench;
    open_bench(&bench, pages, "tp1-auto", "'dialect': 'openai', 'route': 'chat'");
    expect_counts(first_sample(&bench), 5, 8, 1, 7);
    assert_int_equal(first_sample(&bench)->chunks, 2);
    json_t *body = read_body(&bench, "/v1/chat/completions");
    json_t *message = json_array_get(json_object_get(body, "messages"), 0);
    assert_string_equal(json_string_value(json_object_get(message, "content")), "p2");
    assert_string_equal(json_string_value(json_object_get(message, "role")), "user");
    json_decref(body);
    close_bench(&bench);
}

/* A speculative arm of which nothing says how many rounds it took. */
static void unknown_acceptance_is_said(void **state)
{
    (void)state;
    struct bench bench;
    struct loopback_page pages[7];
    memcpy(pages, vllm_pages, sizeof pages);
    pages[4].path = "/nowhere";
    open_bench(&bench, pages, "tp1-linear", "'dialect': 'vllm'");
    assert_int_equal(first_sample(&bench)->rounds, ATTEMPT_ABSENT);
    measured_expect(&bench.measured, "ITL_PER_CHUNK SPEC_METRICS_MISSING");
    close_bench(&bench);
}

/* Above temperature 0 all of sampling is said, with the request's own seed. */
static void sampling_is_said_in_full(void **state)
{
    (void)state;
    const struct request request = {.text = "x", .max_new_tokens = 4, .stream = 0x1234567890abcdef};
    const struct plan_sampling sampling = {.temperature = 0.5, .top_k = 0, .top_p = 0.9};
    static const struct {
        const char *dialect, *seed, *inside;
        int top_k; /* of "all"; 0: not said */
    } cases[] = {{"sglang", "sampling_seed", "sampling_params", -1},
                 {"vllm", "seed", NULL, -1},
                 {"llama", "seed", NULL, 0},
                 {"openai", "seed", NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = dialect_body(dialect_find(cases[i].dialect, NULL), "m", &request, &sampling, NULL);
        json_t *body = json_loads(text, 0, NULL);
        const json_t *at = cases[i].inside ? json_object_get(body, cases[i].inside) : body;
        assert_float_equal(json_number_value(json_object_get(at, "temperature")), 0.5, 0);
        assert_float_equal(json_number_value(json_object_get(at, "top_p")), 0.9, 0);
        assert_int_equal(json_integer_value(json_object_get(at, cases[i].seed)), 0x10abcdef);
        assert_int_equal(json_integer_value(json_object_get(at, "top_k")), cases[i].top_k);
        json_decref(body);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sglang_native),
        cmocka_unit_test(sglang_native_in_pieces),
        cmocka_unit_test(room_is_judged),
        cmocka_unit_test(what_the_server_says_is_kept_without_secrets),
        cmocka_unit_test(sizes_are_found),
        cmocka_unit_test(vllm_rounds_from_counters),
        cmocka_unit_test(vllm_rounds_of_requests_together),
        cmocka_unit_test(hits_of_the_prefix_cache_are_seen),
        cmocka_unit_test(a_counter_may_appear_with_its_first_hit),
        cmocka_unit_test(counters_that_fall_are_seen),
        cmocka_unit_test(rounds_without_drafts_are_rounds),
        cmocka_unit_test(counters_of_a_failed_request_are_nobodys),
        cmocka_unit_test(what_does_not_fit_is_not_sent),
        cmocka_unit_test(chats_and_reasoning),
        cmocka_unit_test(unknown_acceptance_is_said),
        cmocka_unit_test(sampling_is_said_in_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
