#include "collect/engine/cuda/made.h"

#include "collect/engine/cuda/element.cuh"

#define THREADS 512
#define LOADS 8 /* 16-byte loads of a thread that are under way together */

template <typename T> static __global__ void fill(struct recipe recipe, struct made_part part, T *out)
{
    int64_t count = part.rows * part.columns, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        int64_t index = part.first + i / part.columns * part.stride + i % part.columns;
        store(&out[i], recipe_element(recipe, (uint64_t)index));
    }
}

void made_fill(enum element type, struct recipe recipe, struct made_part part, void *out, cudaStream_t stream)
{
    int64_t blocks = (part.rows * part.columns + THREADS - 1) / THREADS;
    if (blocks == 0)
        return;
    LAUNCH(type, (fill<T><<<(unsigned)(blocks < 4096 ? blocks : 4096), THREADS, 0, stream>>>(recipe, part, (T *)out)));
}

static __device__ __forceinline__ uint4 load_once(const uint4 *from)
{
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from));
    return value;
}

/* count: a multiple of what a block reads at a time. */
static __global__ void read_all(const uint4 *memory, size_t count, unsigned *out)
{
    size_t step = (size_t)gridDim.x * THREADS * LOADS;
    unsigned bits = 0;
    for (size_t at = (size_t)blockIdx.x * THREADS * LOADS + threadIdx.x; at < count; at += step) {
        uint4 values[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            values[i] = load_once(memory + at + (size_t)i * THREADS);
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            bits ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
    }
    if (bits == 0x9e3779b9u)
        *out = bits;
}

void made_read(const void *memory, size_t bytes, int blocks, unsigned *out, cudaStream_t stream)
{
    read_all<<<(unsigned)blocks, THREADS, 0, stream>>>((const uint4 *)memory, bytes / 16, out);
    CUDA_CHECK(cudaGetLastError());
}
