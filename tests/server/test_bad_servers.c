/* What servers do wrong, each case against a real one: the right verdict, and nothing lost. */
#include "tests/server/loopback.h"
#include "tests/server/measured.h"

#include "collect/base/error.h"
#include "collect/base/file.h"
#include "collect/server/source.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAM "text/event-stream; charset=utf-8"
#define CHUNK(text) "data: {\"choices\": [{\"index\": 0, \"text\": \"" text "\", \"finish_reason\": null}]}\n\n"
#define FINISH(reason) "data: {\"choices\": [{\"index\": 0, \"text\": \"\", \"finish_reason\": \"" reason "\"}]}\n\n"
#define USAGE(tokens)                                                                                                  \
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": " tokens "}}\n\n"
#define DONE "data: [DONE]\n\n"
#define FOUR CHUNK("a") CHUNK("b") CHUNK("c") CHUNK("d")
#define ANSWER FOUR FOUR FINISH("length") USAGE("8") DONE

static const struct loopback_page good = {.content_type = STREAM, .body = ANSWER, .piece = 40, .delay_ms = 1};

/* A server of which the first answer is good, as it is asked for before anything is measured. */
struct bench {
    struct loopback_page pages[4];
    struct loopback *loopback;
    struct measured measured;
};

static void open_bench(struct bench *bench, const struct loopback_page *page, const char *arm, const char *limits)
{
    *bench = (struct bench){.pages = {*page, {.path = "/v1/models", .body = "{\"data\": [{\"id\": \"m\"}]}"}}};
    bench->pages[0].path = "/v1/completions";
    bench->pages[0].first = &good;
    bench->loopback = loopback_start(bench->pages, 0);
    char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': '%s'}", loopback_url(bench->loopback));
    measured_open(&bench->measured, arm, source, limits);
    free(source);
}

static void close_bench(struct bench *bench)
{
    measured_close(&bench->measured);
    if (bench->loopback)
        loopback_stop(bench->loopback);
}

struct bad {
    const char *name;
    struct loopback_page page;
    const char *code; /* of every sample; NULL: they are ok */
    int status;       /* that its error carries; -1: none */
    const char *says; /* a part of its message */
    const char *rules;
    int failure;        /* of the run */
    const char *limits; /* NULL: as in any plan */
};

