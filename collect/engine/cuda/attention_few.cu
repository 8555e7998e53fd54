/* Attention where few queries meet few keys, or single rows any number: what counts is how long a call takes from its
 * first load to its last store. A block has 16 or 32 queries that share a KV head, and its warps share out the keys, in
 * chunks of 16, which go from the GPU's memory straight to the tensor cores' registers; no warp waits for another until
 * all are joined at the end. So do the blocks of a cluster, which are joined in their shared memory.
 *
 * Sessions that bring one row each, as `auto` does, come here right from the product of queries, keys and values: the
 * block norms and rotates its queries, and the one that has the last keys makes the new key and value, takes them from
 * its shared memory and stores them. The committed ones, which the kernel before does not touch, are asked for before
 * that has ended.
 *
 * Each block runs its code once, often with no instruction in a cache: so what is not the tensor cores' is kept short,
 * and what the host knows, such as how to divide by a group's size, is handed over. */
#include "collect/engine/cuda/attention_few.cuh"
#include "collect/engine/cuda/heads.cuh"

/* --- queries ------------------------------------------------------------------------------------------------------ */

template <int D, int M>
static __device__ __forceinline__ void copy_queries(bf16 *queries, const struct attention_call &call,
                                                    const struct few_shape &shape, const struct attention_work &work,
                                                    int kv_head)
{
    constexpr int COUNT = few<D, M>::QUERIES * D / 8,
                  TURNS_NEEDED = (COUNT + few<D, M>::THREADS - 1) / few<D, M>::THREADS;
#pragma unroll
    for (int turn = 0; turn < TURNS_NEEDED; turn++) {
        int i = turn * few<D, M>::THREADS + (int)threadIdx.x, query = i / (D / 8), column = i % (D / 8) * 8;
        uint4 eight = {};
        if (query < work.query_count)
            eight =
                *(const uint4 *)((const bf16 *)call.queries + query_at<D>(call, shape, work, kv_head, query, column));
        if (query < few<D, M>::QUERIES)
            *(uint4 *)(queries + query * few<D, M>::QUERY_PITCH + column) = eight;
    }
}

/* A row's heads out of fused, where the kernel before must have ended; what does not depend on it comes before. Unit u
 * of a KV head is one of its queries, or then the new key and the new value, which are made, and stored as well, where
 * they are `wanted`. */
template <int D>
static __device__ __forceinline__ void make_heads(bf16 *queries, const struct heads_call &given, int row, int kv_head,
                                                  int warp, int group, bool wanted)
{
    constexpr int PITCH = few<D, 1>::QUERY_PITCH, QUERIES = few<D, 1>::QUERIES;
    struct heads_call heads = given;
    heads.head_size = D;
    int lane = (int)threadIdx.x % WARP, units = group + (wanted ? 2 : 0);
    int position = heads.positions[row], slot = heads.slots[row], session = heads.sessions[row];
    for (int i = group * D / 8 + (int)threadIdx.x; i < QUERIES * D / 8; i += few<D, 1, true>::THREADS)
        *(uint4 *)(queries + i / (D / 8) * PITCH + i % (D / 8) * 8) = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int unit = warp;; unit += few<D, 1, true>::WARPS) {
        bool is_query = unit<group, is_value = unit> group;
        int head = is_query ? kv_head * group + unit : heads.heads + (unit - group) * heads.kv_heads + kv_head;
        const struct head_rotation<D / 64> rotation =
            load_rotation<D / 64>(heads, is_query ? heads.q_norm : heads.k_norm, position);
        if (unit == warp) {
            wait_for_previous();
            let_next_start();
        }
        if (unit >= units)
            break;
        const float *from = heads.fused + (size_t)row * heads.stride + head_column(heads, head);
        bf16 *to = queries + (is_query ? unit : QUERIES + (unit - group)) * PITCH;
        if (is_value)
            for (int i = lane; i < D; i += WARP)
                store(&to[i], from[i]);
        else
            rotate_head<bf16>(
                heads, rotation, [&](int i) { return from[i]; }, is_query ? 1.0f / sqrtf((float)D) : 1.0f, to);
        __syncwarp();
        if (is_query || slot < 0 || lane >= D / 8)
            continue;
        size_t at = (size_t)(session * heads.kv_heads + kv_head) * (size_t)heads.capacity + (size_t)slot;
        *(uint4 *)((bf16 *)(is_value ? heads.values : heads.keys) + at * D + lane * 8) = *(uint4 *)(to + lane * 8);
    }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Part `split` of a single row, whose keys are split between as many of all `splits` clusters as have enough. Each has
 * keys side by side: whatever it asks for is its own. */
