/* What is read without the parser is what the parser would have read. That it is so of mutated lines as well is
 * tests/fuzz/test_attempt.c's matter. */
#include "collect/record/sample_scan.h"

#include "collect/base/json.h"
#include "collect/record/sample.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- the same by both --------------------------------------------------------------------------------------------- */

static json_t *read_by_parser(const char *text)
{
    struct sample sample;
    struct error error = {0};
    json_t *line = json_read_text(text, strlen(text), "line", &error);
    if (!line || sample_from_json(line, "line", &sample, &error))
        fail_msg("%s", error.message);
    json_decref(line);
    json_t *again = sample_to_json(&sample);
    json_set(again, "committed", json_integer(sample.committed));
    sample_free(&sample);
    return again;
}

static void assert_read_alike(const char *text)
{
    struct sample sample;
    if (!sample_scan(text, strlen(text), &sample))
        fail_msg("%s was not read", text);
    json_t *scanned = sample_to_json(&sample), *parsed = read_by_parser(text);
    json_set(scanned, "committed", json_integer(sample.committed));
    if (!json_equal(scanned, parsed))
        fail_msg("%s was read as %s", text, json_dumps(scanned, JSON_COMPACT));
    json_decref(scanned);
    json_decref(parsed);
    sample_free(&sample);
}

static char *write_line(const struct sample *sample)
{
    json_t *line = sample_to_json(sample);
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    return text;
}

static void test_lines_as_they_are_written_are_read(void **state)
{
    (void)state;
    static const char *const prompts[] = {"fibonacci", "", "\xCF\x80", "\xF0\x9D\x84\x9E clef", "{[,:]}"};
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        struct sample sample;
        fixture_sample(&sample, "code", prompts[i]);
        sample.warmup = i % 2;
        sample.finish = FINISH_LENGTH + (enum finish)(i % 3);
        sample.communicate_ns = 17;
        sample.margins[0] = i % 2 ? NAN : 0;
        sample.chunks = 2;
        sample.chunk_ns = xcalloc(2, sizeof *sample.chunk_ns);
        sample.chunk_ns[1] = 123456789012345;
        sample.chunk_tokens = xcalloc(2, sizeof *sample.chunk_tokens);
        char *text = write_line(&sample);
        assert_read_alike(text);
        free(text);
        sample_free(&sample);
    }
    struct sample bare;
    sample_init(&bare);
    bare.workload = bare.prompt = "p";
    bare.ok = true;
    char *text = write_line(&bare);
    assert_read_alike(text);
    free(text);
}

static void test_margins_are_those_of_the_parser(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "7",
        "-12",
        "123456789012345",
        "0.5",
        "-0.25",
        "3.1415926535897931",
        "1e5",
        "1E-7",
        "2.5e+3",
        "1e22",
        "1e-22",
        "1e38",
        "4.9e-324",
        "0.10000000149011612",
        "1e-30",
        "1e23",
        "0.0",
        "17.0",
        "0e0",
        "1.5e0",
        "9.99999999e-07",
        "3.40282346e+38",
        "-1e-50",
        "100e-20",
        "5e-1",
        "0.00001",
        "1234567890123456.5",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *line = xformat("{\"type\":\"sample\",\"workload\":\"w\",\"prompt\":\"p\",\"outcome\":\"ok\",\"tokens\":3,"
                             "\"margins\":[%s,null,%s]}",
                             texts[i], texts[i]);
        assert_read_alike(line);
        free(line);
    }
}

/* --- what is left to the parser ----------------------------------------------------------------------------------- */

static bool is_scanned(const char *line)
{
    struct sample sample;
    const bool scanned = sample_scan(line, strlen(line), &sample);
    sample_free(&sample);
    return scanned;
}

#define START "{\"type\":\"sample\",\"workload\":\"w\",\"prompt\":\"p\","

