/* What attention's kernels share that give a few queries to a cluster of blocks, which share out the keys: which block
 * has what, without divisions. */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_CLUSTERS_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_CLUSTERS_CUH

#include "collect/engine/cuda/attention.cuh"
#include "collect/engine/cuda/attention_softmax.cuh"
#include "collect/engine/cuda/cluster.cuh"

#define CLUSTER_MAXIMUM 8

/* What a launch hands over. held: queries of a block at most; blocks: of a cluster. */
struct few_shape {
    int group, held, blocks;
    uint32_t group_inverse, blocks_inverse, depth_inverse; /* see quotient(); depth: the grid's z */
};

/* n / divisor: the inverse is 2^31 / divisor, rounded up, which is exact while 2 * n * divisor < 2^31. */
static __device__ __forceinline__ int quotient(int n, uint32_t inverse)
{
    return (int)__umulhi(2 * (uint32_t)n + 1, inverse);
}

static __device__ __forceinline__ int row_of(const struct few_shape &shape, int query)
{
    return quotient(query, shape.group_inverse);
}

/* Element `column` of packed query `query` of a segment, in an array [rows, heads, D]. */
template <int D>
static __device__ __forceinline__ size_t query_at(const struct attention_call &call, const struct few_shape &shape,
                                                  const struct attention_work &work, int kv_head, int query, int column)
{
    int packed = work.query + query, row = row_of(shape, packed);
    int head = (work.segment.first + row) * call.heads + kv_head * shape.group + packed - row * shape.group;
    return (size_t)(unsigned)head * D + (size_t)(unsigned)column;
}

/* A cluster lies along the grid's x; before compute capability 9.0 each has one block. */
struct few_place {
    int cluster, block; /* which cluster, and which of its blocks this one is */
};

static __device__ __forceinline__ struct few_place find_place(const struct few_shape &shape)
{
    int cluster = quotient((int)blockIdx.x, shape.blocks_inverse);
    return {cluster, (int)blockIdx.x - cluster * shape.blocks};
}

/* A segment, asked for before what follows: the compiler would wait until it is needed. */
static __device__ __forceinline__ struct attention_segment load_now(const struct attention_segment *from)
{
    const volatile struct attention_segment *now = from;
    return {now->session, now->first, now->count, now->base, now->sight};
}

/* Part `part` of a tile's queries, and all keys that they may see. */
template <int QUERIES>
static __device__ __forceinline__ struct attention_work few_work(const struct attention_call &call,
                                                                 const struct few_shape &shape, int tile, int part)
{
    struct attention_work work = {};
    const struct attention_tile at = call.tiles[tile];
    struct attention_segment segment = load_now(call.segments); /* often the only one: not asked for after the tile */
    if (at.segment > 0)
        segment = call.segments[at.segment];
    work.segment = segment;
    work.query = at.query + part * QUERIES;
    work.query_count = min(segment.count * shape.group - work.query, QUERIES);
    if (at.segment < 0 || work.query_count <= 0)
        return work;
    int first_row = segment.sight == ATTENTION_TREE ? 0 : row_of(shape, work.query);
    int last_row =
        segment.sight == ATTENTION_RUN ? row_of(shape, work.query + work.query_count - 1) : segment.count - 1;
    work.from = call.window ? max(segment.base + first_row - call.window + 1, 0) : 0;
    work.to = segment.base + last_row + 1;
    work.splits = 1;
    return work;
}

/* Asks for keys [from, to), so that they are near when their turn comes; of the threads of all blocks that share them
 * each asks for every `threads`th line. */
template <int D>
static __device__ __forceinline__ void ask_for_keys(const bf16 *keys, const bf16 *values, int from, int to, int thread,
                                                    int threads)
{
    constexpr int LINE = 64, LINES = D / LINE; /* elements; of a row */
#pragma unroll 1
    for (int i = from * LINES + thread; i < to * LINES; i += threads) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + (size_t)(unsigned)i * LINE));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(values + (size_t)(unsigned)i * LINE));
    }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

/* For quotient(). */
static inline uint32_t inverse_of(int divisor)
{
    return ((1u << 31) + (uint32_t)divisor - 1) / (uint32_t)divisor;
}

static inline struct few_shape shape_of(int group, int held, int blocks, int depth)
{
    return {group, held, blocks, inverse_of(group), inverse_of(blocks), inverse_of(depth)};
}

/* Parts of tiles, of `queries` each, that have work. */
static inline int parts_of(const struct attention_call *call, int queries)
{
    int segments = (call->rows + call->longest - 1) / call->longest;
    return segments * ((call->longest * (call->heads / call->kv_heads) + queries - 1) / queries);
}

static inline bool has_size(enum element type, int head_size)
{
    return type == ELEMENT_BFLOAT16 && (head_size == 64 || head_size == 128 || head_size == 256);
}

#endif
