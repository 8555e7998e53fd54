/* Memory and course of devices from readings by hand. */
#include "analyze/devices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND 1000000000

static struct telemetry read_at(double seconds, int device, double power_w)
{
    return (struct telemetry){.time_ns = (int64_t)(seconds * SECOND),
                              .device = device,
                              .clock_mhz = 1000 + 10 * seconds,
                              .temperature_c = NAN,
                              .power_w = power_w,
                              .memory_bytes = 100 * power_w};
}

static struct attempt make(struct telemetry *readings, int count)
{
    return (struct attempt){.telemetry = readings, .telemetry_count = count};
}

static void test_peak_of_all_devices(void **state)
{
    (void)state;
    struct telemetry readings[] = {read_at(0, 0, 100), read_at(4, 0, 300), read_at(2, 1, 50), read_at(5, 1, NAN)};
    struct attempt attempt = make(readings, 4), of_none = make(NULL, 0);
    assert_true(devices_peak_bytes(&attempt) == 30000 + 5000);
    assert_true(isnan(devices_peak_bytes(&of_none)));
    readings[2].memory_bytes = NAN; /* then nothing is known of the second: the first's are not all */
    assert_true(isnan(devices_peak_bytes(&attempt)));
}

static void test_course(void **state)
{
    (void)state;
    struct telemetry readings[] = {read_at(0, 0, 100), read_at(4, 0, 300), read_at(0, 3, NAN)};
    readings[1].power_cap = true;
    struct attempt attempt = make(readings, 3);
    struct device_course course = devices_course(&attempt, 0);
    assert_int_equal(course.readings, 2);
    assert_true(course.clock_mhz.mean == 1020 && course.clock_mhz.minimum == 1000 && course.clock_mhz.maximum == 1040);
    assert_true(course.power_w.mean == 200 && course.temperature_c.count == 0);
    assert_true(course.power_cap && !course.slowdown);
    assert_int_equal(devices_course(&attempt, 3).power_w.count, 0);
    assert_int_equal(devices_course(&attempt, 1).readings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak_of_all_devices),
        cmocka_unit_test(test_course),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
