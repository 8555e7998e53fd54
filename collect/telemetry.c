#include "collect/telemetry.h"

#include "collect/base/clock.h"
#include "collect/base/error.h"
#include "collect/base/json.h"
#include "collect/nvml.h"
#include "collect/record/attempt.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct reading {
    int64_t time_ns;
    int device;
    struct nvml_reading values;
};

struct telemetry_recorder {
    struct nvml *nvml;
    struct nvml_device *devices[TELEMETRY_DEVICES_MAXIMUM];
    int device_count;

    struct reading *readings;
    int reading_count, reading_capacity;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;
};

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* One that the library does not know is NULL there: what the others took is not all. */
static void add_device(struct telemetry_recorder *recorder, const char *id)
{
    struct nvml_device *device = nvml_find(recorder->nvml, id);
    for (int i = 0; i < recorder->device_count; i++)
        if (recorder->devices[i] == device)
            return;
    if (recorder->device_count < TELEMETRY_DEVICES_MAXIMUM)
        recorder->devices[recorder->device_count++] = device;
}

static bool knows_any(const struct telemetry_recorder *recorder)
{
    for (int i = 0; i < recorder->device_count; i++)
        if (recorder->devices[i])
            return true;
    return false;
}

struct telemetry_recorder *telemetry_open(const char (*ids)[TELEMETRY_ID_SIZE], int count)
{
    struct nvml *nvml = count > 0 ? nvml_open() : NULL;
    if (!nvml)
        return NULL;
    struct telemetry_recorder *recorder = xcalloc(1, sizeof *recorder);
    pthread_condattr_t monotonic;
    recorder->nvml = nvml;
    for (int i = 0; i < count; i++)
        add_device(recorder, ids[i]);
    pthread_mutex_init(&recorder->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&recorder->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (knows_any(recorder))
        return recorder;
    telemetry_close(recorder);
    return NULL;
}

void telemetry_close(struct telemetry_recorder *recorder)
{
    if (!recorder)
        return;
    pthread_cond_destroy(&recorder->stopped);
    pthread_mutex_destroy(&recorder->lock);
    nvml_close(recorder->nvml);
    free(recorder->readings);
    free(recorder);
}

/* --- what was set ----------------------------------------------------------------------------------------------- */

static void set_number(json_t *object, const char *key, double value)
{
    if (!isnan(value))
        json_set(object, key, json_number(value));
}

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text[0])
        json_set(object, key, json_text(text));
}

static json_t *describe_device(const struct telemetry_recorder *recorder, int index)
{
    struct nvml_settings settings;
    json_t *object = json_object();
    nvml_read_settings(recorder->nvml, recorder->devices[index], &settings);
    json_set(object, "device", json_integer(index));
    set_text(object, "name", settings.name);
    set_text(object, "uuid", settings.uuid);
    set_text(object, "driver", settings.driver);
    set_number(object, "application_clock_mhz", settings.application_clock_mhz);
    set_number(object, "default_application_clock_mhz", settings.default_application_clock_mhz);
    set_number(object, "maximum_clock_mhz", settings.maximum_clock_mhz);
    set_number(object, "power_limit_w", settings.power_limit_w);
    set_number(object, "default_power_limit_w", settings.default_power_limit_w);
    if (!isnan(settings.persistence))
        json_set(object, "persistence", json_boolean(settings.persistence != 0));
    return object;
}

json_t *telemetry_describe(const struct telemetry_recorder *recorder)
{
    json_t *list = json_array();
    for (int i = 0; i < recorder->device_count; i++)
        json_append(list, describe_device(recorder, i));
    return list;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static void read_all(struct telemetry_recorder *recorder)
{
    for (int i = 0; i < recorder->device_count; i++) {
        if (recorder->reading_count == recorder->reading_capacity) {
            recorder->reading_capacity = recorder->reading_capacity ? 2 * recorder->reading_capacity : 64;
            recorder->readings =
                xrealloc(recorder->readings, (size_t)recorder->reading_capacity, sizeof *recorder->readings);
        }
        struct reading *reading = &recorder->readings[recorder->reading_count++];
        reading->device = i;
        reading->time_ns = clock_now_ns();
        nvml_read(recorder->nvml, recorder->devices[i], &reading->values);
    }
}

/* Sleeps in between, so that no core is kept busy. */
static void *read_every_second(void *context)
{
    struct telemetry_recorder *recorder = context;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&recorder->lock);
    while (!recorder->stop) {
        next.tv_sec++;
        while (!recorder->stop && pthread_cond_timedwait(&recorder->stopped, &recorder->lock, &next) == 0)
            ;
        if (!recorder->stop)
            read_all(recorder);
    }
    pthread_mutex_unlock(&recorder->lock);
    return NULL;
}

void telemetry_start(struct telemetry_recorder *recorder)
{
    recorder->reading_count = 0;
    recorder->stop = false;
    read_all(recorder);
    if (pthread_create(&recorder->thread, NULL, read_every_second, recorder))
        die("no thread can be made");
}

/* --- lines ------------------------------------------------------------------------------------------------------ */

static json_t *list_reasons(unsigned long long reasons)
{
    json_t *names = json_array();
    for (const struct nvml_reason *reason = nvml_reasons; reason->name; reason++)
        if (reasons & reason->bit)
            json_append(names, json_string(reason->name));
    return names;
}

static json_t *make_line(const struct reading *reading, int64_t origin_ns)
{
    const struct nvml_reading *values = &reading->values;
    json_t *line = json_object();
    json_set(line, "type", json_string("telemetry"));
    json_set(line, "device", json_integer(reading->device));
    json_set(line, "time_ns", json_integer(reading->time_ns > origin_ns ? reading->time_ns - origin_ns : 0));
    set_number(line, "clock_mhz", values->clock_mhz);
    set_number(line, "memory_clock_mhz", values->memory_clock_mhz);
    set_number(line, "temperature_c", values->temperature_c);
    set_number(line, "power_w", values->power_w);
    set_number(line, "energy_j", values->energy_j);
    set_number(line, "memory_bytes", values->memory_bytes);
    if (values->has_reasons)
        json_set(line, "throttle", list_reasons(values->reasons));
    return line;
}

json_t *telemetry_stop(struct telemetry_recorder *recorder, int64_t origin_ns)
{
    json_t *lines = json_array();
    pthread_mutex_lock(&recorder->lock);
    recorder->stop = true;
    pthread_cond_signal(&recorder->stopped);
    pthread_mutex_unlock(&recorder->lock);
    pthread_join(recorder->thread, NULL);
    read_all(recorder);
    for (int i = 0; i < recorder->reading_count; i++)
        json_append(lines, make_line(&recorder->readings[i], origin_ns));
    return lines;
}
