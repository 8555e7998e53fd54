/* What all kernels share: the two element types, sums over warps and blocks, launches and the check after them.
 *
 * Kernels of one stream overlap (programmatic dependent launch, from compute capability 9.0): a kernel starts while the
 * one before it ends. So every kernel calls wait_for_previous() before it reads or writes what another kernel of the
 * stream touches, weights excepted, and then let_next_start(), so that the next may start and fetch its weights. A
 * kernel may let the next start before it has waited itself (halves.cuh does): but only where that one reads nothing
 * before its wait that any kernel writes since the last that keeps the rule's order. */
#ifndef COLLECT_ENGINE_CUDA_ELEMENT_CUH
#define COLLECT_ENGINE_CUDA_ELEMENT_CUH

#include "collect/engine/cuda/kernels.h"

extern "C" {
#include "collect/engine/cuda/device.h"
}

#include <cuda_bf16.h>
#include <math.h>

#define WARP 32
#define ALL_LANES 0xffffffffu

/* Calls the template for the type at hand. */
#define OF_TYPE(type, call)                                                                                            \
    do {                                                                                                               \
        if ((type) == ELEMENT_BFLOAT16) {                                                                              \
            typedef __nv_bfloat16 T;                                                                                   \
            call;                                                                                                      \
        } else {                                                                                                       \
            typedef float T;                                                                                           \
            call;                                                                                                      \
        }                                                                                                              \
    } while (0)

/* The same, and sees whether its launch was taken. */
#define LAUNCH(type, call)                                                                                             \
    do {                                                                                                               \
        if ((type) == ELEMENT_BFLOAT16) {                                                                              \
            typedef __nv_bfloat16 T;                                                                                   \
            call;                                                                                                      \
        } else {                                                                                                       \
            typedef float T;                                                                                           \
            call;                                                                                                      \
        }                                                                                                              \
        CUDA_CHECK(cudaGetLastError());                                                                                \
    } while (0)

static __device__ __forceinline__ void wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

static __device__ __forceinline__ void let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

static inline cudaLaunchAttribute cluster_attribute(unsigned blocks)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    return attribute;
}

/* How many clusters of so many blocks have a place at once on the current GPU, from compute capability 9.0 on. A
 * cluster lies within a group of multiprocessors, and groups differ in size, even between GPUs of a kind. */
template <typename... Parameters>
static int count_clusters(void (*kernel)(Parameters...), unsigned cluster, unsigned threads, size_t shared)
{
    cudaLaunchAttribute attribute = cluster_attribute(cluster);
    cudaLaunchConfig_t config = {};
    int clusters = 0;
    config.gridDim = dim3(cluster);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    return clusters;
}

/* Launches a kernel that keeps the rule above, in clusters of so many blocks. */
template <typename... Parameters, typename... Arguments>
static void launch_clusters(void (*kernel)(Parameters...), unsigned cluster, dim3 grid, unsigned threads, size_t shared,
                            cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    if (device_overlaps()) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1)
        attributes[config.numAttrs++] = cluster_attribute(cluster);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

template <typename... Parameters, typename... Arguments>
static void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t shared, cudaStream_t stream,
                   Arguments... arguments)
{
    launch_clusters(kernel, 1, grid, threads, shared, stream, arguments...);
}

/* As the compiler sees that all lanes have the same index, it makes nothing of what would follow if they had not. */
static __device__ __forceinline__ int warp_index(void)
{
    return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0);
}

static __device__ __forceinline__ uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

/* 16 bytes that are read once, where `wanted`; otherwise *to is left as it is, without a branch. */
static __device__ __forceinline__ void load_weights(uint4 *to, const char *from, bool wanted)
{
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %5, 0;\n"
                 "@wanted ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
                 : "+r"(to->x), "+r"(to->y), "+r"(to->z), "+r"(to->w)
                 : "l"(from), "r"((int)wanted));
}

static __device__ __forceinline__ float load(float x)
{
    return x;
}

static __device__ __forceinline__ float load(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ __forceinline__ void store(float *out, float x)
{
    *out = x;
}

static __device__ __forceinline__ void store(__nv_bfloat16 *out, float x)
{
    *out = __float2bfloat16_rn(x);
}

/* x as the type would hold it. */
template <typename T> static __device__ __forceinline__ float rounded(float x)
{
    T held;
    store(&held, x);
    return load(held);
}

/* SiLU, to what a bfloat16 holds of it. */
static __device__ __forceinline__ float swish(float x)
{
    return __fdividef(x, 1.0f + expf(-x));
}

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

static __device__ __forceinline__ float warp_largest(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

/* Over a block of whole warps; every thread gets the result. `parts`: shared, [32]. */
static __device__ __forceinline__ float block_sum(float x, float *parts)
{
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % WARP < blockDim.x / WARP ? parts[threadIdx.x % WARP] : 0.0f);
}

static __device__ __forceinline__ float block_largest(float x, float *parts)
{
    x = warp_largest(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_largest(threadIdx.x % WARP < blockDim.x / WARP ? parts[threadIdx.x % WARP] : -INFINITY);
}

#endif
