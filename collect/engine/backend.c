#include "collect/engine/backend.h"

#include "collect/engine/loading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLEANSLATE_CUDA

#include "collect/engine/cuda/device.h"

static const struct backend_class *find_cuda(const char *device, bool asked, struct error *error)
{
    struct error reason = {0};
    enum device_state state = device_find(device, &reason);
    if (state == DEVICE_USABLE)
        return &backend_cuda;
    if (asked)
        fail(error, "device \"cuda\": %s", reason.message);
    else if (state == DEVICE_UNUSABLE)
        fprintf(stderr, "a GPU is not used, the CPU is: %s\n", reason.message);
    return NULL;
}

#else

static const struct backend_class *find_cuda(const char *device, bool asked, struct error *error)
{
    (void)device;
    if (asked)
        fail(error, "device \"cuda\": this build has no CUDA backend; build where nvcc is, or use \"cpu\" or \"auto\"");
    return NULL;
}

#endif

const struct backend_class *backend_find(const char *device, struct error *error)
{
    if (strcmp(device, "cpu") == 0)
        return &backend_cpu;
    bool asked = strncmp(device, "cuda", 4) == 0;
    const struct backend_class *class = find_cuda(device, asked, error);
    return class || asked ? class : &backend_cpu;
}

int backend_check(const struct backend_class *class, const struct model *target, struct error *error)
{
    if (target->recurrent_count && !class->has_recurrence)
        return fail(error, "%s: %d of %d layers are recurrent, which device \"%s\" cannot run yet; use \"cpu\"",
                    target->folder, target->recurrent_count, target->layer_count, class->name);
    return 0;
}

struct backend *backend_open(const struct backend_class *class, const struct backend_options *options,
                             struct error *error)
{
    if (backend_check(class, options->target, error))
        return NULL;
    int64_t elements = model_parameter_count(options->target);
    if (options->drafter)
        elements += model_parameter_count(options->drafter);
    loading_begin(options->target->folder, elements, options->dtype == ENGINE_BFLOAT16 ? 2 : 4);
    struct backend *backend = class->open(options, error);
    loading_end();
    return backend;
}

json_t *backend_devices(const char *device, int ranks)
{
    const char *at = strchr(device, ':');
    if (!at)
        return NULL;
    json_t *devices = json_array();
    for (int rank = 0; at && rank < ranks; rank++, at = strchr(at, ','))
        json_array_append_new(devices, json_integer(strtol(++at, NULL, 10)));
    return devices;
}
