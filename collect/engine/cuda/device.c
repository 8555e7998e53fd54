#include "collect/engine/cuda/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPABILITY_MINIMUM 80  /* 8.0: bfloat16 products */
#define CAPABILITY_OVERLAPS 90 /* 9.0: programmatic dependent launch */
#define CAPABILITY_WGMMA 90

#define DEVICES_MAXIMUM 64

/* What initialisation may fail of, and what helps. */
static const struct {
    cudaError_t status;
    const char *remedy;
} remedies[] = {
    {cudaErrorInsufficientDriver, "the driver is older than this build's CUDA; update it, or build with an older CUDA"},
    {cudaErrorNoDevice, "the driver shows no GPU; look at CUDA_VISIBLE_DEVICES, and give the container its GPUs"},
    {cudaErrorInitializationError,
     "is /dev/nvidia-uvm there? Load the module nvidia-uvm, and give it to the container"},
    {cudaErrorUnknown, "is /dev/nvidia-uvm there? Load the module nvidia-uvm, and give it to the container"},
    {cudaErrorOperatingSystem, "may this user open /dev/nvidia*? Give the container its devices"},
    {cudaErrorSystemDriverMismatch,
     "the driver's library and its kernel module differ; reboot, or match the container"},
    {cudaErrorSystemNotReady, "the system is not ready; start nvidia-fabricmanager"},
    {cudaErrorCompatNotSupportedOnDevice, "this GPU takes no forward-compatible driver; update the driver itself"},
    {cudaErrorDevicesUnavailable, "another process has it to itself; end that, or set its compute mode to default"},
    {cudaErrorMemoryAllocation, "its memory is taken; end what else runs on it"},
    {cudaErrorNoKernelImageForDevice, "this build has no code for this GPU; it needs compute capability 8.0"},
    {cudaErrorInvalidDevice, "look at CUDA_VISIBLE_DEVICES"},
};

void device_check(cudaError_t status, const char *file, int line)
{
    if (status != cudaSuccess)
        die_at_once("%s:%d: CUDA: %s (%s)", file, line, cudaGetErrorString(status), cudaGetErrorName(status));
}

static int refuse(struct error *reason, cudaError_t status)
{
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (remedies[i].status == status)
            return fail(reason, "CUDA does not start (%s): %s", cudaGetErrorName(status), remedies[i].remedy);
    return fail(reason, "CUDA does not start (%s): %s", cudaGetErrorName(status), cudaGetErrorString(status));
}

/* A GPU's compute capability: 10 * major + minor. */
static cudaError_t find_capability(int device, int *capability)
{
    int major = 0, minor = 0;
    cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = 10 * major + minor;
    return status;
}

/* Reads the numbers behind the colon; how many there are, at most `ranks`. */
static int read_list(const char *list, int ranks, int *devices)
{
    const char *at = list ? strchr(list, ':') : NULL;
    int count = 0;
    for (; at && *at && count < ranks; at = strchr(at, ','))
        devices[count++] = atoi(++at);
    return count;
}

/* No other GPU is touched, whose memory may be taken or whose work may be measured. */
static int initialise(const char *list, struct error *reason)
{
    int count = 0, capability = 0, first = 0;
    read_list(list, 1, &first);
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count == 0)
        status = cudaErrorNoDevice;
    first = first < count ? first : 0; /* device_assign() says that it is not there */
    if (status == cudaSuccess)
        status = find_capability(first, &capability);
    if (status == cudaSuccess && capability < CAPABILITY_MINIMUM)
        return fail(reason, "the GPU has compute capability %d.%d; 8.0 or higher is needed", capability / 10,
                    capability % 10);
    if (status == cudaSuccess)
        status = cudaSetDevice(first);
    if (status == cudaSuccess)
        status = cudaFree(NULL); /* makes the context: exclusive use and missing devices show here */
    return status == cudaSuccess ? 0 : refuse(reason, status);
}

enum device_state device_find(const char *list, struct error *reason)
{
    static const char *const traces[] = {"/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version"};
    if (!initialise(list, reason))
        return DEVICE_USABLE;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (access(traces[i], F_OK) == 0)
            return DEVICE_UNUSABLE;
    *reason = (struct error){0};
    fail(reason, "no NVIDIA driver is here; install it, or use device \"cpu\" or \"auto\"");
    return DEVICE_ABSENT;
}

