/* What readings of devices say of an attempt: memory, and their course. */
#ifndef ANALYZE_DEVICES_H
#define ANALYZE_DEVICES_H

#include "collect/record/attempt.h"

/* Bytes in use at most, each device's own, together; NaN without readings, or where a device never says. */
double devices_peak_bytes(const struct attempt *attempt);

/* One quantity over a device's readings; count 0: none. */
struct device_range {
    int count;
    double mean, minimum, maximum;
};

struct device_course {
    int readings;
    struct device_range clock_mhz, temperature_c, power_w;
    bool slowdown, power_cap; /* of any reading */
};

struct device_course devices_course(const struct attempt *attempt, int device);

#endif
