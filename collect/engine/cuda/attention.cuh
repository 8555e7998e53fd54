/* What attention's kernels share: how keys are split over blocks, what a row sees, and where the parts of a result
 * stand until they are joined. A block has some queries that share a KV head, and one split of the keys they see. */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_CUH

#include "collect/engine/cuda/element.cuh"

#define ATTENTION_SPAN 64   /* keys are shared out in tiles of so many */
#define ATTENTION_HALF 64   /* queries of which few splits are needed are halved, and given twice the blocks */
#define ATTENTION_FEW 16    /* queries of which the warps of a block share out keys */
#define ATTENTION_SPLITS 32 /* at most: a lane each when they are joined */
#define ATTENTION_BLOCKS 2  /* a multiprocessor has at a time: keys are split into as many blocks with work */
#define ATTENTION_QUERIES_MAXIMUM 128 /* of a tile */
#define ATTENTION_COUNTERS 512

/* What is to be done for a tile of queries: all of it, or a block's part of it. */
struct attention_work {
    struct attention_segment segment;
    int query, query_count; /* packed queries of the segment: q is of row q / group, and head q % group of its group */
    int from, to;           /* keys */
    int split, splits;      /* this one, of so many that have keys; 0: the tile is idle */
};

/* Ways to split the keys of a tile that has `count` of `queries` queries, where full ones have `splits`: a tile of few
 * takes less time for a key, though `least` take as long as fewer. */
static __host__ __device__ __forceinline__ int splits_of(int count, int queries, int splits, int least)
{
    count = count < least ? least : count;
    return 2 * count > queries ? splits : count > ATTENTION_FEW ? (2 * splits + 2) / 3 : (3 * splits + 7) / 8;
}

/* Tiles of keys that a split has where there are enough: about as much to read whatever the head size. */
static __host__ __device__ __forceinline__ int share_of(int head_size)
{
    return head_size > 128 ? 1 : 2;
}

/* The whole of a tile of `queries` queries, whose keys are split at most `splits` ways. */
static __device__ __forceinline__ struct attention_work tile_work(const struct attention_call &call, int tile,
                                                                  int queries, int splits, int least = 1)
{
    struct attention_work work = {};
    const struct attention_tile at = call.tiles[tile];
    if (at.segment < 0)
        return work;
    const struct attention_segment segment = call.segments[at.segment];
    int group = call.heads / call.kv_heads, left = segment.count * group - at.query;
    if (left <= 0)
        return work;
    work.segment = segment;
    work.query = at.query;
    work.query_count = min(left, queries);
    int first_row = segment.sight == ATTENTION_TREE ? 0 : at.query / group;
    int rows = segment.sight == ATTENTION_RUN ? (at.query + work.query_count - 1) / group + 1 : segment.count;
    work.from = call.window ? max(segment.base + first_row - call.window + 1, 0) : 0;
    work.to = segment.base + rows;
    int tiles = (work.to - work.from + ATTENTION_SPAN - 1) / ATTENTION_SPAN;
    int most = splits_of(work.query_count, queries, splits, least);
    int share = max((tiles + most - 1) / most, share_of(call.head_size));
    work.splits = (tiles + share - 1) / share; /* more would not make the longest shorter */
    return work;
}

/* The part of block `split` of `splits`. from == to: none. Blocks that have work come first. */
static __device__ __forceinline__ struct attention_work block_work(const struct attention_call &call, int tile,
                                                                   int queries, int split, int splits, int least = 1)
{
    struct attention_work work = tile_work(call, tile, queries, splits, least);
    if (work.query_count > ATTENTION_HALF && 2 * work.splits <= splits) {
        int skipped = split % 2 * ATTENTION_HALF;
        work.query += skipped;
        work.query_count = skipped ? work.query_count - skipped : ATTENTION_HALF;
        split /= 2;
    }
    if (split >= work.splits) {
        work.from = work.to;
        return work;
    }
    int tiles = (work.to - work.from + ATTENTION_SPAN - 1) / ATTENTION_SPAN, from = work.from;
    work.split = split;
    work.from = from + split * tiles / work.splits * ATTENTION_SPAN;
    work.to = min(from + (split + 1) * tiles / work.splits * ATTENTION_SPAN, work.to);
    return work;
}

/* --- what a row sees -------------------------------------------------------------------------------------------- */

/* The lowest `count` bits. */
static __device__ __forceinline__ uint64_t ones(int count)
{
    return count >= 64 ? ~(uint64_t)0 : count > 0 ? ((uint64_t)1 << count) - 1 : 0;
}

