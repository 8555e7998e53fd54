/* Attention over the committed cache and a call's new rows: an online softmax over tiles of keys (FlashAttention-2, Dao
 * 2023), in bfloat16 on tensor cores. Rows of all heads that share a KV head are packed, so that its keys are read once
 * for them; the warps of a block have 16 or 32 queries each, or, of 16 queries and less, 16 keys of a tile each. Bit
 * sets and windows cost only the tiles of keys that they cut. */
#include "collect/engine/cuda/attention_tiles.cuh"

#define WARPS 4
#define THREADS (WARPS * WARP)

/* Shared memory for heads of D: queries, two stages of a tile of keys and values, and for each stage a bit set for
 * every query. Rows are 16 bytes longer than D, which spreads the rows of an 8 x 8 matrix over all banks. */
template <int D> struct layout {
    static constexpr int QUERIES = tile_size<D>::QUERIES, KEYS = tile_size<D>::KEYS,
                         PITCH = (D + 8) * (int)sizeof(bf16);
    static constexpr int TILE = KEYS * PITCH, STAGES = QUERIES * PITCH, SEEN = STAGES + 4 * TILE;
    static constexpr int BYTES = SEEN + 2 * QUERIES * (int)sizeof(uint64_t);
};

/* --- tiles of shared memory -------------------------------------------------------------------------------------- */

/* Queues the copy of KEYS rows [., D]; zeros behind the first `count`. */
template <int D> static __device__ __forceinline__ void copy_rows(uint32_t to, const bf16 *from, int count)
{
#pragma unroll
    for (int i = 0; i < layout<D>::KEYS * D / 8 / THREADS; i++) {
        int unit = i * THREADS + (int)threadIdx.x, row = unit / (D / 8), column = unit % (D / 8);
        copy_start(to + (uint32_t)(row * layout<D>::PITCH + column * 16), from + row * D + column * 8, row < count);
    }
}

/* Queues the copy of a part's queries, zeros behind them, ROWS in all. */
template <int D, int ROWS>
static __device__ __forceinline__ void copy_queries(uint32_t to, const struct attention_call &call,
                                                    const struct attention_work &work, int kv_head)
{
#pragma unroll
    for (int i = 0; i < (ROWS * D / 8 + THREADS - 1) / THREADS; i++) {
        int unit = i * THREADS + (int)threadIdx.x, query = unit / (D / 8), column = unit % (D / 8), row, head;
        bool there = query < work.query_count;
        if (query >= ROWS)
            break;
        unpack(call, work.segment, kv_head, work.query + (there ? query : 0), &row, &head);
        const bf16 *from = (const bf16 *)call.queries + ((size_t)row * (size_t)call.heads + (size_t)head) * D;
        copy_start(to + (uint32_t)(query * layout<D>::PITCH + column * 16), from + column * 8, there);
    }
}

/* --- one tile ---------------------------------------------------------------------------------------------------- */

