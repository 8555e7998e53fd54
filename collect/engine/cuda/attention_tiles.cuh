/* What attention's kernels share whose queries and keys go through shared memory, a tile at a time, whichever
 * instructions multiply there. */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_TILES_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_TILES_CUH

#include "collect/engine/cuda/attention_softmax.cuh"

/* Queries of a block and keys that it takes at a time, for heads of D. */
template <int D> struct tile_size {
    static constexpr int QUERIES = D <= 128 ? 128 : 64, KEYS = D <= 128 ? 64 : 32;
};

/* Goes through the keys of a block's part, a tile at a time, in two stages of shared memory. copy_queries() and
 * copy(stage, keys, values, count) queue copies; of a tile's keys the first `count` are there. use(stage, seen) has all
 * of the block's threads; seen: of each query a bit set of the tile's keys, or NULL where all are seen. memory: [2,
 * QUERIES]. ASYNC: tensor cores read the stages by themselves. */
template <int D, int QUERIES, bool ASYNC, typename CopyQueries, typename Copy, typename Use>
static __device__ __forceinline__ void walk_keys(const struct attention_call &call, const struct attention_work &work,
                                                 int kv_head, uint64_t *memory, const CopyQueries &copy_queries,
                                                 const Copy &copy, const Use &use)
{
    constexpr int KEYS = tile_size<D>::KEYS;
    const struct attention_segment &segment = work.segment;
    size_t cache = ((size_t)segment.session * (size_t)call.kv_heads + (size_t)kv_head) * (size_t)call.capacity;
    const bf16 *keys = (const bf16 *)call.keys + cache * D, *values = (const bf16 *)call.values + cache * D;
    int group = call.heads / call.kv_heads, last = work.query + work.query_count - 1;
    const struct attention_cut cut = find_cut(call, work);
    auto copy_from = [&](int stage, int key) {
        copy(stage, keys + (size_t)key * D, values + (size_t)key * D, work.to - key);
    };

    /* What was committed before is read while the kernel before this one ends. */
    int ready = work.from + 2 * KEYS <= min(segment.base, work.to) ? 2 : work.from + KEYS <= segment.base, stage = 0;
#pragma unroll 1
    for (int i = 0; i < ready; i++)
        copy_from(i, work.from + i * KEYS);
    wait_for_previous();
    let_next_start();
    copy_queries();
#pragma unroll 1
    for (int i = ready; i < 2; i++) {
        if (i == 1)
            copies_commit();
        if (work.from + i * KEYS < work.to)
            copy_from(i, work.from + i * KEYS);
    }
    copies_commit();
    for (int key = work.from; key < work.to; key += KEYS, stage ^= 1) {
        bool masked = key + KEYS > cut.new_from || key < cut.window_to;
        uint64_t *seen = memory + stage * QUERIES;
        if (masked && (int)threadIdx.x < QUERIES)
            seen[threadIdx.x] = sees(call, segment, min(work.query + (int)threadIdx.x, last) / group, key);
        if (key == work.from && ready < 2)
            copies_wait<1>();
        else
            copies_wait<0>();
        if (ASYNC)
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads(); /* and all are done with the tile before, in whose place the next one comes */
        if (key > work.from && key + KEYS < work.to) {
            copy_from(stage ^ 1, key + KEYS);
            copies_commit();
        }
        use(stage, masked ? seen : NULL);
    }
}

/* Scores of keys that are not seen become minus infinity. seen: of the warp's queries, from the warp's first key on. */
template <int M, int N>
static __device__ __forceinline__ void mask(const uint64_t *seen, int first_key, float (&scores)[M][N][4])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint64_t bits = seen[m * 16 + half * 8 + lane / 4] >> (first_key + lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (!(bits >> (n * 8 + i) & 1))
                        scores[m][n][half * 2 + i] = -INFINITY;
        }
}

/* Lane's rows of a warp's queries from `first` on: to the output, or to the parts of this split. */
template <int D, int M>
static __device__ __forceinline__ void put_rows(const struct attention_call &call, const struct attention_work &work,
                                                int kv_head, int first, const struct running<D, M> &running)
{
    int lane = (int)threadIdx.x % WARP, split = work.split, row, head;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = running.total[m][half];
            int query = first + m * 16 + half * 8 + lane / 4;
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            if (query >= work.query_count)
                continue;
            unpack(call, work.segment, kv_head, work.query + query, &row, &head);
            if (work.splits == 1) {
                bf16 *out = attended_at<bf16>(call, row, head) + lane % 4 * 2;
                float factor = 1 / total;
#pragma unroll
                for (int d = 0; d < D / 8; d++)
                    *(uint32_t *)(out + d * 8) =
                        pack(running.sums[m][d][half * 2] * factor, running.sums[m][d][half * 2 + 1] * factor);
                continue;
            }
            float *out = part_sums(call, split, row, head) + lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                *(float2 *)(out + d * 8) = make_float2(running.sums[m][d][half * 2], running.sums[m][d][half * 2 + 1]);
            if (lane % 4 == 0)
                *part_pair(call, (int)gridDim.z, split, row, head) = make_float2(running.best[m][half], total);
        }
}

#endif
