/* What attention_few.cu's kernel is made of: chunks of keys on tensor cores, and results of warps and blocks together.
 *
 * The fragments of mma.cuh are filled in another order than elsewhere. Of keys and queries the dimensions 32 j + 8 t,
 * ..., + 7 are lane t's of its two k-steps 2 j and 2 j + 1, 16 bytes that it loads at once: which dimension is which
 * does not matter to a sum over them. Of values, column g of the n-tile 8 u + e is dimension 64 u + 8 g + e, so that a
 * lane's 16 bytes of four keys are its halves of 8 n-tiles. */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_FEW_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_FEW_CUH

#include "collect/engine/cuda/attention_clusters.cuh"
#include "collect/engine/cuda/attention_softmax.cuh"

#define CHUNK 16        /* keys */
#define TURNS 3         /* chunks that each warp has taken before single rows' keys are split between more clusters */
#define TURNS_AT_HALF 2 /* that trees' clusters take at most while half of the multiprocessors have none */

/* Of heads of D elements, M * 16 queries. Blocks of single ROWS are small: the products before and after them, whose
 * blocks take what they leave, ask for weights meanwhile. Memory: queries, the new key and the new value, sums of each
 * warp, pairs of each warp and of all. */
template <int D, int M, bool ROWS = false> struct few {
    static constexpr int WARPS = ROWS ? 6 : D * M <= 128 ? 12 : 8, THREADS = WARPS * WARP;
    static constexpr int SHARE = WARPS * TURNS;            /* chunks of a block, before a row's are split */
    static constexpr int PLACES = ROWS && D < 256 ? 2 : 1; /* for blocks on a multiprocessor, at least */
    static constexpr int QUERIES = 16 * M;
    static constexpr int PART = D < 128 ? D : 128; /* dimensions that are loaded at a time */
    static constexpr int QUERY_PITCH = D + 32, QUERY_BYTES = (QUERIES + 2) * QUERY_PITCH * (int)sizeof(bf16);
    static constexpr int UNITS = D / 4; /* of a query's sums, of four columns each */
};

/* --- chunks of keys ---------------------------------------------------------------------------------------------- */

/* A lane's share of PART dimensions of a chunk. */
template <int PART> struct chunk {
    uint4 keys[2][PART / 32], values[PART / 64][4];
};

/* Which of a chunk's keys, or values, a lane has; and which dimensions first. */
static __device__ __forceinline__ int key_of(int lane, int n)
{
    return n * 8 + lane / 4;
}

static __device__ __forceinline__ int value_of(int lane, int i)
{
    return lane % 4 * 2 + i / 2 * 8 + i % 2;
}

/* Rows behind `last` are replaced by it; their scores will be masked. */
template <int D, int PART>
static __device__ __forceinline__ void fetch_keys(struct chunk<PART> &chunk, const bf16 *keys, int first, int last)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const bf16 *from = keys + (size_t)(unsigned)min(first + key_of(lane, n), last) * D + lane % 4 * 8;
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
        const bf16 *from = values + (size_t)(unsigned)min(first + value_of(lane, i), last) * D + lane / 4 * 8;
#pragma unroll
        for (int u = 0; u < PART / 64; u++)
            chunk.values[u][i] = *(const uint4 *)(from + u * 64);
    }
}

/* Rows from `base` on become the new key, or the new value, which are in shared memory. */
template <int PART>
static __device__ __forceinline__ void patch_keys(struct chunk<PART> &chunk, const bf16 *key, int first, int base)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < 2; n++)
        if (first + key_of(lane, n) >= base)
#pragma unroll
            for (int j = 0; j < PART / 32; j++)
                chunk.keys[n][j] = *(const uint4 *)(key + lane % 4 * 8 + j * 32);
}

template <int PART>
static __device__ __forceinline__ void patch_values(struct chunk<PART> &chunk, const bf16 *value, int first, int base)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + value_of(lane, i) >= base)
#pragma unroll
            for (int u = 0; u < PART / 64; u++)
                chunk.values[u][i] = *(const uint4 *)(value + lane / 4 * 8 + u * 64);
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

/* Scores of keys that are not seen become minus infinity. seen: bits of the chunk's keys, of query `lane`. */
template <int M> static __device__ __forceinline__ void mask(uint32_t seen, float (&scores)[M][2][4])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t bits = __shfl_sync(ALL_LANES, seen, m * 16 + half * 8 + lane / 4) >> (lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (!(bits & 1u << (n * 8 + i)))
                        scores[m][n][half * 2 + i] = -INFINITY;
        }
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Sums of some keys' weights and weighted values, of four columns of a query, above the largest score. */
struct few_sums {
    float best, total;
    float4 sums;
};

static __device__ __forceinline__ struct few_sums sums_at(const float2 *pair, const float *sums)
{
    const float2 held = *pair;
    return {held.x, held.y, *(const float4 *)sums};
}

