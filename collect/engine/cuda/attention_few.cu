/* Attention where few queries meet few keys, or single rows any number: what counts is how long a call takes from its
 * first load to its last store. A block has 16 or 32 queries that share a KV head, and its warps share out the keys, in
 * chunks of 16, which go from the GPU's memory straight to the tensor cores' registers; no warp waits for another until
 * all are joined at the end.
 *
 * For that, the fragments of mma.cuh are filled in another order. Of keys and queries the dimensions 32 j + 8 t, ...,
 * + 7 are lane t's of its two k-steps 2 j and 2 j + 1, 16 bytes that it loads at once: which dimension is which does
 * not matter to a sum over them. Of values, column g of the n-tile 8 u + e is dimension 64 u + 8 g + e, so that a
 * lane's 16 bytes of four keys are its halves of 8 n-tiles.
 *
 * Sessions that bring one row each, as `auto` does, come here right from the product of queries, keys and values: the
 * block norms and rotates its queries, and the one that has the last keys makes the new key and value and stores them.
 * The committed ones, which the kernel before does not touch, are asked for before that has ended. */
#include "collect/engine/cuda/attention_softmax.cuh"
#include "collect/engine/cuda/heads.cuh"

#define CHUNK 16 /* keys */
#define TURNS 3  /* chunks that each warp has taken before single rows' keys are split once more */

/* Of heads of D elements, M * 16 queries. Memory: queries, sums of each warp, pairs of each warp. */
template <int D, int M> struct few {
    static constexpr int WARPS = D * M <= 128 ? 12 : 8, THREADS = WARPS * WARP, QUERIES = 16 * M;
    static constexpr int PART = D < 128 ? D : 128; /* dimensions that are loaded at a time */
    static constexpr int QUERY_PITCH = D + 32, SUM_PITCH = D + 4;
    static constexpr int QUERY_BYTES = QUERIES * QUERY_PITCH * (int)sizeof(bf16);
};

/* --- chunks of keys ---------------------------------------------------------------------------------------------- */

/* A lane's share of PART dimensions of a chunk. */
template <int PART> struct chunk {
    uint4 keys[2][PART / 32], values[PART / 64][4];
};

/* Rows behind `last` are replaced by it; their scores will be masked. */
template <int D, int PART>
static __device__ __forceinline__ void fetch_keys(struct chunk<PART> &chunk, const bf16 *keys, int first, int last)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const bf16 *from = keys + (size_t)min(first + n * 8 + lane / 4, last) * D + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < PART / 32; j++)
            chunk.keys[n][j] = *(const uint4 *)(from + j * 32);
    }
}

template <int D, int PART>
static __device__ __forceinline__ void fetch_values(struct chunk<PART> &chunk, const bf16 *values, int first, int last)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const bf16 *from = values + (size_t)min(first + lane % 4 * 2 + i / 2 * 8 + i % 2, last) * D + lane / 4 * 8;
#pragma unroll
        for (int u = 0; u < PART / 64; u++)
            chunk.values[u][i] = *(const uint4 *)(from + u * 64);
    }
}

/* Asks for the committed of the block's keys [from, to), so that they are near when their turn comes; of blocks that
 * share them, `share` of `shares` asks for every such one. */
template <int D, int THREADS>
static __device__ __forceinline__ void ask_for_keys(const bf16 *keys, const bf16 *values, int from, int to, int share,
                                                    int shares)
{
    constexpr int LINE = 64, LINES = D / LINE; /* elements; of a row */
    int end = (to - from) * LINES;
    for (int i = share * THREADS + (int)threadIdx.x; i < end; i += shares * THREADS) {
        size_t at = (size_t)(from + i / LINES) * D + (size_t)(i % LINES * LINE);
        asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + at));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(values + at));
    }
}

