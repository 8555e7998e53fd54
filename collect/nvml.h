/* NVIDIA's management library, as far as it is needed: opened at run time, since machines without a GPU have none, and
 * declared here, since its header comes with the CUDA toolkit alone. The facts are of its public C interface (NVML API
 * reference): every function answers 0 where it succeeds, and a device may lack any of them. */
#ifndef COLLECT_NVML_H
#define COLLECT_NVML_H

#include <stdbool.h>

#define NVML_TEXT_SIZE 96

struct nvml;

/* NULL where there is no library, or it does not start. The library is libnvidia-ml.so.1, or what the environment
 * variable CLEANSLATE_NVML names. */
struct nvml *nvml_open(void);
void nvml_close(struct nvml *nvml);

/* A device, as long as the library is open. Of one that is NULL nothing is known. */
struct nvml_device;

/* By its PCI bus id ("0000:1b:00.0"); NULL where the library does not know it. */
struct nvml_device *nvml_find(const struct nvml *nvml, const char *bus_id);

/* Why a clock is lower than it could be. Bits of the library's. */
struct nvml_reason {
    unsigned long long bit;
    const char *name; /* NULL ends the table */
};
extern const struct nvml_reason nvml_reasons[];

/* NaN: the device does not say. Power, energy and memory of a GPU that MIG divides are NaN: they are of all its parts.
 */
struct nvml_reading {
    double clock_mhz, memory_clock_mhz; /* of the multiprocessors, of the memory */
    double temperature_c, power_w;
    double energy_j;     /* since the driver was loaded */
    double memory_bytes; /* in use */
    unsigned long long reasons;
    bool has_reasons;
};
void nvml_read(const struct nvml *nvml, const struct nvml_device *device, struct nvml_reading *reading);

/* What a person may have set. NaN, or "": the device does not say. */
struct nvml_settings {
    char name[NVML_TEXT_SIZE], uuid[NVML_TEXT_SIZE], driver[NVML_TEXT_SIZE];
    double application_clock_mhz, default_application_clock_mhz, maximum_clock_mhz;
    double power_limit_w, default_power_limit_w;
    double persistence; /* 1: the driver stays loaded between programs */
};
void nvml_read_settings(const struct nvml *nvml, const struct nvml_device *device, struct nvml_settings *settings);

#endif
