#include "analyze/devices.h"

#include <math.h>

/* --- memory ------------------------------------------------------------------------------------------------------- */

double devices_peak_bytes(const struct attempt *attempt)
{
    double peaks[TELEMETRY_DEVICES_MAXIMUM], sum = attempt->telemetry_count ? 0 : NAN;
    bool seen[TELEMETRY_DEVICES_MAXIMUM] = {false};
    for (int i = 0; i < attempt->telemetry_count; i++) {
        const struct telemetry *reading = &attempt->telemetry[i];
        double *peak = &peaks[reading->device];
        *peak = seen[reading->device] ? fmax(*peak, reading->memory_bytes) : reading->memory_bytes;
        seen[reading->device] = true;
    }
    for (int device = 0; device < TELEMETRY_DEVICES_MAXIMUM; device++)
        sum += seen[device] ? peaks[device] : 0;
    return sum;
}

/* --- course ------------------------------------------------------------------------------------------------------- */

static void add_reading(struct device_range *range, double value)
{
    if (isnan(value))
        return;
    range->minimum = range->count ? fmin(range->minimum, value) : value;
    range->maximum = range->count ? fmax(range->maximum, value) : value;
    range->mean += (value - range->mean) / ++range->count;
}

struct device_course devices_course(const struct attempt *attempt, int device)
{
    struct device_course course = {0};
    for (int i = 0; i < attempt->telemetry_count; i++) {
        const struct telemetry *reading = &attempt->telemetry[i];
        if (reading->device != device)
            continue;
        course.readings++;
        add_reading(&course.clock_mhz, reading->clock_mhz);
        add_reading(&course.temperature_c, reading->temperature_c);
        add_reading(&course.power_w, reading->power_w);
        course.slowdown |= reading->slowdown;
        course.power_cap |= reading->power_cap;
    }
    return course;
}
