#include "collect/record/rule_parts.h"
#include "collect/record/rule_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether the device was read while requests were measured, or at an unknown time. */
static bool is_within(const struct telemetry *reading, int device, struct rule_span span)
{
    const double time_ns = (double)reading->time_ns;
    return reading->device == device && (time_ns < 0 || (time_ns >= span.first_ns && time_ns <= span.last_ns));
}

/* While requests were measured. Where that was over before the device was read, from the reading before to the one
 * behind. */
static struct rule_span read_span(const struct attempt *attempt, int device)
{
    const struct rule_span span = rule_measured_span(attempt);
    struct rule_span wide = span;
    for (int i = 0; i < attempt->telemetry_count; i++) {
        const struct telemetry *reading = &attempt->telemetry[i];
        if (is_within(reading, device, span))
            return span;
        if (reading->device == device && (double)reading->time_ns < span.first_ns)
            wide.first_ns = (double)reading->time_ns;
        else if (reading->device == device && wide.last_ns == span.last_ns)
            wide.last_ns = (double)reading->time_ns;
    }
    return wide;
}

/* --- slowed down by heat or hardware: an attempt shows it by itself ----------------------------------------------- */

static void judge_device(const struct attempt *attempt, int device, struct verdicts *verdicts)
{
    const struct rule_span span = read_span(attempt, device);
    int readings = 0, slowdowns = 0;
    for (int i = 0; i < attempt->telemetry_count; i++) {
        const bool counts = is_within(&attempt->telemetry[i], device, span);
        readings += counts;
        slowdowns += counts && attempt->telemetry[i].slowdown;
    }
    if (slowdowns)
        verdicts_add(verdicts, RULE_THROTTLED, RULE_INVALID, NULL, slowdowns, 0,
                     "%d of %d readings of device %d say that heat or hardware slowed it down", slowdowns, readings,
                     device);
}

void rule_throttled(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    for (int device = 0; attempt->telemetry_count && device < TELEMETRY_DEVICES_MAXIMUM; device++)
        judge_device(attempt, device, verdicts);
}

/* --- clocks under the power cap, beside those of the same cells --------------------------------------------------- */

/* Attempts [first, end) of one arm. */
struct group {
    const struct run *run;
    int first, end;
};

/* Attempts of an arm that agree in the first cell agree in all. */
static const char *cell_of(const struct attempt *attempt)
{
    return attempt->workload_count ? attempt->workloads[0].cell_hash : NULL;
}

static bool shares_cell(const struct attempt *a, const struct attempt *b)
{
    const char *cell = cell_of(a), *other = cell_of(b);
    return cell && other && strcmp(cell, other) == 0;
}

/* The median of a device's clock over the group's attempts that share the attempt's cells. */
static double usual_clock(const struct group *group, const struct attempt *attempt, int device)
{
    int most = 0, count = 0;
    for (int i = group->first; i < group->end; i++)
        most += group->run->attempts[i].attempt.telemetry_count;
    double *clocks = xcalloc((size_t)most, sizeof *clocks);
    for (int i = group->first; i < group->end; i++) {
        const struct attempt *other = &group->run->attempts[i].attempt;
        const struct rule_span span = read_span(other, device);
        for (int j = 0; shares_cell(attempt, other) && j < other->telemetry_count; j++)
            if (is_within(&other->telemetry[j], device, span) && !isnan(other->telemetry[j].clock_mhz))
                clocks[count++] = other->telemetry[j].clock_mhz;
    }
    const double usual = rule_median(clocks, count);
    free(clocks);
    return usual;
}

/* The lowest clock that the device had under its power cap; NaN: none. */
static double capped_clock(const struct attempt *attempt, int device)
{
    const struct rule_span span = read_span(attempt, device);
    double lowest = NAN;
    for (int i = 0; i < attempt->telemetry_count; i++)
        if (attempt->telemetry[i].power_cap && is_within(&attempt->telemetry[i], device, span))
            lowest = fmin(lowest, attempt->telemetry[i].clock_mhz);
    return lowest;
}

/* The device whose clock fell furthest below what is usual. */
struct capped {
    int device;
    double share;
};

static void see_capped(const void *context, double threshold, struct verdicts *verdicts)
{
    const struct capped *capped = context;
    if (capped->share < threshold)
        verdicts_add(verdicts, RULE_THROTTLED, RULE_SUSPECT, NULL, capped->share, threshold,
                     "under the power cap the clock of device %d fell to %.3g of its median over the arm's attempts",
                     capped->device, capped->share);
}

static bool is_judged(const struct judged *judged)
{
    for (int i = 0; i < judged->verdicts.count; i++)
        if (judged->verdicts.items[i].rule == RULE_THROTTLED)
            return true;
    return false;
}

/* usual: [devices] */
static void judge_capped(struct judged *judged, const double *usual, int devices, const struct rule_settings *settings)
{
    struct capped worst = {0, NAN};
    for (int device = 0; device < devices; device++) {
        const double share = capped_clock(&judged->attempt, device) / usual[device];
        if (!isnan(share) && !(share >= worst.share))
            worst = (struct capped){device, share};
    }
    if (!is_judged(judged))
        rule_judge_by(RULE_THROTTLED, settings, see_capped, &worst, &judged->verdicts);
}

/* All of the group that share the cells of its attempt `leader`, unless an earlier one did so. */
static void judge_cells(struct run *run, const struct group *group, int leader, int devices,
                        const struct rule_settings *settings)
{
    const struct attempt *attempt = &run->attempts[leader].attempt;
    double usual[TELEMETRY_DEVICES_MAXIMUM];
    for (int i = group->first; i < leader; i++)
        if (shares_cell(attempt, &run->attempts[i].attempt))
            return;
    for (int device = 0; device < devices; device++)
        usual[device] = usual_clock(group, attempt, device);
    for (int i = leader; i < group->end; i++)
        if (shares_cell(attempt, &run->attempts[i].attempt))
            judge_capped(&run->attempts[i], usual, devices, settings);
}

/* One more than the highest device that was read. */
static int count_devices(const struct group *group)
{
    int devices = 0;
    for (int i = group->first; i < group->end; i++) {
        const struct attempt *attempt = &group->run->attempts[i].attempt;
        for (int j = 0; j < attempt->telemetry_count; j++)
            if (attempt->telemetry[j].device >= devices)
                devices = attempt->telemetry[j].device + 1;
    }
    return devices;
}

void rule_run_throttled(struct run *run, const struct rule_settings *settings)
{
    struct group group = {.run = run};
    for (; group.first < run->attempt_count; group.first = group.end) {
        while (group.end < run->attempt_count &&
               strcmp(run->attempts[group.end].arm, run->attempts[group.first].arm) == 0)
            group.end++;
        const int devices = count_devices(&group);
        for (int i = group.first; devices && i < group.end; i++)
            judge_cells(run, &group, i, devices, settings);
    }
}
