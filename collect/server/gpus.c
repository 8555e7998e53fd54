#include "collect/server/gpus.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/nvml.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GPUS_MAXIMUM = 64, STEP_MS = 200 };
#define SLACK_BYTES ((double)(512 << 20)) /* that a driver's own doings may take */

struct gpu {
    char id[TELEMETRY_ID_SIZE];
    struct nvml_device *device;
    double before_bytes;
};

struct gpus {
    struct nvml *nvml;
    struct gpu all[GPUS_MAXIMUM];
    int count;
};

/* Whether the file begins so. */
static bool begins(const char *folder, const char *id, const char *name, const char *text)
{
    char *path = xformat("%s/%s/%s", folder, id, name), found[16] = "";
    FILE *file = fopen(path, "re");
    bool same = file && fgets(found, sizeof found, file) && strncmp(found, text, strlen(text)) == 0;
    if (file)
        fclose(file);
    free(path);
    return same;
}

/* NVIDIA's vendor number; the class of displays, with and without outputs. */
static bool is_gpu(const char *folder, const char *id)
{
    return begins(folder, id, "vendor", "0x10de") && begins(folder, id, "class", "0x03");
}

static double memory_of(const struct gpus *gpus, const struct gpu *gpu)
{
    struct nvml_reading reading;
    nvml_read(gpus->nvml, gpu->device, &reading);
    return reading.memory_bytes;
}

static void find_all(struct gpus *gpus, const char *folder)
{
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && gpus->count < GPUS_MAXIMUM && (entry = readdir(directory));) {
        struct gpu *gpu = &gpus->all[gpus->count];
        if (strlen(entry->d_name) >= TELEMETRY_ID_SIZE || !is_gpu(folder, entry->d_name))
            continue;
        strcpy(gpu->id, entry->d_name);
        gpu->device = nvml_find(gpus->nvml, gpu->id);
        if (!gpu->device)
            continue;
        gpu->before_bytes = memory_of(gpus, gpu);
        gpus->count++;
    }
    if (directory)
        closedir(directory);
}

struct gpus *gpus_open(const char *folder)
{
    struct nvml *nvml = nvml_open();
    if (!nvml)
        return NULL;
    struct gpus *gpus = xcalloc(1, sizeof *gpus);
    gpus->nvml = nvml;
    find_all(gpus, folder);
    if (gpus->count)
        return gpus;
    gpus_close(gpus);
    return NULL;
}

void gpus_close(struct gpus *gpus)
{
    if (gpus)
        nvml_close(gpus->nvml);
    free(gpus);
}

static bool is_busy(const struct gpus *gpus, const struct gpu *gpu, double *bytes)
{
    *bytes = memory_of(gpus, gpu);
    return *bytes > gpu->before_bytes + SLACK_BYTES;
}

/* NULL where there is none. */
static const struct gpu *find_busy(const struct gpus *gpus, double *bytes)
{
    for (int i = 0; i < gpus->count; i++)
        if (is_busy(gpus, &gpus->all[i], bytes))
            return &gpus->all[i];
    return NULL;
}

int gpus_await(const struct gpus *gpus, int limit_s, struct error *error)
{
    const int64_t until_ns = clock_now_ns() + limit_s * (int64_t)1000000000;
    const struct gpu *busy;
    double bytes = NAN;
    while ((busy = find_busy(gpus, &bytes))) {
        if (clock_now_ns() > until_ns)
            return fail(error, "GPU %s has %.3g GiB in use, %.3g when collect began; end what uses it", busy->id,
                        bytes / (1 << 30), busy->before_bytes / (1 << 30));
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    }
    return 0;
}

int gpus_list_busy(const struct gpus *gpus, char (*ids)[TELEMETRY_ID_SIZE], int maximum)
{
    double bytes;
    int count = 0;
    for (int i = 0; i < gpus->count && count < maximum; i++)
        if (is_busy(gpus, &gpus->all[i], &bytes))
            strcpy(ids[count++], gpus->all[i].id);
    return count;
}
