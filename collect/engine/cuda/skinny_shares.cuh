/* How blocks share out a matrix of skinny.cu: whole tiles of outputs in turn; shares of the inputs within a cluster; or
 * the last turn's inputs evenly over all blocks (stream-K, Osama et al. 2023). And how shares are added. */
#ifndef COLLECT_ENGINE_CUDA_SKINNY_SHARES_CUH
#define COLLECT_ENGINE_CUDA_SKINNY_SHARES_CUH

#include "collect/engine/cuda/hopper.cuh"

#define GROUP 128          /* threads of a warpgroup */
#define WIDE_GROUPS 5      /* of a block that has more outputs than the others' can take */
#define LATE_COUNTERS 1024 /* at the begin of the scratch; as many multiprocessors may be */

/* --- what a block has to do --------------------------------------------------------------------------------------- */

struct work {
    struct skinny_call call;
    int tiles, chunks, stages;       /* chunks: tiles of inputs */
    int turns, left;                 /* of whole tiles; tiles behind them, whose inputs all blocks share out */
    short starts[SKINNY_SPLITS + 1]; /* the first chunk of a cluster's shares */
};

/* What a block has to do at a time: a share of a tile's inputs. */
struct piece {
    int tile, first, last;
    int late; /* -1; or of those left, which of this block's two at most */
};

/* Of the chunks of all tiles left, the first that is the block's. */
static __device__ __forceinline__ int late_start(const struct work &work, int block)
{
    return work.left * work.chunks * block / (int)gridDim.x;
}

/* Whose chunk `at` of those is. */
static __device__ __forceinline__ int late_owner(const struct work &work, int at)
{
    return ((at + 1) * (int)gridDim.x - 1) / (work.left * work.chunks);
}

/* The block's piece number `turn`; tile < 0: there is none. */
static __device__ __forceinline__ struct piece piece_of(const struct work &work, int turn)
{
    int cluster, clusters, split, late = turn - work.turns;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(split));
    if (late < 0) {
        int tile = turn * clusters + cluster;
        return {tile < work.tiles ? tile : -1, work.starts[split], work.starts[split + 1], -1};
    }
    if (late > 1 || work.left == 0)
        return {-1, 0, 0, 0};
    int start = late_start(work, cluster), end = late_start(work, cluster + 1), tile = start / work.chunks;
    int first = start - tile * work.chunks, last = end - tile * work.chunks;
    if (late == 0)
        return {work.turns * clusters + tile, first, min(last, work.chunks), 0};
    return {last > work.chunks ? work.turns * clusters + tile + 1 : -1, 0, last - work.chunks, 1};
}

/* --- the shares of a cluster -------------------------------------------------------------------------------------- */

/* All blocks of the cluster, and what they wrote to their shared memory before. */
static __device__ __forceinline__ void meet_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same, where nothing that was written has to be seen: they have all read what they wanted. */
static __device__ __forceinline__ void leave_cluster(void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

#define BATCH 4 /* rows that a warp ends together */

/* Results of rows first, first + step, ... in place of the block's own: the sums of what all blocks of the cluster have
 * of them. Only the block that ends a row reads it from the others. */
template <int GROUPS>
static __device__ __forceinline__ void add_shares(float *results, int pitch, int first, int step, int rows, int blocks)
{
    float2 sums[BATCH][GROUPS] = {};
    uint32_t address = shared_address(results + first * pitch + (int)threadIdx.x % WARP * 2);
#pragma unroll(GROUPS < 3 ? 2 : 1)
    for (int block = 0; block < blocks; block++) {
        uint32_t there;
        float2 more[BATCH][GROUPS] = {};
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#pragma unroll
        for (int k = 0; k < BATCH; k++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                if (first + k * step < rows)
                    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                                 : "=f"(more[k][g].x), "=f"(more[k][g].y)
                                 : "r"(there + (uint32_t)((k * step * pitch + g * 64) * (int)sizeof(float)))
                                 : "memory");
#pragma unroll
        for (int i = 0; i < BATCH * GROUPS; i++) {
            sums[i / GROUPS][i % GROUPS].x += more[i / GROUPS][i % GROUPS].x;
            sums[i / GROUPS][i % GROUPS].y += more[i / GROUPS][i % GROUPS].y;
        }
    }
#pragma unroll
    for (int i = 0; i < BATCH * GROUPS; i++)
        if (first + i / GROUPS * step < rows)
            *(float2 *)(results + (first + i / GROUPS * step) * pitch + i % GROUPS * 64 + (int)threadIdx.x % WARP * 2) =
                sums[i / GROUPS][i % GROUPS];
    __syncwarp();
}

/* --- shares of a last turn ---------------------------------------------------------------------------------------- */

/* Where a thread leaves its sums of the block's late piece `which`, 4 at a time: [blocks, 2, N / 8, threads] behind the
 * counters. */
template <int N, int GROUPS>
static __device__ __forceinline__ float4 *late_sums(const struct work &work, int block, int which)
{
    return (float4 *)work.call.scratch + LATE_COUNTERS / 4 + (block * 2 + which) * (N / 8) * GROUP * GROUPS +
           (int)threadIdx.x;
}

/* The blocks that have a share of a late tile. */
struct sharers {
    int first, last, first_piece; /* first_piece: which of the first one's */
};

static __device__ __forceinline__ struct sharers sharers_of(const struct work &work, int late_tile)
{
    int start = late_tile * work.chunks, first = late_owner(work, start);
    return {first, late_owner(work, start + work.chunks - 1), late_start(work, first) < start};
}

/* Leaves the thread's sums there. Whether the block is the last to: then they become those of all sharers, added in
 * their order. All warps that multiply call. */
template <int N, int GROUPS>
static __device__ __forceinline__ bool join_late(const struct work &work, const struct piece &piece, float (&d)[N / 2])
{
    constexpr int THREADS = GROUP * GROUPS;
    __shared__ bool is_last;
    int tile = piece.tile - work.turns * (int)gridDim.x;
    const struct sharers sharers = sharers_of(work, tile);
    float4 *own = late_sums<N, GROUPS>(work, (int)blockIdx.x, piece.late);
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        __stcg(own + i * THREADS, make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]));
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    if (threadIdx.x == 0) {
        unsigned *arrived = (unsigned *)work.call.scratch + tile, before;
        asm volatile("fence.acq_rel.gpu;\natom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(arrived)
                     : "memory");
        is_last = before == (unsigned)(sharers.last - sharers.first);
        if (is_last)
            *arrived = 0;
    }
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    if (!is_last)
        return false;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
#pragma unroll 2
    for (int block = sharers.first; block <= sharers.last; block++) {
        const float4 *from = late_sums<N, GROUPS>(work, block, block == sharers.first ? sharers.first_piece : 0);
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            float4 more = __ldcg(from + i * THREADS);
            d[4 * i] += more.x;
            d[4 * i + 1] += more.y;
            d[4 * i + 2] += more.z;
            d[4 * i + 3] += more.w;
        }
    }
    return true;
}

#endif
