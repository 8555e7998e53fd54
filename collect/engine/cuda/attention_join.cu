/* Into how many parts attention splits its keys, and the kernel that joins them where no block of attention does. */
#include "collect/engine/cuda/attention.cuh"

#define WARPS 4

/* Blocks that have work where full tiles of `queries` are split so. */
static int blocks_of(const struct attention_call *call, int queries, int splits, int least)
{
    int segments = (call->rows + call->longest - 1) / call->longest;
    int packed = call->longest * (call->heads / call->kv_heads), rest = packed % queries;
    return segments * call->kv_heads *
           (packed / queries * splits + (rest > 0 ? splits_of(rest, queries, splits, least) : 0));
}

/* As many as leave every block a place. */
int attention_splits(const struct attention_call *call, int queries, int least)
{
    int share = ATTENTION_SPAN * share_of(call->head_size), splits = 1;
    while (splits < ATTENTION_SPLITS && splits * share < call->capacity &&
           blocks_of(call, queries, splits + 1, least) <= ATTENTION_BLOCKS * device_multiprocessors())
        splits++;
    return splits;
}

size_t kernels_attention_partials(int rows, int heads, int head_size)
{
    /* With more than one split, all blocks have a place. */
    size_t most = (size_t)(ATTENTION_BLOCKS * device_multiprocessors()) * ATTENTION_QUERIES_MAXIMUM;
    size_t results = (size_t)rows * (size_t)heads * ATTENTION_SPLITS;
    return ATTENTION_COUNTERS + (results < most ? results : most) * (size_t)(head_size + 2);
}

/* A warp for each query; grid: [queries, kv head, tile]. */
template <typename T>
static __global__ void __launch_bounds__(WARPS *WARP)
    join(const struct attention_call call, int queries, int splits, int least)
{
    const struct attention_work work = tile_work(call, (int)blockIdx.z, queries, splits, least);
    int query = (int)blockIdx.x * WARPS + (int)threadIdx.x / WARP, row, head;
    wait_for_previous();
    let_next_start();
    if (work.splits <= 1 || query >= work.query_count)
        return;
    unpack(call, work.segment, (int)blockIdx.y, work.query + query, &row, &head);
    join_query<T>(call, splits, work.splits, row, head);
}

void attention_join(const struct attention_call *call, int queries, int splits, cudaStream_t stream, int least)
{
    dim3 grid((unsigned)(queries / WARPS), (unsigned)call->kv_heads, (unsigned)call->tile_count);
    OF_TYPE(call->type, (launch(join<T>, grid, WARPS * WARP, 0, stream, *call, queries, splits, least)));
}
