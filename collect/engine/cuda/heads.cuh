/* A query or key head, from the product's answer to what attention reads. */
#ifndef COLLECT_ENGINE_CUDA_HEADS_CUH
#define COLLECT_ENGINE_CUDA_HEADS_CUH

#include "collect/engine/cuda/element.cuh"

/* Element `at` of fused, its parts added. */
static __device__ __forceinline__ float fused_at(const struct heads_call &call, size_t at)
{
    float sum = call.fused[at];
    for (int part = 1; part < call.parts; part++)
        sum += call.fused[(size_t)part * call.part_stride + at];
    return sum;
}

#define HEAD_PAIRS 4 /* of a head of 256 elements, for each lane */

/* What a lane needs to norm and rotate its pairs (i, half + i), i = lane, lane + 32, ...: nothing that the product
 * before made, so that it can be loaded early. */
struct head_rotation {
    float low[HEAD_PAIRS], high[HEAD_PAIRS], cosine[HEAD_PAIRS], sine[HEAD_PAIRS];
};

static __device__ __forceinline__ struct head_rotation load_rotation(const struct heads_call &call, const float *norm,
                                                                     int position)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2;
    const float *cosines = call.cosines + (size_t)position * (size_t)half;
    const float *sines = call.sines + (size_t)position * (size_t)half;
    struct head_rotation rotation;
#pragma unroll
    for (int p = 0; p < HEAD_PAIRS; p++) {
        int i = lane + p * WARP;
        bool inside = i < half;
        rotation.low[p] = inside ? norm[i] : 0;
        rotation.high[p] = inside ? norm[half + i] : 0;
        rotation.cosine[p] = inside ? cosines[i] : 0;
        rotation.sine[p] = inside ? sines[i] : 0;
    }
    return rotation;
}

/* One warp norms, rotates and scales the head at `at` of fused. */
template <typename T>
static __device__ __forceinline__ void rotate_head(const struct heads_call &call, const struct head_rotation &rotation,
                                                   size_t at, float factor, T *out)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2;
    float low[HEAD_PAIRS], high[HEAD_PAIRS], sum = 0;
#pragma unroll
    for (int p = 0; p < HEAD_PAIRS; p++) {
        int i = lane + p * WARP;
        low[p] = i < half ? fused_at(call, at + (size_t)i) : 0;
        high[p] = i < half ? fused_at(call, at + (size_t)(half + i)) : 0;
        sum += low[p] * low[p] + high[p] * high[p];
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)call.head_size + call.epsilon);
#pragma unroll
    for (int p = 0; p < HEAD_PAIRS; p++) {
        int i = lane + p * WARP;
        if (i >= half)
            continue;
        float first = low[p] * scale * rotation.low[p], second = high[p] * scale * rotation.high[p];
        store(&out[i], (first * rotation.cosine[p] - second * rotation.sine[p]) * factor);
        store(&out[half + i], (second * rotation.cosine[p] + first * rotation.sine[p]) * factor);
    }
}

#endif