/* scores[M * 16, N * 8] = queries keys^T; the addresses are the lane's. */
template <int D, int M, int N>
static __device__ __forceinline__ void score(uint32_t queries, uint32_t keys, float (&scores)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++)
        scores[i / (N * 4)][i / 4 % N][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            load_matrices(a[m], queries + (uint32_t)(m * 16 * layout<D>::PITCH + k * 32));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(b, keys + (uint32_t)(n * 8 * layout<D>::PITCH + k * 32));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(scores[m][n], a[m], b[0], b[1]);
                multiply(scores[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sums[M * 16, D] += weights[M * 16, N * 8] values; the address is the lane's. */
template <int D, int M, int N>
static __device__ __forceinline__ void add_values(struct running<D, M> &running, const float (&weights)[M][N][4],
                                                  uint32_t values)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int i = 0; i < M * 4; i++) {
            const float *pair = &weights[i / 4][2 * k + i % 4 / 2][i % 2 * 2];
            a[i / 4][i % 4] = pack(pair[0], pair[1]);
        }
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            load_transposed(b, values + (uint32_t)(k * 16 * layout<D>::PITCH + d * 16));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(running.sums[m][d], a[m], b[0], b[1]);
                multiply(running.sums[m][d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* --- results ----------------------------------------------------------------------------------------------------- */

/* What the warps have of the same queries, together. memory: float [warps, ATTENTION_FEW, D + 8], then float2 [warps,
 * ATTENTION_FEW]. */
template <int D>
static __device__ __forceinline__ void put_merged(const struct attention_call &call, const struct attention_work &work,
                                                  int kv_head, const struct running<D, 1> &running, float *memory)
{
    constexpr int HOLDERS = layout<D>::KEYS / 16, PITCH = D + 8;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, row, head;
    float2 *pairs = (float2 *)(memory + HOLDERS * ATTENTION_FEW * PITCH);
    __syncthreads(); /* all are done with the keys that stood here */
    if (warp < HOLDERS)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = running.total[0][half];
            int at = warp * ATTENTION_FEW + half * 8 + lane / 4;
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                *(float2 *)(memory + at * PITCH + d * 8 + lane % 4 * 2) =
                    make_float2(running.sums[0][d][half * 2], running.sums[0][d][half * 2 + 1]);
            if (lane % 4 == 0)
                pairs[at] = make_float2(running.best[0][half], total);
        }
    __syncthreads();
    for (int query = warp; query < work.query_count; query += WARPS) {
        float best = -INFINITY, total = 0, factors[HOLDERS];
#pragma unroll
        for (int i = 0; i < HOLDERS; i++)
            best = fmaxf(best, pairs[i * ATTENTION_FEW + query].x);
#pragma unroll
        for (int i = 0; i < HOLDERS; i++) {
            float2 pair = pairs[i * ATTENTION_FEW + query];
            factors[i] = pair.y > 0 ? power_of_two((pair.x - best) * LOG2_E) : 0;
            total += factors[i] * pair.y;
        }
        unpack(call, work.segment, kv_head, work.query + query, &row, &head);
        for (int column = lane; column < D; column += WARP) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < HOLDERS; i++)
                sum += factors[i] * memory[(i * ATTENTION_FEW + query) * PITCH + column];
            if (work.splits == 1)
                store(attended_at<bf16>(call, row, head) + column, sum / total);
            else
                part_sums(call, work.split, row, head)[column] = sum;
        }
        if (work.splits > 1 && lane == 0)
            *part_pair(call, (int)gridDim.z, work.split, row, head) = make_float2(best, total);
    }
}

/* --- the kernel -------------------------------------------------------------------------------------------------- */

/* A block's part: M * 16 queries a warp; or, where the warps share out the keys, M = 1 and SHARED. Fills `running`. */
template <int D, int M, bool SHARED>
static __device__ __forceinline__ void run(const struct attention_call &call, const struct attention_work &work,
                                           int kv_head, char *memory, struct running<D, M> &running)
{
    constexpr int KEYS = layout<D>::KEYS, N = SHARED ? 2 : KEYS / 8, PITCH = layout<D>::PITCH;
    constexpr int QUERIES = SHARED ? ATTENTION_FEW : M * 16 * WARPS;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int own_query = SHARED ? 0 : warp * M * 16, own_key = SHARED ? warp * 16 : 0;
    uint32_t queries = shared_address(memory), stages = queries + layout<D>::STAGES;
    uint32_t query_at = queries + (uint32_t)((own_query + lane % 16) * PITCH + lane / 16 * 16);
    uint32_t key_at = stages + (uint32_t)((own_key + lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16);
    uint32_t value_at = stages + (uint32_t)(layout<D>::TILE + (own_key + lane % 16) * PITCH + lane / 16 * 16);

    auto copy_part = [&]() { copy_queries<D, QUERIES>(queries, call, work, kv_head); };
    auto copy = [&](int stage, const bf16 *keys, const bf16 *values, int count) {
        uint32_t to = stages + (uint32_t)(stage * 2 * layout<D>::TILE);
        copy_rows<D>(to, keys, count);
        copy_rows<D>(to + layout<D>::TILE, values, count);
    };
    auto use = [&](int stage, const uint64_t *seen) {
        float scores[M][N][4];
        uint32_t offset = (uint32_t)(stage * 2 * layout<D>::TILE);
        if (own_key >= KEYS)
            return;
        score<D, M, N>(query_at, key_at + offset, scores);
        if (seen)
            mask<M, N>(seen + own_query, own_key, scores);
        weigh<D, M, N>(running, scores);
        add_values<D, M, N>(running, scores, value_at + offset);
    };
    start(running);
    walk_keys<D, QUERIES, false>(call, work, kv_head, (uint64_t *)(memory + layout<D>::SEEN), copy_part, copy, use);
}

/* Grid: [kv head, tile, split]. join_here: no tile has more than ATTENTION_FEW queries, and the last block joins. */
template <int D>
static __global__ void __launch_bounds__(THREADS, 2) attend(const struct attention_call call, bool join_here)
{
    extern __shared__ float4 shared[];
    char *memory = (char *)shared;
    int kv_head = (int)blockIdx.x, tiles = (int)gridDim.y, splits = (int)gridDim.z;
    /* Of a long run the last rows see most: they come first. */
    int tile = splits == 1 ? tiles - 1 - (int)blockIdx.y : (int)blockIdx.y;
    const struct attention_work work = block_work(call, tile, layout<D>::QUERIES, (int)blockIdx.z, splits);
    if (work.from == work.to) {
        if (blockIdx.z == 0) /* if none waited, this kernel could end before the one before it */
            wait_for_previous();
        return;
    }
    if (work.query_count <= ATTENTION_FEW) {
        struct running<D, 1> running;
        run<D, 1, true>(call, work, kv_head, memory, running);
        put_merged<D>(call, work, kv_head, running, (float *)(memory + layout<D>::STAGES));
        if (join_here && work.splits > 1)
            join_if_last(call, work, splits, tile, kv_head);
    } else if (work.query_count <= 16 * WARPS) {
        struct running<D, 1> running;
        run<D, 1, false>(call, work, kv_head, memory, running);
        put_rows<D, 1>(call, work, kv_head, (int)threadIdx.x / WARP * 16, running);
    } else if constexpr (layout<D>::QUERIES > 16 * WARPS) {
        struct running<D, 2> running;
        run<D, 2, false>(call, work, kv_head, memory, running);
        put_rows<D, 2>(call, work, kv_head, (int)threadIdx.x / WARP * 32, running);
    }
}

template <int D> static void launch_attend(const struct attention_call *call, cudaStream_t stream)
{
    int splits = attention_splits(call, layout<D>::QUERIES);
    bool join_here = splits > 1 && call->longest * (call->heads / call->kv_heads) <= ATTENTION_FEW;
    dim3 grid((unsigned)call->kv_heads, (unsigned)call->tile_count, (unsigned)splits);
    CUDA_CHECK(cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, layout<D>::BYTES));
    CUDA_CHECK(cudaFuncSetAttribute(attend<D>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
    launch(attend<D>, grid, THREADS, layout<D>::BYTES, stream, *call, join_here);
    if (splits > 1 && !join_here)
        attention_join(call, layout<D>::QUERIES, splits, stream);
}

/* Head sizes that tensor cores take, with the queries of a tile and a block's shared memory. */
static const struct way {
    int head_size, queries, bytes;
    void (*launch)(const struct attention_call *call, cudaStream_t stream);
} ways[] = {
    {64, layout<64>::QUERIES, layout<64>::BYTES, launch_attend<64>},
    {80, layout<80>::QUERIES, layout<80>::BYTES, launch_attend<80>},
    {96, layout<96>::QUERIES, layout<96>::BYTES, launch_attend<96>},
    {128, layout<128>::QUERIES, layout<128>::BYTES, launch_attend<128>},
    {256, layout<256>::QUERIES, layout<256>::BYTES, launch_attend<256>},
};

/* NULL: none, or the current GPU's blocks have too little shared memory (compute capabilities 8.6, 8.9 and 12.x). */
static const struct way *find_way(enum element type, int head_size)
{
    for (size_t i = 0; type == ELEMENT_BFLOAT16 && i < sizeof ways / sizeof *ways; i++)
        if (ways[i].head_size == head_size && ways[i].bytes <= device_shared_bytes())
            return &ways[i];
    return NULL;
}

int kernels_attention_queries(enum element type, int head_size)
{
    const struct way *way = find_way(type, head_size);
    return way ? way->queries : ATTENTION_QUERIES_MINIMUM;
}

void kernels_attend(const struct attention_call *call, cudaStream_t stream)
{
    const struct way *way = find_way(call->type, call->head_size);
    if (!way)
        attend_simply(call, stream);
    else if (attend_near_takes(call))
        attend_near_queries(call, way->queries, stream);
    else if (attend_few_takes(call))
        attend_few_queries(call, way->queries, stream);
    else if (attend_by_groups_takes(call))
        attend_by_groups(call, stream);
    else
        way->launch(call, stream);
}
