/* Attention without tensor cores, for float32 and for head sizes of any kind: the same online softmax, 16 queries a
 * block. */
#include "collect/engine/cuda/attention.cuh"

#define WARPS 4
#define THREADS (WARPS * WARP)
#define QUERIES ATTENTION_QUERIES_MINIMUM
#define KEYS WARP                      /* of a tile: one a lane */
#define WARP_QUERIES (QUERIES / WARPS) /* whose scores a warp computes */

/* A block's shared memory, in floats; heads are padded to whole float4, and keys one further to spread the banks. */
static __host__ __device__ int padded(int head_size)
{
    return (head_size + 3) / 4 * 4;
}

static size_t shared_bytes(int head_size)
{
    int pitch = padded(head_size);
    return (size_t)(QUERIES * pitch + KEYS * (pitch + 4) + QUERIES * KEYS + QUERIES) * sizeof(float);
}

/* A tile of keys [KEYS, size], zero from row `count` on and in what pads a row. */
template <typename T> static __device__ void load_keys(const T *from, int count, int size, int pitch, float *keys)
{
    for (int i = (int)threadIdx.x; i < KEYS * pitch; i += THREADS) {
        int row = i / pitch, column = i % pitch;
        bool inside = row < count && column < size;
        keys[row * (pitch + 4) + column] = inside ? load(from[(size_t)row * (size_t)size + (size_t)column]) : 0;
    }
}

/* DIMENSIONS: of the head, for each thread. Grid: [kv head, tile, split]. */
template <typename T, int DIMENSIONS>
static __global__ void __launch_bounds__(THREADS) attend(const struct attention_call call)
{
    extern __shared__ float4 memory[];
    int kv_head = (int)blockIdx.x, splits = (int)gridDim.z;
    const struct attention_work work = block_work(call, (int)blockIdx.y, QUERIES, (int)blockIdx.z, splits);
    wait_for_previous();
    let_next_start();
    if (work.from == work.to)
        return;
    const struct attention_segment &segment = work.segment;
    int size = call.head_size, pitch = padded(size), group = call.heads / call.kv_heads;
    int lane = (int)threadIdx.x % WARP, first = (int)threadIdx.x / WARP * WARP_QUERIES;
    float *queries = (float *)memory, *keys = queries + QUERIES * pitch;
    float *weights = keys + KEYS * (pitch + 4), *factors = weights + QUERIES * KEYS;

    for (int i = (int)threadIdx.x; i < QUERIES * pitch; i += THREADS) {
        int query = i / pitch, column = i % pitch, packed = work.query + query;
        size_t row = (size_t)(segment.first + packed / group), head = (size_t)(kv_head * group + packed % group);
        queries[i] = query < work.query_count && column < size
                         ? load(((const T *)call.queries)[(row * (size_t)call.heads + head) * (size_t)size + column])
                         : 0;
    }

    size_t cache = ((size_t)segment.session * (size_t)call.kv_heads + (size_t)kv_head) * (size_t)call.capacity;
    const T *cached_keys = (const T *)call.keys + cache * (size_t)size;
    const T *cached_values = (const T *)call.values + cache * (size_t)size;
    int to = work.to;
    float best[WARP_QUERIES], sums[WARP_QUERIES], sum[DIMENSIONS][QUERIES];
    for (int i = 0; i < WARP_QUERIES; i++) {
        best[i] = -INFINITY;
        sums[i] = 0;
    }
#pragma unroll
    for (int k = 0; k < DIMENSIONS; k++)
#pragma unroll
        for (int q = 0; q < QUERIES; q++)
            sum[k][q] = 0;

    for (int start = work.from; start < to; start += KEYS) {
        __syncthreads();
        load_keys(cached_keys + (size_t)start * (size_t)size, to - start, size, pitch, keys);
        __syncthreads();

        float scores[WARP_QUERIES] = {0};
        for (int column = 0; column < pitch; column += 4) {
            float4 k = *(const float4 *)(keys + lane * (pitch + 4) + column);
#pragma unroll
            for (int i = 0; i < WARP_QUERIES; i++) {
                float4 q = *(const float4 *)(queries + (first + i) * pitch + column);
                scores[i] += q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
            }
        }
#pragma unroll
        for (int i = 0; i < WARP_QUERIES; i++) {
            int packed = min(work.query + first + i, work.query + work.query_count - 1);
            bool visible = start + lane < to && sees(call, segment, packed / group, start) >> lane & 1;
            float score = visible ? scores[i] : -INFINITY, highest = fmaxf(best[i], warp_largest(score));
            float weight = visible ? expf(score - highest) : 0,
                  factor = best[i] == highest ? 1 : expf(best[i] - highest);
            sums[i] = sums[i] * factor + warp_sum(weight);
            best[i] = highest;
            weights[(first + i) * KEYS + lane] = rounded<T>(weight);
            if (lane == 0)
                factors[first + i] = factor;
        }
        __syncthreads();

#pragma unroll
        for (int k = 0; k < DIMENSIONS; k++) {
            int column = (int)threadIdx.x + k * THREADS;
            if (column >= size)
                break;
#pragma unroll
            for (int q = 0; q < QUERIES; q++)
                sum[k][q] *= factors[q];
            for (int key = 0; key < KEYS && start + key < to; key += 4) {
                float v[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    v[i] = start + key + i < to
                               ? load(cached_values[(size_t)(start + key + i) * (size_t)size + (size_t)column])
                               : 0;
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                    float4 w = *(const float4 *)(weights + q * KEYS + key);
                    sum[k][q] += w.x * v[0] + w.y * v[1] + w.z * v[2] + w.w * v[3];
                }
            }
        }
    }

    /* The output, or the parts of this split. */
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARP_QUERIES; i++) {
        int query = first + i, row, head;
        if (lane != 0 || query >= work.query_count)
            break;
        factors[query] = sums[i];
        unpack(call, segment, kv_head, work.query + query, &row, &head);
        if (work.splits > 1)
            *part_pair(call, splits, work.split, row, head) = make_float2(best[i], sums[i]);
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        int row, head;
        if (q >= work.query_count)
            break;
        unpack(call, segment, kv_head, work.query + q, &row, &head);
#pragma unroll
        for (int k = 0; k < DIMENSIONS; k++) {
            int column = (int)threadIdx.x + k * THREADS;
            if (column < size && work.splits > 1)
                part_sums(call, work.split, row, head)[column] = sum[k][q];
            else if (column < size)
                store(attended_at<T>(call, row, head) + column, sum[k][q] / factors[q]);
        }
    }
}

template <typename T, int DIMENSIONS> static void launch_attend(const struct attention_call *call, cudaStream_t stream)
{
    int splits = attention_splits(call, QUERIES);
    dim3 grid((unsigned)call->kv_heads, (unsigned)call->tile_count, (unsigned)splits);
    size_t shared = shared_bytes(call->head_size);
    CUDA_CHECK(cudaFuncSetAttribute(attend<T, DIMENSIONS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch(attend<T, DIMENSIONS>, grid, THREADS, shared, stream, *call);
    if (splits > 1)
        attention_join(call, QUERIES, splits, stream);
}

void attend_simply(const struct attention_call *call, cudaStream_t stream)
{
    if (call->head_size <= THREADS)
        OF_TYPE(call->type, (launch_attend<T, 1>(call, stream)));
    else
        OF_TYPE(call->type, (launch_attend<T, 2>(call, stream)));
}
