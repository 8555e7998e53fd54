/* Rows of recurrent layers before the state and behind it; see kernels_recurrence.h. */
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

/* Grid: [row of the segment, units by WARPS, segment]; a warp has a head of a row, or the row's gates. */
template <typename T, int KERNEL>
static __global__ void __launch_bounds__(WARPS *WARP) mix(const struct recurrent_call call)
{
    const struct recurrent_sizes &sizes = call.layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.z];
    int place = (int)blockIdx.x, unit = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP,
        lane = (int)threadIdx.x % WARP;
    int heads = 2 * sizes.key_heads + sizes.value_heads, row = segment.first + place, channels = channels_of(sizes);
    int kernel = KERNEL ? KERNEL : sizes.kernel_size, ancestors[KERNEL_MAXIMUM], missing = 0;

    /* Where the row's convolution reads: places in the segment, or, below 0, so many rows before the window's end. */
    ancestors[0] = place;
#pragma unroll
    for (int t = 1; t < KERNEL_MAXIMUM; t++) {
        int ancestor = -1;
        if (t < kernel && place < segment.count)
            ancestor = call.near ? call.near[(size_t)row * RECURRENT_NEAR + (size_t)(t - 1)] : place - t;
        if (ancestor < 0)
            ancestor = -++missing;
        ancestors[t] = ancestor;
    }
    wait_for_previous();
    let_next_start();
    if (place >= segment.count || unit > heads)
        return;
    if (unit == heads) {
        keep_gates(call, row);
        return;
    }

    const struct head_unit head = find_head(sizes, unit);
    float values[LANE_ELEMENTS];
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
        int element = lane + i * WARP, channel = head.first + element;
        values[i] = 0;
        if (element >= head.size)
            continue;
        float own = 0;
        values[i] = convolve<KERNEL>(call.layer, channel, [&](int t) {
            int ancestor = place;
#pragma unroll
            for (int k = 0; k < KERNEL_MAXIMUM; k++)
                ancestor = k == t ? ancestors[k] : ancestor;
            float input = ancestor < 0 ? window_at<T>(call.layer, segment.session, kernel - 1 + ancestor, channel)
                                       : rounded<T>(fused_column(call, segment.first + ancestor, channel));
            own = t == 0 ? input : own;
            return input;
        });
        if (row >= call.first_kept)
            store((T *)call.layer.inputs + (size_t)(row - call.first_kept) * (size_t)channels + (size_t)channel, own);
    }
    float scale = 1;
    if (head.has_length)
        scale = length_scale(values, head.is_query ? query_length(sizes) : 1.0f);
    float *mixed = call.mixed + (size_t)row * (size_t)channels + (size_t)head.first;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        if (lane + i * WARP < head.size)
            mixed[lane + i * WARP] = head.has_length ? __fmul_rn(values[i], scale) : values[i];
}

void kernels_recurrent_mix(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int units = 2 * sizes->key_heads + sizes->value_heads + 1;
    dim3 grid((unsigned)call->longest, (unsigned)((units + WARPS - 1) / WARPS), (unsigned)call->segment_count);
    if (sizes->kernel_size == 4)
        OF_TYPE(call->layer.type, (launch(mix<T, 4>, grid, WARPS * WARP, 0, stream, *call)));
    else
        OF_TYPE(call->layer.type, (launch(mix<T, 0>, grid, WARPS * WARP, 0, stream, *call)));
}

/* Grid: [row, value heads by WARPS]; a warp has a head of a row: norm(o) * silu(z). */
template <typename T> static __global__ void __launch_bounds__(WARPS *WARP) gate(const struct recurrent_call call)
{
    const struct recurrent_sizes &sizes = call.layer.sizes;
    int row = (int)blockIdx.x, head = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int size = sizes.value_size, channels = channels_of(sizes), width = sizes.value_heads * size;
    wait_for_previous();
    let_next_start();
    if (head >= sizes.value_heads)
        return;
    const float *output = call.mixed + (size_t)row * (size_t)channels + (size_t)(channels - width + head * size);
    T *out = (T *)call.out + (size_t)row * (size_t)width + (size_t)(head * size);
    float values[LANE_ELEMENTS], sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
        values[i] = lane + i * WARP < size ? output[lane + i * WARP] : 0;
        sum = fmaf(values[i], values[i], sum);
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)size + call.layer.epsilon);
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
        int element = lane + i * WARP;
        if (element < size)
            store(&out[element], values[i] * scale * call.layer.norm[element] *
                                     silu(fused_column(call, row, channels + head * size + element)));
    }
}

void kernels_recurrent_gate(const struct recurrent_call *call, cudaStream_t stream)
{
    dim3 grid((unsigned)call->rows, (unsigned)((call->layer.sizes.value_heads + WARPS - 1) / WARPS));
    OF_TYPE(call->layer.type, (launch(gate<T>, grid, WARPS * WARP, 0, stream, *call)));
}