static const struct bad cases[] = {
    {"good", {.content_type = STREAM, .body = ANSWER, .piece = 40, .delay_ms = 1}, NULL, 0, NULL, "", 0},
    {"cut at every byte",
     {.content_type = STREAM,
      .body = FOUR CHUNK("\xF0\x9F\x8C\xB3") CHUNK("\\u00e9\xC3\xA9") CHUNK("\xE2\x82\xAC") CHUNK("z") FINISH("length")
          USAGE("8") DONE,
      .piece = 1},
     NULL,
     0,
     NULL,
     "",
     0},
    {"NUL in the text",
     {.content_type = STREAM,
      .body = CHUNK("\\u0000") FOUR CHUNK("e") CHUNK("f") CHUNK("g") FINISH("length") USAGE("8") DONE,
      .piece = 40,
      .delay_ms = 1},
     NULL,
     0,
     NULL,
     "",
     0},
    {"CR LF, comments and keep-alives",
     {.content_type = STREAM,
      .body = ": hello\r\n\r\ndata: {\"choices\": [{\"text\": \"a\"}]}\r\n\r\n: keep-alive\r\n\r\n:\r\n\r\n"
              "data: {\"choices\": [{\"text\": \"b\", \"finish_reason\": \"length\"}]}\r\n\r\n"
              "data: {\"choices\": [],\r\ndata: \"usage\": {\"completion_tokens\": 8}}\r\n\r\ndata: [DONE]\r\n\r\n",
      .piece = 7,
      .delay_ms = 1},
     NULL,
     0,
     NULL,
     "ITL_PER_CHUNK",
     0},
    {"[DONE] missing",
     {.content_type = STREAM, .body = FOUR FOUR FINISH("length") USAGE("8"), .piece = 50, .delay_ms = 1},
     NULL,
     0,
     NULL,
     "",
     0},
    {"null usage in every chunk, the last one counts",
     {.content_type = STREAM,
      .body =
          "data: {\"choices\": [{\"text\": \"a\"}], \"usage\": null}\n\n"
          "data: {\"choices\": [{\"text\": \"b\", \"finish_reason\": \"length\"}], \"usage\": {\"completion_tokens\": "
          "0}}\n\n" USAGE("8") DONE,
      .piece = 50,
      .delay_ms = 1},
     NULL,
     0,
     NULL,
     "ITL_PER_CHUNK",
     0},
    {"no usage",
     {.content_type = STREAM, .body = CHUNK("a") CHUNK("b") FINISH("length") DONE, .piece = 40, .delay_ms = 1},
     NULL,
     0,
     NULL,
     "ZERO_TOKENS",
     0},
    {"zero usage",
     {.content_type = STREAM,
      .body = CHUNK("a") CHUNK("b") FINISH("length") USAGE("0") DONE,
      .piece = 40,
      .delay_ms = 1},
     NULL,
     0,
     NULL,
     "ZERO_TOKENS OUTPUT_SHORT",
     0},
    {"nothing but the end",
     {.content_type = STREAM, .body = FINISH("length") USAGE("8") DONE},
     NULL,
     0,
     NULL,
     "EMPTY_STREAM",
     0},
    {"shorter than asked",
     {.content_type = STREAM,
      .body = CHUNK("a") CHUNK("b") CHUNK("c") FINISH("stop") USAGE("3") DONE,
      .piece = 40,
      .delay_ms = 1},
     NULL,
     0,
     NULL,
     "OUTPUT_SHORT",
     0},
    {"whole at once, so that nothing was timed",
     {.content_type = STREAM, .body = CHUNK("all of it") FINISH("length") USAGE("8") DONE},
     NULL,
     0,
     NULL,
     "ZERO_LATENCY",
     0},
    {"slow",
     {.content_type = STREAM, .body = ANSWER, .piece = 20, .delay_ms = 200},
     "FAILED_REQUEST",
     200,
     "no end of the answer within 1 s",
     "FAILED_REQUEST ALL_FAILED",
     0,
     "'request_s': 1"},
    {"half-closed",
     {.content_type = STREAM, .body = CHUNK("a"), .cut = true},
     "FAILED_REQUEST",
     200,
     "after a part of the answer",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"ends early, in good order",
     {.content_type = STREAM, .body = CHUNK("a")},
     "FAILED_REQUEST",
     200,
     "ended before the answer did",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"400, nested JSON",
     {.status = 400,
      .body = "{\"error\": {\"message\": \"This model's maximum context length is 4096 tokens.\", \"code\": 400}}"},
     "CONTEXT_OVERFLOW",
     400,
     "maximum context length is 4096",
     "FAILED_REQUEST ALL_FAILED CONTEXT_OVERFLOW",
     0},
    {"400, flat JSON",
     {.status = 400, .body = "{\"object\": \"error\", \"message\": \"top_k is too small\", \"code\": 400}"},
     "FAILED_REQUEST",
     400,
     "status 400: top_k is too small",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"422, detail",
     {.status = 422, .body = "{\"detail\": \"prompt: field required\"}"},
     "FAILED_REQUEST",
     422,
     "prompt: field required",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"500, HTML",
     {.status = 500,
      .content_type = "text/html",
      .body = "<html>\n<body><h1>Internal  Server Error</h1></body></html>"},
     "FAILED_REQUEST",
     500,
     "status 500: Internal Server Error",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"503, nothing", {.status = 503}, "FAILED_REQUEST", 503, "status 503: no body", "FAILED_REQUEST ALL_FAILED", 0},
    {"error within a stream of status 200",
     {.content_type = STREAM, .body = CHUNK("a") "data: {\"error\": {\"message\": \"worker lost\"}}\n\n" DONE},
     "INBAND_ERROR",
     200,
     "worker lost",
     "FAILED_REQUEST ALL_FAILED INBAND_ERROR",
     0},
    {"error as an event of that name",
     {.content_type = STREAM, .body = "event: error\ndata: {\"message\": \"no room\"}\n\n"},
     "INBAND_ERROR",
     200,
     "no room",
     "FAILED_REQUEST ALL_FAILED INBAND_ERROR",
     0},
    {"error of status 200 without a stream",
     {.body = "{\"error\": {\"message\": \"busy\"}}"},
     "INBAND_ERROR",
     200,
     "busy",
     "FAILED_REQUEST ALL_FAILED INBAND_ERROR",
     0},
    {"aborted",
     {.content_type = STREAM, .body = CHUNK("a") FINISH("abort") USAGE("1") DONE},
     "INBAND_ERROR",
     200,
     "aborted",
     "FAILED_REQUEST ALL_FAILED INBAND_ERROR",
     0},
    {"an event that is not JSON",
     {.content_type = STREAM, .body = "data: {\"choices\": [\n\n" DONE},
     "FAILED_REQUEST",
     200,
     "not JSON",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"wrong content type",
     {.content_type = "text/html", .body = "<p>Welcome</p>"},
     "FAILED_REQUEST",
     200,
     "no event stream, but \"text/html\"",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"JSON where a stream was asked for",
     {.body = "{\"choices\": [{\"text\": \"abcdefgh\"}]}"},
     "FAILED_REQUEST",
     200,
     "no event stream",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"a line without end",
     {.content_type = STREAM, .body = "data: {\"choices\": [{\"text\": \"", .endless = true},
     "FAILED_REQUEST",
     200,
     "a line of more than",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"a page without end",
     {.content_type = "text/html", .body = "<p>", .endless = true},
     "FAILED_REQUEST",
     200,
     "no event stream",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"redirect",
     {.status = 307, .location = "http://127.0.0.1:1/v1/completions"},
     "FAILED_REQUEST",
     307,
     "redirects are not followed",
     "FAILED_REQUEST ALL_FAILED",
     0},
    {"silent",
     {.content_type = STREAM, .body = CHUNK("a"), .hang = true},
     "SILENT",
     200,
     "no byte for 2 s",
     "FAILED_REQUEST ALL_FAILED SILENT",
     SOURCE_SILENT,
     "'silence_s': 2"},
    {"out of memory",
     {.status = 500, .body = "{\"error\": {\"message\": \"CUDA out of memory. Tried to allocate\"}}"},
     "OUT_OF_MEMORY",
     500,
     "CUDA out of memory",
     "FAILED_REQUEST ALL_FAILED OUT_OF_MEMORY",
     SOURCE_OUT_OF_MEMORY},
};

