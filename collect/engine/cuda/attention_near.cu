/* Attention of a draft tree's or a block's rows to keys that reach a little way, by Hopper's tensor cores: what counts
 * is how long a call takes from its first load to its last store. A cluster of blocks has up to 64 queries that share a
 * KV head, and all of the blocks' warpgroups have them; tiles of keys go round the blocks, and round the warpgroups of
 * each, which wait for each other only until the queries have come, and when all is joined.
 *
 * Sums stay in the order in which products leave them: a thread hands on its four of two rows and two columns, 16
 * bytes, and the threads that have the same place in their warpgroups join them. Of the columns each warpgroup joins a
 * share for its block, and each block then a share for the cluster, which the others send into its memory: their bytes
 * are counted there by a barrier, so that nobody waits for a fence.
 *
 * Each block runs its code once, often with no instruction in a cache: so copies are asked for in loops. */
#include "collect/engine/cuda/attention_clusters.cuh"
#include "collect/engine/cuda/attention_groups.cuh"

#define NEAR_LEAST 32               /* packed queries that attend_few() takes at most, where this one could */
#define NEAR_GROUPS 2               /* warpgroups of a block: more wait longer for each other than they save */
#define NEAR_BLOCKS CLUSTER_MAXIMUM /* of a cluster at most: an even number */

/* Columns of eight go round the blocks of a cluster: how many the others send to one at most, in clusters of up to
 * `blocks`. */
static constexpr int eights_from_others(int eights, int blocks)
{
    int most = 0;
    for (int b = 2; b <= blocks; b++)
        if ((b - 1) * ((eights + b - 1) / b) > most)
            most = (b - 1) * ((eights + b - 1) / b);
    return most;
}

/* Shared memory for heads of D: queries; of each warpgroup two tiles of keys and of values, and then sums in their
 * place; pairs of each warpgroup, and of each block of the cluster; sums from those blocks. Sums are columns of eight,
 * with four floats of each of a warpgroup's threads. */