/* Parts 0, ..., COUNT - 1 together, in their order; those that have no weights do not count. */
template <int COUNT> static __device__ __forceinline__ struct few_sums join_sums(const struct few_sums (&parts)[COUNT])
{
    struct few_sums all = {-INFINITY, 0, {}};
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        all.best = fmaxf(all.best, parts[i].total > 0 ? parts[i].best : -INFINITY);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float factor = parts[i].total > 0 ? power_of_two((parts[i].best - all.best) * LOG2_E) : 0;
        all.total = fmaf(factor, parts[i].total, all.total);
        all.sums.x = fmaf(factor, parts[i].sums.x, all.sums.x);
        all.sums.y = fmaf(factor, parts[i].sums.y, all.sums.y);
        all.sums.z = fmaf(factor, parts[i].sums.z, all.sums.z);
        all.sums.w = fmaf(factor, parts[i].sums.w, all.sums.w);
    }
    return all;
}

/* Where a unit of a query's sums stands in shared memory: units of queries that are stored at once lie in other banks.
 */
template <int D> static __device__ __forceinline__ int unit_at(int query, int unit)
{
    return query * D + (unit ^ query % 2 * 4) * 4;
}

/* A warp's results of `count` queries to shared memory. Of lane t = lane % 4, four n-tiles' columns in turn are unit
 * 16 u + 4 v + t, v = 2 (second column) + (second four): so lanes that store at once store side by side. */
template <int D, int M>
static __device__ __forceinline__ void leave_sums(const struct running<D, M> &running, int count, float *sums,
                                                  float2 *pairs)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = running.total[m][half];
            int query = m * 16 + half * 8 + lane / 4;
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            if (query >= count)
                continue;
            if (lane % 4 == 0)
                pairs[query] = make_float2(running.best[m][half], total);
#pragma unroll
            for (int v = 0; v < D / 16; v++) {
                const float(*four)[4] = &running.sums[m][v / 4 * 8 + v % 2 * 4];
                int column = half * 2 + v / 2 % 2;
                *(float4 *)(sums + unit_at<D>(query, v % 2 * 4 + lane % 4) + v / 2 * 32) =
                    make_float4(four[0][column], four[1][column], four[2][column], four[3][column]);
            }
        }
}

/* The first column of a unit. */
static __device__ __forceinline__ int column_of(int unit)
{
    return unit / 16 * 64 + unit % 4 * 16 + unit / 8 % 2 * 8 + unit / 4 % 2 * 4;
}

/* What the block, or all splits but the join, know of a unit. */
template <int D>
static __device__ __forceinline__ void put_sums(const struct attention_call &call, const struct few_shape &shape,
                                                const struct attention_work &work, int kv_head, int query, int unit,
                                                const struct few_sums &all)
{
    size_t at = query_at<D>(call, shape, work, kv_head, query, column_of(unit));
    if (work.splits == 1) {
        float scale = __fdividef(1.0f, all.total);
        *(uint2 *)((bf16 *)call.attended + at) =
            make_uint2(pack(all.sums.x * scale, all.sums.y * scale), pack(all.sums.z * scale, all.sums.w * scale));
        return;
    }
    size_t size = (size_t)call.rows * (size_t)call.heads; /* of a split, in queries */
    float *parts = call.partial + ATTENTION_COUNTERS;
    *(float4 *)(parts + (size_t)work.split * size * D + at) = all.sums;
    if (unit == 0)
        ((float2 *)(parts + (size_t)gridDim.z * size * D))[(size_t)work.split * size + at / D] =
            make_float2(all.best, all.total);
}

/* What the warps have, together, in place of the first warp's sums; then what the blocks of the cluster have, each
 * for some of the queries. */
template <int D, int M, bool ROWS>
static __device__ __forceinline__ void put_merged(const struct attention_call &call, const struct few_shape &shape,
                                                  const struct attention_work &work, const struct few_place &place,
                                                  const struct running<D, M> &running, int warp, float *sums)
{
    constexpr int WARPS = few<D, M, ROWS>::WARPS, UNITS = few<D, M>::UNITS, THREADS = few<D, M, ROWS>::THREADS;
    int held = shape.held;
    float2 *pairs = (float2 *)(sums + WARPS * held * D), *own_pairs = pairs + WARPS * held;
    leave_sums<D, M>(running, work.query_count, sums + warp * held * D, pairs + warp * held);
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < work.query_count * UNITS; i += THREADS) {
        int query = i / UNITS, unit = i % UNITS;
        float *own = sums + unit_at<D>(query, unit);
        struct few_sums parts[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            parts[w] = sums_at(&pairs[w * held + query], own + w * held * D);
        const struct few_sums all = join_sums(parts);
        *(float4 *)own = all.sums;
        if (unit == 0)
            own_pairs[query] = make_float2(all.best, all.total);
    }
    cluster_meet();
#pragma unroll 1
    for (int i = (int)threadIdx.x;; i += THREADS) {
        int query = i / UNITS * shape.blocks + place.block, unit = i % UNITS;
        struct few_sums parts[CLUSTER_MAXIMUM] = {};
        if (query >= work.query_count)
            break;
#pragma unroll
        for (int b = 0; b < CLUSTER_MAXIMUM; b++)
            if (b < shape.blocks)
                parts[b] = sums_at(in_block(&own_pairs[query], b), in_block(sums + unit_at<D>(query, unit), b));
        put_sums<D>(call, shape, work, place.cluster, query, unit, join_sums(parts));
    }
    if (ROWS && work.splits > 1) /* the first block tells that the cluster's parts are there, of which it put some */
        __threadfence();
    cluster_leave(); /* the others may still read here */
}

#endif
