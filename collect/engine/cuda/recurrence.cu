/* Rows of recurrent layers before the state; see kernels_recurrence.h. */
#include "collect/engine/cuda/recurrence.cuh"

/* Small blocks: 80 heads of 65 rows, two a warp, are all at once on 132 multiprocessors. */
#define WARPS 3
#define THREADS (WARPS * WARP)

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

/* --- elements that lie behind each other, moved in one access ----------------------------------------------------- */

template <typename T, int VECTOR> struct vector_of;
template <> struct vector_of<float, 1> {
    typedef float type;
};
template <> struct vector_of<float, 4> {
    typedef float4 type;
};
template <> struct vector_of<__nv_bfloat16, 1> {
    typedef __nv_bfloat16 type;
};
template <> struct vector_of<__nv_bfloat16, 4> {
    typedef uint2 type;
};

/* As the type holds them. */
static __device__ __forceinline__ void hold(float from, float *to)
{
    *to = from;
}

static __device__ __forceinline__ void hold(float4 from, float4 *to)
{
    *to = from;
}

static __device__ __forceinline__ void hold(float from, __nv_bfloat16 *to)
{
    store(to, from);
}

static __device__ __forceinline__ void hold(float4 from, uint2 *to)
{
    __nv_bfloat162 low = __floats2bfloat162_rn(from.x, from.y), high = __floats2bfloat162_rn(from.z, from.w);
    *to = make_uint2(*(unsigned *)&low, *(unsigned *)&high);
}

template <typename T> static __device__ __forceinline__ float element_of(T one, int)
{
    return load(one);
}

