#include "collect/engine/cuda/meeting.cuh"

#define THREADS 256

static unsigned blocks_for(size_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
}

template <typename T> static __global__ void embed(const T *table, const int *tokens, int width, float *x)
{
    wait_for_previous();
    let_next_start();
    const T *row = table + (size_t)tokens[blockIdx.x] * (size_t)width;
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        x[(size_t)blockIdx.x * (size_t)width + (size_t)i] = load(row[i]);
}

void kernels_embed(enum element type, const void *table, const int *tokens, int rows, int width, float *x,
                   cudaStream_t stream)
{
    OF_TYPE(type, launch(embed<T>, dim3((unsigned)rows), THREADS, 0, stream, (const T *)table, tokens, width, x));
}

/* --- the residual stream ---------------------------------------------------------------------------------------- */

/* VALUES: of the row, for each thread. */
template <typename T, int VALUES> static __global__ void add_norm(const struct add_norm_call call)
{
    __shared__ float parts[WARP];
    size_t row = blockIdx.x, width = (size_t)call.width;
    float *x = call.x ? call.x + row * width : NULL, held[VALUES], squares = 0;
    wait_for_previous();
    let_next_start();
    if (call.sum_count)
        meet(call.meeting);
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = threadIdx.x + (size_t)v * blockDim.x;
        held[v] = x && i < width ? x[i] : 0;
    }
    for (int s = 0; s < call.sum_count; s++) {
        const volatile float *sums = call.sums[s] + row * width;
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            size_t i = threadIdx.x + (size_t)v * blockDim.x;
            held[v] += i < width ? sums[i] : 0;
        }
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = threadIdx.x + (size_t)v * blockDim.x;
        squares = fmaf(held[v], held[v], squares);
        if (i >= width)
            continue;
        if (x && call.sum_count)
            x[i] = held[v];
        if (call.features)
            store((T *)call.features + (row * (size_t)call.feature_count + (size_t)call.feature_index) * width + i,
                  held[v]);
    }
    if (call.weight) {
        float scale = 1.0f / sqrtf(block_sum(squares, parts) / (float)width + call.epsilon);
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            size_t i = threadIdx.x + (size_t)v * blockDim.x;
            if (i < width)
                store((T *)call.out + row * width + i, held[v] * scale * call.weight[i]);
        }
    }
    if (call.sum_count)
        part(call.meeting);
}

void kernels_add_norm(const struct add_norm_call *call, cudaStream_t stream)
{
    dim3 grid((unsigned)call->rows);
    if (call->width <= 4 * THREADS)
        OF_TYPE(call->type, launch(add_norm<T, 4>, grid, THREADS, 0, stream, *call));
    else if (call->width <= 4096)
        OF_TYPE(call->type, launch(add_norm<T, 4>, grid, 1024, 0, stream, *call));
    else if (call->width <= 16384)
        OF_TYPE(call->type, launch(add_norm<T, 16>, grid, 1024, 0, stream, *call));
    else
        die("rows of %d columns, where 16384 are readied", call->width);
}

/* --- the MLP ---------------------------------------------------------------------------------------------------- */

template <typename T> static __global__ void gate(const float *fused, size_t elements, int inner, T *out)
{
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_previous();
    let_next_start();
    if (at >= elements)
        return;
    const float *row = fused + at / (size_t)inner * 2 * (size_t)inner;
    size_t column = at % (size_t)inner;
    float g = row[column];
    store(&out[at], g / (1.0f + expf(-g)) * row[(size_t)inner + column]);
}

/* Four columns a thread, where rows allow it. */
template <typename T> static __global__ void gate_quads(const float4 *fused, unsigned quads, unsigned inner, T *out)
{
    unsigned at = blockIdx.x * THREADS + threadIdx.x, row = at / inner, column = at % inner;
    wait_for_previous();
    let_next_start();
    if (at >= quads)
        return;
    float4 g = fused[(size_t)row * 2 * inner + column], u = fused[((size_t)row * 2 + 1) * inner + column];
    const float gates[] = {g.x, g.y, g.z, g.w}, ups[] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        store(&out[(size_t)at * 4 + (size_t)i], gates[i] / (1.0f + expf(-gates[i])) * ups[i]);
}

void kernels_gate(enum element type, const float *fused, int rows, int inner, void *out, cudaStream_t stream)
{
    size_t elements = (size_t)rows * (size_t)inner;
    if (inner % 4)
        OF_TYPE(type,
                launch(gate<T>, dim3(blocks_for(elements)), THREADS, 0, stream, fused, elements, inner, (T *)out));
    else
        OF_TYPE(type, launch(gate_quads<T>, dim3(blocks_for(elements / 4)), THREADS, 0, stream, (const float4 *)fused,
                             (unsigned)(elements / 4), (unsigned)inner / 4, (T *)out));
}

