#include "collect/record/attempt.h"

#include "collect/base/file.h"
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

static char *folder, *path;

static int set_up(void **state)
{
    (void)state;
    folder = fixture_make_folder();
    path = file_join(folder, "1-1.jsonl");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(path);
    fixture_remove_folder(folder);
    return 0;
}

static void write_samples(const struct sample *samples, int count, const struct audit *audit)
{
    struct error error = {0};
    struct attempt_writer *writer = attempt_writer_open(path, fixture_header("tp1-b16", 2, 1), &error);
    assert_non_null(writer);
    for (int i = 0; i < count; i++)
        assert_int_equal(attempt_writer_add(writer, sample_to_json(&samples[i]), &error), 0);
    char hex[FILE_HASH_SIZE], again[FILE_HASH_SIZE];
    assert_int_equal(
        attempt_writer_end(writer, &(struct attempt_end){.status = "complete", .audit = audit}, hex, &error), 0);
    assert_int_equal(file_hash(path, again, &error), 0);
    assert_string_equal(hex, again);
}

static void read_well(struct attempt *attempt)
{
    struct error error = {0};
    attempt_read(path, attempt, &error);
    assert_string_equal(error.message, "");
}

static void test_samples_come_back_in_order(void **state)
{
    (void)state;
    struct sample samples[3];
    for (int i = 0; i < 3; i++) {
        fixture_sample(&samples[i], i == 1 ? "maths" : "code", "fibonacci");
        samples[i].start_ns = i;
        samples[i].warmup = i == 0;
    }
    const struct audit audit = {true, 0.000123456789012345678, 18};
    write_samples(samples, 3, &audit);
    struct attempt attempt;
    read_well(&attempt);
    assert_int_equal(attempt.sample_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(attempt.samples[i].start_ns, i);
        sample_free(&samples[i]);
    }
    int at = 0;
    assert_ptr_equal(attempt_next_sample(&attempt, "code", &at), &attempt.samples[2]);
    assert_null(attempt_next_sample(&attempt, "code", &at));
    assert_true(attempt.audit.done);
    assert_true(attempt.audit.regret_max == audit.regret_max);
    assert_int_equal(attempt.audit.tokens, 18);
    attempt_free(&attempt);
}

static void test_the_header_comes_back(void **state)
{
    (void)state;
    write_samples(NULL, 0, NULL);
    struct attempt attempt;
    read_well(&attempt);
    assert_string_equal(attempt.id, "demo/tp1-b16/2-1");
    assert_string_equal(attempt.path, path);
    assert_true(arm_equal(&attempt.arm, &(struct arm){1, METHOD_DDTREE, 16, 1}));
    assert_int_equal(attempt.block, 2);
    assert_int_equal(attempt.try_number, 1);
    assert_int_equal(attempt.position, 3);
    assert_string_equal(attempt.started, "2026-03-01T12:00:00Z");
    assert_string_equal(attempt.boot_id, "0f2c");
    assert_int_equal(attempt.workload_count, 2);
    assert_string_equal(attempt_find_workload(&attempt, "maths")->cell_hash, "c2");
    assert_string_equal(attempt_find_workload(&attempt, "maths")->compare_hash, "d2");
    assert_null(attempt_find_workload(&attempt, "prose"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(attempt.header, "source"), "dtype")),
                        "float32");
    assert_true(attempt.complete);
    assert_false(attempt.audit.done);
    assert_true(isnan(attempt.audit.regret_max));
    assert_int_equal(attempt.audit.tokens, ATTEMPT_ABSENT);
    attempt_free(&attempt);
}

/* A regret that is no number must not come back as a small one. */
static void test_a_regret_that_is_not_finite_comes_back_unknown(void **state)
{
    (void)state;
    const struct audit audit = {true, INFINITY, 9};
    write_samples(NULL, 0, &audit);
    struct attempt attempt;
    read_well(&attempt);
    assert_true(attempt.audit.done && isnan(attempt.audit.regret_max));
    attempt_free(&attempt);
}