static void expect_sample(const struct bad *bad, const struct sample *sample)
{
    assert_int_equal(sample->ok, bad->code == NULL);
    if (!bad->code)
        return;
    assert_string_equal(sample->error_code, bad->code);
    assert_int_equal(sample->error_http_status, bad->status);
    if (!strstr(sample->error_message, bad->says))
        fail_msg("\"%s\" is not in \"%s\"", bad->says, sample->error_message);
    assert_int_equal(sample->tokens, ATTEMPT_ABSENT);
}

static void try_case(const struct bad *bad)
{
    struct bench bench;
    open_bench(&bench, &bad->page, "tp1-auto", bad->limits ? bad->limits : "");
    measured_run(&bench.measured, "tp1-auto", MEASURED_REQUESTS);
    assert_int_equal(bench.measured.loaded, 0);
    assert_int_equal(bench.measured.ran, bad->failure);
    assert_int_equal(bench.measured.delivered, bad->failure ? 1 : MEASURED_REQUESTS);
    for (int i = 0; i < bench.measured.attempt.sample_count; i++)
        expect_sample(bad, &bench.measured.attempt.samples[i]);
    measured_expect(&bench.measured, bad->rules);
    close_bench(&bench);
}

static void every_case_gets_its_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%s\n", cases[i].name);
        try_case(&cases[i]);
    }
}

/* What was answered before stays; the rest is not sent. */
static void a_server_that_goes_away_has_died(void **state)
{
    (void)state;
    struct bench bench;
    open_bench(&bench, &good, "tp1-auto", "'request_s': 5");
    measured_load(&bench.measured, "tp1-auto");
    loopback_stop(bench.loopback);
    bench.loopback = NULL;
    measured_send(&bench.measured, "tp1-auto", MEASURED_REQUESTS);
    assert_int_equal(bench.measured.ran, SOURCE_SERVER_DIED);
    assert_int_equal(bench.measured.delivered, 1);
    assert_string_equal(bench.measured.attempt.samples[0].error_code, "SERVER_DIED");
    measured_expect(&bench.measured, "FAILED_REQUEST ALL_FAILED SERVER_DIED");
    close_bench(&bench);
}

