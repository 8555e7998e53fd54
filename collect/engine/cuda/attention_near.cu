/* Attention of a draft tree's or a block's rows to keys that reach a little way, by Hopper's tensor cores: what counts
 * is how long a call takes from its first load to its last store. A cluster of blocks has up to 64 queries that share a
 * KV head, and all of the blocks' warpgroups have them; tiles of keys go round the blocks, and round the warpgroups of
 * each, which wait for each other only until the queries have come, and when all is joined.
 *
 * Sums stay in the order in which products leave them: a thread hands on its four of two rows and two columns, 16
 * bytes, and the threads that have the same place in their warpgroups join them. Of the columns each warpgroup joins a
 * share for its block, and each block then a share for the cluster, which the others put into its memory.
 *
 * Each block runs its code once, often with no instruction in a cache: so copies are asked for in loops. */
#include "collect/engine/cuda/attention_clusters.cuh"
#include "collect/engine/cuda/attention_groups.cuh"

#define NEAR_LEAST 32               /* packed queries that attend_few() takes at most, where this one could */
#define NEAR_GROUPS 2               /* warpgroups of a block: more wait longer for each other than they save */
#define NEAR_BLOCKS CLUSTER_MAXIMUM /* of a cluster at most: an even number */

/* Shared memory for heads of D: queries; of each warpgroup a tile of keys and one of values, and then sums, in their
 * place if they have one there; pairs of each warpgroup, and of each block of the cluster; sums from those blocks. Sums
 * are columns of eight, with four floats of each of a warpgroup's threads. */
template <int D> struct near_layout {
    static constexpr int GROUPS = NEAR_GROUPS, THREADS = GROUPS * GROUP, KEYS = D < 256 ? 64 : 32;
    static constexpr int EIGHTS = D / 8, SHARE = EIGHTS / GROUPS; /* columns of eight; a warpgroup's */
    static constexpr int EIGHT = GROUP * (int)sizeof(float4), PAIR = GROUP_QUERIES * (int)sizeof(float2);
    static constexpr int TILE = KEYS * D * (int)sizeof(bf16), TILES = GROUP_QUERIES * D * (int)sizeof(bf16);
    static constexpr bool IN_PLACE = 2 * TILE == EIGHTS * EIGHT;
    static constexpr int SUMS = IN_PLACE ? TILES : 0, PAIRS = SUMS + GROUPS * EIGHTS * EIGHT;
    static constexpr int BLOCK_PAIRS = PAIRS + GROUPS * PAIR, BLOCK_SUMS = BLOCK_PAIRS + NEAR_BLOCKS * PAIR;
    static constexpr int BYTES = BLOCK_SUMS + (EIGHTS + NEAR_BLOCKS - 1) * EIGHT + SWIZZLE;
    static_assert(NEAR_BLOCKS % 2 == 0, "each half of a warp has every second block");
    static_assert(TILES + GROUPS * 2 * TILE <= PAIRS, "tiles end before the pairs");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Queues the copy of the block's queries, and zeros behind them. */
template <int D>
static __device__ __forceinline__ void copy_queries(uint32_t to, const struct attention_call &call,
                                                    const struct few_shape &shape, const struct attention_work &work,
                                                    int kv_head)
{
    constexpr int UNITS = D / 8;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < GROUP_QUERIES * UNITS; i += near_layout<D>::THREADS) {
        int query = i / UNITS, unit = i % UNITS;
        bool there = query < work.query_count;
        const bf16 *from =
            (const bf16 *)call.queries + query_at<D>(call, shape, work, kv_head, there ? query : 0, unit * 8);
        copy_start(to + unit_place<GROUP_QUERIES>((unsigned)query, (unsigned)unit), from, there);
    }
}

/* Of a warpgroup. */
static __device__ __forceinline__ void group_meet(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(GROUP) : "memory");
}

/* Scores of keys that are not seen become minus infinity. seen: bits of the tile's keys, of the warp's query `lane`. */
template <int N> static __device__ __forceinline__ void mask(uint64_t seen, float (&scores)[1][N][4])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            uint32_t bits = __shfl_sync(ALL_LANES, (uint32_t)(seen >> n * 8), half * 8 + lane / 4) >> (lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (!(bits & 1u << (i / 2 * 8 + i % 2)))
                    scores[0][n + i / 2][half * 2 + i % 2] = -INFINITY;
        }
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Columns of eight go round the blocks of a cluster: of how many one has the sums at most. */
template <int D> static __device__ __forceinline__ int turns_of(const struct few_shape &shape)
{
    return quotient(near_layout<D>::EIGHTS + shape.blocks - 1, shape.blocks_inverse);
}

