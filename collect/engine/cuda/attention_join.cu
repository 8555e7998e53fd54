/* Into how many parts attention splits its keys, and the kernel that joins them where no block of attention does. */
#include "collect/engine/cuda/attention.cuh"

#define WARPS 4

static int largest(int a, int b)
{
    return a > b ? a : b;
}

/* Tiles with much to do: whole ones, and of those with the rest of a segment's queries every second. */
int attention_splits(const struct attention_call *call, int queries)
{
    int whole = call->rows * (call->heads / call->kv_heads) / queries;
    int blocks = largest(largest(whole, call->tile_count / 2), 1) * call->kv_heads;
    int share = ATTENTION_SPAN * ATTENTION_SHARE, splits = 1;
    while (splits < ATTENTION_SPLITS && 2 * splits * blocks <= ATTENTION_BLOCKS && splits * share < call->capacity)
        splits *= 2;
    return splits;
}

size_t kernels_attention_partials(int rows, int heads, int head_size)
{
    /* With more than one split, no more than ATTENTION_BLOCKS splits of whole tiles and of a rest as large. */
    size_t most = (size_t)2 * ATTENTION_BLOCKS * ATTENTION_QUERIES_MAXIMUM;
    size_t results = (size_t)rows * (size_t)heads * ATTENTION_SPLITS;
    return ATTENTION_COUNTERS + (results < most ? results : most) * (size_t)(head_size + 2);
}

/* A warp for each query; grid: [queries, kv head, tile]. */
template <typename T>
static __global__ void __launch_bounds__(WARPS *WARP) join(const struct attention_call call, int queries, int splits)
{
    const struct attention_work work = tile_work(call, (int)blockIdx.z, queries, splits);
    int query = (int)blockIdx.x * WARPS + (int)threadIdx.x / WARP, row, head;
    wait_for_previous();
    let_next_start();
    if (work.splits <= 1 || query >= work.query_count)
        return;
    unpack(call, work.segment, (int)blockIdx.y, work.query + query, &row, &head);
    join_query<T>(call, splits, work.splits, row, head);
}

void attention_join(const struct attention_call *call, int queries, int splits, cudaStream_t stream)
{
    dim3 grid((unsigned)(queries / WARPS), (unsigned)call->kv_heads, (unsigned)call->tile_count);
    OF_TYPE(call->type, (launch(join<T>, grid, WARPS * WARP, 0, stream, *call, queries, splits)));
}
