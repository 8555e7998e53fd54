#include "collect/engine/cuda/heads.cuh"

#define THREADS 256

static unsigned blocks_for(size_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
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

/* --- heads ------------------------------------------------------------------------------------------------------ */

#define HEAD_WARPS 4

template <typename T> static __global__ void store_heads(const struct heads_call call)
{
    int row = (int)blockIdx.x, unit = (int)blockIdx.y * HEAD_WARPS + (int)threadIdx.x / WARP, layer = (int)blockIdx.z;
    int units = call.heads + 2 * call.kv_heads;
    const struct head_place place = place_of(call, row);
    struct head_rotation<HEAD_PAIRS> rotation = {
    };
    if (is_rotated(call, place, unit))
        rotation = load_rotation<HEAD_PAIRS>(call, norm_of(call, layer, unit), place.position);
    wait_for_previous();
    let_next_start();
    if (unit >= units)
        return;
    const float *head = call.fused + (size_t)row * call.stride + (size_t)layer * (size_t)head_column(call, units) +
                        (size_t)head_column(call, unit);
    put_head<T>(call, rotation, layer, row, place, unit, [&](int i) { return head[i]; });
}

void kernels_store_heads(const struct heads_call *call, cudaStream_t stream)
{
    int units = call->heads + 2 * call->kv_heads;
    dim3 grid((unsigned)call->rows, (unsigned)((units + HEAD_WARPS - 1) / HEAD_WARPS), (unsigned)call->layers);
    OF_TYPE(call->type, launch(store_heads<T>, grid, HEAD_WARPS * WARP, 0, stream, *call));
}

/* A warp has a head of a row. */
template <typename T> static __global__ void gate_heads(const struct heads_call call, T *attended)
{
    int row = (int)blockIdx.x, head = (int)blockIdx.y * HEAD_WARPS + (int)threadIdx.x / WARP, size = call.head_size;
    wait_for_previous();
    let_next_start();
    if (head >= call.heads)
        return;
    size_t gate = (size_t)row * call.stride + (size_t)(head_column(call, head) + size);
    T *out = attended + ((size_t)row * (size_t)call.heads + (size_t)head) * (size_t)size;
    for (int i = (int)threadIdx.x % WARP; i < size; i += WARP)
        store(&out[i], load(out[i]) / (1.0f + expf(-call.fused[gate + (size_t)i])));
}

void kernels_gate_heads(const struct heads_call *call, void *attended, cudaStream_t stream)
{
    dim3 grid((unsigned)call->rows, (unsigned)((call->heads + HEAD_WARPS - 1) / HEAD_WARPS));
    OF_TYPE(call->type, launch(gate_heads<T>, grid, HEAD_WARPS * WARP, 0, stream, *call, (T *)attended));
}

/* --- kept rows -------------------------------------------------------------------------------------------------- */

/* What is read is asked for while the kernel before ends. */
static __global__ void gather(const uint32_t *in, const int *sources, size_t words, uint32_t *out)
{
    size_t at = (size_t)blockIdx.y * THREADS + threadIdx.x;
    uint32_t word = at < words ? in[(size_t)sources[blockIdx.x] * words + at] : 0;
    wait_for_previous();
    let_next_start();
    if (at < words)
        out[(size_t)blockIdx.x * words + at] = word;
}

void kernels_gather(const void *in, const int *sources, int count, size_t row_bytes, void *out, cudaStream_t stream)
{
    dim3 grid((unsigned)count, blocks_for(row_bytes / 4));
    launch(gather, grid, THREADS, 0, stream, (const uint32_t *)in, sources, row_bytes / 4, (uint32_t *)out);
}

#define MOVED_TOGETHER 8 /* rows that are read before the first of them is written */

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
        for (int first = 0; first < path.length; first += MOVED_TOGETHER) {
            uint32_t moved[MOVED_TOGETHER];
#pragma unroll
            for (int i = 0; i < MOVED_TOGETHER; i++)
                if (first + i < path.length)
                    moved[i] = rows[(size_t)nodes[path.first + first + i] * words + word];
#pragma unroll
            for (int i = 0; i < MOVED_TOGETHER; i++)
                if (first + i < path.length)
                    rows[(size_t)(first + i) * words + word] = moved[i];
        }
}

void kernels_compact(void *keys, void *values, int layers, int sessions, int kv_heads, int capacity, size_t row_bytes,
                     const struct compact_path *paths, int path_count, const int *nodes, cudaStream_t stream)
{
    dim3 grid((unsigned)path_count, (unsigned)(layers * kv_heads), 2);
    launch(compact, grid, 2 * WARP, 0, stream, (uint32_t *)keys, (uint32_t *)values, sessions, kv_heads, capacity,
           row_bytes / 4, paths, nodes);
}
