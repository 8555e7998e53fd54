#include "collect/nvml.h"

#include "collect/base/error.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

enum { CLOCK_MULTIPROCESSORS = 1, CLOCK_MEMORY = 2, SENSOR_DIE = 0 };

struct memory_info {
    unsigned long long total, free, used;
};

typedef struct nvml_device device;

/* The functions; NULL where the library at hand lacks one. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned size);
    int (*find)(const char *bus_id, device **found);
    int (*name)(const device *, char *text, unsigned size);
    int (*uuid)(const device *, char *text, unsigned size);
    int (*clock)(const device *, int which, unsigned *mhz);
    int (*application_clock)(const device *, int which, unsigned *mhz);
    int (*default_application_clock)(const device *, int which, unsigned *mhz);
    int (*maximum_clock)(const device *, int which, unsigned *mhz);
    int (*temperature)(const device *, int sensor, unsigned *celsius);
    int (*power)(const device *, unsigned *milliwatts);
    int (*power_limit)(const device *, unsigned *milliwatts);
    int (*default_power_limit)(const device *, unsigned *milliwatts);
    int (*energy)(const device *, unsigned long long *millijoules);
    int (*reasons)(const device *, unsigned long long *bits);
    int (*memory)(const device *, struct memory_info *info);
    int (*persistence)(const device *, unsigned *on);
    int (*mig_mode)(const device *, unsigned *on, unsigned *pending);
};

static const struct nvml knows_nothing;

const struct nvml_reason nvml_reasons[] = {
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
    {0, NULL},
};

/* --- the library ------------------------------------------------------------------------------------------------ */

static void find_functions(struct nvml *nvml)
{
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } functions[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlSystemGetDriverVersion", &nvml->driver_version},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->find},
        {"nvmlDeviceGetName", &nvml->name},
        {"nvmlDeviceGetUUID", &nvml->uuid},
        {"nvmlDeviceGetClockInfo", &nvml->clock},
        {"nvmlDeviceGetApplicationsClock", &nvml->application_clock},
        {"nvmlDeviceGetDefaultApplicationsClock", &nvml->default_application_clock},
        {"nvmlDeviceGetMaxClockInfo", &nvml->maximum_clock},
        {"nvmlDeviceGetTemperature", &nvml->temperature},
        {"nvmlDeviceGetPowerUsage", &nvml->power},
        {"nvmlDeviceGetPowerManagementLimit", &nvml->power_limit},
        {"nvmlDeviceGetPowerManagementDefaultLimit", &nvml->default_power_limit},
        {"nvmlDeviceGetTotalEnergyConsumption", &nvml->energy},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->reasons},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory},
        {"nvmlDeviceGetPersistenceMode", &nvml->persistence},
        {"nvmlDeviceGetMigMode", &nvml->mig_mode},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(nvml->library, functions[i].name);
        memcpy(functions[i].to, &function, sizeof function);
    }
}

struct nvml *nvml_open(void)
{
    const char *path = getenv("CLEANSLATE_NVML");
    struct nvml *nvml = xcalloc(1, sizeof *nvml);
    nvml->library = dlopen(path ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library)
        find_functions(nvml);
    if (nvml->init && nvml->shutdown && nvml->find && nvml->init() == 0)
        return nvml;
    if (nvml->library)
        dlclose(nvml->library);
    free(nvml);
    return NULL;
}

void nvml_close(struct nvml *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

struct nvml_device *nvml_find(const struct nvml *nvml, const char *bus_id)
{
    device *found = NULL;
    return nvml->find(bus_id, &found) == 0 ? found : NULL;
}

/* --- devices ---------------------------------------------------------------------------------------------------- */

static double read_clock(int (*function)(const device *, int, unsigned *), const device *from, int which)
{
    unsigned mhz;
    return function && function(from, which, &mhz) == 0 ? mhz : NAN;
}

static double read_number(int (*function)(const device *, unsigned *), const device *from, double unit)
{
    unsigned number;
    return function && function(from, &number) == 0 ? number * unit : NAN;
}

static void read_text(int (*function)(const device *, char *, unsigned), const device *from, char *text)
{
    if (!function || function(from, text, NVML_TEXT_SIZE) != 0)
        text[0] = '\0';
    text[NVML_TEXT_SIZE - 1] = '\0';
}

/* Whether others may compute on parts of the GPU: what all of it takes is then no one's. */
static bool is_divided(const struct nvml *nvml, const struct nvml_device *from)
{
    unsigned on = 0, pending;
    return nvml->mig_mode && nvml->mig_mode(from, &on, &pending) == 0 && on;
}

void nvml_read(const struct nvml *nvml, const struct nvml_device *from, struct nvml_reading *reading)
{
    unsigned long long millijoules;
    struct memory_info memory;
    nvml = from ? nvml : &knows_nothing;
    reading->clock_mhz = read_clock(nvml->clock, from, CLOCK_MULTIPROCESSORS);
    reading->memory_clock_mhz = read_clock(nvml->clock, from, CLOCK_MEMORY);
    reading->temperature_c = read_clock(nvml->temperature, from, SENSOR_DIE);
    reading->power_w = read_number(nvml->power, from, 1e-3);
    reading->energy_j = nvml->energy && nvml->energy(from, &millijoules) == 0 ? (double)millijoules * 1e-3 : NAN;
    reading->memory_bytes = nvml->memory && nvml->memory(from, &memory) == 0 ? (double)memory.used : NAN;
    reading->reasons = 0;
    reading->has_reasons = nvml->reasons && nvml->reasons(from, &reading->reasons) == 0;
    if (is_divided(nvml, from))
        reading->power_w = reading->energy_j = reading->memory_bytes = NAN;
}

void nvml_read_settings(const struct nvml *nvml, const struct nvml_device *from, struct nvml_settings *settings)
{
    nvml = from ? nvml : &knows_nothing;
    read_text(nvml->name, from, settings->name);
    read_text(nvml->uuid, from, settings->uuid);
    if (!nvml->driver_version || nvml->driver_version(settings->driver, NVML_TEXT_SIZE) != 0)
        settings->driver[0] = '\0';
    settings->application_clock_mhz = read_clock(nvml->application_clock, from, CLOCK_MULTIPROCESSORS);
    settings->default_application_clock_mhz = read_clock(nvml->default_application_clock, from, CLOCK_MULTIPROCESSORS);
    settings->maximum_clock_mhz = read_clock(nvml->maximum_clock, from, CLOCK_MULTIPROCESSORS);
    settings->power_limit_w = read_number(nvml->power_limit, from, 1e-3);
    settings->default_power_limit_w = read_number(nvml->default_power_limit, from, 1e-3);
    settings->persistence = read_number(nvml->persistence, from, 1);
}