/* By what the sums of each of `count` parts are to be multiplied, and the pair of all. Parts are counted from `start`
 * on and round: lane l has, of the warp's query l % 16, the factors of parts l / 16, l / 16 + 2, ... pairs: of the
 * warp's first query in part 0. */
template <int COUNT>
static __device__ __forceinline__ float2 join_pairs(const float2 *pairs, int start, int count,
                                                    float (&factors)[COUNT / 2])
{
    int lane = (int)threadIdx.x % WARP;
    float2 parts[COUNT / 2], all = make_float2(-INFINITY, 0);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        int part = (start + i * 2 + lane / 16) % COUNT;
        parts[i] = part < count ? pairs[part * GROUP_QUERIES + lane % 16] : make_float2(-INFINITY, 0);
        all.x = fmaxf(all.x, parts[i].x);
    }
    all.x = fmaxf(all.x, __shfl_xor_sync(ALL_LANES, all.x, 16));
    float origin = all.x == -INFINITY ? 0 : all.x; /* parts without weights have minus infinity, and do not count */
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        factors[i] = power_of_two((parts[i].x - origin) * LOG2_E);
        all.y = fmaf(factors[i], parts[i].y, all.y);
    }
    all.y += __shfl_xor_sync(ALL_LANES, all.y, 16);
    return all;
}

/* Of the thread's two rows. */
template <int COUNT> static __device__ __forceinline__ float2 factors_of(const float (&factors)[COUNT], int part)
{
    int from = part % 2 * 16 + (int)threadIdx.x % WARP / 4;
    return make_float2(__shfl_sync(ALL_LANES, factors[part / 2], from),
                       __shfl_sync(ALL_LANES, factors[part / 2], from + 8));
}

static __device__ __forceinline__ void add_part(float4 &all, float2 factors, float4 part)
{
    all.x = fmaf(factors.x, part.x, all.x);
    all.y = fmaf(factors.x, part.y, all.y);
    all.z = fmaf(factors.y, part.z, all.z);
    all.w = fmaf(factors.y, part.w, all.w);
}

/* What the warpgroups have, together, to the blocks that join it. The first `used` of them had keys. */
template <int D>
static __device__ __forceinline__ void hand_on(const struct few_shape &shape, const struct few_place &place, int group,
                                               int used, int first, const struct running<D, 1> &running, char *memory)
{
    constexpr int GROUPS = near_layout<D>::GROUPS, SHARE = near_layout<D>::SHARE, EIGHTS = near_layout<D>::EIGHTS;
    int lane = (int)threadIdx.x % WARP, thread = (int)threadIdx.x % GROUP;
    float4 *sums = (float4 *)(memory + near_layout<D>::SUMS) + thread, own[SHARE], joined[SHARE] = {};
    float2 *pairs = (float2 *)(memory + near_layout<D>::PAIRS) + first;
    float factors[GROUPS / 2];
    if (!near_layout<D>::IN_PLACE)
        __syncthreads(); /* all are done with what stood there */
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = running.total[0][half];
        total += __shfl_xor_sync(ALL_LANES, total, 1);
        total += __shfl_xor_sync(ALL_LANES, total, 2);
        if (lane % 4 == 0)
            pairs[group * GROUP_QUERIES + half * 8 + lane / 4] = make_float2(running.best[0][half], total);
    }
#pragma unroll
    for (int to = 0; to < GROUPS; to++) {
        const float(*fours)[4] = &running.sums[0][to * SHARE];
        if (to == group)
#pragma unroll
            for (int i = 0; i < SHARE; i++)
                own[i] = make_float4(fours[i][0], fours[i][1], fours[i][2], fours[i][3]);
        else if (group < used)
#pragma unroll
            for (int i = 0; i < SHARE; i++)
                sums[(group * EIGHTS + to * SHARE + i) * GROUP] =
                    make_float4(fours[i][0], fours[i][1], fours[i][2], fours[i][3]);
    }
    __syncthreads();
    const float2 all = join_pairs<GROUPS>(pairs, group, GROUPS, factors);
#pragma unroll
    for (int part = 0; part < GROUPS; part++) {
        int from = (group + part) % GROUPS;
        float2 own_factors = factors_of(factors, part);
        if (from < used)
#pragma unroll
            for (int i = 0; i < SHARE; i++)
                add_part(joined[i], own_factors,
                         part == 0 ? own[i] : sums[(from * EIGHTS + group * SHARE + i) * GROUP]);
    }

    cluster_wait(); /* all blocks have begun */
    float2 *block_pairs = (float2 *)(memory + near_layout<D>::BLOCK_PAIRS) + place.block * GROUP_QUERIES + first;