static void test_what_a_source_saw_comes_back(void **state)
{
    (void)state;
    struct error error = {0};
    struct attempt attempt;
    struct observed observed;
    char hex[FILE_HASH_SIZE];
    observed_init(&observed);
    observed.slots = 8;
    observed.cache_tokens = (int64_t)1 << 40;
    observed.peak_tokens_per_s = 812.5;
    observed_add_counter(&observed, "drafts", 6.49e+06, 7e6);
    struct attempt_writer *writer = attempt_writer_open(path, fixture_header("tp1-b16", 2, 1), &error);
    const struct attempt_end end = {"failed", "SERVER_DIED", "illegal \"instruction\"\n", NULL, &observed};
    assert_int_equal(attempt_writer_end(writer, &end, hex, &error), 0);
    read_well(&attempt);
    assert_false(attempt.complete);
    assert_string_equal(attempt.error_code, "SERVER_DIED");
    assert_string_equal(attempt.error_message, "illegal \"instruction\"\n");
    assert_int_equal(attempt.observed.slots, 8);
    assert_int_equal(attempt.observed.running_max, ATTEMPT_ABSENT);
    assert_true(attempt.observed.cache_tokens == observed.cache_tokens);
    assert_int_equal(attempt.observed.cache_tokens_needed, ATTEMPT_ABSENT);
    assert_true(attempt.observed.peak_tokens_per_s == 812.5);
    assert_true(isnan(attempt.observed.tokens_per_s));
    assert_true(observed_growth(&attempt.observed, "drafts") == 510000);
    assert_true(isnan(observed_growth(&attempt.observed, "draft_tokens")));
    observed_free(&observed);
    attempt_free(&attempt);
}

static void test_the_writer_never_writes_over(void **state)
{
    (void)state;
    fixture_write(path, "precious", 8);
    struct error error = {0};
    assert_null(attempt_writer_open(path, fixture_header("tp1-auto", 1, 1), &error));
    assert_non_null(strstr(error.message, "exists already"));
    size_t size;
    char *bytes = fixture_read(path, &size);
    assert_string_equal(bytes, "precious");
    free(bytes);
}

static void test_without_an_end_it_is_not_complete(void **state)
{
    (void)state;
    struct attempt attempt;
    fixture_attempt(path, fixture_header("tp1-b16", 1, 1), NULL);
    read_well(&attempt);
    assert_false(attempt.complete);
    assert_null(attempt.end_status);
    assert_int_equal(attempt.sample_count, 2);
    attempt_free(&attempt);
    remove(path);
    fixture_attempt(path, fixture_header("tp1-b16", 1, 1), "aborted");
    read_well(&attempt);
    assert_false(attempt.complete);
    assert_string_equal(attempt.end_status, "aborted");
    attempt_free(&attempt);
}

static int count_newlines(const char *bytes, size_t size)
{
    int count = 0;
    for (size_t i = 0; i < size; i++)
        count += bytes[i] == '\n';
    return count;
}

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    fixture_attempt(path, fixture_header("tp1-b16", 1, 1), "complete");
    size_t size;
    char *bytes = fixture_read(path, &size);
    for (size_t cut = 0; cut < size; cut++) {
        fixture_write(path, bytes, cut);
        int lines = count_newlines(bytes, cut);
        struct attempt attempt;
        struct error error = {0};
        int result = attempt_read(path, &attempt, &error);
        assert_int_equal(result, lines ? 0 : -1);
        assert_false(attempt.complete);
        if (!result) {
            const char *last = memrchr(bytes, '\n', cut);
            assert_int_equal(attempt.torn_bytes, bytes + cut - last - 1);
            assert_int_equal(attempt.sample_count, lines - 1);
        }
        attempt_free(&attempt);
    }
    free(bytes);
}

/* Nothing may follow the end line: whole lines are an error, a torn one is not read. */
static void test_lines_behind_the_end(void **state)
{
    (void)state;
    fixture_attempt(path, fixture_header("tp1-b16", 1, 1), "complete");
    FILE *file = fopen(path, "a");
    fputs("{\"type\":\"te", file);
    fclose(file);
    struct attempt attempt;
    read_well(&attempt);
    assert_true(attempt.complete);
    assert_int_equal(attempt.torn_bytes, 11);
    attempt_free(&attempt);
    file = fopen(path, "a");
    fputs("lemetry\"}\n", file);
    fclose(file);
    struct error error = {0};
    assert_int_equal(attempt_read(path, &attempt, &error), -1);
    assert_non_null(strstr(error.message, "1-1.jsonl:5: a line behind the end"));
}

