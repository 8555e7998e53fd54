/* Few rows times a matrix in bfloat16 on Hopper's tensor cores, bound by the reading of the weights.
 *
 * The matrix is the operand of 64-row tiles and the few rows, rounded up to a multiple of 8, are its columns:
 * wgmma.m64nNk16 with both operands in shared memory, which a ring of tiles 64 inputs deep is filled into by the bulk
 * copy engine (tensor maps, 128-byte swizzle). One warp fills, the others multiply: a warpgroup has 64 outputs. A tile
 * may have fewer than its warpgroups could take, so that all multiprocessors get as much; what they multiply beyond it
 * is never looked at. Blocks take tiles of outputs in turn; or, where there are few tiles, the blocks of a cluster take
 * a share of the inputs each and add each other's sums, in the order of the shares, from each other's shared memory.
 * The first tiles of weights are asked for as soon as a block runs, before the kernel waits for the one before it.
 *
 * A warp ends a row of the tile at a time, and makes of it what the next kernel reads: see struct skinny_call. */
#include "collect/engine/cuda/heads.cuh"
#include "collect/engine/cuda/skinny_shares.cuh"

#define DEPTH SKINNY_DEPTH    /* inputs of a tile: 128 bytes, as wide as the swizzle */
#define ROW_BYTES (DEPTH * 2) /* of an output, or a row of x, in a tile */
#define SHARED_MAXIMUM (227 * 1024)
#define STAGES_MAXIMUM 16

/* Outputs that a tile may have. */
static __host__ __device__ constexpr int rows_of(int groups)
{
    return groups == WIDE_GROUPS ? 2 * SKINNY_TILE_GATED : 64 * groups;
}

static __host__ __device__ constexpr int stage_bytes(int n, int rows)
{
    return (rows + n) * ROW_BYTES;
}

/* Gates that a tile has room for before its ups: each begin where the swizzle does. */
static __host__ __device__ __forceinline__ int padded(int gates)
{
    return (gates + 7) / 8 * 8;
}

/* So many lanes add up a row's squares, of so many rows at a time. */
#define SCALE_LANES 8
#define SCALE_ROWS 3

/* 1 / sqrt(mean(x²) + epsilon) of those rows that the block ends, which were not normed, in scales[rows]. All that a
 * lane reads of a hundred tiles is on its way at once. */
template <int WARPS>
static __device__ __forceinline__ void make_scales(const struct skinny_call &call, int split, float *scales)
{
    constexpr int ROWS = WARP / SCALE_LANES, AT_ONCE = 12;
    int lane = (int)threadIdx.x % WARP, part = lane % SCALE_LANES, step = WARPS * ROWS * call.splits;
    int first = ((int)threadIdx.x / WARP * ROWS + lane / SCALE_LANES) * call.splits + split;
#pragma unroll 1
    for (; __any_sync(ALL_LANES, first < call.rows); first += SCALE_ROWS * step) {
        float sums[SCALE_ROWS] = {};
#pragma unroll 1
        for (int start = part; start < call.square_count; start += AT_ONCE * SCALE_LANES)
#pragma unroll
            for (int i = 0; i < SCALE_ROWS * AT_ONCE; i++) {
                int row = first + i / AT_ONCE * step, at = start + i % AT_ONCE * SCALE_LANES;
                if (row < call.rows && at < call.square_count)
                    sums[i / AT_ONCE] += __ldcg(call.squares + row * call.square_count + at);
            }
#pragma unroll
        for (int k = 0; k < SCALE_ROWS; k++) {
            int row = first + k * step;
            for (int lanes = 1; lanes < SCALE_LANES; lanes *= 2)
                sums[k] += __shfl_xor_sync(ALL_LANES, sums[k], lanes);
            if (part == 0 && row < call.rows)
                scales[row] = 1.0f / sqrtf(sums[k] / (float)call.inputs + call.epsilon);
        }
    }
}

/* --- the ends of a row -------------------------------------------------------------------------------------------- */

template <int GROUPS>
static __device__ __forceinline__ void end_plain(const struct skinny_call &call, const float *sums, int tile, int row,
                                                 float scale)
{
    float *y = call.y + (size_t)row * (size_t)call.outputs;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int column = g * 64 + (int)threadIdx.x % WARP * 2, output = tile * call.tile + column;
        float2 pair = *(const float2 *)(sums + column);
        if (column < call.tile && output < call.outputs)
            *(float2 *)(y + output) = make_float2(pair.x * scale, pair.y * scale);
    }
}

