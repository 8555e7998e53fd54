/* Attention over the committed cache and a call's new rows, with an online softmax over tiles of keys. A block of
 * threads has 16 queries that share a KV head, and one part of the keys; a second kernel joins the parts. */
#include "collect/engine/cuda/element.cuh"

#define WARPS 4
#define THREADS (WARPS * WARP)
#define KEYS WARP                                /* of a tile: one a lane */
#define WARP_QUERIES (ATTENTION_QUERIES / WARPS) /* whose scores a warp computes */

/* A block's shared memory, in floats; heads are padded to whole float4, and keys one further to spread the banks. */
static __host__ __device__ int padded(int head_size)
{
    return (head_size + 3) / 4 * 4;
}

static size_t shared_bytes(int head_size)
{
    int pitch = padded(head_size);
    return (size_t)(ATTENTION_QUERIES * pitch + KEYS * (pitch + 4) + ATTENTION_QUERIES * KEYS + ATTENTION_QUERIES) *
           sizeof(float);
}

/* Whether the row (of the batch) at `position` sees the session's cache position `key`. */
static __device__ __forceinline__ bool sees(const struct attention_call &call, const struct attention_segment &segment,
                                            int row, int position, int key)
{
    int node = key - segment.base, at = key;
    if (node >= 0) {
        if (!(call.visible[(size_t)row * (size_t)call.words + (size_t)(node / 64)] >> (node % 64) & 1))
            return false;
        at = call.positions[segment.first + node];
    }
    if (!call.window)
        return true;
    int ahead = at - position;
    return -ahead < call.window && (node < 0 || ahead < (call.causal_window ? 1 : call.window));
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

/* Where a split's result for a query head of a row stands: head_size sums, then the largest score and the weights' sum.
 */
static __device__ __forceinline__ float *partial_at(const struct attention_call &call, int split, int row, int head)
{
    size_t at = ((size_t)split * (size_t)call.rows + (size_t)row) * (size_t)call.heads + (size_t)head;
    return call.partial + at * (size_t)(call.head_size + 2);
}

/* DIMENSIONS: of the head, for each thread. */
template <typename T, int DIMENSIONS>
static __global__ void __launch_bounds__(THREADS) attend(struct attention_call call)
{
    extern __shared__ float4 memory[];
    wait_for_previous();
    let_next_start();
    const struct attention_tile tile = call.tiles[blockIdx.x];
    const struct attention_segment segment = call.segments[tile.segment];
    int size = call.head_size, pitch = padded(size), group = call.heads / call.kv_heads, kv_head = (int)blockIdx.y;
    int lane = (int)threadIdx.x % WARP, first = (int)threadIdx.x / WARP * WARP_QUERIES;
    int query_count = segment.count * group - tile.query;
    float *queries = (float *)memory, *keys = queries + ATTENTION_QUERIES * pitch;
    float *weights = keys + KEYS * (pitch + 4), *factors = weights + ATTENTION_QUERIES * KEYS;

    for (int i = (int)threadIdx.x; i < ATTENTION_QUERIES * pitch; i += THREADS) {
        int query = i / pitch, column = i % pitch, packed = tile.query + query;
        size_t row = (size_t)(segment.first + packed / group), head = (size_t)(kv_head * group + packed % group);
        queries[i] = query < query_count && column < size
                         ? load(((const T *)call.queries)[(row * (size_t)call.heads + head) * (size_t)size + column])
                         : 0;
    }

    size_t cache = ((size_t)segment.session * (size_t)call.kv_heads + (size_t)kv_head) * (size_t)call.capacity;
    const T *cached_keys = (const T *)call.keys + cache * (size_t)size;
    const T *cached_values = (const T *)call.values + cache * (size_t)size;
    int seen = segment.base + segment.count, splits = (int)gridDim.z;
    int share = ((seen + splits - 1) / splits + KEYS - 1) / KEYS * KEYS;
    int from = min((int)blockIdx.z * share, seen), to = min(from + share, seen);

    float best[WARP_QUERIES], sums[WARP_QUERIES], sum[DIMENSIONS][ATTENTION_QUERIES];
    for (int i = 0; i < WARP_QUERIES; i++) {
        best[i] = -INFINITY;
        sums[i] = 0;
    }
#pragma unroll
    for (int k = 0; k < DIMENSIONS; k++)
#pragma unroll
        for (int q = 0; q < ATTENTION_QUERIES; q++)
            sum[k][q] = 0;

    for (int start = from; start < to; start += KEYS) {
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
            int row = segment.first + (tile.query + first + i) / group;
            bool visible = first + i < query_count && start + lane < to &&
                           sees(call, segment, row, call.positions[row], start + lane);
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
            for (int q = 0; q < ATTENTION_QUERIES; q++)
                sum[k][q] *= factors[q];
            for (int key = 0; key < KEYS && start + key < to; key += 4) {
                float v[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    v[i] = start + key + i < to
                               ? load(cached_values[(size_t)(start + key + i) * (size_t)size + (size_t)column])
                               : 0;
#pragma unroll
                for (int q = 0; q < ATTENTION_QUERIES; q++) {
                    float4 w = *(const float4 *)(weights + q * KEYS + key);
                    sum[k][q] += w.x * v[0] + w.y * v[1] + w.z * v[2] + w.w * v[3];
                }
            }
        }
    }

#pragma unroll
    for (int q = 0; q < ATTENTION_QUERIES; q++) {
        int packed = tile.query + q;
        if (q >= query_count)
            break;
        float *out =
            partial_at(call, (int)blockIdx.z, segment.first + packed / group, kv_head * group + packed % group);
#pragma unroll
        for (int k = 0; k < DIMENSIONS; k++)
            if ((int)threadIdx.x + k * THREADS < size)
                out[(int)threadIdx.x + k * THREADS] = sum[k][q];
    }
#pragma unroll
    for (int i = 0; i < WARP_QUERIES; i++) {
        int packed = tile.query + first + i;
        if (lane != 0 || first + i >= query_count)
            break;
        float *out =
            partial_at(call, (int)blockIdx.z, segment.first + packed / group, kv_head * group + packed % group);
        out[size] = best[i];
        out[size + 1] = sums[i];
    }
}

template <typename T> static __global__ void join(struct attention_call call, int splits)
{
    int row = (int)blockIdx.x, head = (int)blockIdx.y, size = call.head_size;
    wait_for_previous();
    let_next_start();
    float best = -INFINITY, total = 0;
    for (int split = 0; split < splits; split++)
        best = fmaxf(best, partial_at(call, split, row, head)[size]);
    for (int split = 0; split < splits; split++) {
        const float *part = partial_at(call, split, row, head);
        total += part[size + 1] > 0 ? part[size + 1] * expf(part[size] - best) : 0;
    }
    T *out = (T *)call.attended + ((size_t)row * (size_t)call.heads + (size_t)head) * (size_t)size;
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
        float sum = 0;
        for (int split = 0; split < splits; split++) {
            const float *part = partial_at(call, split, row, head);
            sum += part[size + 1] > 0 ? part[i] * expf(part[size] - best) : 0;
        }
        store(&out[i], sum / total);
    }
}

