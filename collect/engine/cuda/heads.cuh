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

/* The first column of a layer's head `unit`: query heads, then key heads, then value heads. */
static __device__ __forceinline__ int head_column(const struct heads_call &call, int unit)
{
    return min(unit, call.heads) * call.query_size + max(unit - call.heads, 0) * call.head_size;
}

#define HEAD_PAIRS 4 /* of a head of 256 elements, for each lane */

/* A head's elements in pairs, i below half of its size: first those that are rotated, element i of the rotated half
 * with element i of the other; then the rest, half with half. */
struct head_pair {
    int low, high;
};

static __device__ __forceinline__ struct head_pair head_pair_of(const struct heads_call &call, int i)
{
    int turned = call.rotary_size / 2;
    struct head_pair pair;
    pair.low = i < turned ? i : turned + i;
    pair.high = (i < turned ? turned : call.head_size / 2) + i;
    return pair;
}

/* What a lane needs to norm and rotate its pairs i = lane, lane + 32, ...: nothing that the product before made, so
 * that it can be loaded early. */
struct head_rotation {
    float low[HEAD_PAIRS], high[HEAD_PAIRS], cosine[HEAD_PAIRS], sine[HEAD_PAIRS];
};

static __device__ __forceinline__ struct head_rotation load_rotation(const struct heads_call &call, const float *norm,
                                                                     int position)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2, turned = call.rotary_size / 2;
    const float *cosines = call.cosines + (size_t)position * (size_t)turned;
    const float *sines = call.sines + (size_t)position * (size_t)turned;
    struct head_rotation rotation;
#pragma unroll
    for (int p = 0; p < HEAD_PAIRS; p++) {
        int i = lane + p * WARP;
        bool inside = i < half;
        const struct head_pair pair = head_pair_of(call, i);
        rotation.low[p] = inside ? norm[pair.low] : 0;
        rotation.high[p] = inside ? norm[pair.high] : 0;
        rotation.cosine[p] = i < turned ? cosines[i] : 1;
        rotation.sine[p] = i < turned ? sines[i] : 0;
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
        const struct head_pair pair = head_pair_of(call, i);
        low[p] = i < half ? fused_at(call, at + (size_t)pair.low) : 0;
        high[p] = i < half ? fused_at(call, at + (size_t)pair.high) : 0;
        sum += low[p] * low[p] + high[p] * high[p];
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)call.head_size + call.epsilon);
#pragma unroll
    for (int p = 0; p < HEAD_PAIRS; p++) {
        int i = lane + p * WARP;
        if (i >= half)
            continue;
        const struct head_pair pair = head_pair_of(call, i);
        float first = low[p] * scale * rotation.low[p], second = high[p] * scale * rotation.high[p];
        store(&out[pair.low], (first * rotation.cosine[p] - second * rotation.sine[p]) * factor);
        store(&out[pair.high], (second * rotation.cosine[p] + first * rotation.sine[p]) * factor);
    }
}

#endif