/* The tile is gate rows, and then their up rows. */
template <int ROWS>
static __device__ __forceinline__ void end_gated(const struct skinny_call &call, const float *sums, int tile, int row,
                                                 float scale)
{
    int inner = call.outputs / 2, ups = padded(call.tile);
    __nv_bfloat16 *out = (__nv_bfloat16 *)call.gated + (size_t)row * (size_t)inner;
#pragma unroll
    for (int i = 0; i < (ROWS / 2 + WARP - 1) / WARP; i++) {
        int column = i * WARP + (int)threadIdx.x % WARP, output = tile * call.tile + column;
        if (column >= call.tile || output >= inner)
            break;
        float gate = sums[column] * scale, up = sums[ups + column] * scale;
        store(&out[output], __fdividef(gate, 1.0f + __expf(-gate)) * up);
    }
}

/* What the end of a row reads besides the sums, asked for before these are there: of a row that ends in `added` a pair
 * of x and of norm, of one that ends in a head what turns its pairs: the two weights, cosine and sine. */
template <int GROUPS> struct readied {
    float4 four[GROUPS];
};

template <int GROUPS>
static __device__ __forceinline__ void ready_row(const struct skinny_call &call, int tile, int row,
                                                 struct readied<GROUPS> &ready)
{
    const struct skinny_added &added = call.added;
    if (row >= call.rows)
        return;
    if (added.x) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            int column = g * 64 + (int)threadIdx.x % WARP * 2, output = tile * call.tile + column;
            if (column >= call.tile || output >= call.outputs)
                continue;
            float2 x = *(const float2 *)(added.x + (size_t)row * (size_t)call.outputs + (size_t)output);
            float2 norm = *(const float2 *)(added.norm + output);
            ready.four[g] = make_float4(x.x, x.y, norm.x, norm.y);
        }
    } else if (call.heads.heads) {
        const struct head_rotation<GROUPS> rotation = rotation_of<GROUPS>(call.heads, 0, row, tile);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            ready.four[g] = make_float4(rotation.low[g], rotation.high[g], rotation.cosine[g], rotation.sine[g]);
    }
}

template <int GROUPS>
static __device__ __forceinline__ void end_head(const struct skinny_call &call, const float *sums, int tile, int row,
                                                float scale, const struct readied<GROUPS> &ready)
{
    struct head_rotation<GROUPS> rotation;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        rotation.low[g] = ready.four[g].x;
        rotation.high[g] = ready.four[g].y;
        rotation.cosine[g] = ready.four[g].z;
        rotation.sine[g] = ready.four[g].w;
    }
    put_head<__nv_bfloat16>(call.heads, rotation, 0, row, tile, [&](int i) { return sums[i] * scale; });
}

template <int GROUPS>
static __device__ __forceinline__ void end_added(const struct skinny_call &call, const float *sums, int tile, int row,
                                                 int tiles, const struct readied<GROUPS> &ready)
{
    const struct skinny_added &added = call.added;
    size_t start = (size_t)row * (size_t)call.outputs;
    float squares = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int column = g * 64 + (int)threadIdx.x % WARP * 2, output = tile * call.tile + column;
        if (column >= call.tile || output >= call.outputs)
            continue;
        size_t at = start + (size_t)output;
        float2 value = make_float2(ready.four[g].x, ready.four[g].y);
        float2 weight = make_float2(ready.four[g].z, ready.four[g].w), pair = *(const float2 *)(sums + column);
        value.x += pair.x;
        value.y += pair.y;
        squares = fmaf(value.x, value.x, fmaf(value.y, value.y, squares));
        *(float2 *)(added.x + at) = value;
        *(__nv_bfloat162 *)((__nv_bfloat16 *)added.out + at) =
            __floats2bfloat162_rn(value.x * weight.x, value.y * weight.y);
        if (added.features)
            *(__nv_bfloat162 *)((__nv_bfloat16 *)added.features +
                                ((size_t)row * (size_t)added.feature_count + (size_t)added.feature_index) *
                                    (size_t)call.outputs +
                                output) = __floats2bfloat162_rn(value.x, value.y);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0)
        added.squares[(size_t)row * (size_t)tiles + (size_t)tile] = squares;
}

/* --- the kernel -------------------------------------------------------------------------------------------------- */

/* GROUPS: warpgroups that multiply; of WIDE_GROUPS the last has few outputs, a block has one tile, which is gated, and
 * its results lie over the ring. */