static __global__ void gather(const uint32_t *in, const int *sources, size_t words, uint32_t *out)
{
    wait_for_previous();
    let_next_start();
    const uint32_t *from = in + (size_t)sources[blockIdx.x] * words;
    for (size_t i = threadIdx.x; i < words; i += THREADS)
        out[(size_t)blockIdx.x * words + i] = from[i];
}

void kernels_gather(const void *in, const int *sources, int count, size_t row_bytes, void *out, cudaStream_t stream)
{
    launch(gather, dim3((unsigned)count), THREADS, 0, stream, (const uint32_t *)in, sources, row_bytes / 4,
           (uint32_t *)out);
}

/* --- heads ------------------------------------------------------------------------------------------------------ */

#define HEAD_WARPS 4

/* One warp norms, rotates and scales one head of a row. */
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

template <typename T> static __global__ void store_heads(const struct heads_call call)
{
    int row = (int)blockIdx.x, unit = (int)blockIdx.y * HEAD_WARPS + (int)threadIdx.x / WARP, layer = (int)blockIdx.z;
    int size = call.head_size, units = call.heads + 2 * call.kv_heads;
    wait_for_previous();
    let_next_start();
    int position = call.positions[row], slot = call.slots[row];
    if (unit >= units || slot < 0)
        return;
    size_t x = (size_t)row * call.stride + (size_t)(layer * units + unit) * (size_t)size;
    if (unit < call.heads) {
        T *query = (T *)call.queries + ((size_t)row * (size_t)call.heads + (size_t)unit) * (size_t)size;
        rotate_head(call, x, call.q_norm, position, 1.0f / sqrtf((float)size), query);
        return;
    }
    int is_value = unit >= call.heads + call.kv_heads, kv_head = (unit - call.heads) % call.kv_heads;
    size_t head = (size_t)call.sessions[row] * (size_t)call.kv_heads + (size_t)kv_head;
    size_t at = (size_t)layer * call.cache_stride + (head * (size_t)call.capacity + (size_t)slot) * (size_t)size;
    if (!is_value) {
        rotate_head(call, x, call.k_norm + layer * size, position, 1.0f, (T *)call.keys + at);
        return;
    }
    for (int i = (int)threadIdx.x % WARP; i < size; i += WARP)
        store((T *)call.values + at + i, fused_at(call, x + (size_t)i));
}

void kernels_store_heads(const struct heads_call *call, cudaStream_t stream)
{
    int units = call->heads + 2 * call->kv_heads;
    dim3 grid((unsigned)call->rows, (unsigned)((units + HEAD_WARPS - 1) / HEAD_WARPS), (unsigned)call->layers);
    OF_TYPE(call->type, launch(store_heads<T>, grid, HEAD_WARPS * WARP, 0, stream, *call));
}

/* --- compaction ------------------------------------------------------------------------------------------------- */

/* A thread has the same word of every row: no row is overwritten before it was read, since node i is never below i. */
static __global__ void compact(uint32_t *keys, uint32_t *values, int sessions, int kv_heads, int capacity, size_t words,
                               const struct compact_path *paths, const int *nodes)
{
    wait_for_previous();
    let_next_start();
    const struct compact_path path = paths[blockIdx.x];
    size_t layer = blockIdx.y / (unsigned)kv_heads, kv_head = blockIdx.y % (unsigned)kv_heads;
    size_t head = (layer * (size_t)sessions + (size_t)path.session) * (size_t)kv_heads + kv_head;
    uint32_t *rows = (blockIdx.z ? values : keys) + (head * (size_t)capacity + (size_t)path.base) * words;
    for (size_t word = threadIdx.x; word < words; word += blockDim.x)
        for (int i = 0; i < path.length; i++)
            rows[(size_t)i * words + word] = rows[(size_t)nodes[path.first + i] * words + word];
}

void kernels_compact(void *keys, void *values, int layers, int sessions, int kv_heads, int capacity, size_t row_bytes,
                     const struct compact_path *paths, int path_count, const int *nodes, cudaStream_t stream)
{
    dim3 grid((unsigned)path_count, (unsigned)(layers * kv_heads), 2);
    launch(compact, grid, 2 * WARP, 0, stream, (uint32_t *)keys, (uint32_t *)values, sessions, kv_heads, capacity,
           row_bytes / 4, paths, nodes);
}