template <int D> struct near_layout {
    static constexpr int GROUPS = NEAR_GROUPS, THREADS = GROUPS * GROUP, KEYS = D < 256 ? 64 : 32;
    static constexpr int EIGHTS = D / 8, SHARE = EIGHTS / GROUPS; /* columns of eight; a warpgroup's */
    static constexpr int EIGHT = GROUP * (int)sizeof(float4), PAIR = GROUP_QUERIES * (int)sizeof(float2);
    static constexpr int TILE = KEYS * D * (int)sizeof(bf16), AREA = 4 * TILE; /* a warpgroup's */
    static constexpr int AREAS = GROUP_QUERIES * D * (int)sizeof(bf16), PAIRS = AREAS + GROUPS * AREA;
    static constexpr int BLOCK_PAIRS = PAIRS + GROUPS * PAIR, BLOCK_SUMS = BLOCK_PAIRS + NEAR_BLOCKS * PAIR;
    static constexpr int BYTES = BLOCK_SUMS + eights_from_others(EIGHTS, NEAR_BLOCKS) * EIGHT + SWIZZLE;
    static_assert(NEAR_BLOCKS % 2 == 0, "each half of a warp has every second block");
    static_assert(EIGHTS * EIGHT <= AREA, "sums have a place where the tiles were");
    static_assert(BYTES + 16 <= SHARED_MAXIMUM, "with a barrier beside it");
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

/* The first turn in which columns of eight from `first` on are the block's, which has a column each turn. */
static __device__ __forceinline__ int turn_of(const struct few_shape &shape, const struct few_place &place, int first)
{
    return quotient(first + shape.blocks - 1 - place.block, shape.blocks_inverse);
}

/* The thread's sums of a column of eight, in its warpgroup or another. */
template <int D> static __device__ __forceinline__ float4 *sums_of(char *memory, int group, int eight)
{
    return (float4 *)(memory + near_layout<D>::AREAS + group * near_layout<D>::AREA + eight * near_layout<D>::EIGHT) +
           threadIdx.x % GROUP;
}

/* Where a block has those of a turn that others send to it: from there on, in the blocks' order. */
template <int D>
static __device__ __forceinline__ float4 *sent_of(const struct few_shape &shape, char *memory, int turn)
{
    int before = turn * (shape.blocks - 1) * near_layout<D>::EIGHT;
    return (float4 *)(memory + near_layout<D>::BLOCK_SUMS + before) + threadIdx.x % GROUP;
}

/* A block is sent sums and pairs by the others, which end its barrier's only phase: so none ends while something is on
 * its way to it. By one thread, before the blocks have met. A block that is alone is sent nothing. */
template <int D>
static __device__ __forceinline__ void expect_parts(const struct few_shape &shape, const struct few_place &place,
                                                    uint64_t *arrived)
{
    int bytes = turn_of(shape, place, near_layout<D>::EIGHTS) * near_layout<D>::EIGHT + near_layout<D>::PAIR;
    barrier_init(arrived, 1);
    barrier_expect(arrived, (unsigned)((shape.blocks - 1) * bytes));
    barriers_show();
}

/* By what the sums of each of `count` parts are to be multiplied, and the pair of all. Parts are counted from `start`
 * on and round: lane l has, of the warp's query l % 16, the factors of parts l / 16, l / 16 + 2, ... pairs: of the
 * warp's first query in part 0; of part `held` (-1: of none) each lane has its query's in own. */
template <int COUNT>
static __device__ __forceinline__ float2 join_pairs(const float2 *pairs, int start, int count, int held, float2 own,
                                                    float (&factors)[COUNT / 2])
{
    int lane = (int)threadIdx.x % WARP;
    float2 parts[COUNT / 2], all = make_float2(-INFINITY, 0);
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        int part = (start + i * 2 + lane / 16) % COUNT;
        parts[i] = make_float2(-INFINITY, 0);
        if (part < count)
            parts[i] = part == held ? own : pairs[part * GROUP_QUERIES + lane % 16];
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

/* What the warpgroups have, together, to the blocks that join it; the pair of query lane % 16 of the warp's. The first
 * `used` of them had keys. */
template <int D>
static __device__ __forceinline__ float2 hand_on(const struct few_shape &shape, const struct few_place &place,
                                                 int group, int used, int first, const struct running<D, 1> &running,
                                                 char *memory, uint64_t *arrived)
{
    constexpr int GROUPS = near_layout<D>::GROUPS, SHARE = near_layout<D>::SHARE;
    int lane = (int)threadIdx.x % WARP;
    float4 own[SHARE], joined[SHARE] = {};
    float2 *pairs = (float2 *)(memory + near_layout<D>::PAIRS) + first;
    float factors[GROUPS / 2];
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
                *sums_of<D>(memory, group, to * SHARE + i) =
                    make_float4(fours[i][0], fours[i][1], fours[i][2], fours[i][3]);
    }
    __syncthreads();
    __syncthreads(); /* once would do: but racecheck loses sight of a block that meets after its warpgroups did */
    const float2 all = join_pairs<GROUPS>(pairs, group, GROUPS, -1, make_float2(0, 0), factors);
#pragma unroll
    for (int part = 0; part < GROUPS; part++) {
        int from = (group + part) % GROUPS;
        float2 own_factors = factors_of(factors, part);
        if (from < used)
#pragma unroll
            for (int i = 0; i < SHARE; i++)
                add_part(joined[i], own_factors, part == 0 ? own[i] : *sums_of<D>(memory, from, group * SHARE + i));
    }

    cluster_wait(); /* all blocks have begun */
    float2 *block_pairs = (float2 *)(memory + near_layout<D>::BLOCK_PAIRS) + place.block * GROUP_QUERIES + first;
#pragma unroll 1
    for (int to = group * 2 + lane / 16; to < shape.blocks; to += GROUPS * 2)
        if (to != place.block)
            send(block_pairs + lane % 16, all, to, arrived);
    int turn = quotient(group * SHARE, shape.blocks_inverse), to = group * SHARE - turn * shape.blocks;
    float4 *sent = sent_of<D>(shape, memory, turn) + place.block * GROUP;
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        if (to == place.block)
            *sums_of<D>(memory, group, group * SHARE + i) = joined[i]; /* for this thread */
        else
            send(sent - (place.block > to) * GROUP, joined[i], to, arrived);
        if (++to == shape.blocks) {
            to = 0;
            sent += (shape.blocks - 1) * GROUP;
        }
    }
    return all;
}