template <int N, int GROUPS>
static __global__ void __launch_bounds__(GROUP *GROUPS + WARP)
    skinny(const __grid_constant__ struct work work, const __grid_constant__ CUtensorMap weights,
           const __grid_constant__ CUtensorMap x)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int ROWS = rows_of(GROUPS), STAGE = stage_bytes(N, ROWS), PITCH = ROWS + 4, WARPS = 4 * GROUPS;
    constexpr int BATCH = batch_of(GROUPS);
    constexpr bool WIDE = GROUPS == WIDE_GROUPS, ENDS = N <= SKINNY_ENDS_ROWS && !WIDE;
    extern __shared__ char memory[];
    __shared__ uint64_t full[STAGES_MAXIMUM], empty[STAGES_MAXIMUM];
    __shared__ float scales[N];
    const struct skinny_call &call = work.call;
    int stages = work.stages, splits = call.splits, split = cluster_block(), first_tile, tile_step;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(first_tile));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(tile_step));
    int first = work.starts[split], last = work.starts[split + 1]; /* tiles of inputs */
    char *ring = (char *)(((uintptr_t)memory + 1023) / 1024 * 1024);
    float *results = (float *)(WIDE ? ring : ring + stages * STAGE); /* [N, PITCH] */

    if (threadIdx.x >= GROUP * GROUPS) { /* fills */
        bool fills = threadIdx.x % WARP == 0;
        auto copy_weights = [&](int tile, int chunk, int stage) {
            char *to = ring + stage * STAGE;
            barrier_expect(&full[stage], (unsigned)((call.gated ? 2 : 1) * call.tile + N) * ROW_BYTES);
            copy_tile(to, &weights, chunk * DEPTH, tile * call.tile, &full[stage], EVICT_FIRST);
            if (call.gated)
                copy_tile(to + padded(call.tile) * ROW_BYTES, &weights, chunk * DEPTH,
                          call.outputs / 2 + tile * call.tile, &full[stage], EVICT_FIRST);
        };
        auto copy_rows = [&](int chunk, int stage) {
            copy_tile(ring + stage * STAGE + ROWS * ROW_BYTES, &x, chunk * DEPTH, 0, &full[stage], EVICT_LAST);
        };
        int stage = 0, early = min(last - first, stages), left = early;
        unsigned wrapped = 0; /* whether the ring was, by parity */
        if (fills) {
            prefetch_map(&weights);
            prefetch_map(&x);
#pragma unroll 1
            for (int i = 0; i < stages; i++) {
                barrier_init(&full[i], 1);
                barrier_init(&empty[i], WARPS);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#pragma unroll 1
            for (int i = 0; i < early; i++)
                copy_weights(first_tile, first + i, i);
        }
        __syncthreads();
        wait_for_previous();
        if (!fills)
            return;
        let_next_start();
#pragma unroll 1
        for (int tile = first_tile; tile < work.tiles; tile += tile_step)
#pragma unroll 1
            for (int chunk = first; chunk < last; chunk++) {
                if (--left < 0) { /* its weights were not asked for */
                    if (left < -(stages - early))
                        barrier_wait(&empty[stage], wrapped ^ 1);
                    copy_weights(tile, chunk, stage);
                }
                copy_rows(chunk, stage);
                if (++stage == stages) {
                    stage = 0;
                    wrapped ^= 1;
                }
            }
        return;
    }

    int group = (int)threadIdx.x / GROUP, thread = (int)threadIdx.x % GROUP, lane = thread % WARP;
    int first_row = (int)threadIdx.x / WARP * splits + split, row_step = WARPS * splits; /* that the warp ends */
    __syncthreads();
    wait_for_previous(); /* what it writes may still be read */
    if (call.squares)
        make_scales<WARPS>(call, split, scales);
    int stage = 0;
    unsigned wrapped = 0;
#pragma unroll 1
    for (int tile = first_tile; tile < work.tiles; tile += tile_step) {
        int before = -1;
        float d[N / 2];
        struct readied<GROUPS> ready;
        if (ENDS)
            ready_row(call, tile, first_row, ready);
#pragma unroll 1
        for (int chunk = first; chunk < last; chunk++) {
            const char *from = ring + stage * STAGE;
            barrier_wait(&full[stage], wrapped);
            uint64_t a = describe_tile(from + group * 64 * ROW_BYTES), b = describe_tile(from + ROWS * ROW_BYTES);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++)
                multiply(d, a + (uint64_t)(2 * k), b + (uint64_t)(2 * k), chunk == first && k == 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            /* The products before these are done, and their tiles may be filled anew. */
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (before >= 0 && lane == 0)
                barrier_arrive(&empty[before]);
            before = stage;
            if (++stage == stages) {
                stage = 0;
                wrapped ^= 1;
            }
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            asm volatile("" : "+f"(d[i])::"memory");
        if (lane == 0)
            barrier_arrive(&empty[before]);

        /* d[4 j + 2 h + c]: output 16 warp + lane / 4 + 8 h of the group's, row 8 j + 2 (lane % 4) + c. */
        int output = group * 64 + thread / WARP * 16 + lane / 4, row = lane % 4 * 2;
        if (WIDE || tile > first_tile) /* the other warps may still read what stands there */
            asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS) : "memory");
        if (!WIDE || output < ROWS)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                results[(i / 4 * 8 + row + i % 2) * PITCH + output + i / 2 % 2 * 8] = d[i];
        if (!WIDE && splits > 1)
            cluster_meet();
        else
            asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS) : "memory");