/* Of the keys from `start` on, a bit each: those that a tree's bit set names, and all that are committed. */
static __device__ __forceinline__ uint64_t tree_sees(const struct attention_call &call,
                                                     const struct attention_segment &segment, int row, int start)
{
    const uint64_t *set = call.visible + (size_t)(segment.first + row) * (size_t)call.words;
    int node = start - segment.base, word = node / 64, shift = node % 64;
    if (node <= -64)
        return ~(uint64_t)0;
    if (node < 0)
        return ones(-node) | set[0] << -node;
    uint64_t low = word < call.words ? set[word] >> shift : 0;
    return shift && word + 1 < call.words ? low | set[word + 1] << (64 - shift) : low;
}

/* Of those, what lies in the window of a tree's row: its nodes stand at positions of their own. */
static __device__ __forceinline__ uint64_t tree_window(const struct attention_call &call,
                                                       const struct attention_segment &segment, int row, int start,
                                                       uint64_t seen)
{
    int position = call.positions[segment.first + row], ahead = call.causal_window ? 1 : call.window;
    uint64_t committed = ones(segment.base - start);
    seen &= ~(committed & ones(position - call.window + 1 - start));
    for (uint64_t left = seen & ~committed; left; left &= left - 1) {
        int bit = __ffsll((long long)left) - 1;
        int offset = call.positions[segment.first + start + bit - segment.base] - position;
        if (-offset >= call.window || offset >= ahead)
            seen &= ~((uint64_t)1 << bit);
    }
    return seen;
}

/* Which of the 64 keys from `start` on the segment's row `row` sees; none beyond the segment. */
static __device__ __forceinline__ uint64_t sees(const struct attention_call &call,
                                                const struct attention_segment &segment, int row, int start)
{
    if (segment.sight == ATTENTION_TREE) {
        uint64_t seen = tree_sees(call, segment, row, start);
        return call.window ? tree_window(call, segment, row, start, seen) : seen;
    }
    int position = segment.base + row;
    int last = segment.sight == ATTENTION_RUN ? position : segment.base + segment.count - 1;
    if (!call.window)
        return ones(last + 1 - start);
    last = min(last, position + (call.causal_window ? 0 : call.window - 1));
    return ones(last + 1 - start) & ~ones(position - call.window + 1 - start);
}

/* Runs of keys that end behind `new_from`, or begin before `window_to`, have some that one of the queries at hand does
 * not see. */
struct attention_cut {
    int new_from, window_to;
};

static __device__ __forceinline__ struct attention_cut
cut_of(const struct attention_call &call, const struct attention_segment &segment, int first_row, int last_row)
{
    struct attention_cut cut = {segment.base, 0};
    if (segment.sight != ATTENTION_TREE)
        cut.new_from += segment.sight == ATTENTION_RUN ? first_row + 1 : segment.count;
    if (call.window) {
        bool tree = segment.sight == ATTENTION_TREE;
        cut.new_from =
            min(cut.new_from, segment.base + (tree ? 0 : first_row) + (call.causal_window ? 1 : call.window));
        cut.window_to = segment.base + (tree ? segment.count - 1 : last_row) - call.window + 1;
    }
    return cut;
}

static __device__ __forceinline__ struct attention_cut find_cut(const struct attention_call &call,
                                                                const struct attention_work &work)
{
    int group = call.heads / call.kv_heads;
    return cut_of(call, work.segment, work.query / group, (work.query + work.query_count - 1) / group);
}

/* --- results in parts ------------------------------------------------------------------------------------------- */

/* The scratch: counters, then [split, row, head, head_size] sums, then [split, row, head] pairs of the largest score
 * and the weights' sum. */
static __device__ __forceinline__ unsigned *counter_at(const struct attention_call &call, int tile, int kv_head)
{
    return (unsigned *)call.partial + tile * call.kv_heads + kv_head;
}

static __device__ __forceinline__ size_t part_index(const struct attention_call &call, int split, int row, int head)
{
    return ((size_t)split * (size_t)call.rows + (size_t)row) * (size_t)call.heads + (size_t)head;
}

static __device__ __forceinline__ float *part_sums(const struct attention_call &call, int split, int row, int head)
{
    return call.partial + ATTENTION_COUNTERS + part_index(call, split, row, head) * (size_t)call.head_size;
}

