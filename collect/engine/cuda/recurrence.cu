/* Rows of recurrent layers before the state; see kernels_recurrence.h. */
#include "collect/engine/cuda/recurrence.cuh"

#define WARPS 4

/* A head's elements that a warp works on: a query's, a key's or a value's. */
struct head_unit {
    int first, size; /* channels */
    bool has_length, is_query;
};

static __device__ __forceinline__ struct head_unit find_head(const struct recurrent_sizes &sizes, int unit)
{
    struct head_unit head;
    head.is_query = unit < sizes.key_heads;
    head.has_length = unit < 2 * sizes.key_heads;
    head.size = head.has_length ? sizes.key_size : sizes.value_size;
    head.first =
        min(unit, 2 * sizes.key_heads) * sizes.key_size + max(unit - 2 * sizes.key_heads, 0) * sizes.value_size;
    return head;
}

static __device__ __forceinline__ void keep_gates(const struct recurrent_call &call, int row)
{
    int heads = call.layer.sizes.value_heads;
    for (int head = (int)threadIdx.x % WARP; head < heads; head += WARP) {
        float2 gates = gates_of(call, row, head);
        call.layer.decays[(size_t)row * (size_t)heads + (size_t)head] = gates.x;
        call.layer.betas[(size_t)row * (size_t)heads + (size_t)head] = gates.y;
    }
}

/* VECTOR elements that lie behind each other, in one access. */
template <int VECTOR> static __device__ __forceinline__ void load_vector(const float *from, float (&to)[VECTOR])
{
    if constexpr (VECTOR == 4)
        *(float4 *)to = *(const float4 *)from;
    else
        to[0] = *from;
}

template <int VECTOR> static __device__ __forceinline__ void load_vector(const __nv_bfloat16 *from, float (&to)[VECTOR])
{
    if constexpr (VECTOR == 4) {
        uint2 quad = *(const uint2 *)from;
        float2 low = __bfloat1622float2(*(const __nv_bfloat162 *)&quad.x);
        float2 high = __bfloat1622float2(*(const __nv_bfloat162 *)&quad.y);
        *(float4 *)to = make_float4(low.x, low.y, high.x, high.y);
    } else {
        to[0] = load(*from);
    }
}

template <int VECTOR> static __device__ __forceinline__ void store_vector(float *to, const float (&from)[VECTOR])
{
    if constexpr (VECTOR == 4)
        *(float4 *)to = *(const float4 *)from;
    else
        *to = from[0];
}

template <int VECTOR>
static __device__ __forceinline__ void store_vector(__nv_bfloat16 *to, const float (&from)[VECTOR])
{
    if constexpr (VECTOR == 4) {
        __nv_bfloat162 low = __floats2bfloat162_rn(from[0], from[1]), high = __floats2bfloat162_rn(from[2], from[3]);
        *(uint2 *)to = make_uint2(*(unsigned *)&low, *(unsigned *)&high);
    } else {
        store(to, from[0]);
    }
}

