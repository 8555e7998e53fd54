/* Attention of many queries by Hopper's tensor cores. A warpgroup has 64 queries that share a KV head, and multiplies
 * out of shared memory: queries by keys, and, with the weights in its registers, the values. What two of its blocks on
 * a multiprocessor have is not in step, so that one's products hide the other's softmax. */
#include "collect/engine/cuda/attention_groups.cuh"
#include "collect/engine/cuda/attention_tiles.cuh"

/* Shared memory for heads of D: queries, two stages of a tile of keys and values, and for each stage a bit set for
 * every query. */
template <int D> struct group_layout {
    static constexpr int QUERIES = tile_size<D>::QUERIES, KEYS = tile_size<D>::KEYS,
                         THREADS = QUERIES / GROUP_QUERIES * GROUP;
    static constexpr int TILE = KEYS * D * (int)sizeof(bf16), STAGES = QUERIES * D * (int)sizeof(bf16);
    static constexpr int SEEN = STAGES + 4 * TILE, BYTES = SEEN + 2 * QUERIES * (int)sizeof(uint64_t) + SWIZZLE;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Queues the copy of a part's queries, and zeros behind them. */
template <int D>
static __device__ __forceinline__ void copy_queries(uint32_t to, const struct attention_call &call,
                                                    const struct attention_work &work, int kv_head)
{
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < group_layout<D>::QUERIES * D / 8; at += group_layout<D>::THREADS) {
        unsigned query = at / (D / 8), unit = at % (D / 8);
        bool there = (int)query < work.query_count;
        int row, head;
        unpack(call, work.segment, kv_head, work.query + (there ? (int)query : 0), &row, &head);
        const bf16 *from = (const bf16 *)call.queries + ((size_t)row * (size_t)call.heads + (size_t)head) * D;
        copy_start(to + unit_place<group_layout<D>::QUERIES>(query, unit), from + unit * 8, there);
    }
}

#endif

/* --- the kernel -------------------------------------------------------------------------------------------------- */

/* Grid: [kv head, tile, split]. */
template <int D>
static __global__ void __launch_bounds__(group_layout<D>::THREADS, ATTENTION_BLOCKS)
    attend_groups(const struct attention_call call)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int QUERIES = group_layout<D>::QUERIES, THREADS = group_layout<D>::THREADS, KEYS = group_layout<D>::KEYS,
                  TILE = group_layout<D>::TILE;
    extern __shared__ char shared[];
    char *memory = (char *)(((uintptr_t)shared + SWIZZLE - 1) / SWIZZLE * SWIZZLE),
         *stages = memory + group_layout<D>::STAGES;
    int kv_head = (int)blockIdx.x, tiles = (int)gridDim.y, splits = (int)gridDim.z;
    int warp = __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); /* so that it is known to be the same for a warp */
    int first = warp * 16, first_of_group = warp / 4 * GROUP_QUERIES;
    /* Of a long run the last rows see most: they come first. */
    int tile = splits == 1 ? tiles - 1 - (int)blockIdx.y : (int)blockIdx.y;
    const struct attention_work work = block_work(call, tile, QUERIES, (int)blockIdx.z, splits, GROUP_QUERIES);
    if (work.from == work.to) {
        if (blockIdx.z == 0) /* if none waited, this kernel could end before the one before it */
            wait_for_previous();
        return;
    }
    uint64_t queries = describe_tile(memory + first_of_group * PANEL_ROW), keys = describe_tile(stages);
    uint64_t values = describe_tile(stages + TILE, KEYS * PANEL_ROW);
    struct running<D, 1> running;
    auto copy_part = [&]() { copy_queries<D>(shared_address(memory), call, work, kv_head); };
    auto copy = [&](int stage, const bf16 *from_keys, const bf16 *from_values, int count) {
        uint32_t to = shared_address(stages + stage * 2 * TILE);
        copy_rows<D, KEYS, THREADS>(to, from_keys, count, threadIdx.x);
        copy_rows<D, KEYS, THREADS>(to + TILE, from_values, count, threadIdx.x);
    };
    auto use = [&](int stage, const uint64_t *seen) {
        float scores[1][KEYS / 8][4];
        if (first_of_group >= work.query_count)
            return;
        score<D, QUERIES, KEYS>(queries, keys + step(stage * 2 * TILE), *(float(*)[KEYS / 2]) & scores);
        if (seen)
            mask<1, KEYS / 8>(seen + first, 0, scores);
        weigh<D, 1, KEYS / 8>(running, scores);
        add_values<D, KEYS>(*(float(*)[D / 2]) & running.sums, scores, values + step(stage * 2 * TILE));
    };
    start(running);
    walk_keys<D, QUERIES, true>(call, work, kv_head, (uint64_t *)(memory + group_layout<D>::SEEN), copy_part, copy,
                                use);
    put_rows<D, 1>(call, work, kv_head, first, running);
#endif
}

/* --- launches ---------------------------------------------------------------------------------------------------- */

template <int D> static void launch_groups(const struct attention_call *call, cudaStream_t stream)
{
    int splits = attention_splits(call, group_layout<D>::QUERIES, GROUP_QUERIES);
    dim3 grid((unsigned)call->kv_heads, (unsigned)call->tile_count, (unsigned)splits);
    CUDA_CHECK(
        cudaFuncSetAttribute(attend_groups<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, group_layout<D>::BYTES));
    CUDA_CHECK(cudaFuncSetAttribute(attend_groups<D>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
    launch(attend_groups<D>, grid, group_layout<D>::THREADS, group_layout<D>::BYTES, stream, *call);
    if (splits > 1)
        attention_join(call, group_layout<D>::QUERIES, splits, stream, GROUP_QUERIES);
}

bool attend_by_groups_takes(const struct attention_call *call)
{
    int size = call->head_size;
    return device_has_wgmma() && call->type == ELEMENT_BFLOAT16 && (size == 64 || size == 128 || size == 256) &&
           call->longest * (call->heads / call->kv_heads) > GROUP_QUERIES;
}

void attend_by_groups(const struct attention_call *call, cudaStream_t stream)
{
    if (call->head_size == 64)
        launch_groups<64>(call, stream);
    else if (call->head_size == 128)
        launch_groups<128>(call, stream);
    else
        launch_groups<256>(call, stream);
}