#pragma unroll 1
        for (int start = first_row; start < call.rows; start += BATCH * row_step) {
            if (!WIDE && splits > 1)
                add_shares<GROUPS>(results, PITCH, start, row_step, call.rows, splits);
            for (int k = 0, at = start; k < BATCH && at < call.rows; k++, at += row_step) {
                const float *sums = results + at * PITCH;
                float scale = call.squares ? scales[at] : 1;
                if (WIDE || call.gated)
                    end_gated<ROWS>(call, sums, tile, at, scale);
                else if (ENDS && call.added.x)
                    end_added<GROUPS>(call, sums, tile, at, work.tiles, ready);
                else if (ENDS && call.heads.heads)
                    end_head<GROUPS>(call, sums, tile, at, scale, ready);
                else
                    end_plain<GROUPS>(call, sums, tile, at, scale);
                if (ENDS)
                    ready_row(call, tile, at + row_step, ready);
            }
        }
    }
    if (!WIDE && splits > 1)
        cluster_leave(); /* the others may still read here */
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

/* Of matrix[rows, inputs], whose rows are `stride` elements apart, in boxes of box_rows x DEPTH. */
static CUtensorMap map_matrix(const void *matrix, int rows, int inputs, int stride, int box_rows)
{
    CUtensorMap map;
    const cuuint64_t sizes[] = {(cuuint64_t)inputs, (cuuint64_t)rows}, strides[] = {(cuuint64_t)stride * 2};
    const cuuint32_t box[] = {DEPTH, (cuuint32_t)box_rows}, steps[] = {1, 1};
    CUresult status = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)matrix, sizes, strides, box, steps,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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
    static_assert(2 * STAGE + BEHIND + 2048 <= SHARED_MAXIMUM && (!WIDE || RESULTS <= 2 * STAGE), "two stages");
    const struct skinny_call &call = work.call;
    int blocks = device_multiprocessors(), stages = (SHARED_MAXIMUM - BEHIND - 2048) / STAGE;
    work.tiles = ((call.gated ? call.outputs / 2 : call.outputs) + call.tile - 1) / call.tile;
    int units = work.tiles * call.splits, clusters = (units < blocks ? units : blocks) / call.splits;
    if ((WIDE || call.splits > 1) && units > blocks)
        die("%d shares of %d tiles of outputs for %d multiprocessors", call.splits, work.tiles, blocks);
    for (int i = 0; i <= call.splits; i++)
        work.starts[i] = (short)(call.inputs / DEPTH * i / call.splits);
    work.stages = stages < STAGES_MAXIMUM ? stages : STAGES_MAXIMUM;
    int shared = 1024 + work.stages * STAGE + BEHIND;
    CUtensorMap weights = map_matrix(call.weights, call.outputs, call.inputs, call.inputs, call.tile);
    CUtensorMap x = map_matrix(call.x, call.rows, call.inputs, call.stride, N);
    CUDA_CHECK(cudaFuncSetAttribute(skinny<N, GROUPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_clusters(skinny<N, GROUPS>, (unsigned)call.splits, dim3((unsigned)(clusters * call.splits)),
                    GROUP * GROUPS + WARP, (size_t)shared, stream, work, weights, x);
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
    return count_clusters(skinny<16, 1>, (unsigned)splits, GROUP + WARP, (size_t)shared);
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