template <int D>
static __device__ __forceinline__ struct attention_work
row_work(const struct attention_call &call, const struct few_shape &shape, int row, int split, int splits)
{
    struct attention_work work = {};
    work.segment = call.segments[row];
    work.query_count = shape.group;
    work.split = split;
    work.to = work.segment.base + 1;
    work.from = call.window ? max(work.to - call.window, 0) : 0;
    int chunks = (work.to - work.from + CHUNK - 1) / CHUNK;
    int share = max(few<D, 1, true>::SHARE * shape.blocks, quotient(chunks + splits - 1, shape.depth_inverse));
    work.splits = 1;
    while (work.splits * share < chunks)
        work.splits++;
    work.from += split * share * CHUNK;
    work.to = min(work.from + share * CHUNK, work.to);
    return work;
}

/* Grid, in clusters: [kv head, row, split] of single rows from `fused` on, which ROWS are; otherwise [kv head, tile,
 * part]. */
template <int D, int M, bool ROWS>
static __global__ void __launch_bounds__(few<D, M, ROWS>::THREADS, few<D, M, ROWS>::PLACES)
    attend_few(const struct heads_call heads, const struct attention_call call, const struct few_shape shape)
{
    constexpr int WARPS = few<D, M, ROWS>::WARPS, PART = few<D, M>::PART, THREADS = few<D, M, ROWS>::THREADS;
    extern __shared__ float4 shared[];
    bf16 *own_queries = (bf16 *)shared;
    const bf16 *new_key = own_queries + few<D, M>::QUERIES * few<D, M>::QUERY_PITCH;
    const bf16 *new_value = new_key + few<D, M>::QUERY_PITCH;
    float *sums = (float *)((char *)shared + few<D, M>::QUERY_BYTES);
    const struct few_place place = find_place(shape);
    int kv_head = place.cluster, tile = (int)blockIdx.y;
    int lane = (int)threadIdx.x % WARP, warp = warp_index();
    const struct attention_work work = ROWS ? row_work<D>(call, shape, tile, (int)blockIdx.z, (int)gridDim.z)
                                            : few_work<few<D, M>::QUERIES>(call, shape, tile, (int)blockIdx.z);
    if (work.split >= work.splits) {
        if (blockIdx.z == 0) /* if none waited, this kernel could end before the one before it */
            wait_for_previous();
        return;
    }

    /* Chunks go round the blocks that share them, and round the warps of each. */
    const struct attention_segment &segment = work.segment;
    size_t cache = (size_t)(segment.session * call.kv_heads + kv_head) * (size_t)call.capacity * D;
    const bf16 *keys = (const bf16 *)call.keys + cache, *values = (const bf16 *)call.values + cache;
    int blocks = shape.blocks, step = WARPS * blocks * CHUNK, key = work.from + (warp * blocks + place.block) * CHUNK;
    /* Of a single row only what is committed is read. */
    int last = ROWS ? max(segment.base - 1, 0) : work.to - 1;
    bool early = ROWS || key + CHUNK <= segment.base;
    struct chunk<PART> chunk;
    if (early && key < work.to) {
        fetch_keys<D, PART>(chunk, keys, key, last);
        fetch_values<D, PART>(chunk, values, key, last);
    }
    int row = work.query + min(lane, work.query_count - 1); /* that the lane looks up */
    const struct attention_cut cut =
        ROWS ? attention_cut{segment.base, 0}
             : cut_of(call, segment, row_of(shape, work.query), row_of(shape, work.query + work.query_count - 1));
    row = ROWS ? 0 : row_of(shape, row);
    auto is_cut = [&](int at) { return at + CHUNK > cut.new_from || at < cut.window_to; };
    auto look = [&](int at) { return (uint32_t)sees(call, segment, row, at); }; /* not of single rows */
    uint32_t seen = !ROWS && key < work.to && is_cut(key) ? look(key) : 0;
    int parts = ROWS ? 1 : (segment.count * shape.group + few<D, M>::QUERIES - 1) / few<D, M>::QUERIES;
    int part = ROWS ? 0 : work.query / few<D, M>::QUERIES;
    ask_for_keys<D>(keys, values, work.from + step, min(work.to, segment.base),
                    (part * blocks + place.block) * THREADS + (int)threadIdx.x, parts * blocks * THREADS);
    if (ROWS) {
        unsigned chunks = (unsigned)(work.to - work.from + CHUNK - 1) / CHUNK;
        make_heads<D>(own_queries, heads, tile, kv_head, warp, shape.group,
                      work.to > segment.base && (chunks - 1) % (unsigned)blocks == (unsigned)place.block);
    } else {
        wait_for_previous();
        let_next_start();
        copy_queries<D, M>(own_queries, call, shape, work, kv_head);
    }
    if (!early && key < work.to) {
        fetch_keys<D, PART>(chunk, keys, key, last);
        fetch_values<D, PART>(chunk, values, key, last);
    }
    __syncthreads();

    const bf16 *lane_queries = own_queries + lane / 4 * few<D, M>::QUERY_PITCH + lane % 4 * 8;
    struct running<D, M> running;
    start(running);
#pragma unroll 1
    for (; key < work.to; key += step) {
        bool is_new = ROWS && key + CHUNK > segment.base, masked = is_cut(key), more = key + step < work.to;
        float scores[M][2][4] = {};
        if (is_new)
            patch_keys<PART>(chunk, new_key, key, segment.base);
        add_scores<D, M>(scores, lane_queries, chunk);
#pragma unroll
        for (int p = 1; p < D / PART; p++) {
            fetch_keys<D, PART>(chunk, keys + p * PART, key, last);
            if (is_new)
                patch_keys<PART>(chunk, new_key + p * PART, key, segment.base);
            add_scores<D, M>(scores, lane_queries + p * PART, chunk);
        }
        if (more)
            fetch_keys<D, PART>(chunk, keys, key + step, last);
        if (masked)
            mask<M>(ROWS ? (uint32_t)ones(work.to - key) : seen, scores);
        if (!ROWS && more && is_cut(key + step))
            seen = look(key + step);
        weigh<D, M, 2>(running, scores);
        if (is_new)
            patch_values<PART>(chunk, new_value, key, segment.base);
        add_values<D, M>(running, 0, scores, chunk);
#pragma unroll
        for (int p = 1; p < D / PART; p++) {
            fetch_values<D, PART>(chunk, values + p * PART, key, last);
            if (is_new)
                patch_values<PART>(chunk, new_value + p * PART, key, segment.base);
            add_values<D, M>(running, p, scores, chunk);
        }
        if (more)
            fetch_values<D, PART>(chunk, values, key + step, last);
    }
    put_merged<D, M, ROWS>(call, shape, work, place, running, warp, sums);
    if (ROWS && work.splits > 1 && place.block == 0)
        join_if_last(call, work, (int)gridDim.z, tile, kv_head);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Turns that the keys take which a call may see, if each of `count` that have work has a cluster of so many blocks. */
template <int D, int M> static int turns_of(const struct attention_call *call, int blocks)
{
    int chunks = (call->reach + CHUNK - 1) / CHUNK, warps = few<D, M>::WARPS * blocks;
    return (chunks + warps - 1) / warps;
}

/* Blocks of each of `count` clusters that have one of `shares` equal shares of all places. */
template <int D, int M, bool ROWS> static int blocks_of(int count, int shares)
{
    int places = few<D, M, ROWS>::PLACES * device_multiprocessors();
    return device_overlaps() ? least(CLUSTER_MAXIMUM, places / (shares * count)) : 1;
}

/* Into how many blocks the keys of each of `count` that have work are shared out, a cluster: as many as leave as much
 * place as they take, so that a kernel after it comes in before it ends; of trees, where that is too long, as many as
 * have a place. And how many such clusters have one. */
template <int D, int M, bool ROWS>
static int place_clusters(const struct attention_call *call, int count, size_t bytes, int *blocks)
{
    for (int shares = 2; shares >= (ROWS ? 2 : 1); shares--)
        for (*blocks = blocks_of<D, M, ROWS>(count, shares); *blocks > 1; --*blocks) {
            int clusters = count_clusters(attend_few<D, M, ROWS>, (unsigned)*blocks, few<D, M, ROWS>::THREADS, bytes);
            if (clusters >= shares * count && (ROWS || shares == 1 || turns_of<D, M>(call, *blocks) <= TURNS_AT_HALF))
                return clusters;
        }
    *blocks = 1;
    return few<D, M, ROWS>::PLACES * device_multiprocessors();
}

/* Between how many clusters a single row's keys are split at most: all that have a place, if there may be so many. */
template <int D> static int row_splits(const struct attention_call *call, int blocks, int clusters)
{
    int share = few<D, 1, true>::SHARE * blocks * CHUNK, places = clusters / (call->rows * call->kv_heads);
    int splits = least(least(places, ATTENTION_SPLITS), (call->capacity + share - 1) / share);
    return splits < 1 ? 1 : splits;
}

/* Queries that a block has at most, where segments have so many that share a KV head; and its shared memory. */
template <int D, int M> static int held_of(int packed)
{
    return least(few<D, M>::QUERIES, packed);
}

template <int D, int M, bool ROWS> static size_t bytes_of(int packed)
{
    size_t sharers = few<D, M, ROWS>::WARPS, held = (size_t)held_of<D, M>(packed);
    return few<D, M>::QUERY_BYTES + sharers * held * D * sizeof(float) + (sharers + 1) * held * sizeof(float2);
}

/* Beside it there may be static shared memory, a few bytes. */
static bool has_room(size_t bytes)
{
    return bytes + 256 <= (size_t)device_shared_bytes();
}

/* count: rows, or parts of tiles, that have work, of all KV heads. parts: of a tile; a row has one. */
template <int D, int M, bool ROWS>
static void launch_few(const struct heads_call *heads, const struct attention_call *call, int count, int tiles,
                       int parts, cudaStream_t stream)
{
    int group = call->heads / call->kv_heads, packed = call->longest * group, held = held_of<D, M>(packed), blocks;
    size_t bytes = bytes_of<D, M, ROWS>(packed);
    CUDA_CHECK(cudaFuncSetAttribute(attend_few<D, M, ROWS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    int clusters = place_clusters<D, M, ROWS>(call, count, bytes, &blocks);
    int depth = ROWS ? row_splits<D>(call, blocks, clusters) : parts;
    const struct few_shape shape = shape_of(group, held, blocks, depth);
    dim3 grid((unsigned)(call->kv_heads * blocks), (unsigned)tiles, (unsigned)depth);
    launch_clusters(attend_few<D, M, ROWS>, (unsigned)blocks, grid, few<D, M, ROWS>::THREADS, bytes, stream, *heads,
                    *call, shape);
}

/* Tiles of `queries`, in parts; of a tile only those that some segment may fill. */
template <int D, int M> static void launch_tiles(const struct attention_call *call, int queries, cudaStream_t stream)
{
    const struct heads_call none = {};
    int most = least(queries, call->longest * (call->heads / call->kv_heads));
    launch_few<D, M, false>(&none, call, parts_of(call, few<D, M>::QUERIES) * call->kv_heads, call->tile_count,
                            (most + few<D, M>::QUERIES - 1) / few<D, M>::QUERIES, stream);
}

bool kernels_attend_rows_takes(enum element type, int rows, int heads, int kv_heads, int head_size)
{
    int group = heads / kv_heads;
    return has_size(type, head_size) && group <= few<128, 1>::QUERIES && rows * kv_heads <= ATTENTION_COUNTERS &&
           has_room(head_size == 64    ? bytes_of<64, 1, true>(group)
                    : head_size == 128 ? bytes_of<128, 1, true>(group)
                                       : bytes_of<256, 1, true>(group));
}

template <int D>
static void launch_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    launch_few<D, 1, true>(heads, call, call->rows * call->kv_heads, call->rows, 1, stream);
}

void kernels_attend_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    if (call->head_size == 64)
        launch_rows<64>(heads, call, stream);
    else if (call->head_size == 128)
        launch_rows<128>(heads, call, stream);
    else
        launch_rows<256>(heads, call, stream);
}

bool attend_few_takes(const struct attention_call *call)
{
    int queries = call->head_size == 256 ? few<256, 1>::QUERIES : few<128, 2>::QUERIES;
    int packed = call->longest * (call->heads / call->kv_heads);
    return has_size(call->type, call->head_size) && call->reach > 0 && call->reach <= ATTENTION_NEAR &&
           parts_of(call, queries) * call->kv_heads <= 2 * device_multiprocessors() &&
           has_room(call->head_size == 64    ? bytes_of<64, 2, false>(packed)
                    : call->head_size == 128 ? bytes_of<128, 2, false>(packed)
                                             : bytes_of<256, 1, false>(packed));
}

/* Whether clusters of 16 queries would take more than half of the places, or too long there. */
template <int D> static bool is_wide(const struct attention_call *call)
{
    int count = parts_of(call, few<D, 1>::QUERIES) * call->kv_heads, blocks = blocks_of<D, 1, false>(count, 2);
    if (!device_overlaps())
        return count > device_multiprocessors();
    return blocks < 1 || turns_of<D, 1>(call, blocks) > TURNS_AT_HALF;
}

void attend_few_queries(const struct attention_call *call, int queries, cudaStream_t stream)
{
    if (call->head_size == 64 && is_wide<64>(call))
        launch_tiles<64, 2>(call, queries, stream);
    else if (call->head_size == 64)
        launch_tiles<64, 1>(call, queries, stream);
    else if (call->head_size == 128 && is_wide<128>(call))
        launch_tiles<128, 2>(call, queries, stream);
    else if (call->head_size == 128)
        launch_tiles<128, 1>(call, queries, stream);
    else
        launch_tiles<256, 1>(call, queries, stream);
}
