/* Few rows times a matrix in bfloat16 on Hopper's tensor cores, bound by the reading of the weights.
 *
 * The matrix is the operand of 64-row tiles and the few rows, rounded up to a multiple of 8, are its columns:
 * wgmma.m64nNk16 with both operands in shared memory, which a ring of tiles 64 inputs deep is filled into by the bulk
 * copy engine (tensor maps, 128-byte swizzle). One warp brings weights and another rows, so that the first rows need
 * not wait until all of the ring's weights were asked for; one works out how rows are scaled; the others multiply: a
 * warpgroup has 64 outputs. A tile may have fewer than its warpgroups could take, so that all multiprocessors get as
 * much; what they multiply beyond it is never looked at. Blocks take tiles of outputs in turn; or, where there are few
 * tiles, the blocks of a cluster take a share of the inputs each, send each other their sums, and add them in the order
 * of the shares. The first tiles of weights are asked for as soon as a block runs, before the kernel waits for the one
 * before it.
 *
 * A warp ends a row of the tile at a time, and makes of it what the next kernel reads: see struct skinny_call. */
#include "collect/engine/cuda/skinny_ends.cuh"
#include "collect/engine/cuda/skinny_shares.cuh"

#define DEPTH SKINNY_DEPTH    /* inputs of a tile: 128 bytes, as wide as the swizzle */
#define ROW_BYTES (DEPTH * 2) /* of an output, or a row of x, in a tile */
#define STAGES_MAXIMUM 16
/* Warps beside those that multiply: one brings weights, one brings rows, and one works out how rows are scaled. */
enum helper { WEIGHTS, ROWS_OF_X, SCALES, HELPERS };
#define TOGETHER 2 /* tiles of the ring that are asked for one behind the other, as they lie in memory */

/* Outputs that a tile may have. */
static __host__ __device__ constexpr int rows_of(int groups)
{
    return groups == WIDE_GROUPS ? 2 * SKINNY_TILE_GATED : 64 * groups;
}

static __host__ __device__ constexpr int stage_bytes(int n, int rows)
{
    return (rows + n) * ROW_BYTES;
}

/* A place in the ring of tiles, and whether the ring was gone round, by parity. */
struct ring_place {
    int stage;
    unsigned wrapped;
};

static __device__ __forceinline__ void step_on(struct ring_place &place, int stages)
{
    if (++place.stage == stages) {
        place.stage = 0;
        place.wrapped ^= 1;
    }
}

/* --- the kernel -------------------------------------------------------------------------------------------------- */

/* GROUPS: warpgroups that multiply; of WIDE_GROUPS the last has few outputs, a block has one tile, which is gated, and
 * its results lie over the ring. */