/* The block's share of what the cluster's blocks have. own: what hand_on() answered. */
template <int D>
static __device__ __forceinline__ void put_share(const struct attention_call &call, const struct few_shape &shape,
                                                 const struct attention_work &work, const struct few_place &place,
                                                 int group, int first, float2 own, char *memory)
{
    constexpr int SHARE = near_layout<D>::SHARE;
    int lane = (int)threadIdx.x % WARP, row = first + lane / 4;
    float factors[NEAR_BLOCKS / 2];
    float2 own_factors[NEAR_BLOCKS];
    bf16 *low = (bf16 *)call.attended + query_at<D>(call, shape, work, place.cluster, row, lane % 4 * 2);
    bf16 *high = (bf16 *)call.attended + query_at<D>(call, shape, work, place.cluster, row + 8, lane % 4 * 2);
    const float2 *pairs = (const float2 *)(memory + near_layout<D>::BLOCK_PAIRS) + first;
    float total = join_pairs<NEAR_BLOCKS>(pairs, 0, shape.blocks, place.block, own, factors).y;
#pragma unroll
    for (int i = 0; i < NEAR_BLOCKS / 2; i++)
        factors[i] *= __fdividef(1.0f, total);
#pragma unroll
    for (int b = 0; b < NEAR_BLOCKS && b < shape.blocks; b++)
        own_factors[b] = factors_of(factors, b);
    int turn = turn_of(shape, place, group * SHARE);
    const float4 *sent = sent_of<D>(shape, memory, turn); /* is read from there on */
#pragma unroll 1
    for (int eight = turn * shape.blocks + place.block; eight < (group + 1) * SHARE; eight += shape.blocks) {
        float4 joined = {};
#pragma unroll
        for (int b = 0; b < NEAR_BLOCKS && b < shape.blocks; b++) {
            bool here = b == place.block;
            add_part(joined, own_factors[b], here ? *sums_of<D>(memory, group, eight) : *sent);
            sent += here ? 0 : GROUP; /* a column of eight has a place for each thread */
        }
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
    __shared__ uint64_t arrived; /* what the blocks send to this one */
    char *memory = shared + (-shared_address(shared) & (SWIZZLE - 1));
    const struct few_place place = find_place(shape);
    int kv_head = place.cluster, lane = (int)threadIdx.x % WARP, warp = warp_index(), group = warp / 4;
    const struct attention_work work = few_work<GROUP_QUERIES>(call, shape, (int)blockIdx.y, (int)blockIdx.z);
    if (work.splits == 0) {
        if (blockIdx.z == 0) /* if none waited, this kernel could end before the one before it */
            wait_for_previous();
        return;
    }
    if (threadIdx.x == 0)
        expect_parts<D>(shape, place, &arrived);
    cluster_arrive_relaxed();

    const struct attention_segment &segment = work.segment;
    size_t cache = (size_t)(segment.session * call.kv_heads + kv_head) * (size_t)call.capacity * D;
    const bf16 *keys = (const bf16 *)call.keys + cache, *values = (const bf16 *)call.values + cache;
    char *area = memory + near_layout<D>::AREAS + group * near_layout<D>::AREA;
    /* A tile's keys, or values, into one of two places; none behind the last. */
    auto copy = [&](int which, int slot, int key) {
        const bf16 *from = (which ? values : keys) + (size_t)(unsigned)key * D;
        uint32_t to = shared_address(area + (slot * 2 + which) * TILE);
        if (key < work.to)
            copy_rows<D, KEYS, GROUP, 2>(to, from, work.to - key, threadIdx.x % GROUP);
        copies_commit();
    };
    int first = warp % 4 * 16, last = work.query_count - 1; /* queries of the warp, and of the block */
    const struct attention_cut cut = cut_of(call, segment, row_of(shape, work.query), row_of(shape, work.query + last));
    int row = row_of(shape, work.query + min(first + lane % 16, last)); /* that the lane looks up */
    int round = shape.blocks * KEYS, step = GROUPS * round, key = work.from + place.block * KEYS;
    int used = 0; /* warpgroups that have keys */
    while (used < GROUPS && key + used * round < work.to)
        used++;
    key += group * round;
    /* A first tile that is committed is asked for while the kernel before ends, then the queries, and then what else
     * has a place. Groups of copies: queries, and keys and values by turns. */
    bool early = key + KEYS <= segment.base;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        if (i == 2 * early) {
            int parts = (segment.count * shape.group + GROUP_QUERIES - 1) / GROUP_QUERIES * shape.blocks;
            int part = work.query / GROUP_QUERIES * shape.blocks + place.block;
            ask_for_keys<D>(keys, values, work.from + step, min(work.to, segment.base),
                            part * GROUPS * GROUP + (int)threadIdx.x, parts * GROUPS * GROUP);
            wait_for_previous();
            let_next_start();
            copy_queries<D>(shared_address(memory), call, shape, work, kv_head);
            copies_commit();
        }
        copy(i % 2, i / 2, key + i / 2 * step);
    }
    struct running<D, 1> running;
    start(running);
#pragma unroll 1
    for (int turn = 0;; turn++, key += step) {
        bool any = key < work.to, masked = any && (key + KEYS > cut.new_from || key < cut.window_to);
        uint64_t seen = masked ? sees(call, segment, row, key) : 0;
        const char *tile = area + turn % 2 * 2 * TILE;
        copies_wait<2>(); /* all but the values and the next keys; at first all but the next tile */
        show_copies();
        if (turn == 0) {
            __syncthreads(); /* all have brought some of the queries */
        } else {
            group_meet(group); /* the keys are there, and all are done with the values before */
            copy(1, (turn + 1) % 2, key + step);
        }
        if (!any)
            break;
        float scores[1][KEYS / 8][4];
        score<D, GROUP_QUERIES, KEYS>(describe_tile(memory), describe_tile(tile), *(float(*)[KEYS / 2]) & scores);
        if (masked)
            mask(seen, scores);
        weigh<D, 1, KEYS / 8>(running, scores);
        copies_wait<2>(); /* all but the next tile */
        show_copies();
        group_meet(group); /* the values are there, and all are done with the keys */
        copy(0, turn % 2, key + 2 * step);
        add_values<D, KEYS>(*(float(*)[D / 2]) & running.sums, scores, describe_tile(tile + TILE, KEYS * PANEL_ROW));
    }
    const float2 own = hand_on<D>(shape, place, group, used, first, running, memory, &arrived);
    barrier_wait(&arrived, 0);
    put_share<D>(call, shape, work, place, group, first, own, memory);
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