static void test_what_newer_versions_add_is_ignored(void **state)
{
    (void)state;
    json_t *header = fixture_header("tp1-b16", 1, 1);
    json_set(header, "weather", json_string("fine"));
    struct error error = {0};
    struct attempt_writer *writer = attempt_writer_open(path, header, &error);
    assert_int_equal(attempt_writer_add(writer, json_pack("{s:s, s:i}", "type", "telemetry", "clock", 5), &error), 0);
    assert_int_equal(attempt_writer_add(writer, json_pack("{s:s}", "type", "omen"), &error), 0);
    struct sample sample;
    fixture_sample(&sample, "code", "fibonacci");
    json_t *line = sample_to_json(&sample);
    json_set(line, "mood", json_integer(3));
    assert_int_equal(attempt_writer_add(writer, line, &error), 0);
    char hex[FILE_HASH_SIZE];
    assert_int_equal(attempt_writer_end(writer, &(struct attempt_end){.status = "complete"}, hex, &error), 0);
    struct attempt attempt;
    read_well(&attempt);
    assert_int_equal(attempt.sample_count, 1);
    assert_int_equal(attempt.samples[0].tokens, sample.tokens);
    attempt_free(&attempt);
    sample_free(&sample);
}

static void test_readings_of_devices(void **state)
{
    (void)state;
    struct error error = {0};
    char hex[FILE_HASH_SIZE];
    struct attempt_writer *writer = attempt_writer_open(path, fixture_header("tp1-b16", 1, 1), &error);
    const char *const lines[] = {
        "{\"type\":\"telemetry\"}",
        "{\"type\":\"telemetry\",\"time_ns\":7,\"device\":63,\"clock_mhz\":1980.5,\"power_w\":700,"
        "\"temperature_c\":61.5,\"memory_bytes\":80000000000,\"energy_j\":5000.25,\"throttle\":[\"gpu_idle\",\"sw_"
        "power_cap\"]}",
        "{\"type\":\"telemetry\",\"throttle\":[\"hw_thermal_slowdown\"]}",
    };
    for (int i = 0; i < 3; i++)
        assert_int_equal(attempt_writer_add(writer, json_loads(lines[i], 0, NULL), &error), 0);
    assert_int_equal(attempt_writer_end(writer, &(struct attempt_end){.status = "complete"}, hex, &error), 0);
    struct attempt attempt;
    read_well(&attempt);
    assert_int_equal(attempt.telemetry_count, 3);
    const struct telemetry *readings = attempt.telemetry;
    assert_true(readings[0].time_ns == ATTEMPT_ABSENT && isnan(readings[0].clock_mhz));
    assert_false(readings[0].slowdown || readings[0].power_cap || readings[1].slowdown || readings[2].power_cap);
    assert_true(readings[1].time_ns == 7 && readings[1].device == 63 && readings[1].clock_mhz == 1980.5);
    assert_true(isnan(readings[0].power_w) && isnan(readings[0].temperature_c) && isnan(readings[0].memory_bytes));
    assert_true(isnan(readings[0].energy_j) && readings[1].energy_j == 5000.25);
    assert_true(readings[1].power_w == 700 && readings[1].temperature_c == 61.5 && readings[1].memory_bytes == 8e10);
    assert_true(readings[1].power_cap && readings[2].slowdown);
    attempt_free(&attempt);
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

/* Writes header, one sample and the end, one member of one of them changed. */
static void write_changed(int line_number, const char *key, const char *text)
{
    struct sample sample;
    fixture_sample(&sample, "code", "fibonacci");
    json_t *header = fixture_header("tp1-b16", 1, 1);
    json_set(header, "type", json_string("attempt"));
    json_set(header, "schema", json_string(ATTEMPT_SCHEMA));
    json_t *lines[3] = {header, sample_to_json(&sample),
                        json_pack("{s:s, s:s, s:i, s:i, s:{s:f, s:i}}", "type", "end", "status", "complete", "samples",
                                  1, "failed", 0, "audit", "regret_max", 0.0, "tokens", 9)};
    sample_free(&sample);
    change(lines[line_number - 1], key, text);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 3; i++) {
        json_dumpf(lines[i], file, JSON_COMPACT);
        fputc('\n', file);
        json_decref(lines[i]);
    }
    fclose(file);
}