template <int N, int GROUPS>
static __global__ void __launch_bounds__(GROUP *GROUPS + HELPERS * WARP)
    skinny(const __grid_constant__ struct work work, const __grid_constant__ CUtensorMap weights,
           const __grid_constant__ CUtensorMap x)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int ROWS = rows_of(GROUPS), STAGE = stage_bytes(N, ROWS), PITCH = ROWS + 4, WARPS = 4 * GROUPS;
    constexpr int BATCH = GROUPS < 3 ? 5 : 3; /* rows that a warp asks for ahead: of 65 in two shares all that it has */
    constexpr bool WIDE = GROUPS == WIDE_GROUPS, ENDS = N <= SKINNY_ENDS_ROWS && !WIDE;
    extern __shared__ char memory[];
    __shared__ uint64_t full[STAGES_MAXIMUM], empty[STAGES_MAXIMUM], arrived;
    __shared__ float scales[N];
    const struct skinny_call &call = work.call;
    int stages = work.stages, splits = call.splits, split = cluster_block(), first_tile, tile_step;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(first_tile));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(tile_step));
    int first = work.starts[split], last = work.starts[split + 1]; /* tiles of inputs */
    char *ring = memory + (-shared_address(memory) & 1023);
    bool shares = !WIDE && splits > 1;
    float4 *sent = (float4 *)(ring + stages * STAGE);                          /* the others' shares */
    float *results = (float *)(WIDE || shares ? ring : ring + stages * STAGE); /* [N, PITCH], or what the block ends */

    if (threadIdx.x >= GROUP * GROUPS) {
        int helper = (int)(threadIdx.x - GROUP * GROUPS) / WARP;
        bool fills = threadIdx.x % WARP == 0, weighs = helper == WEIGHTS;
        if (fills && weighs) {
            prefetch_map(&weights);
            prefetch_map(&x);
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                barrier_init(&full[i], 2);
                barrier_init(&empty[i], WARPS);
            }
            if (shares) {
                barrier_init(&arrived, 1);
                barrier_expect(&arrived, sent_bytes<GROUPS>(call, split));
            }
            barriers_show();
        }
        __syncthreads();
        if (shares)
            cluster_arrive_relaxed();
        if (!weighs)
            wait_for_previous();
        if (helper == SCALES && call.squares) {
            make_scales(call, split, scales);
            asm volatile("bar.arrive 2, %0;" ::"n"(GROUP * GROUPS + WARP) : "memory");
        }
        if (helper == ROWS_OF_X && fills)
            let_next_start();
        auto ask = [&](int tile, int chunk, int stage) {
            char *to = ring + stage * STAGE;
            if (!weighs) {
                barrier_expect(&full[stage], N * ROW_BYTES);
                copy_tile(to + ROWS * ROW_BYTES, &x, chunk * DEPTH, 0, &full[stage], EVICT_LAST);
                return;
            }
            barrier_expect(&full[stage], (unsigned)((call.gated ? 2 : 1) * call.tile) * ROW_BYTES);
            copy_tile(to, &weights, chunk * DEPTH, tile * call.tile, &full[stage], EVICT_FIRST);
            if (call.gated)
                copy_tile(to + padded(call.tile) * ROW_BYTES, &weights, chunk * DEPTH,
                          call.outputs / 2 + tile * call.tile, &full[stage], EVICT_FIRST);
        };
        int together = min(TOGETHER, stages - 1), asked = 0, tiles = fills && helper != SCALES ? work.tiles : 0;
        struct ring_place to = {};
#pragma unroll 1
        for (int tile = first_tile; tile < tiles; tile += tile_step)
#pragma unroll 1
            for (int chunk = first; chunk < last; chunk += together) {
                struct ring_place place = to;
                int count = min(together, last - chunk);
#pragma unroll 1
                for (int i = 0; i < count; i++, step_on(place, stages))
                    if (asked + i >= stages)
                        barrier_wait(&empty[place.stage], place.wrapped ^ 1);
#pragma unroll 1
                for (int i = 0; i < count; i++, step_on(to, stages))
                    ask(tile, chunk + i, to.stage);
                asked += count;
            }
        __syncwarp();
        if (shares)
            cluster_wait(); /* long over: only that each thread of the cluster has to, once it has arrived */
        return;
    }

    int group = (int)threadIdx.x / GROUP, thread = (int)threadIdx.x % GROUP, lane = thread % WARP;
    int warp = (int)threadIdx.x / WARP;
    auto row_at = [&](int k) { return ended_row(warp + k * WARPS, splits, split); }; /* that the warp ends */
    __syncthreads();
    if (shares)
        cluster_arrive_relaxed();
    wait_for_previous(); /* what it writes may still be read */
    if (shares)
        cluster_wait();                   /* all blocks have begun, and can be sent something */
    struct head_place place = {0, 0, -1}; /* of the warp's rows, each lane's */
    if (ENDS && call.heads.heads && row_at(lane) < call.rows)
        place = place_of(call.heads, row_at(lane));
    struct ring_place from = {};
