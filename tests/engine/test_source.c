/* The engine as a campaign's source: what becomes of a request's times on the way to its sample, and
 * of a model that is damaged. */
#include "collect/engine/source.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct plan demo = {
    .engine = {"data/models/demo/target", "data/models/demo/drafter", "cpu", "float32"},
    .sampling = {.top_p = 1},
};

static struct request code_request(const char *id, int tokens, int limit_s)
{
    return (struct request){"code", id, "import os\n", tokens, true, false, limit_s, 0};
}

static int keep_sample(void *context, struct sample *sample)
{
    struct sample **next = context;
    *(*next)++ = *sample;
    return 0;
}

/* Opens, loads, runs, audits. */
static struct audit run(const struct plan *plan, const char *name, const struct request *requests, int count,
                        struct sample *samples)
{
    struct error error = {0};
    struct arm arm;
    json_t *memory = NULL;
    struct sample *next = samples;
    struct audit audit;
    struct source *source = engine_source_open(plan, NULL, &error);
    assert_string_equal(error.message, "");
    assert_true(arm_parse(name, &arm));
    for (int i = 0; i < count; i++)
        assert_true(source->class->check_request(source, &requests[i], &error) > 0);
    assert_int_equal(source->class->load(source, &arm, "", &memory, &error), 0);
    json_decref(memory);
    assert_int_equal(source->class->run(source, requests, count, arm.concurrency, keep_sample, &next, &error), 0);
    assert_int_equal(next - samples, count);
    assert_int_equal(source->class->audit(source, requests, samples, count, &audit, &error), 0);
    source->class->close(source);
    return audit;
}

/* Also of a request that had no time to end: rules and rates take the span of an attempt from all its samples. */
static void times_count_from_the_loaded_arm(void **state)
{
    (void)state;
    enum { COUNT = 2 };
    const struct request requests[COUNT] = {code_request("short", 8, 100), code_request("long", 4000, 1)};
    struct sample samples[COUNT];
    int64_t began_ns = clock_now_ns();
    run(&demo, "tp1-b1024-c2", requests, COUNT, samples);
    int64_t span_ns = clock_now_ns() - began_ns;
    assert_true(samples[0].ok);
    assert_false(samples[1].ok);
    assert_string_equal(samples[1].error_code, "TIMEOUT");
    for (int i = 0; i < COUNT; i++) {
        assert_true(samples[i].start_ns >= 0 && samples[i].end_ns > samples[i].start_ns);
        assert_true(samples[i].end_ns <= span_ns);
        sample_free(&samples[i]);
    }
}

/* The demo target with a weight of its last norm that is no number. */
static char *make_damaged_target(void)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    char *folder = fixture_make_folder();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct error error = {0};
        char *from = file_join(demo.engine.target, files[i]), *to = file_join(folder, files[i]);
        size_t size;
        char *bytes = file_read(from, SIZE_MAX, &size, &error);
        assert_non_null(bytes);
        if (i == 2) {
            uint64_t length;
            memcpy(&length, bytes, sizeof length);
            json_t *header = json_read_text(bytes + 8, length, from, &error);
            json_t *offsets = json_object_get(json_object_get(header, "model.norm.weight"), "data_offsets");
            memcpy(bytes + 8 + length + json_integer_value(json_array_get(offsets, 0)), "\xC0\x7F", 2);
            json_decref(header);
        }
        fixture_write(to, bytes, size);
        free(bytes);
        free(from);
        free(to);
    }
    return folder;
}

/* Tokens come all the same, of no meaning: rule AUDIT_REGRET hears of it. */
static void a_damaged_model_does_not_pass_the_audit(void **state)
{
    (void)state;
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b8"};
    struct plan damaged = demo;
    char *folder = make_damaged_target();
    damaged.engine.target = folder;
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        const struct request request = code_request("one", 8, 100);
        struct sample sample;
        struct audit audit = run(&damaged, arms[i], &request, 1, &sample);
        assert_true(sample.ok && sample.tokens == 8);
        assert_true(audit.done && isnan(audit.regret_max));
        sample_free(&sample);
    }
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_count_from_the_loaded_arm),
        cmocka_unit_test(a_damaged_model_does_not_pass_the_audit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
