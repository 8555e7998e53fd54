/* What the kernels of recurrent layers share: the convolution, lengths, gates, and the delta rule's own step. Kernels
 * that keep a state to the bit call the same functions here, whose sums are written out as fused multiply-adds. */
#ifndef COLLECT_ENGINE_CUDA_RECURRENCE_CUH
#define COLLECT_ENGINE_CUDA_RECURRENCE_CUH

#include "collect/engine/cuda/element.cuh"
#include "collect/engine/cuda/kernels_recurrence.h"

#define KERNEL_MAXIMUM 16
#define LENGTH_EPSILON 1e-6f     /* the authors', under the root of a key's or query's squared length */
#define SOFTPLUS_IS_LINEAR 20.0f /* the authors': from here on log(1 + exp x) is x */
#define LANE_ELEMENTS (RECURRENT_SIZE_MAXIMUM / WARP) /* of a head, at most */

static __device__ __forceinline__ int channels_of(const struct recurrent_sizes &sizes)
{
    return 2 * sizes.key_heads * sizes.key_size + sizes.value_heads * sizes.value_size;
}

static __device__ __forceinline__ int in_width_of(const struct recurrent_sizes &sizes)
{
    return channels_of(sizes) + sizes.value_heads * (sizes.value_size + 2);
}

/* A row's column of fused. */
static __device__ __forceinline__ float fused_column(const struct recurrent_call &call, int row, int column)
{
    return call.fused[(size_t)row * (size_t)in_width_of(call.layer.sizes) + (size_t)column];
}

/* A channel of row `row` of a session's window. */
template <typename T>
static __device__ __forceinline__ float window_at(const struct recurrent_layer &layer, int session, int row,
                                                  int channel)
{
    int channels = channels_of(layer.sizes);
    size_t at = ((size_t)session * (size_t)(layer.sizes.kernel_size - 1) + (size_t)row) * (size_t)channels;
    return load(((const T *)layer.windows)[at + (size_t)channel]);
}

static __device__ __forceinline__ float silu(float x)
{
    return __fdiv_rn(x, __fadd_rn(1.0f, expf(-x)));
}

/* One channel: source(t) is what it was t rows before. KERNEL 0: any size. */
template <int KERNEL, typename Source>
static __device__ __forceinline__ float convolve(const struct recurrent_layer &layer, int channel, Source source)
{
    int size = KERNEL ? KERNEL : layer.sizes.kernel_size;
    const float *weights = layer.convolution + (size_t)channel * (size_t)size + (size_t)(size - 1);
    float sum = 0;
    if constexpr (KERNEL > 0) {
#pragma unroll
        for (int t = 0; t < KERNEL; t++)
            sum = __fmaf_rn(weights[-t], source(t), sum);
    } else {
        for (int t = 0; t < size; t++)
            sum = __fmaf_rn(weights[-t], source(t), sum);
    }
    return silu(sum);
}

/* What brings a head to its length, of which a lane has some elements (zeros behind the last). */
template <int COUNT> static __device__ __forceinline__ float length_scale(const float (&values)[COUNT], float length)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum = __fmaf_rn(values[i], values[i], sum);
    return __fdiv_rn(length, __fsqrt_rn(__fadd_rn(warp_sum(sum), LENGTH_EPSILON)));
}

static __device__ __forceinline__ float query_length(const struct recurrent_sizes &sizes)
{
    return __fdiv_rn(1.0f, __fsqrt_rn((float)sizes.key_size));
}

/* A value head's decay and beta of a row, from its columns a and b. */
static __device__ __forceinline__ float2 gates_of(const struct recurrent_call &call, int row, int head)
{
    const struct recurrent_sizes &sizes = call.layer.sizes;
    int column = in_width_of(sizes) - 2 * sizes.value_heads + head;
    float b = fused_column(call, row, column), a = fused_column(call, row, column + sizes.value_heads);
    float x = __fadd_rn(a, call.layer.step_bias[head]);
    float softplus = x > SOFTPLUS_IS_LINEAR ? x : log1pf(expf(x));
    return make_float2(expf(__fmul_rn(call.layer.rates[head], softplus)), __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-b))));
}

/* --- the delta rule's own step ---------------------------------------------------------------------------------- */

#define STEP_THREADS 512

/* A block has a head's state in its registers: thread `part` * value_size + `column` has ROWS of its column's elements,
 * from key part * ROWS on; those behind the last key are 0, as the keys there are. */
struct state_share {
    int part, column, parts, values;
    bool idle;
};

static __host__ __device__ __forceinline__ int state_parts(int keys, int values, int rows)
{
    int fit = STEP_THREADS / values, needed = (keys + rows - 1) / rows;
    return fit < needed ? fit : needed;
}

static __device__ __forceinline__ struct state_share share_state(const struct recurrent_sizes &sizes, int rows)
{
    struct state_share share;
    share.values = sizes.value_size;
    share.parts = state_parts(sizes.key_size, sizes.value_size, rows);
    share.part = (int)threadIdx.x / share.values;
    share.column = (int)threadIdx.x % share.values;
    share.idle = share.part >= share.parts;
    return share;
}

template <int ROWS>
static __device__ __forceinline__ void read_state(float (&state)[ROWS], const struct state_share &share, int keys,
                                                  const float *from)
{
    int there = share.idle ? 0 : keys - share.part * ROWS;
    from += (unsigned)(share.part * ROWS * share.values + share.column);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        state[i] = i < there ? from[(unsigned)(i * share.values)] : 0.0f;
}

template <int ROWS>
static __device__ __forceinline__ void write_state(const float (&state)[ROWS], const struct state_share &share,
                                                   int keys, float *to)
{
    int there = share.idle ? 0 : keys - share.part * ROWS;
    to += (unsigned)(share.part * ROWS * share.values + share.column);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (i < there)
            to[(unsigned)(i * share.values)] = state[i];
}

/* The column's sum of what all parts have of it; every thread of the block calls. sums: shared, [STEP_THREADS], and
 * another one at the next call. */
static __device__ __forceinline__ float sum_parts(float own, const struct state_share &share, float *sums)
{
    float sum = 0;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int part = 0; part < share.parts; part++)
        sum = __fadd_rn(sum, sums[part * share.values + share.column]);
    return sum;
}

/* S <- d S; delta = beta (v - S^T k); S <- S + k delta^T. key: shared, zeros behind the last. */
template <int ROWS>
static __device__ __forceinline__ void advance_state(float (&state)[ROWS], const struct state_share &share,
                                                     const float *key, float value, float2 gates, float *sums)
{
    const float *own_key = key + share.part * ROWS;
    float read = 0;
    if (!share.idle)
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            state[i] = __fmul_rn(state[i], gates.x);
            read = __fmaf_rn(own_key[i], state[i], read);
        }
    read = sum_parts(read, share, sums);
    float delta = __fmul_rn(gates.y, __fsub_rn(value, read));
    if (!share.idle)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            state[i] = __fmaf_rn(own_key[i], delta, state[i]);
}

#endif