#pragma unroll 1
    for (int tile = first_tile; tile < work.tiles; tile += tile_step) {
        int before = -1;
        float d[N / 2];
        struct pairs<GROUPS> norms, ahead[BATCH];
        /* What ends a row besides its sums is asked for before they are there. */
        auto look_ahead = [&](int ended) {
#pragma unroll
            for (int k = 0; k < BATCH && ENDS; k++)
                ahead[k] = load_row<GROUPS>(call, tile, row_at(ended + k), place_among(place, ended + k));
        };
        if (ENDS)
            norms = load_norms<GROUPS>(call, tile);
        look_ahead(0);
#pragma unroll 1
        for (int chunk = first; chunk < last; chunk++) {
            const char *at = ring + from.stage * STAGE;
            barrier_wait(&full[from.stage], from.wrapped);
            uint64_t a = describe_tile(at + group * 64 * ROW_BYTES), b = describe_tile(at + ROWS * ROW_BYTES);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++)
                multiply(d, a + (uint64_t)(2 * k), b + (uint64_t)(2 * k), chunk == first && k == 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            /* The products before these are done, and their tiles may be filled anew. */
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (before >= 0 && lane == 0)
                barrier_arrive(&empty[before]);
            before = from.stage;
            step_on(from, stages);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            asm volatile("" : "+f"(d[i])::"memory");
        if (lane == 0)
            barrier_arrive(&empty[before]);

        /* d[4 j + 2 h + c]: output 16 warp + lane / 4 + 8 h of the group's, row 8 j + 2 (lane % 4) + c. */
        int output = group * 64 + thread / WARP * 16 + lane / 4, row = lane % 4 * 2;
        float *own = results + row * PITCH + output;
        if (shares)
            send_shares<GROUPS>(work, split, d, sent, &arrived);
        if (WIDE || shares || tile > first_tile) /* the other warps may still read what stands there */
            asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS) : "memory");
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            struct eight_place at = WIDE ? eight_place{split, i} : place_of_eight(work, i);
            if (at.block == split && output < ROWS)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    own[(at.index * 8 + k % 2) * PITCH + k / 2 * 8] = d[i * 4 + k];
        }
        if (shares) {
            barrier_wait(&arrived, 0);
            add_shares<GROUPS>(work, split, own, PITCH, sent);
        }
        asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS) : "memory");
        if (call.squares && tile == first_tile)
            asm volatile("bar.sync 2, %0;" ::"n"(GROUP * GROUPS + WARP) : "memory");
#pragma unroll 1
        for (int ended = 0; row_at(ended) < call.rows; ended += BATCH) {
#pragma unroll 1
            for (int k = 0; k < BATCH && row_at(ended + k) < call.rows; k++) {
                int at = row_at(ended + k);
                const struct skinny_row row = {tile, at, call.squares ? scales[at] : 1,
                                               results + (warp + (ended + k) * WARPS) * PITCH};
                if (WIDE || call.gated)
                    end_gated<ROWS>(call, row);
                else if (ENDS && call.added.x)
                    end_added<GROUPS>(call, row, work.tiles, norms, ahead[0]);
                else if (ENDS && call.heads.heads)
                    end_head<GROUPS>(call, row, place_among(place, ended + k), norms, ahead[0]);
                else
                    end_plain<GROUPS>(call, row);
#pragma unroll
                for (int next = 1; next < BATCH && ENDS; next++)
                    ahead[next - 1] = ahead[next];
            }
            if (row_at(ended + BATCH) < call.rows)
                look_ahead(ended + BATCH);
        }
    }
#endif
}

/* --- launching -------------------------------------------------------------------------------------------------- */

static PFN_cuTensorMapEncodeTiled_v12000 encoder(void)
{
    static void *found;
    if (!found) {
        cudaDriverEntryPointQueryResult result;
        CUDA_CHECK(
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
        if (result != cudaDriverEntryPointSuccess || !found)
            die("the driver has no tensor maps");
    }
    return (PFN_cuTensorMapEncodeTiled_v12000)found;
}

/* Of matrix[rows, inputs], whose rows are `stride` elements apart, in boxes of box_rows x DEPTH. The level-two cache is
 * to fetch no more than these: 256 bytes at a time took longer. */
static CUtensorMap map_matrix(const void *matrix, int rows, int inputs, int stride, int box_rows)
{
    CUtensorMap map;
    const cuuint64_t sizes[] = {(cuuint64_t)inputs, (cuuint64_t)rows}, strides[] = {(cuuint64_t)stride * 2};
    const cuuint32_t box[] = {DEPTH, (cuuint32_t)box_rows}, steps[] = {1, 1};
    CUresult status = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)matrix, sizes, strides, box, steps,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS)
        die("no tensor map of %d rows of %d inputs: error %d", rows, inputs, (int)status);
    return map;
}