static int splits_for(int tiles, int kv_heads)
{
    int splits = ATTENTION_BLOCKS / (tiles * kv_heads);
    return splits < 1 ? 1 : splits > ATTENTION_SPLITS ? ATTENTION_SPLITS : splits;
}

size_t kernels_attention_partials(int rows, int heads, int head_size)
{
    /* With more than one split there are at most ATTENTION_BLOCKS of them in all KV heads' tiles together. */
    size_t split = (size_t)ATTENTION_BLOCKS * ATTENTION_QUERIES, whole = (size_t)rows * (size_t)heads;
    return (split > whole ? split : whole) * (size_t)(head_size + 2);
}

template <typename T, int DIMENSIONS>
static void launch_attend(const struct attention_call *call, int splits, cudaStream_t stream)
{
    dim3 grid((unsigned)call->tile_count, (unsigned)call->kv_heads, (unsigned)splits);
    size_t shared = shared_bytes(call->head_size);
    CUDA_CHECK(cudaFuncSetAttribute(attend<T, DIMENSIONS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch(attend<T, DIMENSIONS>, grid, THREADS, shared, stream, *call);
    dim3 heads((unsigned)call->rows, (unsigned)call->heads);
    launch(join<T>, heads, 2 * WARP, 0, stream, *call, splits);
}

void kernels_attend(const struct attention_call *call, cudaStream_t stream)
{
    int splits = splits_for(call->tile_count, call->kv_heads);
    if (call->head_size <= THREADS)
        OF_TYPE(call->type, (launch_attend<T, 1>(call, splits, stream)));
    else
        OF_TYPE(call->type, (launch_attend<T, 2>(call, splits, stream)));
}
