/* A query or key head, from the product's answer to what attention reads. */
#ifndef COLLECT_ENGINE_CUDA_HEADS_CUH
#define COLLECT_ENGINE_CUDA_HEADS_CUH

#include "collect/engine/cuda/element.cuh"

#define PREFETCH_UNIT 4096 /* bytes */

/* One warp norms, rotates and scales one head of a row. */
/* Asks for what the product after attention reads, while the memory has little else to do: each block for a share. */
static __device__ __forceinline__ void prefetch(const struct heads_call &call)
{
#if __CUDA_ARCH__ >= 900
    size_t blocks = (size_t)gridDim.x * gridDim.y * gridDim.z;
    size_t block = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    size_t units = call.soon_bytes / PREFETCH_UNIT, from = units * block / blocks, to = units * (block + 1) / blocks;
    for (size_t unit = from + threadIdx.x; unit < to; unit += blockDim.x)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((const char *)call.soon + unit * PREFETCH_UNIT),
                     "r"(PREFETCH_UNIT));
#endif
}

/* Element `at` of fused, its parts added. */
static __device__ __forceinline__ float fused_at(const struct heads_call &call, size_t at)
{
    float sum = call.fused[at];
    for (int part = 1; part < call.parts; part++)
        sum += call.fused[(size_t)part * call.part_stride + at];
    return sum;
}

#define HEAD_HALVES 4 /* pairs of elements of a head, for each lane */

template <typename T>
static __device__ void rotate_head(const struct heads_call &call, size_t at, const float *norm, int position,
                                   float factor, T *out)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2;
    const float *cosines = call.cosines + (size_t)position * (size_t)half;
    const float *sines = call.sines + (size_t)position * (size_t)half;
    float low[HEAD_HALVES], high[HEAD_HALVES], sum = 0;
#pragma unroll
    for (int h = 0; h < HEAD_HALVES; h++) {
        int i = lane + h * WARP;
        low[h] = i < half ? fused_at(call, at + (size_t)i) : 0;
        high[h] = i < half ? fused_at(call, at + (size_t)(half + i)) : 0;
        sum += low[h] * low[h] + high[h] * high[h];
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)call.head_size + call.epsilon);
#pragma unroll
    for (int h = 0; h < HEAD_HALVES; h++) {
        int i = lane + h * WARP;
        if (i >= half)
            continue;
        float first = low[h] * scale * norm[i], second = high[h] * scale * norm[half + i];
        store(&out[i], (first * cosines[i] - second * sines[i]) * factor);
        store(&out[half + i], (second * cosines[i] + first * sines[i]) * factor);
    }
}

#endif