template <int N, int GROUPS> static void launch_skinny(struct work &work, cudaStream_t stream)
{
    constexpr int ROWS = rows_of(GROUPS), STAGE = stage_bytes(N, ROWS), RESULTS = N * (ROWS + 4) * (int)sizeof(float);
    constexpr bool WIDE = GROUPS == WIDE_GROUPS;
    /* Of the ring's last tile, too, each warpgroup reads 64 outputs. */
    constexpr int BEHIND = !WIDE ? RESULTS : ROWS + N < 64 * GROUPS ? (64 * GROUPS - ROWS - N) * ROW_BYTES : 0;
    constexpr int EIGHT = 8 * ROWS * (int)sizeof(float), SENT_MOST = (N / 8 + SKINNY_SPLITS - 2) * EIGHT;
    static_assert(2 * STAGE + (BEHIND > SENT_MOST ? BEHIND : SENT_MOST) + 2048 <= SHARED_MAXIMUM, "two stages");
    static_assert((WIDE ? RESULTS : RESULTS / 2 + EIGHT) <= 2 * STAGE,
                  "the ring holds the results, or what a share ends");
    const struct skinny_call &call = work.call;
    work.eights = ((call.rows + 7) / 8 + call.splits - 1) / call.splits;
    work.inverse = (1 << 16) / call.splits + 1;
    int behind = call.splits > 1 ? (call.splits - 1) * work.eights * EIGHT : BEHIND;
    int blocks = device_multiprocessors(), stages = (SHARED_MAXIMUM - behind - 2048) / STAGE;
    work.tiles = ((call.gated ? call.outputs / 2 : call.outputs) + call.tile - 1) / call.tile;
    int units = work.tiles * call.splits, clusters = (units < blocks ? units : blocks) / call.splits;
    if ((WIDE || call.splits > 1) && (units > blocks || (WIDE && call.splits > 1)))
        die("%d shares of %d tiles of outputs for %d multiprocessors", call.splits, work.tiles, blocks);
    for (int i = 0; i <= call.splits; i++)
        work.starts[i] = (short)(call.inputs / DEPTH * i / call.splits);
    work.stages = stages < STAGES_MAXIMUM ? stages : STAGES_MAXIMUM;
    int shared = 1024 + work.stages * STAGE + behind;
    CUtensorMap weights = map_matrix(call.weights, call.outputs, call.inputs, call.inputs, call.tile);
    CUtensorMap x = map_matrix(call.x, call.rows, call.inputs, call.stride, N);
    CUDA_CHECK(cudaFuncSetAttribute(skinny<N, GROUPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_clusters(skinny<N, GROUPS>, (unsigned)call.splits, dim3((unsigned)(clusters * call.splits)),
                    GROUP * GROUPS + HELPERS * WARP, (size_t)shared, stream, work, weights, x);
}

template <int N> static void launch_rows(struct work &work, cudaStream_t stream)
{
    const struct skinny_call &call = work.call;
    int rows = call.gated ? 2 * padded(call.tile) : call.tile;
    if (rows <= rows_of(1))
        launch_skinny<N, 1>(work, stream);
    else if (rows <= rows_of(2))
        launch_skinny<N, 2>(work, stream);
    else if (rows <= rows_of(3))
        launch_skinny<N, 3>(work, stream);
    else if (N > SKINNY_ENDS_ROWS || rows > rows_of(WIDE_GROUPS))
        die("%d rows by tiles of %d", call.rows, call.tile);
    else if constexpr (N <= SKINNY_ENDS_ROWS)
        launch_skinny<N, WIDE_GROUPS>(work, stream);
}

int kernels_skinny_clusters(int splits)
{
    int shared = SHARED_MAXIMUM - 2048; /* as all take nearly all of it, the kernel does not matter */
    if (splits == 1)
        return device_multiprocessors();
    CUDA_CHECK(cudaFuncSetAttribute(skinny<16, 1>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    return count_clusters(skinny<16, 1>, (unsigned)splits, GROUP + HELPERS * WARP, (size_t)shared);
}

bool kernels_skinny_takes(enum element type, int rows, int inputs, int outputs, int stride)
{
    return type == ELEMENT_BFLOAT16 && device_has_wgmma() && rows <= SKINNY_ROWS_MAXIMUM && inputs % DEPTH == 0 &&
           stride % 8 == 0 && outputs % 2 == 0;
}

void kernels_skinny(const struct skinny_call *call, cudaStream_t stream)
{
    struct work work = {};
    work.call = *call;
    if (call->rows <= 16)
        launch_rows<16>(work, stream);
    else if (call->rows <= 24)
        launch_rows<24>(work, stream);
    else if (call->rows <= 32)
        launch_rows<32>(work, stream);
    else if (call->rows <= 40)
        launch_rows<40>(work, stream);
    else if (call->rows <= 64)
        launch_rows<64>(work, stream);
    else if (call->rows <= 72)
        launch_rows<72>(work, stream);
    else if (call->rows <= 128)
        launch_rows<128>(work, stream);
    else
        launch_rows<136>(work, stream);
}