static void test_other_lines_are_the_parsers(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "{",
        "{}",
        "[]",
        "{\"type\":\"sample\"}",
        "{\"type\":\"sample\",}",
        "{\"type\":\"end\",\"status\":\"complete\"}",
        "{\"workload\":\"w\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"w\",\"outcome\":\"ok\"}",
        START "\"tokens\":1}",
        START "\"outcome\":\"ok\"",
        START "\"outcome\":\"ok\"}}",
        START "\"outcome\":\"ok\"} ",
        START "\"outcome\":\"ok\",}",
        START "\"outcome\" :\"ok\"}",
        START "\"outcome\": \"ok\"}",
        START "\"outcome\":\"fine\"}",
        START "\"outcome\":\"error\"}",
        START "\"outcome\":\"ok\",\"outcome\":\"ok\"}",
        START "\"outcome\":\"ok\",\"tokens\":1,\"tokens\":1}",
        START "\"outcome\":\"ok\",\"warmup\":true}", /* in another order than it is written */
        START "\"warmup\":null,\"outcome\":\"ok\"}",
        START "\"outcome\":\"ok\",\"newer\":1}",
        START "\"outcome\":\"ok\",\"error\":{}}",
        START "\"outcome\":\"ok\",\"tok\\u0065ns\":1}",
        START "\"asked\":{},\"outcome\":\"ok\"}",
        START "\"asked\":{\"max_new_tokens\":1,\"max_new_tokens\":2},\"outcome\":\"ok\"}",
        START "\"outcome\":\"ok\",\"finish\":\"tired\"}",
        START "\"outcome\":\"ok\",\"finish\":\"lengthy\"}",
        "{\"type\":\"sample\",\"workload\":\"w\\n\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"w\t\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"\xC0\x80\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"\xED\xA0\x80\",\"prompt\":\"p\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"w\",\"prompt\":\"\xE2\x82\",\"outcome\":\"ok\"}",
        "{\"type\":\"sample\",\"workload\":\"w\",\"prompt\":\"\xE2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (is_scanned(lines[i]))
            fail_msg("%s was read", lines[i]);
    assert_true(is_scanned(START "\"outcome\":\"ok\"}"));
}

/* Refused by the parser, or by who reads what it made; or with digits that a double does not hold. */
static void test_other_numbers_are_the_parsers(void **state)
{
    (void)state;
    static const char *const ends[] = {
        "\"tokens\":-1",
        "\"tokens\":1.0",
        "\"tokens\":1e1",
        "\"tokens\":01",
        "\"tokens\":+1",
        "\"tokens\":",
        "\"tokens\":16777217",
        "\"start_ns\":9007199254740993",
        "\"start_ns\":99999999999999999999999999",
        "\"token_ids\":[]", /* it was not said how many there are */
        "\"tokens\":2,\"token_ids\":[1]",
        "\"tokens\":2,\"token_ids\":[1,2,3]",
        "\"tokens\":2,\"token_ids\":[1,2,]",
        "\"tokens\":2,\"token_ids\":[1,2147483648]",
        "\"tokens\":2,\"token_ids\":[1,null]",
        "\"tokens\":2,\"token_ids\":[1,2.0]",
        "\"tokens\":2,\"token_ids\":[1,\"2\"]",
        "\"tokens\":2,\"token_ids\":[1 ,2]",
        "\"tokens\":2,\"token_ids\":[1,2",
        "\"tokens\":1,\"margins\":[1.]",
        "\"tokens\":1,\"margins\":[.5]",
        "\"tokens\":1,\"margins\":[01]",
        "\"tokens\":1,\"margins\":[1e]",
        "\"tokens\":1,\"margins\":[1e39]",
        "\"tokens\":1,\"margins\":[1e999]",
        "\"tokens\":1,\"margins\":[nul]",
        "\"tokens\":1,\"margins\":[nan]",
        "\"tokens\":1,\"margins\":[12345678901234567890]",
        "\"rounds\":1,\"accepted\":[65537]",
        "\"chunks\":1,\"chunk_ns\":[-1]",
        "\"chunks\":1,\"chunk_tokens\":[16777217]",
        "\"stages_ns\":{\"draft\":-1}",
        "\"stages_ns\":{\"commit\":1,\"draft\":1}",
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *line = xformat(START "\"outcome\":\"ok\",%s}", ends[i]);
        if (is_scanned(line))
            fail_msg("%s was read", line);
        free(line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_as_they_are_written_are_read),
        cmocka_unit_test(test_margins_are_those_of_the_parser),
        cmocka_unit_test(test_other_lines_are_the_parsers),
        cmocka_unit_test(test_other_numbers_are_the_parsers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
