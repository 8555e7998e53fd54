/* Readings of GPUs through a library that stands in for NVML (fake_nvml.c), from the thread that takes them to the
 * attempt's file and its rules; and that nothing happens without one. */
#include "collect/telemetry.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/energy.h"
#include "collect/record/rule.h"
#include "tests/collect/bench.h"
#include "tests/record/fixture.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define FIRST "0000:1b:00.0"
#define SECOND "0000:1c:00.0"

static void *library;

/* The library stands beside the folder of this program. */
static int set_up(void **state)
{
    (void)state;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(path, '/') = '\0';
    char *file = file_join(path, "fake_nvml.so");
    setenv("CLEANSLATE_NVML", file, 1);
    library = dlopen(file, RTLD_NOW); /* the same that the code under test opens */
    free(file);
    return library ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return dlclose(library);
}

static struct telemetry_recorder *open_gpus(const char *first, const char *second, const char *third)
{
    char ids[3][TELEMETRY_ID_SIZE];
    snprintf(ids[0], sizeof ids[0], "%s", first);
    snprintf(ids[1], sizeof ids[1], "%s", second);
    snprintf(ids[2], sizeof ids[2], "%s", third);
    return telemetry_open((const char(*)[TELEMETRY_ID_SIZE])ids, 3);
}

static void set_reasons(unsigned long long reasons)
{
    *(unsigned long long *)dlsym(library, "fake_nvml_reasons") = reasons;
}

/* Until the thread has taken a reading of its own; no longer than a minute. */
static void wait_for_readings(int calls)
{
    const volatile int *seen = dlsym(library, "fake_nvml_energy_calls");
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; *seen < calls && i < 6000; i++)
        nanosleep(&pause, NULL);
    assert_true(*seen >= calls);
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_number_value(value) : NAN;
}

static void nothing_happens_without_a_library(void **state)
{
    (void)state;
    char *path = xstrdup(getenv("CLEANSLATE_NVML"));
    setenv("CLEANSLATE_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    assert_null(open_gpus(FIRST, SECOND, ""));
    setenv("CLEANSLATE_NVML", path, 1);
    assert_null(open_gpus("0000:99:00.0", "", ""));
    assert_null(telemetry_open(NULL, 0));
    telemetry_close(NULL);
    free(path);
}

static void says_what_was_set(void **state)
{
    (void)state;
    struct telemetry_recorder *recorder = open_gpus(FIRST, FIRST, SECOND);
    json_t *gpus = telemetry_describe(recorder);
    assert_int_equal(json_array_size(gpus), 2);
    const json_t *second = json_array_get(gpus, 1);
    assert_string_equal(json_string_value(json_object_get(second, "name")), "Fake H1");
    assert_string_equal(json_string_value(json_object_get(second, "uuid")), "GPU-1");
    assert_string_equal(json_string_value(json_object_get(second, "driver")), "580.1");
    assert_true(number_at(second, "device") == 1 && number_at(second, "application_clock_mhz") == 1755);
    assert_true(number_at(second, "maximum_clock_mhz") == 1980 && number_at(second, "power_limit_w") == 650);
    assert_true(number_at(second, "default_power_limit_w") == 700);
    assert_null(json_object_get(second, "default_application_clock_mhz"));
    assert_true(json_is_true(json_object_get(second, "persistence")));
    json_decref(gpus);
    telemetry_close(recorder);
}

static void brackets_what_runs_and_reads_every_second(void **state)
{
    (void)state;
    struct telemetry_recorder *recorder = open_gpus(FIRST, SECOND, "0000:99:00.0");
    *(int *)dlsym(library, "fake_nvml_energy_calls") = 0;
    set_reasons(0x4 | 0x40);
    int64_t origin = clock_now_ns();
    telemetry_start(recorder);
    wait_for_readings(4);
    json_t *lines = telemetry_stop(recorder, origin), *line;
    const int64_t end = clock_now_ns() - origin;
    size_t i, count = json_array_size(lines);
    assert_true(count >= 9 && count % 3 == 0);
    int64_t before = 0;
    json_array_foreach(lines, i, line)
    {
        assert_string_equal(json_string_value(json_object_get(line, "type")), "telemetry");
        assert_int_equal(json_integer_value(json_object_get(line, "device")), i % 3);
        int64_t time = json_integer_value(json_object_get(line, "time_ns"));
        assert_true(time >= before && time <= end);
        before = time;
        if (i % 3 == 2) { /* one that the library does not know is there nevertheless */
            assert_int_equal(json_object_size(line), 3);
            continue;
        }
        const bool second = i % 3 == 1;
        assert_true(number_at(line, "clock_mhz") == (second ? 1970 : 1980));
        assert_true(number_at(line, "power_w") == (second ? 150 : 300));
        assert_true(number_at(line, "memory_bytes") == (double)((size_t)1 << 30) * (second ? 2 : 1));
        assert_true(number_at(line, "memory_clock_mhz") == 3201);
        assert_int_equal(json_object_get(line, "temperature_c") != NULL, !second);
        assert_int_equal(json_object_get(line, "energy_j") != NULL, !second);
        const json_t *reasons = json_object_get(line, "throttle");
        assert_int_equal(json_array_size(reasons), second ? 0 : 2);
    }
    const json_t *reasons = json_object_get(json_array_get(lines, 0), "throttle");
    assert_string_equal(json_string_value(json_array_get(reasons, 0)), "sw_power_cap");
    assert_string_equal(json_string_value(json_array_get(reasons, 1)), "hw_thermal_slowdown");
    json_decref(lines);
    telemetry_close(recorder);
}

/* Others may compute on parts of such a GPU: power, energy and memory are nobody's own. */
static void a_divided_gpu_says_nothing_of_power(void **state)
{
    (void)state;
    int *divided = dlsym(library, "fake_nvml_divided");
    struct telemetry_recorder *recorder = open_gpus(FIRST, SECOND, SECOND);
    *divided = 1;
    telemetry_start(recorder);
    json_t *lines = telemetry_stop(recorder, 0);
    *divided = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        assert_int_equal(json_object_get(line, "power_w") != NULL, i % 2 == 1);
        assert_int_equal(json_object_get(line, "memory_bytes") != NULL, i % 2 == 1);
        assert_null(json_object_get(line, "energy_j"));
        assert_non_null(json_object_get(line, "clock_mhz"));
    }
    json_decref(lines);
    telemetry_close(recorder);
}