#pragma unroll 1
    for (int to = group * 2 + lane / 16; to < shape.blocks; to += GROUPS * 2)
        *in_block(block_pairs + lane % 16, to) = all;
    int turn = quotient(group * SHARE, shape.blocks_inverse), to = group * SHARE - turn * shape.blocks;
    float4 *block_sums = (float4 *)(memory + near_layout<D>::BLOCK_SUMS) + thread;
    block_sums += (place.block * turns_of<D>(shape) + turn) * GROUP;
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        *in_block(block_sums, to) = joined[i];
        if (++to == shape.blocks) {
            to = 0;
            block_sums += GROUP;
        }
    }
}

/* The block's share of what the cluster's blocks have. */
template <int D>
static __device__ __forceinline__ void put_share(const struct attention_call &call, const struct few_shape &shape,
                                                 const struct attention_work &work, const struct few_place &place,
                                                 int group, int first, char *memory)
{
    int lane = (int)threadIdx.x % WARP, row = first + lane / 4;
    const float4 *sums = (const float4 *)(memory + near_layout<D>::BLOCK_SUMS) + threadIdx.x % GROUP;
    float factors[NEAR_BLOCKS / 2];
    bf16 *low = (bf16 *)call.attended + query_at<D>(call, shape, work, place.cluster, row, lane % 4 * 2);
    bf16 *high = (bf16 *)call.attended + query_at<D>(call, shape, work, place.cluster, row + 8, lane % 4 * 2);
    const float2 *pairs = (const float2 *)(memory + near_layout<D>::BLOCK_PAIRS) + first;
    float total = join_pairs<NEAR_BLOCKS>(pairs, 0, shape.blocks, factors).y;
#pragma unroll
    for (int i = 0; i < NEAR_BLOCKS / 2; i++)
        factors[i] *= __fdividef(1.0f, total);
#pragma unroll 1
    for (int turn = group;; turn += near_layout<D>::GROUPS) {
        int eight = turn * shape.blocks + place.block;
        float4 joined = {};
        if (eight >= near_layout<D>::EIGHTS)
            break;
#pragma unroll
        for (int b = 0; b < NEAR_BLOCKS; b++)
            if (b < shape.blocks)
                add_part(joined, factors_of(factors, b), sums[(b * turns_of<D>(shape) + turn) * GROUP]);
        if (row < work.query_count)
            *(uint32_t *)(low + eight * 8) = pack(joined.x, joined.y);
        if (row + 8 < work.query_count)
            *(uint32_t *)(high + eight * 8) = pack(joined.z, joined.w);
    }
}

#endif

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Grid, in clusters: [kv head, tile, part]. */
template <int D>
static __global__ void __launch_bounds__(near_layout<D>::THREADS, 1)
    attend_near(const struct attention_call call, const struct few_shape shape)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int GROUPS = near_layout<D>::GROUPS, KEYS = near_layout<D>::KEYS, TILE = near_layout<D>::TILE;
    extern __shared__ char shared[];
    char *memory = shared + (-shared_address(shared) & (SWIZZLE - 1));
    const struct few_place place = find_place(shape);
    int kv_head = place.cluster, lane = (int)threadIdx.x % WARP, warp = warp_index(), group = warp / 4;
    const struct attention_work work = few_work<GROUP_QUERIES>(call, shape, (int)blockIdx.y, (int)blockIdx.z);
    if (work.splits == 0) {
        if (blockIdx.z == 0) /* if none waited, this kernel could end before the one before it */
            wait_for_previous();
        return;
    }
    cluster_arrive();

    const struct attention_segment &segment = work.segment;
    size_t cache = (size_t)(segment.session * call.kv_heads + kv_head) * (size_t)call.capacity * D;
    const bf16 *keys = (const bf16 *)call.keys + cache, *values = (const bf16 *)call.values + cache;
    char *area = memory + near_layout<D>::TILES + group * 2 * TILE;
    /* A tile's keys, or values. */
    auto copy = [&](int which, int key) {
        const bf16 *from = (which ? values : keys) + (size_t)(unsigned)key * D;
        copy_rows<D, KEYS, GROUP, 2>(shared_address(area + which * TILE), from, work.to - key, threadIdx.x % GROUP);
    };
    int first = warp % 4 * 16, last = work.query_count - 1; /* queries of the warp, and of the block */
    const struct attention_cut cut = cut_of(call, segment, row_of(shape, work.query), row_of(shape, work.query + last));
    int row = row_of(shape, work.query + min(first + lane % 16, last)); /* that the lane looks up */
    int round = shape.blocks * KEYS, key = work.from + place.block * KEYS;
    int used = 0; /* warpgroups that have keys */
    while (used < GROUPS && key + used * round < work.to)
        used++;
    key += group * round;
    struct running<D, 1> running;
