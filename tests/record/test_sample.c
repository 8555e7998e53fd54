#include "collect/record/sample.h"

#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_text_equal(const char *a, const char *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a)
        assert_string_equal(a, b);
}

static void assert_array_equal(const void *a, const void *b, int count, size_t size)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a)
        assert_memory_equal(a, b, (size_t)count * size);
}

static void assert_sample_equal(const struct sample *a, const struct sample *b)
{
    assert_text_equal(a->workload, b->workload);
    assert_text_equal(a->prompt, b->prompt);
    assert_int_equal(a->warmup, b->warmup);
    assert_int_equal(a->ok, b->ok);
    assert_text_equal(a->error_code, b->error_code);
    assert_int_equal(a->error_http_status, b->error_http_status);
    assert_text_equal(a->error_message, b->error_message);
    assert_int_equal(a->asked_tokens, b->asked_tokens);
    assert_int_equal(a->asked_ignore_eos, b->asked_ignore_eos);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->cached_tokens, b->cached_tokens);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->first_tokens, b->first_tokens);
    assert_array_equal(a->token_ids, b->token_ids, a->tokens, sizeof *a->token_ids);
    assert_array_equal(a->margins, b->margins, a->tokens, sizeof *a->margins);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->start_ns, b->start_ns);
    assert_int_equal(a->ttft_ns, b->ttft_ns);
    assert_int_equal(a->decode_ns, b->decode_ns);
    assert_int_equal(a->end_ns, b->end_ns);
    assert_int_equal(a->stall_ns, b->stall_ns);
    assert_int_equal(a->rounds, b->rounds);
    assert_array_equal(a->accepted, b->accepted, a->rounds, sizeof *a->accepted);
    assert_memory_equal(a->stages_ns, b->stages_ns, sizeof a->stages_ns);
    assert_int_equal(a->communicate_ns, b->communicate_ns);
    assert_int_equal(a->chunks, b->chunks);
    assert_array_equal(a->chunk_ns, b->chunk_ns, a->chunks, sizeof *a->chunk_ns);
    assert_array_equal(a->chunk_tokens, b->chunk_tokens, a->chunks, sizeof *a->chunk_tokens);
}

static void make_failed(struct sample *sample)
{
    sample_init(sample);
    sample->workload = "maths";
    sample->prompt = "\xCF\x80 and \"quotes\"\n";
    sample->warmup = true;
    sample->error_code = xstrdup("CONTEXT_OVERFLOW");
    sample->error_http_status = 400;
    sample->error_message = xstrdup("too long");
}

static void set_chunks(struct sample *sample)
{
    static const int64_t times[3] = {500, 2500, SAMPLE_TIME_MAXIMUM_NS};
    static const int tokens[3] = {1, 0, 8};
    sample->chunks = 3;
    sample->chunk_ns = memcpy(xcalloc(3, sizeof *times), times, sizeof times);
    sample->chunk_tokens = memcpy(xcalloc(3, sizeof *tokens), tokens, sizeof tokens);
}

/* Written as a line, and read again from its text. */
static void write_and_read(const struct sample *sample, struct sample *again)
{
    struct error error = {0};
    json_t *object = sample_to_json(sample);
    char *text = json_dumps(object, JSON_COMPACT);
    json_t *line = json_read_text(text, strlen(text), "a.jsonl:2", &error);
    sample_from_json(line, "a.jsonl:2", again, &error);
    assert_string_equal(error.message, "");
    json_decref(object);
    json_decref(line);
    free(text);
}

static void test_every_member_comes_back(void **state)
{
    (void)state;
    struct sample samples[4];
    fixture_sample(&samples[0], "code", "fibonacci");
    set_chunks(&samples[0]);
    make_failed(&samples[1]);
    sample_init(&samples[2]); /* nothing is known */
    samples[2].workload = "code";
    samples[2].prompt = "";
    fixture_sample(&samples[3], "code", "largest");
    samples[3].finish = FINISH_STOP;
    samples[3].start_ns = samples[3].end_ns = SAMPLE_TIME_MAXIMUM_NS;
    samples[3].token_ids[0] = INT32_MAX;
    samples[3].accepted[0] = SAMPLE_ACCEPTED_MAXIMUM;
    for (int i = 0; i < 4; i++) {
        struct sample again;
        write_and_read(&samples[i], &again);
        assert_sample_equal(&samples[i], &again);
        sample_free(&again);
        sample_free(&samples[i]);
    }
}

/* What is absent in the struct is absent in the line, whatever it is: no -1 and no 0 stands in for it. */
static void test_what_is_unknown_is_not_written(void **state)
{
    (void)state;
    struct sample sample;
    sample_init(&sample);
    sample.workload = "code";
    sample.prompt = "p";
    sample.ok = true;
    json_t *line = sample_to_json(&sample);
    char *text = json_canonical(line);
    assert_string_equal(text,
                        "{\"asked\":{\"ignore_eos\":false},\"outcome\":\"ok\",\"prompt\":\"p\",\"type\":\"sample\","
                        "\"warmup\":false,\"workload\":\"code\"}");
    free(text);
    json_decref(line);
    sample_free(&sample);
}

static void test_margins_that_are_not_finite_come_back_unknown(void **state)
{
    (void)state;
    struct sample sample, again;
    fixture_sample(&sample, "code", "fibonacci");
    sample.margins[3] = INFINITY;
    sample.margins[4] = NAN;
    write_and_read(&sample, &again);
    assert_true(isnan(again.margins[3]) && isnan(again.margins[4]));
    assert_true(again.margins[5] == 17.0F);
    sample_free(&sample);
    sample_free(&again);
}

