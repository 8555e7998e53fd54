/* What llama-server says, in the form in which it says it, becomes counts, times and facts; how many rounds it took
 * most of all, which follows from counts of tokens alone. */
#include "collect/server/dialect.h"

#include "tests/server/dialect_scene.h"

#include <string.h>

/* As b11669 writes it, shortened: 8 tokens, of which 4 were drafted ones: one from prefill, three rounds. */
static const char llama_stream[] =
    "data: {\"index\":0,\"content\":\"   \",\"tokens\":[40],\"stop\":false,\"tokens_predicted\":1,"
    "\"tokens_evaluated\":5}\n\n"
    "data: {\"index\":0,\"content\":\" x\",\"tokens\":[41,42,43,44,45,46],\"stop\":false,\"tokens_predicted\":7,"
    "\"tokens_evaluated\":5}\n\n"
    "data: {\"index\":0,\"content\":\"y\",\"tokens\":[47],\"stop\":false,\"tokens_predicted\":8,"
    "\"tokens_evaluated\":5}\n\n"
    "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,\"model\":\"m\",\"tokens_predicted\":8,"
    "\"tokens_evaluated\":5,\"truncated\":false,\"stop_type\":\"limit\",\"timings\":{\"cache_n\":0,\"prompt_n\":5,"
    "\"predicted_n\":8,\"draft_n\":30,\"draft_n_accepted\":4}}\n\n";

static struct loopback_page llama_pages[] = {
    {.path = "/health", .body = "{\"status\":\"ok\"}"},
    {.path = "/props",
     .body = "{\"default_generation_settings\": {\"n_ctx\": 2048}, \"total_slots\": 1, \"build_info\": \"b11669\"}"},
    {.path = "/completion", .content_type = STREAM, .body = llama_stream, .piece = 100, .delay_ms = 2},
    {0},
};

static void llama_native(void **state)
{
    (void)state;
    struct bench bench;
    open_bench(&bench, llama_pages, "tp1-linear", "'dialect': 'llama'");
    expect_counts(first_sample(&bench), 5, 8, 1, 3);
    expect_ids(first_sample(&bench), 40);
    json_t *body = read_body(&bench, "/completion");
    assert_true(json_is_false(json_object_get(body, "cache_prompt")));
    assert_int_equal(json_integer_value(json_object_get(body, "n_predict")), 8);
    json_decref(body);
    measured_expect(&bench.measured, "ITL_PER_CHUNK");
    close_bench(&bench);
}

/* Four rounds behind the first token, of which the third accepts nothing and the last 5 tokens; the output ends at the
 * second of those, by its end token. */
#define LLAMA_STOPPED(EVENT, LAST)                                                                                     \
    EVENT("40", "1", "")                                                                                               \
    EVENT("41", "2", DRAFTED("1"))                                                                                     \
    EVENT("42", "3", DRAFTED("1"))                                                                                     \
    EVENT("43", "4", DRAFTED("3"))                                                                                     \
    EVENT("44", "5", DRAFTED("3"))                                                                                     \
    EVENT("45", "6", DRAFTED("3"))                                                                                     \
    EVENT("46", "7", DRAFTED("3")) EVENT("47", "8", DRAFTED("8")) EVENT("48", "9", DRAFTED("8")) LAST
#define DRAFTED(accepted) ",\"draft_n\":30,\"draft_n_accepted\":" accepted
#define TIMINGS(predicted, drafted) "\"timings\":{\"predicted_n\":" predicted drafted "}}\n\n"
#define NATIVE(id, predicted, drafted)                                                                                 \
    "data: {\"content\":\"x\",\"tokens\":[" id "],\"stop\":false,\"tokens_predicted\":" predicted                      \
    "," TIMINGS(predicted, drafted)
#define NATIVE_BARE(id, predicted, drafted)                                                                            \
    "data: {\"content\":\"x\",\"tokens\":[" id "],\"stop\":false,\"tokens_predicted\":" predicted "}\n\n"
#define NATIVE_LAST                                                                                                    \
    "data: {\"content\":\"\",\"tokens\":[],\"stop\":true,\"tokens_predicted\":9,\"tokens_evaluated\":5,"               \
    "\"stop_type\":\"eos\"," TIMINGS("9", DRAFTED("8"))
#define COMPLETIONS(id, predicted, drafted) "data: {\"choices\":[{\"text\":\"x\"}]," TIMINGS(predicted, drafted)
#define COMPLETIONS_LAST                                                                                               \
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":9,"              \
    "\"prompt_tokens\":5}," TIMINGS("9", DRAFTED("8")) "data: [DONE]\n\n"
