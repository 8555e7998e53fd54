/* The course of a run: residuals in its order, and what devices showed meanwhile. */
#include "analyze/summary_parts.h"

#include "analyze/devices.h"
#include "collect/base/clock.h"
#include "collect/base/json.h"

#include <stdlib.h>

static json_t *make_residual(const struct residual *residual, int order)
{
    const struct attempt *attempt = &residual->judged->attempt;
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "attempt", json_text(attempt->id));
    json_set(object, "arm", json_text(arm_name(&attempt->arm, name)));
    json_set(object, "block", json_integer(attempt->block));
    json_set(object, "order", json_integer(order));
    json_set(object, "residual", json_number(residual->value));
    json_set(object, "outlier", json_boolean(residual->outlier));
    return object;
}

json_t *summary_make_drift(const struct drift *drift)
{
    if (!drift->count)
        return json_null();
    json_t *object = json_object(), *residuals = json_array();
    for (int i = 0; i < drift->count; i++)
        json_append(residuals, make_residual(&drift->items[i], i + 1));
    json_set(object, "p", json_number(drift->p));
    json_set(object, "change", json_number(drift->change));
    json_set(object, "n", json_integer(drift->count));
    json_set(object, "residuals", residuals);
    return object;
}

/* --- telemetry ---------------------------------------------------------------------------------------------------- */

/* An attempt with readings, and when it began. */
struct read_attempt {
    const struct attempt *attempt;
    int64_t started_s;
};

static int compare_started(const void *a, const void *b)
{
    const struct read_attempt *first = a, *second = b;
    if (first->started_s != second->started_s)
        return first->started_s < second->started_s ? -1 : 1;
    return first->attempt < second->attempt ? -1 : 1;
}

/* Those of the run in the order of their starts; answers how many there are. */
static int find_read(const struct run *run, struct read_attempt *found)
{
    int count = 0;
    for (int i = 0; i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        const int64_t started_s = attempt->telemetry_count && attempt->started ? clock_parse_utc(attempt->started) : -1;
        if (started_s >= 0)
            found[count++] = (struct read_attempt){attempt, started_s};
    }
    qsort(found, (size_t)count, sizeof *found, compare_started);
    return count;
}

static json_t *make_range(const struct device_range *range)
{
    if (!range->count)
        return json_null();
    json_t *object = json_object();
    json_set(object, "mean", json_number(range->mean));
    json_set(object, "minimum", json_number(range->minimum));
    json_set(object, "maximum", json_number(range->maximum));
    return object;
}

static json_t *make_course(const struct read_attempt *read, int device, const struct device_course *course,
                           int64_t first_s)
{
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "attempt", json_text(read->attempt->id));
    json_set(object, "arm", json_text(arm_name(&read->attempt->arm, name)));
    json_set(object, "device", json_integer(device));
    json_set(object, "start_s", json_integer(read->started_s - first_s));
    json_set(object, "readings", json_integer(course->readings));
    json_set(object, "clock_mhz", make_range(&course->clock_mhz));
    json_set(object, "temperature_c", make_range(&course->temperature_c));
    json_set(object, "power_w", make_range(&course->power_w));
    json_set(object, "slowdown", json_boolean(course->slowdown));
    json_set(object, "power_cap", json_boolean(course->power_cap));
    return object;
}

json_t *summary_make_telemetry(const struct run *run)
{
    struct read_attempt *read = xcalloc((size_t)run->attempt_count + 1, sizeof *read);
    const int count = find_read(run, read);
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        for (int device = 0; device < TELEMETRY_DEVICES_MAXIMUM; device++) {
            const struct device_course course = devices_course(read[i].attempt, device);
            if (course.readings)
                json_append(array, make_course(&read[i], device, &course, read[0].started_s));
        }
    free(read);
    return array;
}