#pragma unroll 1
    for (bool asked = false;; key += GROUPS * round) {
        bool any = key < work.to, masked = any && (key + KEYS > cut.new_from || key < cut.window_to);
        bool early = key + KEYS <= segment.base;
        uint64_t seen = 0;
        /* At first, what is committed is asked for while the kernel before ends, and then what is new. */
#pragma unroll 1
        for (int when = asked; when < 2; when++) {
            if (when == 1 && masked)
                seen = sees(call, segment, row, key);
            if (asked)
                break;
            if (when == 1) {
                int parts = (segment.count * shape.group + GROUP_QUERIES - 1) / GROUP_QUERIES * shape.blocks;
                int part = work.query / GROUP_QUERIES * shape.blocks + place.block;
                ask_for_keys<D>(keys, values, work.from + GROUPS * round, min(work.to, segment.base),
                                part * GROUPS * GROUP + (int)threadIdx.x, parts * GROUPS * GROUP);
                wait_for_previous();
                let_next_start();
                copy_queries<D>(shared_address(memory), call, shape, work, kv_head);
            }
#pragma unroll 1
            for (int which = 0; which < 2; which++) {
                if (any && early == (when == 0))
                    copy(which, key);
                if (when == 1) /* queries and keys, or all, and then values */
                    copies_commit();
            }
        }
        if (!asked)
            start(running);
        copies_wait<1>();
        show_copies();
        if (asked)
            group_meet(group);
        else
            __syncthreads(); /* all have brought some of the queries */
        asked = true;
        if (!any)
            break;
        bool more = key + GROUPS * round < work.to;
        float scores[1][KEYS / 8][4];
        score<D, GROUP_QUERIES, KEYS>(describe_tile(memory), describe_tile(area), *(float(*)[KEYS / 2]) & scores);
        if (masked)
            mask(seen, scores);
        weigh<D, 1, KEYS / 8>(running, scores);
        copies_wait<0>();
        show_copies();
        group_meet(group); /* the values are there, and all are done with the keys */
        if (more)
            copy(0, key + GROUPS * round);
        copies_commit();
        add_values<D, KEYS>(*(float(*)[D / 2]) & running.sums, scores, describe_tile(area + TILE, KEYS * PANEL_ROW));
        group_meet(group); /* all are done with the values */
        if (!more)
            break;
        copy(1, key + GROUPS * round);
        copies_commit();
    }
    hand_on<D>(shape, place, group, used, first, running, memory);
    cluster_meet();
    put_share<D>(call, shape, work, place, group, first, memory);
#endif
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* As many blocks share out the keys as have a place while all have one: so no block waits until another has ended. Of a
 * segment that has all rows the queries are parts of its first tile; otherwise some parts may be idle. */
template <int D> static void launch_near(const struct attention_call *call, int queries, cudaStream_t stream)
{
    constexpr int THREADS = near_layout<D>::THREADS, BYTES = near_layout<D>::BYTES;
    int group = call->heads / call->kv_heads, packed = call->longest * group;
    bool alone = call->rows == call->longest && call->tile_count == (packed + queries - 1) / queries;
    int tiles = alone ? 1 : call->tile_count, most = alone ? packed : least(queries, packed);
    int parts = (most + GROUP_QUERIES - 1) / GROUP_QUERIES, count = call->kv_heads * tiles * parts;
    int blocks = least(NEAR_BLOCKS, device_multiprocessors() / count);
    CUDA_CHECK(cudaFuncSetAttribute(attend_near<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    while (blocks > 1 && count_clusters(attend_near<D>, (unsigned)blocks, THREADS, BYTES) < count)
        blocks--;
    blocks = blocks < 1 ? 1 : blocks;
    dim3 grid((unsigned)(call->kv_heads * blocks), (unsigned)tiles, (unsigned)parts);
    launch_clusters(attend_near<D>, (unsigned)blocks, grid, THREADS, BYTES, stream, *call,
                    shape_of(group, GROUP_QUERIES, blocks, parts));
}

bool attend_near_takes(const struct attention_call *call)
{
    return device_has_wgmma() && device_overlaps() && has_size(call->type, call->head_size) && call->reach > 0 &&
           call->reach <= ATTENTION_NEAR && call->longest * (call->heads / call->kv_heads) > NEAR_LEAST &&
           parts_of(call, GROUP_QUERIES) * call->kv_heads <= device_multiprocessors();
}

void attend_near_queries(const struct attention_call *call, int queries, cudaStream_t stream)
{
    if (call->head_size == 64)
        launch_near<64>(call, queries, stream);
    else if (call->head_size == 128)
        launch_near<128>(call, queries, stream);
    else
        launch_near<256>(call, queries, stream);
}