int device_first(const char *list)
{
    int here = 0, first = 0;
    read_list(list, 1, &first);
    CUDA_CHECK(cudaGetDeviceCount(&here));
    return first < here ? first : 0;
}

/* All ranks do the same, by kernels that are chosen by what a GPU can do. */
static int check_kinds(const int *devices, int ranks, struct error *error)
{
    int first = 0, other = 0;
    CUDA_CHECK(find_capability(devices[0], &first));
    if (first < CAPABILITY_MINIMUM)
        return fail(error, "GPU %d has compute capability %d.%d; 8.0 or higher is needed: choose another by \"device\"",
                    devices[0], first / 10, first % 10);
    for (int i = 1; i < ranks; i++) {
        CUDA_CHECK(find_capability(devices[i], &other));
        if (other != first)
            return fail(error,
                        "GPUs %d and %d have compute capabilities %d.%d and %d.%d, and ranks need GPUs of one kind: "
                        "choose them by CUDA_VISIBLE_DEVICES or \"device\"",
                        devices[0], devices[i], first / 10, first % 10, other / 10, other % 10);
    }
    return 0;
}

int device_assign(const char *list, int ranks, int *devices, struct error *error)
{
    int here = 0, listed = read_list(list, ranks, devices), shared = 0;
    CUDA_CHECK(cudaGetDeviceCount(&here));
    for (int i = 0; listed == 0 && i < ranks; i++)
        devices[i] = i;
    if (listed > 0 && listed < ranks)
        return fail(error, "device \"%s\": names %d GPUs, where tensor_parallel is %d", list, listed, ranks);
    for (int i = 0; i < ranks; i++) {
        if (devices[i] < 0 || devices[i] >= here)
            return fail(error,
                        "tensor_parallel %d needs GPU %d; %d are here (CUDA_VISIBLE_DEVICES chooses). Ranks may share "
                        "one, which says nothing about scaling: device \"cuda:0,0,...\"",
                        ranks, devices[i], here);
        for (int j = 0; j < i; j++)
            shared += devices[j] == devices[i];
    }
    if (shared > 0 && shared < ranks * (ranks - 1) / 2)
        return fail(error, "device \"%s\": either each rank has a GPU of its own, or all share one", list);
    if (check_kinds(devices, ranks, error))
        return -1;
    return shared > 0 ? 1 : ranks;
}

static int current_device(void)
{
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    if (device >= DEVICES_MAXIMUM)
        die("GPU %d, where %d are known", device, DEVICES_MAXIMUM);
    return device;
}

static int current_capability(void)
{
    static _Thread_local int known[DEVICES_MAXIMUM];
    int device = current_device();
    if (!known[device])
        CUDA_CHECK(find_capability(device, &known[device]));
    return known[device];
}

bool device_overlaps(void)
{
    return current_capability() >= CAPABILITY_OVERLAPS;
}

bool device_has_wgmma(void)
{
    return current_capability() == CAPABILITY_WGMMA;
}

/* An attribute of the current GPU, asked for once: known[DEVICES_MAXIMUM]. */
static int find_attribute(enum cudaDeviceAttr attribute, int *known)
{
    int device = current_device();
    if (!known[device])
        CUDA_CHECK(cudaDeviceGetAttribute(&known[device], attribute, device));
    return known[device];
}

int device_multiprocessors(void)
{
    static _Thread_local int known[DEVICES_MAXIMUM];
    return find_attribute(cudaDevAttrMultiProcessorCount, known);
}

int device_shared_bytes(void)
{
    static _Thread_local int known[DEVICES_MAXIMUM];
    return find_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, known);
}

void *device_allocate(size_t bytes)
{
    void *memory = NULL;
    CUDA_CHECK(cudaMalloc(&memory, bytes ? bytes : 1));
    CUDA_CHECK(cudaMemset(memory, 0, bytes ? bytes : 1));
    CUDA_CHECK(cudaStreamSynchronize(NULL)); /* other streams do not wait for the default one's */
    return memory;
}

void *device_allocate_pinned(size_t bytes)
{
    void *memory = NULL;
    CUDA_CHECK(cudaMallocHost(&memory, bytes ? bytes : 1));
    return memory;
}

void device_bus_id(int device, char *id, int size)
{
    CUDA_CHECK(cudaDeviceGetPCIBusId(id, size, device));
}
