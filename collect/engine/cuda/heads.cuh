/* A query or key head, from the product's answer to what attention reads. */
#ifndef COLLECT_ENGINE_CUDA_HEADS_CUH
#define COLLECT_ENGINE_CUDA_HEADS_CUH

#include "collect/engine/cuda/element.cuh"

/* The first column of a layer's head `unit`: query heads, then key heads, then value heads. */
static __device__ __forceinline__ int head_column(const struct heads_call &call, int unit)
{
    return min(unit, call.heads) * call.query_size + max(unit - call.heads, 0) * call.head_size;
}

#define HEAD_PAIRS 4 /* of a head of 256 elements, for each lane; of smaller heads fewer do */

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
template <int PAIRS> struct head_rotation {
    float low[PAIRS], high[PAIRS], cosine[PAIRS], sine[PAIRS];
};

template <int PAIRS>
static __device__ __forceinline__ void load_norm(const struct heads_call &call, const float *norm,
                                                 struct head_rotation<PAIRS> &rotation)
{
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = (int)threadIdx.x % WARP + p * WARP;
        bool inside = i < call.head_size / 2;
        const struct head_pair pair = head_pair_of(call, i);
        rotation.low[p] = inside ? norm[pair.low] : 0;
        rotation.high[p] = inside ? norm[pair.high] : 0;
    }
}

template <int PAIRS>
static __device__ __forceinline__ void load_angles(const struct heads_call &call, int position,
                                                   struct head_rotation<PAIRS> &rotation)
{
    int turned = call.rotary_size / 2;
    const float *cosines = call.cosines + (size_t)position * (size_t)turned;
    const float *sines = call.sines + (size_t)position * (size_t)turned;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = (int)threadIdx.x % WARP + p * WARP;
        rotation.cosine[p] = i < turned ? cosines[i] : 1;
        rotation.sine[p] = i < turned ? sines[i] : 0;
    }
}

template <int PAIRS>
static __device__ __forceinline__ struct head_rotation<PAIRS> load_rotation(const struct heads_call &call,
                                                                            const float *norm, int position) {
    struct head_rotation<PAIRS> rotation;
    load_norm(call, norm, rotation);
    load_angles(call, position, rotation);
    return rotation;
}

/* One warp norms, rotates and scales the head whose element i is read(i). */
template <typename T, int PAIRS, typename Read>
static __device__ __forceinline__ void
rotate_head(const struct heads_call &call, const struct head_rotation<PAIRS> &rotation, Read read, float factor, T *out)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2;
    float low[PAIRS], high[PAIRS], sum = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = lane + p * WARP;
        const struct head_pair pair = head_pair_of(call, i);
        low[p] = i < half ? read(pair.low) : 0;
        high[p] = i < half ? read(pair.high) : 0;
        sum += low[p] * low[p] + high[p] * high[p];
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)call.head_size + call.epsilon);
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = lane + p * WARP;
        if (i >= half)
            continue;
        const struct head_pair pair = head_pair_of(call, i);
        float first = low[p] * scale * rotation.low[p], second = high[p] * scale * rotation.high[p];
        store(&out[pair.low], (first * rotation.cosine[p] - second * rotation.sine[p]) * factor);
        store(&out[pair.high], (second * rotation.cosine[p] + first * rotation.sine[p]) * factor);
    }
}

/* Where a row's heads stand, and go. */
struct head_place {
    int position, session, slot;
};

static __device__ __forceinline__ struct head_place place_of(const struct heads_call &call, int row)
{
    return {call.positions[row], call.sessions[row], call.slots[row]};
}

/* Query heads come first, then key heads; value heads are not rotated, nor is what has no slot. */
static __device__ __forceinline__ bool is_rotated(const struct heads_call &call, const struct head_place &place,
                                                  int unit)
{
    return unit < call.heads + call.kv_heads && place.slot >= 0;
}

static __device__ __forceinline__ const float *norm_of(const struct heads_call &call, int layer, int unit)
{
    return unit < call.heads ? call.q_norm : call.k_norm + layer * call.head_size;
}

/* One warp brings head `unit` of a row, whose element i is read(i), to the queries or the cache. */
template <typename T, int PAIRS, typename Read>
static __device__ __forceinline__ void put_head(const struct heads_call &call,
                                                const struct head_rotation<PAIRS> &rotation, int layer, int row,
                                                const struct head_place &place, int unit, Read read)
{
    int size = call.head_size, is_value = unit >= call.heads + call.kv_heads;
    if (place.slot < 0)
        return;
    if (unit < call.heads) {
        T *query = (T *)call.queries + ((size_t)row * (size_t)call.heads + (size_t)unit) * (size_t)size;
        rotate_head<T>(call, rotation, read, 1.0f / sqrtf((float)size), query);
        return;
    }
    size_t head = (size_t)place.session * (size_t)call.kv_heads + (size_t)((unit - call.heads) % call.kv_heads);
    size_t at = (size_t)layer * call.cache_stride + (head * (size_t)call.capacity + (size_t)place.slot) * (size_t)size;
    if (!is_value) {
        rotate_head<T>(call, rotation, read, 1.0f, (T *)call.keys + at);
        return;
    }
    for (int i = (int)threadIdx.x % WARP; i < size; i += WARP)
        store((T *)call.values + at + i, read(i));
}

#endif
