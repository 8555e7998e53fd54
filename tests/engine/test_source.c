/* The engine as a campaign's source: what becomes of a request's times on the way to its sample. */
#include "collect/engine/source.h"

#include "collect/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct plan plan = {
    .engine = {"data/models/demo/target", "data/models/demo/drafter", "cpu", "float32"},
    .sampling = {.top_p = 1},
};

static int keep_sample(void *context, struct sample *sample)
{
    struct sample **next = context;
    *(*next)++ = *sample;
    return 0;
}

static void run(const char *name, const struct request *requests, int count, struct sample *samples)
{
    struct error error = {0};
    struct arm arm;
    json_t *memory = NULL;
    struct sample *next = samples;
    struct source *source = engine_source_open(&plan, NULL, &error);
    assert_string_equal(error.message, "");
    assert_true(arm_parse(name, &arm));
    for (int i = 0; i < count; i++)
        assert_true(source->class->check_request(source, &requests[i], &error) > 0);
    assert_int_equal(source->class->load(source, &arm, "", &memory, &error), 0);
    json_decref(memory);
    assert_int_equal(source->class->run(source, requests, count, arm.concurrency, keep_sample, &next, &error), 0);
    assert_int_equal(next - samples, count);
    source->class->close(source);
}

/* Also of a request that had no time to end: rules and rates take the span of an attempt from all its samples. */
static void times_count_from_the_loaded_arm(void **state)
{
    (void)state;
    enum { COUNT = 2 };
    const struct request requests[COUNT] = {{"code", "short", "import os\n", 8, true, false, 100, 0},
                                            {"code", "long", "import os\n", 4000, true, false, 1, 0}};
    struct sample samples[COUNT];
    int64_t began_ns = clock_now_ns();
    run("tp1-b1024-c2", requests, COUNT, samples);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_count_from_the_loaded_arm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
