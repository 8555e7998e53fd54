/* A library that stands in for libnvidia-ml.so.1: two GPUs that draw 300 and 150 W from the moment it starts, so that
 * their energy is known. The second says neither its temperature nor its energy. What a library may lack is lacking:
 * default application clocks. Built as a shared object of its own, and opened like the real one. */
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

struct gpu {
    const char *bus_id;
    int index;
    unsigned watts;
};

static struct gpu gpus[] = {{"0000:1b:00.0", 0, 300}, {"0000:1c:00.0", 1, 150}};
static long long start_ms;

/* What tests look at and set. */
int fake_nvml_energy_calls;
unsigned long long fake_nvml_reasons = 0x4;
int fake_nvml_divided;                    /* the first, by MIG */
unsigned long long fake_nvml_more_memory; /* in use, bytes; beyond 1 GiB and 2 GiB */

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int nvmlInit_v2(void)
{
    start_ms = now_ms();
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "580.1");
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct gpu **found)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(gpus[i].bus_id, bus_id) == 0) {
            *found = &gpus[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(const struct gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "Fake H%d", gpu->index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(const struct gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "GPU-%d", gpu->index);
    return SUCCESS;
}

/* 1: multiprocessors, 2: memory. */
int nvmlDeviceGetClockInfo(const struct gpu *gpu, int which, unsigned *mhz)
{
    *mhz = which == 1 ? 1980 - 10 * (unsigned)gpu->index : which == 2 ? 3201 : 0;
    return SUCCESS;
}

int nvmlDeviceGetApplicationsClock(const struct gpu *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    *mhz = which == 1 ? 1755 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(const struct gpu *gpu, int which, unsigned *mhz)
{
    (void)gpu;
    *mhz = which == 1 ? 1980 : 0;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(const struct gpu *gpu, int sensor, unsigned *celsius)
{
    *celsius = 61;
    return gpu->index == 0 && sensor == 0 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(const struct gpu *gpu, unsigned *milliwatts)
{
    *milliwatts = gpu->watts * 1000;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(const struct gpu *gpu, unsigned *milliwatts)
{
    (void)gpu;
    *milliwatts = 650000;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementDefaultLimit(const struct gpu *gpu, unsigned *milliwatts)
{
    (void)gpu;
    *milliwatts = 700000;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(const struct gpu *gpu, unsigned long long *millijoules)
{
    fake_nvml_energy_calls++;
    *millijoules = 5000000 + gpu->watts * (unsigned long long)(now_ms() - start_ms);
    return gpu->index == 0 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const struct gpu *gpu, unsigned long long *reasons)
{
    *reasons = gpu->index == 0 ? fake_nvml_reasons : 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(const struct gpu *gpu, unsigned long long *total_free_used)
{
    total_free_used[0] = 141ULL << 30;
    total_free_used[1] = 140ULL << 30;
    total_free_used[2] = ((1 + (unsigned long long)gpu->index) << 30) + fake_nvml_more_memory;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(const struct gpu *gpu, unsigned *on, unsigned *pending)
{
    *on = *pending = (unsigned)fake_nvml_divided;
    return gpu->index == 0 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPersistenceMode(const struct gpu *gpu, unsigned *on)
{
    (void)gpu;
    *on = 1;
    return SUCCESS;
}
