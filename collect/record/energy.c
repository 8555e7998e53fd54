#include "collect/record/energy.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* --- one device ------------------------------------------------------------------------------------------------- */

/* The device's reading after `at` that has a time and the value; NULL: none. Readings stand in the order of time. */
static const struct telemetry *next_reading(const struct attempt *attempt, int device, bool counted, int *at)
{
    while (*at < attempt->telemetry_count) {
        const struct telemetry *reading = &attempt->telemetry[(*at)++];
        if (reading->device == device && reading->time_ns >= 0 &&
            !isnan(counted ? reading->energy_j : reading->power_w))
            return reading;
    }
    return NULL;
}

/* Joules between two readings, as far as they lie within [first_ns, last_ns]. */
static double joules_between(const struct telemetry *a, const struct telemetry *b, bool counted, double first_ns,
                             double last_ns)
{
    const double from = (double)a->time_ns, to = (double)b->time_ns;
    const double inside = fmin(to, last_ns) - fmax(from, first_ns);
    if (inside <= 0)
        return 0;
    if (counted)
        return (b->energy_j - a->energy_j) * inside / (to - from);
    const double middle = (fmin(to, last_ns) + fmax(from, first_ns)) / 2 - from;
    return (a->power_w + (b->power_w - a->power_w) * middle / (to - from)) * inside * 1e-9;
}

static double device_joules(const struct attempt *attempt, int device, bool counted, double first_ns, double last_ns)
{
    int at = 0;
    double joules = 0;
    const struct telemetry *before = next_reading(attempt, device, counted, &at), *after;
    if (!before || (double)before->time_ns > first_ns)
        return NAN;
    while ((after = next_reading(attempt, device, counted, &at))) {
        joules += joules_between(before, after, counted, first_ns, last_ns);
        before = after;
    }
    return (double)before->time_ns < last_ns ? NAN : joules;
}

/* --- the attempt ------------------------------------------------------------------------------------------------ */

static bool has_readings(const struct attempt *attempt, int device)
{
    for (int i = 0; i < attempt->telemetry_count; i++)
        if (attempt->telemetry[i].device == device)
            return true;
    return false;
}

static bool is_measured(const struct sample *sample, const char *workload)
{
    return !sample->warmup && (!workload || strcmp(sample->workload, workload) == 0);
}

double energy_joules(const struct attempt *attempt, const char *workload)
{
    double first_ns = NAN, last_ns = NAN, joules = attempt->telemetry_count ? 0 : NAN;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (!is_measured(sample, workload) || sample->start_ns < 0 || sample->end_ns < sample->start_ns)
            continue;
        first_ns = fmin(first_ns, (double)sample->start_ns);
        last_ns = fmax(last_ns, (double)sample->end_ns);
    }
    for (int device = 0; !isnan(first_ns) && device < TELEMETRY_DEVICES_MAXIMUM; device++) {
        if (!has_readings(attempt, device))
            continue;
        const double counted = device_joules(attempt, device, true, first_ns, last_ns);
        joules += isnan(counted) ? device_joules(attempt, device, false, first_ns, last_ns) : counted;
    }
    return isnan(first_ns) ? NAN : joules;
}

double energy_joules_a_token(const struct attempt *attempt, const char *workload)
{
    double tokens = 0;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (sample->ok && is_measured(sample, workload) && sample->tokens > 0)
            tokens += sample->tokens;
    }
    return tokens > 0 ? energy_joules(attempt, workload) / tokens : NAN;
}