/* Others run it: nothing more can be measured, and nothing is a try. */
static void a_server_that_is_not_there_ends_the_campaign(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *says;
    } ways[] = {{"http", "not ready within limits.start_s, 1 s"}, {"https", "SSL"}};
    for (int i = 0; i < 2; i++) {
        struct bench bench;
        open_bench(&bench, &good, "tp1-auto", "'start_s': 1");
        char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': '%s%s'}", ways[i].scheme,
                               strchr(loopback_url(bench.loopback), ':'));
        if (i == 0) {
            loopback_stop(bench.loopback);
            bench.loopback = NULL;
        }
        measured_close(&bench.measured);
        measured_open(&bench.measured, "tp1-auto", source, "'start_s': 1");
        measured_load(&bench.measured, "tp1-auto");
        assert_int_equal(bench.measured.loaded, -1);
        if (!strstr(bench.measured.error.message, ways[i].says))
            fail_msg("\"%s\" is not in \"%s\"", ways[i].says, bench.measured.error.message);
        free(source);
        close_bench(&bench);
    }
}

/* A server that says what it was told must not bring the key into a file. */
static void the_key_is_sent_and_never_written(void **state)
{
    (void)state;
    static const struct loopback_page telling = {
        .status = 401, .body = "{\"error\": {\"message\": \"Incorrect API key provided: sk-7f3a9\"}}"};
    struct bench bench;
    open_bench(&bench, &telling, "tp1-auto", "'request_s': 5");
    bench.pages[1].body = "{\"data\": [{\"id\": \"m\"}], \"api_key\": \"other\", \"told\": \"sk-7f3a9\"}";
    measured_close(&bench.measured);
    char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': '%s', 'api_key_env': 'CLEANSLATE_TEST_KEY'}",
                           loopback_url(bench.loopback));
    setenv("CLEANSLATE_TEST_KEY", "sk-7f3a9", 1);
    measured_open(&bench.measured, "tp1-auto", source, "'request_s': 5");
    measured_run(&bench.measured, "tp1-auto", MEASURED_REQUESTS);
    assert_string_equal(loopback_authorization(bench.loopback), "Bearer sk-7f3a9");
    char *path = file_join(bench.measured.folder, "attempt.jsonl"), *text = fixture_read(path, NULL);
    assert_null(strstr(text, "sk-7f3a9"));
    assert_null(strstr(text, "other"));
    assert_non_null(strstr(text, "Incorrect API key provided: ********"));
    free(text);
    free(path);
    free(source);
    close_bench(&bench);
    unsetenv("CLEANSLATE_TEST_KEY");
}

static void a_plan_whose_key_is_not_set_is_refused(void **state)
{
    (void)state;
    struct measured measured;
    measured_open(&measured, "tp1-auto", "{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:1'}", "");
    struct error error = {0};
    measured.plan.server.api_key_env = "CLEANSLATE_TEST_KEY_UNSET";
    assert_null(server_source_open(&measured.plan, &error));
    assert_non_null(strstr(error.message, "CLEANSLATE_TEST_KEY_UNSET"));
    measured_close(&measured);
}

/* Samples come in the order of their requests, and as many streams are open as the arm says: before that the server
 * answers none. */
static void many_streams_at_a_time(void **state)
{
    (void)state;
    enum { STREAMS = PLAN_CONCURRENCY_MAXIMUM, REQUESTS = STREAMS + 50 };
    static const struct loopback_page waiting = {
        .content_type = STREAM, .body = ANSWER, .piece = 100, .delay_ms = 1, .wait_open = STREAMS};
    struct bench bench;
    open_bench(&bench, &waiting, "tp1-auto-c256", "'request_s': 60");
    measured_run(&bench.measured, "tp1-auto-c256", REQUESTS);
    assert_int_equal(bench.measured.ran, 0);
    assert_int_equal(bench.measured.delivered, REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        const struct sample *sample = &bench.measured.attempt.samples[i];
        assert_true(sample->ok);
        assert_int_equal(sample->prompt[1] - '0', i % 8);
        assert_int_equal(sample->tokens, 8);
    }
    assert_int_equal(loopback_most_open(bench.loopback), STREAMS);
    assert_true(bench.measured.attempt.observed.client_cpu_share > 0);
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_gets_its_verdict),
        cmocka_unit_test(a_server_that_goes_away_has_died),
        cmocka_unit_test(a_server_that_is_not_there_ends_the_campaign),
        cmocka_unit_test(the_key_is_sent_and_never_written),
        cmocka_unit_test(a_plan_whose_key_is_not_set_is_refused),
        cmocka_unit_test(many_streams_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