static __device__ __forceinline__ float element_of(float4 quad, int i)
{
    return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

static __device__ __forceinline__ float element_of(uint2 quad, int i)
{
    unsigned pair = i < 2 ? quad.x : quad.y;
    return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
}

static __device__ __forceinline__ void gather(const float (&from)[1], float *to)
{
    *to = from[0];
}

static __device__ __forceinline__ void gather(const float (&from)[4], float4 *to)
{
    *to = make_float4(from[0], from[1], from[2], from[3]);
}

/* Where row `row` of rows of `width` elements is: one instruction. */
template <typename T> static __device__ __forceinline__ T *row_at(T *rows, int row, int width)
{
    return (T *)((char *)rows + (size_t)(unsigned)row * (unsigned)(width * (int)sizeof(T)));
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* The gates of a head of a row, the index-th of the block's. */
static __device__ __forceinline__ void
keep_gates(const struct recurrent_call &call, const struct attention_segment &segment, int first, int rows, int index)
{
    int heads = call.layer.sizes.value_heads, place = first + index / heads, head = index % heads;
    if (index >= rows * heads || place >= segment.count)
        return;
    float2 gates = gates_of(call, segment.first + place, head);
    size_t at = (size_t)(segment.first + place) * (size_t)heads + (size_t)head;
    call.layer.decays[at] = gates.x;
    call.layer.betas[at] = gates.y;
}

/* Grid: [rows by WARPS * ROWS, heads and behind them gates by THREADS, segment]; a warp has a head of ROWS rows, a lane
 * PARTS times VECTOR elements of each. Four taps are gone through together, other numbers one by one (KERNEL 0). What
 * the kernel before does not write (ancestors, weights, windows) is asked for while it ends, then all rows at once. */
template <typename T, int KERNEL, int VECTOR, int PARTS, int ROWS>
static __global__ void __launch_bounds__(THREADS) mix(const struct recurrent_call call)
{
    constexpr int TAPS = KERNEL ? KERNEL : 1;
    typedef typename vector_of<T, VECTOR>::type held_type;
    typedef typename vector_of<float, VECTOR>::type fresh_type;
    typedef typename vector_of<float, TAPS>::type taps_type;
    const struct recurrent_layer &layer = call.layer;
    const struct recurrent_sizes &sizes = layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.z];
    int block_first = (int)blockIdx.x * WARPS * ROWS, first = block_first + (int)threadIdx.x / WARP * ROWS;
    int unit = (int)blockIdx.y, heads = 2 * sizes.key_heads + sizes.value_heads;
    int kernel = KERNEL ? KERNEL : sizes.kernel_size, channels = channels_of(sizes), width = in_width_of(sizes);
    int missing[ROWS] = {};
    if (unit >= heads || first >= segment.count) {
        wait_for_previous();
        let_next_start();
        if (unit >= heads)
            keep_gates(call, segment, block_first, WARPS * ROWS, (unit - heads) * THREADS + (int)threadIdx.x);
        return;
    }

    const struct head_unit head = find_head(sizes, unit);
    int element = (int)threadIdx.x % WARP * VECTOR, channel = head.first + element;
    float values[ROWS][PARTS * VECTOR] = {};
#pragma unroll 1
    for (int tap = 0; tap < kernel; tap += TAPS) {
        int ancestors[ROWS][TAPS]; /* places in the segment, or, below 0, so many rows before the window's end */
        taps_type weights[PARTS][VECTOR] = {};
        held_type held[ROWS][PARTS][TAPS] = {};
        fresh_type fresh[ROWS][PARTS][TAPS] = {};
#pragma unroll
        for (int i = 0; i < ROWS * TAPS; i++) {
            int t = tap + i % TAPS, place = min(first + i / TAPS, segment.count - 1), ancestor = place - t;
            if (t > 0 && call.near)
                ancestor = call.near[(size_t)(segment.first + place) * RECURRENT_NEAR + (size_t)(t - 1)];
            ancestors[i / TAPS][i % TAPS] = ancestor < 0 ? -++missing[i / TAPS] : ancestor;
        }
#pragma unroll
        for (int i = 0; i < PARTS * VECTOR; i++) {
            int at = channel + i / VECTOR * VECTOR * WARP + i % VECTOR;
            if (element + i / VECTOR * VECTOR * WARP < head.size)
                weights[i / VECTOR][i % VECTOR] =
                    *(const taps_type *)(layer.convolution + at * kernel + kernel - TAPS - tap);
        }
#pragma unroll
        for (int i = 0; i < ROWS * PARTS * TAPS; i++) {
            int part = i / TAPS % PARTS * VECTOR * WARP, ancestor = ancestors[i / TAPS / PARTS][i % TAPS];
            int row = segment.session * (kernel - 1) + kernel - 1 + ancestor;
            if (ancestor < 0 && element + part < head.size)
                held[i / TAPS / PARTS][i / TAPS % PARTS][i % TAPS] =
                    *(const held_type *)row_at((T *)layer.windows + channel + part, row, channels);
        }
        if (tap == 0) {
            wait_for_previous();
            let_next_start();
        }
#pragma unroll
        for (int i = 0; i < ROWS * PARTS * TAPS; i++) {
            int part = i / TAPS % PARTS * VECTOR * WARP, ancestor = max(ancestors[i / TAPS / PARTS][i % TAPS], 0);
            if (element + part < head.size)
                fresh[i / TAPS / PARTS][i / TAPS % PARTS][i % TAPS] =
                    *(const fresh_type *)row_at(call.fused + channel + part, segment.first + ancestor, width);
        }
#pragma unroll
        for (int i = 0; i < ROWS * PARTS * TAPS; i++) {
            int r = i / TAPS / PARTS, p = i / TAPS % PARTS, t = i % TAPS, row = segment.first + first + r;
            held_type &input = held[r][p][t];
            if (ancestors[r][t] >= 0)
                hold(fresh[r][p][t], &input);
            if (tap + t == 0 && first + r < segment.count && row >= call.first_kept &&
                element + p * VECTOR * WARP < head.size)
                *(held_type *)row_at((T *)layer.inputs + channel + p * VECTOR * WARP, row - call.first_kept, channels) =
                    input;
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                values[r][p * VECTOR + j] =
                    __fmaf_rn(element_of(weights[p][j], TAPS - 1 - t), element_of(input, j), values[r][p * VECTOR + j]);
        }
    }

    float scales[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS * PARTS * VECTOR; i++)
        values[i / (PARTS * VECTOR)][i % (PARTS * VECTOR)] = silu(values[i / (PARTS * VECTOR)][i % (PARTS * VECTOR)]);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        scales[r] = head.has_length ? length_scale(values[r], head.is_query ? query_length(sizes) : 1.0f) : 1.0f;
#pragma unroll
    for (int i = 0; i < ROWS * PARTS; i++) {
        int r = i / PARTS, part = i % PARTS * VECTOR * WARP;
        float outputs[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            outputs[j] = __fmul_rn(values[r][i % PARTS * VECTOR + j], scales[r]);
        if (first + r < segment.count && element + part < head.size)
            gather(outputs, (fresh_type *)row_at(call.mixed + channel + part, segment.first + first + r, channels));
    }
}

template <typename T, int VECTOR, int PARTS, int ROWS>
static void launch_mix(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int rows = WARPS * ROWS, gates = (rows * sizes->value_heads + THREADS - 1) / THREADS;
    dim3 grid((unsigned)((call->longest + rows - 1) / rows),
              (unsigned)(2 * sizes->key_heads + sizes->value_heads + gates), (unsigned)call->segment_count);
    /* Its neighbours have much shared memory: a multiprocessor that divides its memory anew must be empty first. */
    auto kernel = sizes->kernel_size == 4 ? mix<T, 4, VECTOR, PARTS, ROWS> : mix<T, 0, VECTOR, PARTS, ROWS>;
    CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    launch(kernel, grid, THREADS, 0, stream, *call);
}

void kernels_recurrent_mix(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int largest = sizes->key_size > sizes->value_size ? sizes->key_size : sizes->value_size;
    if (sizes->key_size % 4 || sizes->value_size % 4 || recurrent_in_width(sizes) % 4)
        OF_TYPE(call->layer.type, (launch_mix<T, 1, LANE_ELEMENTS, 1>(call, stream)));
    else if (largest > 4 * WARP)
        OF_TYPE(call->layer.type, (launch_mix<T, 4, LANE_ELEMENTS / 4, 1>(call, stream)));
    else
        OF_TYPE(call->layer.type, (launch_mix<T, 4, 1, 2>(call, stream)));
}