#define CHAT(id, predicted, drafted) "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]," TIMINGS(predicted, drafted)
#define CHAT_LAST                                                                                                      \
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"                                              \
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9,\"prompt_tokens\":5}," TIMINGS(                          \
        "9", DRAFTED("8")) "data: [DONE]\n\n"

/* The same of a server that counts all of a round as soon as it has verified it. */
#define LLAMA_STOPPED_OLDER                                                                                            \
    COMPLETIONS("40", "1", "")                                                                                         \
    COMPLETIONS("41", "3", DRAFTED("1"))                                                                               \
    COMPLETIONS("42", "3", DRAFTED("1"))                                                                               \
    COMPLETIONS("43", "6", DRAFTED("3"))                                                                               \
    COMPLETIONS("44", "6", DRAFTED("3"))                                                                               \
    COMPLETIONS("45", "6", DRAFTED("3"))                                                                               \
    COMPLETIONS("46", "7", DRAFTED("3"))                                                                               \
    COMPLETIONS("47", "13", DRAFTED("8"))                                                                              \
    COMPLETIONS("48", "13", DRAFTED("8"))                                                                              \
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":13,"             \
    "\"prompt_tokens\":5}," TIMINGS("13", DRAFTED("8")) "data: [DONE]\n\n"

/* Accepted tokens that an end token cut off are no part of the output: the round that they were accepted in is one.
 * Where nothing says how many they were, the number of rounds is unknown. */
static void llama_rounds_of_an_output_that_stops(void **state)
{
    (void)state;
    static const struct {
        const char *route, *path, *body;
        int tokens, rounds;
    } cases[] = {
        {"native", "/completion", LLAMA_STOPPED(NATIVE, NATIVE_LAST), 9, 4},
        {"completions", "/v1/completions", LLAMA_STOPPED(COMPLETIONS, COMPLETIONS_LAST), 9, 4},
        {"completions", "/v1/completions", LLAMA_STOPPED_OLDER, 13, 4},
        {"chat", "/v1/chat/completions", LLAMA_STOPPED(CHAT, CHAT_LAST), 9, 4},
        {"native", "/completion", LLAMA_STOPPED(NATIVE_BARE, NATIVE_LAST), 9, ATTEMPT_ABSENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench bench;
        struct loopback_page pages[4];
        memcpy(pages, llama_pages, sizeof pages);
        pages[2].path = cases[i].path;
        pages[2].body = cases[i].body;
        char *keys = xformat("'dialect': 'llama', 'route': '%s'", cases[i].route);
        open_bench(&bench, pages, "tp1-linear", keys);
        assert_int_equal(first_sample(&bench)->tokens, cases[i].tokens);
        assert_int_equal(first_sample(&bench)->rounds, cases[i].rounds);
        close_bench(&bench);
        free(keys);
    }
}

static void llama_is_asked_for_timings_where_an_output_may_stop(void **state)
{
    (void)state;
    static const char *const routes[] = {"native", "completions", "chat"};
    for (int i = 0; i < 6; i++) {
        const struct request request = {.text = "x", .max_new_tokens = 4, .ignore_eos = i % 2};
        const struct plan_sampling sampling = {.top_p = 1};
        char *text = dialect_body(dialect_find("llama", routes[i / 2]), "m", &request, &sampling, NULL);
        json_t *body = json_loads(text, 0, NULL);
        assert_int_equal(json_is_true(json_object_get(body, "timings_per_token")), !request.ignore_eos);
        json_decref(body);
        free(text);
    }
}

static void llama_cut_at_its_context(void **state)
{
    (void)state;
    struct bench bench;
    llama_pages[2].body = "data: {\"content\":\"x\",\"tokens\":[40],\"stop\":false,\"tokens_predicted\":1}\n\n"
                          "data: {\"content\":\"\",\"tokens\":[],\"stop\":true,\"tokens_predicted\":3,"
                          "\"truncated\":true,\"stop_type\":\"limit\"}\n\n";
    open_bench(&bench, llama_pages, "tp1-auto", "'dialect': 'llama'");
    llama_pages[2].body = llama_stream;
    assert_string_equal(first_sample(&bench)->error_code, "CONTEXT_OVERFLOW");
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_native),
        cmocka_unit_test(llama_rounds_of_an_output_that_stops),
        cmocka_unit_test(llama_is_asked_for_timings_where_an_output_may_stop),
        cmocka_unit_test(llama_cut_at_its_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
