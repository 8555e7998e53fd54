#include "collect/engine/cuda/element.cuh"

#define THREADS 256

static unsigned blocks_for(size_t elements)
{
    return (unsigned)((elements + THREADS - 1) / THREADS);
}

template <typename T> static __global__ void embed(const T *table, const int *tokens, int width, float *x)
{
    const T *row = table + (size_t)tokens[blockIdx.x] * (size_t)width;
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        x[(size_t)blockIdx.x * (size_t)width + (size_t)i] = load(row[i]);
}

void kernels_embed(enum element type, const void *table, const int *tokens, int rows, int width, float *x,
                   cudaStream_t stream)
{
    LAUNCH(type, (embed<T><<<(unsigned)rows, THREADS, 0, stream>>>((const T *)table, tokens, width, x)));
}

template <typename T>
static __global__ void rms_norm(const float *x, const float *weight, int width, float epsilon, T *out)
{
    __shared__ float parts[WARP];
    const float *row = x + (size_t)blockIdx.x * (size_t)width;
    T *to = out + (size_t)blockIdx.x * (size_t)width;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        sum += row[i] * row[i];
    float scale = 1.0f / sqrtf(block_sum(sum, parts) / (float)width + epsilon);
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        store(&to[i], row[i] * scale * weight[i]);
}

void kernels_rms_norm(enum element type, const float *x, const float *weight, int rows, int width, float epsilon,
                      void *out, cudaStream_t stream)
{
    LAUNCH(type, (rms_norm<T><<<(unsigned)rows, THREADS, 0, stream>>>(x, weight, width, epsilon, (T *)out)));
}

template <typename T> static __global__ void gate(const float *fused, size_t elements, int inner, T *out)
{
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= elements)
        return;
    const float *row = fused + at / (size_t)inner * 2 * (size_t)inner;
    size_t column = at % (size_t)inner;
    float g = row[column];
    store(&out[at], g / (1.0f + expf(-g)) * row[(size_t)inner + column]);
}

void kernels_gate(enum element type, const float *fused, int rows, int inner, void *out, cudaStream_t stream)
{
    size_t elements = (size_t)rows * (size_t)inner;
    LAUNCH(type, (gate<T><<<blocks_for(elements), THREADS, 0, stream>>>(fused, elements, inner, (T *)out)));
}

template <typename T>
static __global__ void store_block(const float *x, size_t elements, int width, int index, int blocks, T *out)
{
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= elements)
        return;
    size_t row = at / (size_t)width, column = at % (size_t)width;
    store(&out[(row * (size_t)blocks + (size_t)index) * (size_t)width + column], x[at]);
}

void kernels_store_block(enum element type, const float *x, int rows, int width, int index, int blocks, void *out,
                         cudaStream_t stream)
{
    size_t elements = (size_t)rows * (size_t)width;
    LAUNCH(type,
           (store_block<T><<<blocks_for(elements), THREADS, 0, stream>>>(x, elements, width, index, blocks, (T *)out)));
}

static __global__ void gather(const uint32_t *in, const int *sources, size_t words, uint32_t *out)
{
    const uint32_t *from = in + (size_t)sources[blockIdx.x] * words;
    for (size_t i = threadIdx.x; i < words; i += THREADS)
        out[(size_t)blockIdx.x * words + i] = from[i];
}

void kernels_gather(const void *in, const int *sources, int count, size_t row_bytes, void *out, cudaStream_t stream)
{
    gather<<<(unsigned)count, THREADS, 0, stream>>>((const uint32_t *)in, sources, row_bytes / 4, (uint32_t *)out);
    CUDA_CHECK(cudaGetLastError());
}

/* --- heads ------------------------------------------------------------------------------------------------------ */

#define HEAD_WARPS 4

/* One warp norms, rotates and scales one head of a row. */
template <typename T>
static __device__ void rotate_head(const struct heads_call &call, const float *x, const float *norm, int position,
                                   float factor, T *out)
{
    int lane = (int)threadIdx.x % WARP, half = call.head_size / 2;
    const float *cosines = call.cosines + (size_t)position * (size_t)half;
    const float *sines = call.sines + (size_t)position * (size_t)half;
    float sum = 0;
    for (int i = lane; i < call.head_size; i += WARP)
        sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(warp_sum(sum) / (float)call.head_size + call.epsilon);
    for (int i = lane; i < half; i += WARP) {
        float first = x[i] * scale * norm[i], second = x[half + i] * scale * norm[half + i];
        store(&out[i], (first * cosines[i] - second * sines[i]) * factor);
        store(&out[half + i], (second * cosines[i] + first * sines[i]) * factor);
    }
}

template <typename T> static __global__ void store_heads(const struct heads_call call)
{
    int row = (int)blockIdx.x, unit = (int)blockIdx.y * HEAD_WARPS + (int)threadIdx.x / WARP;
    int size = call.head_size, position = call.positions[row];
    if (unit >= call.heads + 2 * call.kv_heads)
        return;
    const float *x = call.fused + (size_t)row * call.stride + (size_t)unit * (size_t)size;
    if (unit < call.heads) {
        T *query = (T *)call.queries + ((size_t)row * (size_t)call.heads + (size_t)unit) * (size_t)size;
        rotate_head(call, x, call.q_norm, position, 1.0f / sqrtf((float)size), query);
        return;
    }
    int is_value = unit >= call.heads + call.kv_heads, kv_head = (unit - call.heads) % call.kv_heads;
    size_t head = (size_t)call.sessions[row] * (size_t)call.kv_heads + (size_t)kv_head;
    size_t at = (head * (size_t)call.capacity + (size_t)call.slots[row]) * (size_t)size;
    if (!is_value) {
        rotate_head(call, x, call.k_norm, position, 1.0f, (T *)call.keys + at);
        return;
    }
    for (int i = (int)threadIdx.x % WARP; i < size; i += WARP)
        store((T *)call.values + at + i, x[i]);
}

void kernels_store_heads(const struct heads_call *call, cudaStream_t stream)
{
    int units = call->heads + 2 * call->kv_heads;
    dim3 grid((unsigned)call->rows, (unsigned)((units + HEAD_WARPS - 1) / HEAD_WARPS));
    LAUNCH(call->type, (store_heads<T><<<grid, HEAD_WARPS * WARP, 0, stream>>>(*call)));
}

/* --- compaction ------------------------------------------------------------------------------------------------- */

/* A thread has the same word of every row: no row is overwritten before it was read, since node i is never below i. */
static __global__ void compact(uint32_t *keys, uint32_t *values, int sessions, int kv_heads, int capacity, size_t words,
                               const struct compact_path *paths, const int *nodes)
{
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
    compact<<<grid, 2 * WARP, 0, stream>>>((uint32_t *)keys, (uint32_t *)values, sessions, kv_heads, capacity,
                                           row_bytes / 4, paths, nodes);
    CUDA_CHECK(cudaGetLastError());
}