/* scores += queries keys^T over a part's dimensions; queries: the lane's first, of this part. */
template <int D, int M>
static __device__ __forceinline__ void add_scores(float (&scores)[M][2][4], const bf16 *queries,
                                                  const struct chunk<few<D, M>::PART> &chunk)
{
#pragma unroll
    for (int j = 0; j < few<D, M>::PART / 32; j++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint4 low = *(const uint4 *)(queries + m * 16 * few<D, M>::QUERY_PITCH + j * 32);
            const uint4 high = *(const uint4 *)(queries + (m * 16 + 8) * few<D, M>::QUERY_PITCH + j * 32);
            const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int n = 0; n < 2; n++) {
                multiply(scores[m][n], first, chunk.keys[n][j].x, chunk.keys[n][j].y);
                multiply(scores[m][n], second, chunk.keys[n][j].z, chunk.keys[n][j].w);
            }
        }
}

static __device__ __forceinline__ uint32_t word_of(const uint4 &words, int i)
{
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/* sums of a part's dimensions += weights values. */
template <int D, int M>
static __device__ __forceinline__ void add_values(struct running<D, M> &running, int part,
                                                  const float (&weights)[M][2][4],
                                                  const struct chunk<few<D, M>::PART> &chunk)
{
    constexpr int UNITS = few<D, M>::PART / 64;
    uint32_t a[M][4];
#pragma unroll
    for (int i = 0; i < M * 4; i++) {
        const float *pair = &weights[i / 4][i % 4 / 2][i % 2 * 2];
        a[i / 4][i % 4] = pack(pair[0], pair[1]);
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const uint4(&rows)[4] = chunk.values[u];
            const uint32_t halves = e % 2 ? 0x7632 : 0x5410;
            uint32_t b0 = __byte_perm(word_of(rows[0], e / 2), word_of(rows[1], e / 2), halves);
            uint32_t b1 = __byte_perm(word_of(rows[2], e / 2), word_of(rows[3], e / 2), halves);
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply(running.sums[m][(part * UNITS + u) * 8 + e], a[m], b0, b1);
        }
}

/* Scores of keys that are not seen become minus infinity. */
template <int M>
static __device__ __forceinline__ void mask(const struct attention_call &call, const struct attention_work &work,
                                            int key, float (&scores)[M][2][4])
{
    int lane = (int)threadIdx.x % WARP, group = call.heads / call.kv_heads;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = min(m * 16 + half * 8 + lane / 4, work.query_count - 1);
            uint64_t bits = sees(call, work.segment, (work.query + query) / group, key) >> (lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (!(bits >> (n * 8 + i) & 1))
                        scores[m][n][half * 2 + i] = -INFINITY;
        }
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

template <int D, int M>
static __device__ __forceinline__ void copy_queries(bf16 *queries, const struct attention_call &call,
                                                    const struct attention_work &work, int kv_head)
{
    for (int i = (int)threadIdx.x; i < few<D, M>::QUERIES * D / 8; i += few<D, M>::THREADS) {
        int query = i / (D / 8), column = i % (D / 8) * 8, row, head;
        uint4 eight = {};
        if (query < work.query_count) {
            unpack(call, work.segment, kv_head, work.query + query, &row, &head);
            eight = *(const uint4 *)((const bf16 *)call.queries +
                                     ((size_t)row * (size_t)call.heads + (size_t)head) * D + column);
        }
        *(uint4 *)(queries + query * few<D, M>::QUERY_PITCH + column) = eight;
    }
}

/* A row's heads out of fused: unit u of a KV head is one of its queries, or then the new key and the new value. */
template <int D>
static __device__ __forceinline__ void make_heads(bf16 *queries, const struct heads_call &heads, int row, int kv_head,
                                                  int first, const struct head_rotation<D / 64> &first_rotation,
                                                  bool stores)
{
    constexpr int PITCH = few<D, 1>::QUERY_PITCH, WARPS = few<D, 1>::WARPS;
    int group = heads.heads / heads.kv_heads;
    const float *fused = heads.fused + (size_t)row * heads.stride;
    for (int unit = first; unit < group + (stores ? 2 : 0); unit += WARPS) {
        int head = unit < group ? kv_head * group + unit : heads.heads + (unit - group) * heads.kv_heads + kv_head;
        const float *from = fused + head_column(heads, head);
        auto read = [&](int i) { return from[i]; };
        const struct head_rotation<D / 64> rotation =
            unit == first ? first_rotation : rotation_of<D / 64>(heads, 0, row, head);
        if (unit < group)
            rotate_head<bf16>(heads, rotation, read, 1.0f / sqrtf((float)D), queries + unit * PITCH);
        else
            put_head<bf16>(heads, rotation, 0, row, head, read);
    }
    for (int i = group * D + (int)threadIdx.x; i < few<D, 1>::QUERIES * D; i += few<D, 1>::THREADS)
        store(&queries[i / D * PITCH + i % D], 0.0f);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* What the warps have, together. */
template <int D, int M>
static __device__ __forceinline__ void put_merged(const struct attention_call &call, const struct attention_work &work,
                                                  int kv_head, const struct running<D, M> &running, float *sums,
                                                  int held)
{
    constexpr int WARPS = few<D, M>::WARPS, PITCH = few<D, M>::SUM_PITCH;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, row, head;
    float2 *pairs = (float2 *)(sums + WARPS * held * PITCH);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = running.total[m][half];
            int query = m * 16 + half * 8 + lane / 4, at = warp * held + query;
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            if (query >= work.query_count)
                continue;
            if (lane % 4 == 0)
                pairs[at] = make_float2(running.best[m][half], total);
#pragma unroll
            for (int i = 0; i < D / 8; i += 4) { /* n-tiles 4 i, ..., and both columns of each */
                float *to = sums + at * PITCH + i / 8 * 64 + lane % 4 * 16 + i % 8;
                *(float4 *)to = make_float4(running.sums[m][i][half * 2], running.sums[m][i + 1][half * 2],
                                            running.sums[m][i + 2][half * 2], running.sums[m][i + 3][half * 2]);
                *(float4 *)(to + 8) =
                    make_float4(running.sums[m][i][half * 2 + 1], running.sums[m][i + 1][half * 2 + 1],
                                running.sums[m][i + 2][half * 2 + 1], running.sums[m][i + 3][half * 2 + 1]);
            }
        }
    __syncthreads();
    for (int query = warp; query < work.query_count; query += WARPS) {
        float2 pair = lane < WARPS ? pairs[lane * held + query] : make_float2(-INFINITY, 0);
        float best = warp_largest(pair.x), factor = pair.y > 0 ? power_of_two((pair.x - best) * LOG2_E) : 0;
        float total = warp_sum(factor * pair.y);
        unpack(call, work.segment, kv_head, work.query + query, &row, &head);
#pragma unroll
        for (int column = lane * 2; column < D; column += 2 * WARP) {
            float2 sum = {};
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                float2 more = *(const float2 *)(sums + (w * held + query) * PITCH + column);
                float weight = __shfl_sync(ALL_LANES, factor, w);
                sum.x = fmaf(weight, more.x, sum.x);
                sum.y = fmaf(weight, more.y, sum.y);
            }
            if (work.splits == 1)
                *(uint32_t *)(attended_at<bf16>(call, row, head) + column) = pack(sum.x / total, sum.y / total);
            else
                *(float2 *)(part_sums(call, work.split, row, head) + column) = sum;
        }
        if (work.splits > 1 && lane == 0)
            *part_pair(call, (int)gridDim.z, work.split, row, head) = make_float2(best, total);
    }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Block `split` of `splits` of a single row. */
template <int D>
static __device__ __forceinline__ struct attention_work row_work(const struct attention_call &call, int row, int split,
                                                                 int splits)
{
    constexpr int SHARE = few<D, 1>::WARPS * TURNS;
    struct attention_work work = {};
    work.segment = call.segments[row];
    work.query_count = call.heads / call.kv_heads;
    work.split = split;
    int first = call.window ? max(work.segment.base - call.window + 1, 0) : 0, end = work.segment.base + 1;
    int chunks = (end - first + CHUNK - 1) / CHUNK;
    work.splits = min((chunks + SHARE - 1) / SHARE, splits);
    if (split < work.splits) {
        work.from = first + split * chunks / work.splits * CHUNK;
        work.to = min(first + (split + 1) * chunks / work.splits * CHUNK, end);
    }
    return work;
}

/* Some of a tile's queries, and all their keys. */
template <int D, int M>
static __device__ __forceinline__ struct attention_work few_work(const struct attention_call &call, int tile,
                                                                 int queries)
{
    int each = queries / few<D, M>::QUERIES, skipped = tile % each * few<D, M>::QUERIES;
    struct attention_work work = tile_work(call, tile / each, queries, 1);
    work.query += skipped;
    work.query_count = min(work.query_count - skipped, few<D, M>::QUERIES);
    if (work.query_count <= 0)
        work.from = work.to;
    return work;
}

/* Grid: [kv head, row or part of a tile, split]. ROWS: single rows from `fused` on; otherwise tiles of `queries`.
 * held: queries of a block at most. */
template <int D, int M, bool ROWS>
static __global__ void __launch_bounds__(few<D, M>::THREADS)
    attend_few(const struct heads_call heads, const struct attention_call call, int queries, int held)
{
    constexpr int WARPS = few<D, M>::WARPS, PART = few<D, M>::PART, STEP = WARPS * CHUNK;
    extern __shared__ float4 shared[];
    bf16 *own_queries = (bf16 *)shared;
    float *sums = (float *)((char *)shared + few<D, M>::QUERY_BYTES);
    int kv_head = (int)blockIdx.x, tile = (int)blockIdx.y, splits = (int)gridDim.z;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const struct attention_work work =
        ROWS ? row_work<D>(call, tile, (int)blockIdx.z, splits) : few_work<D, M>(call, tile, queries);
    if (work.from == work.to) {
        wait_for_previous(); /* if none waited, this kernel could end before the one before it */
        return;
    }
    const struct attention_segment &segment = work.segment;
    size_t cache = ((size_t)segment.session * (size_t)call.kv_heads + (size_t)kv_head) * (size_t)call.capacity * D;
    const bf16 *keys = (const bf16 *)call.keys + cache, *values = (const bf16 *)call.values + cache;
    const struct attention_cut cut = find_cut(call, work);
    int key = work.from + warp * CHUNK, last = work.to - 1, group = call.heads / call.kv_heads;
    bool early = key + CHUNK <= min(segment.base, work.to);
    struct chunk<PART> chunk;
    struct head_rotation<D / 64> rotation;
    if (early) {
        fetch_keys<D, PART>(chunk, keys, key, last);
        fetch_values<D, PART>(chunk, values, key, last);
    }
    ask_for_keys<D, few<D, M>::THREADS>(keys, values, work.from, min(work.to, segment.base),
                                        work.query / few<D, M>::QUERIES,
                                        (segment.count * group + few<D, M>::QUERIES - 1) / few<D, M>::QUERIES);
    if (ROWS && warp <= group)
        rotation = load_rotation<D / 64>(heads, warp < group ? heads.q_norm : heads.k_norm, heads.positions[tile]);
    wait_for_previous();
    let_next_start();
    if (ROWS)
        make_heads<D>(own_queries, heads, tile, kv_head, warp, rotation, work.split == work.splits - 1);
    else
        copy_queries<D, M>(own_queries, call, work, kv_head);
    __syncthreads();
    if (!early && key < work.to) {
        fetch_keys<D, PART>(chunk, keys, key, last);
        fetch_values<D, PART>(chunk, values, key, last);
    }
    const bf16 *lane_queries = own_queries + lane / 4 * few<D, M>::QUERY_PITCH + lane % 4 * 8;
    struct running<D, M> running;
    start(running);
    for (; key < work.to; key += STEP) {
        float scores[M][2][4] = {};
        add_scores<D, M>(scores, lane_queries, chunk);
#pragma unroll
        for (int part = 1; part < D / PART; part++) {
            fetch_keys<D, PART>(chunk, keys + part * PART, key, last);
            add_scores<D, M>(scores, lane_queries + part * PART, chunk);
        }
        if (key + STEP < work.to)
            fetch_keys<D, PART>(chunk, keys, key + STEP, last);
        if (key + CHUNK > cut.new_from || key < cut.window_to)
            mask<M>(call, work, key, scores);
        weigh<D, M, 2>(running, scores);
        add_values<D, M>(running, 0, scores, chunk);
#pragma unroll
        for (int part = 1; part < D / PART; part++) {
            fetch_values<D, PART>(chunk, values + part * PART, key, last);
            add_values<D, M>(running, part, scores, chunk);
        }
        if (key + STEP < work.to)
            fetch_values<D, PART>(chunk, values, key + STEP, last);
    }
    put_merged<D, M>(call, work, kv_head, running, sums, held);
    if (ROWS && work.splits > 1)
        join_if_last(call, work, splits, tile, kv_head);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

template <int D, int M, bool ROWS>
static void launch_few(const struct heads_call *heads, const struct attention_call *call, int tiles, int splits,
                       int queries, cudaStream_t stream)
{
    int held = least(few<D, M>::QUERIES, call->longest * (call->heads / call->kv_heads));
    size_t sums = (size_t)few<D, M>::WARPS * (size_t)held * (few<D, M>::SUM_PITCH * sizeof(float) + sizeof(float2));
    size_t bytes = few<D, M>::QUERY_BYTES + sums;
    dim3 grid((unsigned)call->kv_heads, (unsigned)tiles, (unsigned)splits);
    CUDA_CHECK(cudaFuncSetAttribute(attend_few<D, M, ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    launch(attend_few<D, M, ROWS>, grid, few<D, M>::THREADS, bytes, stream, *heads, *call, queries, held);
}

static bool has_size(enum element type, int head_size)
{
    return type == ELEMENT_BFLOAT16 && (head_size == 64 || head_size == 128 || head_size == 256);
}

/* Parts of tiles, with M * 16 queries each, that have work. */
static int parts_of(const struct attention_call *call, int queries)
{
    int segments = (call->rows + call->longest - 1) / call->longest;
    return segments * ((call->longest * (call->heads / call->kv_heads) + queries - 1) / queries);
}

bool kernels_attend_rows_takes(enum element type, int rows, int heads, int kv_heads, int head_size)
{
    return has_size(type, head_size) && heads / kv_heads <= few<128, 1>::QUERIES &&
           rows * kv_heads <= ATTENTION_COUNTERS;
}

void kernels_attend_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    int splits = device_multiprocessors() / (call->rows * call->kv_heads);
    splits = splits < 1 ? 1 : least(splits, ATTENTION_SPLITS);
    if (call->head_size == 64)
        launch_few<64, 1, true>(heads, call, call->rows, splits, 0, stream);
    else if (call->head_size == 128)
        launch_few<128, 1, true>(heads, call, call->rows, splits, 0, stream);
    else
        launch_few<256, 1, true>(heads, call, call->rows, splits, 0, stream);
}

bool attend_few_takes(const struct attention_call *call)
{
    int queries = 16 * (call->head_size == 256 ? 1 : 2);
    return has_size(call->type, call->head_size) && call->reach > 0 && call->reach <= ATTENTION_NEAR &&
           parts_of(call, queries) * call->kv_heads <= 2 * device_multiprocessors();
}

void attend_few_queries(const struct attention_call *call, int queries, cudaStream_t stream)
{
    const struct heads_call none = {};
    bool wide = call->head_size < 256 && parts_of(call, 16) * call->kv_heads > device_multiprocessors();
    int tiles = call->tile_count * queries / (wide ? 32 : 16);
    if (call->head_size == 64 && wide)
        launch_few<64, 2, false>(&none, call, tiles, 1, queries, stream);
    else if (call->head_size == 64)
        launch_few<64, 1, false>(&none, call, tiles, 1, queries, stream);
    else if (call->head_size == 128 && wide)
        launch_few<128, 2, false>(&none, call, tiles, 1, queries, stream);
    else if (call->head_size == 128)
        launch_few<128, 1, false>(&none, call, tiles, 1, queries, stream);
    else
        launch_few<256, 1, false>(&none, call, tiles, 1, queries, stream);
}
