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

/* --- what was set of them ----------------------------------------------------------------------------------------- */

/* Clocks that were locked by another way than as application clocks, nothing tells but the readings. */
static json_t *make_clocks(const json_t *gpu)
{
    const json_t *clock = json_object_get(gpu, "application_clock_mhz");
    const json_t *usual = json_object_get(gpu, "default_application_clock_mhz");
    if (!json_is_number(clock) || !json_is_number(usual))
        return json_null();
    return json_string(json_number_value(clock) == json_number_value(usual) ? "default" : "set");
}

/* A GPU of an attempt's header, without what tells it from others that are set alike. A new reference. */
static json_t *make_settings(const json_t *gpu)
{
    json_t *settings = json_copy((json_t *)gpu);
    json_object_del(settings, "device");
    json_object_del(settings, "uuid");
    json_set(settings, "clocks", make_clocks(gpu));
    return settings;
}

static json_t *find_settings(json_t *entries, const json_t *settings)
{
    for (size_t i = 0; i < json_array_size(entries); i++)
        if (json_equal(json_object_get(json_array_get(entries, i), "settings"), settings))
            return json_array_get(entries, i);
    json_t *entry = json_object();
    json_set(entry, "settings", json_incref((json_t *)settings));
    json_set(entry, "uuids", json_array());
    json_set(entry, "attempts", json_integer(0));
    json_append(entries, entry);
    return entry;
}

static void add_gpus(json_t *entries, const json_t *gpus)
{
    json_t *seen = json_array();
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i), *uuid = json_object_get(gpu, "uuid");
        if (!json_is_object(gpu))
            continue;
        json_t *settings = make_settings(gpu), *entry = find_settings(entries, settings);
        if (json_is_string(uuid))
            summary_append_once(json_object_get(entry, "uuids"), 0, json_string_value(uuid));
        bool known = false;
        for (size_t j = 0; j < json_array_size(seen); j++)
            known |= json_array_get(seen, j) == entry;
        if (!known) {
            json_append(seen, json_incref(entry));
            json_set(entry, "attempts", json_integer(json_integer_value(json_object_get(entry, "attempts")) + 1));
        }
        json_decref(settings);
    }
    json_decref(seen);
}

json_t *summary_make_gpus(const struct run *run)
{
    json_t *entries = json_array();
    for (int i = 0; i < run->attempt_count; i++)
        if (!run_is_all_void(&run->attempts[i]))
            add_gpus(entries, json_object_get(run->attempts[i].attempt.header, "gpus"));
    return entries;
}