/* A source that runs on the first GPU, and whose requests take what the clock says. */
static void a_campaign_records_its_gpus(void **state)
{
    struct bench *bench = *state;
    struct run run;
    set_reasons(0x1);
    bench->source.gpu = FIRST;
    bench_run(bench, NULL);
    bench_expect_success(bench);
    bench_read_run(bench, &run);
    assert_true(run.attempt_count > 0);
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        assert_true(attempt->complete);
        assert_int_equal(json_array_size(json_object_get(attempt->header, "gpus")), 1);
        assert_true(attempt->telemetry_count >= 2);
        const struct telemetry *first = attempt->telemetry, *last = first + attempt->telemetry_count - 1;
        assert_true(first->time_ns >= 0 && last->time_ns > first->time_ns);
        assert_true(last->energy_j >= first->energy_j && first->clock_mhz == 1980);
        assert_false(first->slowdown || first->power_cap);
    }
    run_free(&run);
}

static void a_campaign_without_gpus_records_none(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_run(bench, NULL);
    bench_expect_success(bench);
    bench_read_run(bench, &run);
    assert_null(json_object_get(run.attempts[0].attempt.header, "gpus"));
    assert_int_equal(run.attempts[0].attempt.telemetry_count, 0);
    run_free(&run);
}

/* Requests from 1 s to 3 s: 300 W counted and 150 W by its power are 900 J, whatever is read before and after. */
static void energy_is_that_of_the_requests(void **state)
{
    (void)state;
    struct attempt attempt;
    fixture_build(&attempt, "tp1-b16");
    int64_t tokens = 0;
    for (int i = 0; i < attempt.sample_count; i++) {
        attempt.samples[i].start_ns = 1000000000 + i;
        attempt.samples[i].end_ns = 3000000000 - i;
        tokens += attempt.samples[i].tokens;
    }
    assert_true(isnan(energy_joules(&attempt, NULL)));
    const struct telemetry readings[] = {
        {.time_ns = 0, .device = 0, .power_w = NAN, .energy_j = 1000},
        {.time_ns = 0, .device = 1, .power_w = 150, .energy_j = NAN},
        {.time_ns = 2000000000, .device = 1, .power_w = 150, .energy_j = NAN},
        {.time_ns = 2500000000, .device = 0, .power_w = NAN, .energy_j = 1750},
        {.time_ns = 4000000000, .device = 1, .power_w = 150, .energy_j = NAN},
        {.time_ns = 4500000000, .device = 0, .power_w = NAN, .energy_j = 2350},
    };
    attempt.telemetry = memcpy(xcalloc(6, sizeof *readings), readings, sizeof readings);
    attempt.telemetry_count = 6;
    assert_true(fabs(energy_joules(&attempt, NULL) - 900) < 1e-6);
    assert_true(isnan(energy_joules(&attempt, "maths")));
    attempt.samples[0].workload = "maths"; /* its time is that of the others */
    assert_true(fabs(energy_joules(&attempt, "maths") - 900) < 1e-6);
    assert_true(fabs(energy_joules_a_token(&attempt, NULL) - 900.0 / (double)tokens) < 1e-9);
    attempt.telemetry[5].device = 2; /* which says nothing of its own: what is known is not all */
    attempt.telemetry[5].energy_j = NAN;
    assert_true(isnan(energy_joules(&attempt, NULL)));
    /* Power that rises by 100 W a second from 100 W on is 300 W in the middle. */
    for (int i = 0; i < 6; i++) {
        attempt.telemetry[i].energy_j = NAN;
        attempt.telemetry[i].device = 0;
        attempt.telemetry[i].power_w = 100 + 100e-9 * (double)attempt.telemetry[i].time_ns;
    }
    assert_true(fabs(energy_joules(&attempt, NULL) - 600) < 1e-6);
    attempt.telemetry_count = 4; /* the last reading is older than the last request's end */
    assert_true(isnan(energy_joules(&attempt, NULL)));
    attempt_free(&attempt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_happens_without_a_library),
        cmocka_unit_test(says_what_was_set),
        cmocka_unit_test(brackets_what_runs_and_reads_every_second),
        cmocka_unit_test(a_divided_gpu_says_nothing_of_power),
        cmocka_unit_test_setup_teardown(a_campaign_records_its_gpus, bench_set_up, bench_tear_down),
        cmocka_unit_test_setup_teardown(a_campaign_without_gpus_records_none, bench_set_up, bench_tear_down),
        cmocka_unit_test(energy_is_that_of_the_requests),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