static void test_what_cannot_be_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        int line;
        const char *key, *text;
    } cases[] = {
        {1, "type", "\"sample\""},
        {1, "schema", "\"cleanslate.attempt/2\""},
        {1, "schema", NULL},
        {1, "id", "7"},
        {1, "id", NULL},
        {1, "id", "\"a\\u001B[2J\""},
        {1, "arm", "\"tp1-b16\""},
        {1, "arm.name", "\"tp1-b8\""},
        {1, "arm.method", "\"tree\""},
        {1, "arm.method", "\"linear\""},
        {1, "arm.budget", NULL},
        {1, "arm.budget", "0"},
        {1, "arm.budget", "99999999999"},
        {1, "arm.tensor_parallel", "2"},
        {1, "arm.concurrency", "1.0"},
        {1, "block", "0"},
        {1, "block", "-1"},
        {1, "block", "1e0"},
        {1, "block", "1001"},
        {1, "try", "1000001"},
        {1, "started", "\"2026-02-30T00:00:00Z\""},
        {1, "try", NULL},
        {1, "started", "\"yesterday\""},
        {1, "workloads", "{}"},
        {1, "workloads", "[]"},
        {1, "workloads", "{\"a\\u2028b\":{\"cell_hash\":\"c\",\"compare_hash\":\"d\"}}"},
        {1, "workloads.code", "{}"},
        {1, "workloads.code.cell_hash", "5"},
        {1, "source", "\"engine\""},
        {2, "type", NULL},
        {2, "type", "1"},
        {2, "type", "\"attempt\""},
        {2, "workload", "\"prose\""},
        {2, "end_ns", "9223372036854775807"},
        {3, "status", NULL},
        {3, "status", "true"},
        {3, "samples", "2"},
        {3, "failed", "1"},
        {3, "audit", "0"},
        {3, "audit.regret_max", "-0.1"},
        {3, "audit.regret_max", "\"0\""},
        {3, "audit.tokens", "-3"},
        {1, "workloads.code.common_tokens", "-2"},
        {3, "error", "\"SERVER_DIED\""},
        {3, "error", "{}"},
        {3, "error", "{\"code\": 7}"},
        {3, "observed", "[]"},
        {3, "observed", "{\"slots\": -1}"},
        {3, "observed", "{\"cache_tokens\": 1.5}"},
        {3, "observed", "{\"tokens_per_s\": \"many\"}"},
        {3, "observed", "{\"counters\": {\"drafts\": 4}}"},
        {3, "observed", "{\"counters\": {\"drafts\": [4]}}"},
        {3, "observed", "{\"counters\": {\"drafts\": [4, null]}}"},
    };
    write_changed(1, "weather", "1"); /* the unchanged file is well */
    struct attempt attempt;
    read_well(&attempt);
    attempt_free(&attempt);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_changed(cases[i].line, cases[i].key, cases[i].text);
        struct error error = {0};
        if (attempt_read(path, &attempt, &error) == 0)
            fail_msg("line %d, \"%s\": %s was read", cases[i].line, cases[i].key, cases[i].text);
        char where[32];
        snprintf(where, sizeof where, "1-1.jsonl:%d: ", cases[i].line);
        if (!strstr(error.message, where))
            fail_msg("no \"%s\" in: %s", where, error.message);
        assert_null(strchr(error.message, '\n'));
        assert_null(attempt.samples);
    }
}

static void test_lines_that_are_no_json_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "\n",
        "{\n",
        "[]\n",
        "nonsense\n",
        "{\"type\":\"sample\",\"type\":\"sample\"}\n",
        "{\"type\":NaN}\n",
        "{\"type\":1e999}\n",
        "{\"type\":99999999999999999999}\n",
        "{\"type\":\"\xff\"}\n",
        "\xef\xbb\xbf{}\n",
    };
    fixture_attempt(path, fixture_header("tp1-b16", 1, 1), NULL);
    size_t size;
    char *bytes = fixture_read(path, &size);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        fixture_write(path, bytes, size);
        FILE *file = fopen(path, "a");
        fputs(lines[i], file);
        fclose(file);
        struct attempt attempt;
        struct error error = {0};
        assert_int_equal(attempt_read(path, &attempt, &error), -1);
        assert_non_null(strstr(error.message, "1-1.jsonl:4"));
    }
    free(bytes);
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEEP = 1 << 20 };
    char *bytes = xmalloc(DEEP + 1);
    memset(bytes, '[', DEEP);
    bytes[DEEP] = '\n';
    fixture_write(path, bytes, DEEP + 1);
    struct attempt attempt;
    struct error error = {0};
    assert_int_equal(attempt_read(path, &attempt, &error), -1);
    assert_non_null(strstr(error.message, "1-1.jsonl:1"));
    free(bytes);
}

static void test_no_file(void **state)
{
    (void)state;
    struct attempt attempt;
    struct error error = {0};
    assert_int_equal(attempt_read(path, &attempt, &error), -1);
    assert_non_null(strstr(error.message, "1-1.jsonl"));
    struct error second = {0};
    assert_int_equal(attempt_read(folder, &attempt, &second), -1);
    assert_non_null(strstr(second.message, "not a file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_samples_come_back_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_header_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_regret_that_is_not_finite_comes_back_unknown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_source_saw_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_writer_never_writes_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_an_end_it_is_not_complete, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_at_every_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lines_behind_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_readings_of_devices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_newer_versions_add_is_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_is_refused_with_its_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lines_that_are_no_json_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deep_nesting_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