static __device__ __forceinline__ float part_of(float4 quad, int i)
{
    return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

/* A channel's weight of what it was t rows before. */
static __device__ __forceinline__ float weight_of(const struct recurrent_layer &layer, int channel, int t)
{
    return layer.convolution[(channel + 1) * layer.sizes.kernel_size - 1 - t];
}

/* What the convolution reads of a row's VECTOR channels: `ancestor` is its place in the segment, or, below 0, so many
 * rows before the window's end. */
template <typename T, int VECTOR>
static __device__ __forceinline__ void load_inputs(const struct recurrent_call &call,
                                                   const struct attention_segment &segment, int ancestor, int channel,
                                                   float (&inputs)[VECTOR])
{
    const struct recurrent_layer &layer = call.layer;
    if (ancestor < 0) {
        int row = segment.session * (layer.sizes.kernel_size - 1) + layer.sizes.kernel_size - 1 + ancestor;
        load_vector((const T *)layer.windows + (size_t)row * (size_t)channels_of(layer.sizes) + (size_t)channel,
                    inputs);
        return;
    }
    load_vector(call.fused + (size_t)(segment.first + ancestor) * (size_t)in_width_of(layer.sizes) + (size_t)channel,
                inputs);
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        inputs[j] = rounded<T>(inputs[j]);
}

/* Grid: [row of the segment, units by WARPS, segment]; a warp has a head of a row, or the row's gates. A lane has
 * VECTOR elements at a time, whose weights are asked for while the kernel before ends. */
template <typename T, int KERNEL, int VECTOR>
static __global__ void __launch_bounds__(WARPS *WARP) mix(const struct recurrent_call call)
{
    constexpr int TAPS = KERNEL ? KERNEL : KERNEL_MAXIMUM, PARTS = LANE_ELEMENTS / VECTOR;
    const struct recurrent_sizes &sizes = call.layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.z];
    int place = (int)blockIdx.x, unit = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP;
    int heads = 2 * sizes.key_heads + sizes.value_heads, row = segment.first + place, channels = channels_of(sizes);
    int kernel = KERNEL ? KERNEL : sizes.kernel_size, ancestors[TAPS], missing = 0;
    int first = (int)threadIdx.x % WARP * VECTOR;
    ancestors[0] = place;
#pragma unroll
    for (int t = 1; t < TAPS; t++) {
        int ancestor = -1;
        if (t < kernel && place < segment.count)
            ancestor = call.near ? call.near[(size_t)row * RECURRENT_NEAR + (size_t)(t - 1)] : place - t;
        if (ancestor < 0)
            ancestor = -++missing;
        ancestors[t] = ancestor;
    }
    const struct head_unit head = find_head(sizes, min(unit, heads - 1));
    float4 weights[PARTS][VECTOR]; /* where there are four */
#pragma unroll
    for (int i = 0; i < PARTS * VECTOR && KERNEL == 4; i++)
        if (first + i / VECTOR * VECTOR * WARP < head.size)
            weights[i / VECTOR][i % VECTOR] =
                *(const float4 *)(call.layer.convolution +
                                  (head.first + first + i / VECTOR * VECTOR * WARP + i % VECTOR) * 4);
    wait_for_previous();
    let_next_start();
    if (place >= segment.count || unit > heads)
        return;
    if (unit == heads) {
        keep_gates(call, row);
        return;
    }

    float values[LANE_ELEMENTS] = {};
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int channel = head.first + first + p * VECTOR * WARP;
        float sums[VECTOR] = {}, inputs[TAPS][VECTOR];
        if (channel >= head.first + head.size)
            break;
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            if (t < kernel)
                load_inputs<T>(call, segment, ancestors[t], channel, inputs[t]);
#pragma unroll
        for (int i = 0; i < TAPS * VECTOR; i++) {
            int t = i / VECTOR, j = i % VECTOR;
            if (t < kernel)
                sums[j] = __fmaf_rn(KERNEL == 4 ? part_of(weights[p][j], 3 - t) : weight_of(call.layer, channel + j, t),
                                    inputs[t][j], sums[j]);
        }
        if (row >= call.first_kept)
            store_vector((T *)call.layer.inputs + (size_t)(row - call.first_kept) * (size_t)channels + (size_t)channel,
                         inputs[0]);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            values[p * VECTOR + j] = silu(sums[j]);
    }
    float scale = 1;
    if (head.has_length)
        scale = length_scale(values, head.is_query ? query_length(sizes) : 1.0f);
    float *mixed = call.mixed + (size_t)row * (size_t)channels + (size_t)head.first;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        float outputs[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            outputs[j] = __fmul_rn(values[p * VECTOR + j], scale);
        if (first + p * VECTOR * WARP < head.size)
            store_vector(mixed + first + p * VECTOR * WARP, outputs);
    }
}

template <typename T, int VECTOR> static void launch_mix(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int units = 2 * sizes->key_heads + sizes->value_heads + 1;
    dim3 grid((unsigned)call->longest, (unsigned)((units + WARPS - 1) / WARPS), (unsigned)call->segment_count);
    if (sizes->kernel_size == 4)
        launch(mix<T, 4, VECTOR>, grid, WARPS * WARP, 0, stream, *call);
    else
        launch(mix<T, 0, VECTOR>, grid, WARPS * WARP, 0, stream, *call);
}

void kernels_recurrent_mix(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    if (sizes->key_size % 4 == 0 && sizes->value_size % 4 == 0 && recurrent_in_width(sizes) % 4 == 0)
        OF_TYPE(call->layer.type, (launch_mix<T, 4>(call, stream)));
    else
        OF_TYPE(call->layer.type, (launch_mix<T, 1>(call, stream)));
}