static void test_lengths_give_the_counts_where_those_are_absent(void **state)
{
    (void)state;
    struct sample sample, again;
    struct error error = {0};
    fixture_sample(&sample, "code", "fibonacci");
    json_t *line = sample_to_json(&sample);
    json_object_del(line, "tokens");
    json_object_del(line, "rounds");
    assert_int_equal(sample_from_json(line, "a.jsonl:2", &again, &error), 0);
    assert_sample_equal(&sample, &again);
    json_decref(line);
    sample_free(&sample);
    sample_free(&again);
}

/* Replaces the member at "a.b" in `object` by the JSON text; removes it where that is NULL. */
static void change(json_t *object, const char *key, const char *text)
{
    const char *dot = strchr(key, '.');
    if (dot) {
        char first[32];
        snprintf(first, sizeof first, "%.*s", (int)(dot - key), key);
        change(json_object_get(object, first), dot + 1, text);
    } else if (text) {
        json_set(object, key, json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL));
    } else {
        json_object_del(object, key);
    }
}

static void test_what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *text;
    } cases[] = {
        {"workload", NULL},
        {"prompt", "12"},
        {"prompt", "\"a\\u0000b\""},
        {"warmup", "0"},
        {"outcome", "\"fine\""},
        {"outcome", NULL},
        {"error", "[]"},
        {"asked", "128"},
        {"asked.max_new_tokens", "-1"},
        {"asked.ignore_eos", "1"},
        {"prompt_tokens", "-1"},
        {"prompt_tokens", "2147483648"},
        {"cached_tokens", "\"0\""},
        {"tokens", "8"},
        {"tokens", "-1"},
        {"tokens", "9.0"},
        {"tokens", "9223372036854775807"},
        {"first_tokens", "true"},
        {"token_ids", "9"},
        {"token_ids", "[1,2,3]"},
        {"token_ids", "[1,2,3,4,5,6,7,8,-9]"},
        {"token_ids", "[1,2,3,4,5,6,7,8,2147483648]"},
        {"token_ids", "[1,2,3,4,5,6,7,8,9.5]"},
        {"token_ids", "[1,2,3,4,5,6,7,8,null]"},
        {"margins", "[]"},
        {"margins", "[1,2,3,4,5,6,7,8,1e39]"},
        {"margins", "[1,2,3,4,5,6,7,8,\"9\"]"},
        {"finish", "\"tired\""},
        {"start_ns", "-5"},
        {"start_ns", "1.5"},
        {"end_ns", "9223372036854775807"},
        {"ttft_ns", "-1"},
        {"decode_ns", "[]"},
        {"stall_ns", "-1"},
        {"rounds", "2"},
        {"rounds", "-1"},
        {"accepted", "[3,2]"},
        {"accepted", "[3,2,-4]"},
        {"accepted", "[3,2,65537]"},
        {"accepted", "{}"},
        {"stages_ns", "[1,2,3,4]"},
        {"stages_ns.verify", "-1"},
        {"stages_ns.communicate", "-1"},
        {"chunks", "-1"},
        {"chunks", "4"},
        {"chunk_ns", "[500,2500]"},
        {"chunk_ns", "[500,2500,-1]"},
        {"chunk_ns", "[500,2500,9007199254740993]"},
        {"chunk_ns", "[500,2500,1.5]"},
        {"chunk_tokens", "[1,0]"},
        {"chunk_tokens", "[1,0,-8]"},
        {"chunk_tokens", "8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample sample;
        struct error error = {0};
        fixture_sample(&sample, "code", "fibonacci");
        set_chunks(&sample);
        json_t *line = sample_to_json(&sample);
        sample_free(&sample);
        change(line, cases[i].key, cases[i].text);
        if (sample_from_json(line, "a.jsonl:2", &sample, &error) == 0)
            fail_msg("\"%s\": %s was read", cases[i].key, cases[i].text ? cases[i].text : "(absent)");
        if (strncmp(error.message, "a.jsonl:2: ", 11) != 0 || strchr(error.message, '\n'))
            fail_msg("%s", error.message);
        assert_null(sample.workload);
        assert_null(sample.token_ids);
        json_decref(line);
    }
}

/* Rule INBAND_ERROR judges it, so that it costs a workload and not the file. */
static void test_an_answer_may_hold_an_error(void **state)
{
    (void)state;
    static const char *const errors[] = {"{\"message\": \"overloaded\"}", "{\"code\": \"E\"}", "{\"http_status\": 500}",
                                         "{}"};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct sample sample, again;
        struct error error = {0};
        fixture_sample(&sample, "code", "fibonacci");
        json_t *line = sample_to_json(&sample);
        sample_free(&sample);
        change(line, "error", errors[i]);
        assert_int_equal(sample_from_json(line, "a.jsonl:2", &sample, &error), 0);
        assert_true(sample.ok && (sample.error_message || sample.error_code));
        write_and_read(&sample, &again);
        assert_sample_equal(&sample, &again);
        json_decref(line);
        sample_free(&sample);
        sample_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_comes_back),
        cmocka_unit_test(test_what_is_unknown_is_not_written),
        cmocka_unit_test(test_margins_that_are_not_finite_come_back_unknown),
        cmocka_unit_test(test_lengths_give_the_counts_where_those_are_absent),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_an_answer_may_hold_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