static __device__ __forceinline__ float2 *part_pair(const struct attention_call &call, int splits, int split, int row,
                                                    int head)
{
    size_t sums = (size_t)splits * (size_t)call.rows * (size_t)call.heads * (size_t)call.head_size;
    return (float2 *)(call.partial + ATTENTION_COUNTERS + sums) + part_index(call, split, row, head);
}

template <typename T>
static __device__ __forceinline__ T *attended_at(const struct attention_call &call, int row, int head)
{
    return (T *)call.attended + ((size_t)row * (size_t)call.heads + (size_t)head) * (size_t)call.head_size;
}

/* The batch's row and the head of packed query `query` of a segment. */
static __device__ __forceinline__ void unpack(const struct attention_call &call,
                                              const struct attention_segment &segment, int kv_head, int query, int *row,
                                              int *head)
{
    int group = call.heads / call.kv_heads;
    *row = segment.first + query / group;
    *head = kv_head * group + query % group;
}

#define JOIN_SPLITS 8  /* read at a time, */
#define JOIN_COLUMNS 4 /* in so many columns a lane */

/* A warp joins the first `used` of `splits` results of a query, in their order. */
template <typename T>
static __device__ __forceinline__ void join_query(const struct attention_call &call, int splits, int used, int row,
                                                  int head)
{
    int lane = (int)threadIdx.x % WARP;
    float2 own = make_float2(-INFINITY, 0);
    if (lane < used)
        own = __ldcg(part_pair(call, splits, lane, row, head));
    float best = warp_largest(own.x), weight = own.y > 0 ? expf(own.x - best) : 0;
    weight /= warp_sum(weight * own.y);
    T *out = attended_at<T>(call, row, head);
    for (int first = lane; first - lane < call.head_size; first += JOIN_COLUMNS * WARP) {
        float sums[JOIN_COLUMNS] = {};
        for (int split = 0; split < used; split += JOIN_SPLITS)
#pragma unroll
            for (int i = 0; i < JOIN_SPLITS; i++) {
                const float *part = part_sums(call, min(split + i, used - 1), row, head);
                float w = __shfl_sync(ALL_LANES, weight, split + i); /* 0 from `used` on */
#pragma unroll
                for (int c = 0; c < JOIN_COLUMNS; c++)
                    if (first + c * WARP < call.head_size)
                        sums[c] += w * __ldcg(part + first + c * WARP);
            }
#pragma unroll
        for (int c = 0; c < JOIN_COLUMNS; c++)
            if (first + c * WARP < call.head_size)
                store(&out[first + c * WARP], sums[c]);
    }
}

/* The last block of a tile's splits to come here joins them. */
static __device__ __forceinline__ void
join_if_last(const struct attention_call &call, const struct attention_work &work, int splits, int tile, int kv_head)
{
    __shared__ bool is_last;
    unsigned *arrived = counter_at(call, tile, kv_head);
    int row, head;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(arrived, 1) == (unsigned)work.splits - 1;
        if (is_last)
            *arrived = 0;
    }
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    for (int query = (int)threadIdx.x / WARP; query < work.query_count; query += (int)blockDim.x / WARP) {
        unpack(call, work.segment, kv_head, work.query + query, &row, &head);
        join_query<__nv_bfloat16>(call, splits, work.splits, row, head);
    }
}

/* --- launches --------------------------------------------------------------- */

/* Ways that the keys of a call in tiles of `queries` are split. */
int attention_splits(const struct attention_call *call, int queries, int least = 1);

/* Whether there are few queries, and keys by the call's reach; and their attention (attention_few.cu), in tiles of
 * `queries`. */
bool attend_few_takes(const struct attention_call *call);
void attend_few_queries(const struct attention_call *call, int queries, cudaStream_t stream);

/* The same where they are more, by Hopper's tensor cores (attention_near.cu). */
bool attend_near_takes(const struct attention_call *call);
void attend_near_queries(const struct attention_call *call, int queries, cudaStream_t stream);

/* Whether there are more queries than a warpgroup takes, of a head size that it takes; and their attention by Hopper's
 * tensor cores (attention_groups.cu). */
bool attend_by_groups_takes(const struct attention_call *call);
void attend_by_groups(const struct attention_call *call, cudaStream_t stream);

/* Float32, and head sizes that tensor cores were not asked for. */
void attend_simply(const struct attention_call *call, cudaStream_t stream);

/* Joins what the splits of each tile left. */
void attention_join(const struct attention_call *call, int queries, int splits, cudaStream_t stream, int least = 1);

#endif
