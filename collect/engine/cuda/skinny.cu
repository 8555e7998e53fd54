/* Few rows times a matrix in bfloat16 on Hopper's tensor cores, bound by the reading of the weights.
 *
 * The matrix is the operand of 64-row tiles and the few rows, rounded up to a multiple of 8, are its columns:
 * wgmma.m64nNk16 with both operands in shared memory, which a ring of tiles 64 inputs deep is filled into by the bulk
 * copy engine (tensor maps, 128-byte swizzle). One warp fills, the others multiply: a warpgroup has 64 outputs. A unit
 * of work is a tile of outputs over a share of the inputs; blocks take units in turn, and shares of the inputs become
 * parts of y that the reader adds, in their order. The first tiles of weights are asked for before the kernel waits for
 * the one before it. */
#include "collect/engine/cuda/element.cuh"

#include <cudaTypedefs.h>

#define DEPTH SKINNY_DEPTH          /* inputs of a tile: 128 bytes, as wide as the swizzle */
#define GROUP 128                   /* threads of a warpgroup */
#define TILE_BYTES (64 * DEPTH * 2) /* of 64 outputs */
#define SHARED_MAXIMUM (227 * 1024)
#define EVICT_FIRST 0x12F0000000000000ull /* the bulk copy engine's hint for what is read once */
#define EVICT_LAST 0x14F0000000000000ull

/* --- barriers and copies ---------------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

static __device__ __forceinline__ void copy_tile(void *to, const CUtensorMap *map, int column, int row,
                                                 uint64_t *barrier, uint64_t hint)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "l"(hint)
                 : "memory");
}

/* --- tensor cores ----------------------------------------------------------------------------------------------- */

/* What tells wgmma of a K-major tile with 128-byte swizzle: groups of 8 rows are 1,024 bytes apart. */
static __device__ __forceinline__ uint64_t describe_tile(const void *tile)
{
    return (uint64_t)(shared_address(tile) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8(i) R4(i), R4(i + 4)
#define R16(i) R8(i), R8(i + 8)
#define R32(i) R16(i), R16(i + 16)
#define S8A "%0, %1, %2, %3, %4, %5, %6, %7"
#define S12 S8A ", %8, %9, %10, %11"
#define S16 S12 ", %12, %13, %14, %15"
#define S20 S16 ", %16, %17, %18, %19"
#define S32 S20 ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define S36 S32 ", %32, %33, %34, %35"
#define S64                                                                                                            \
    S36 ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "  \
        "%57, %58, %59, %60, %61, %62, %63"
#define S68 S64 ", %64, %65, %66, %67"

/* d[N / 2] += a[64, 16] · b[N, 16]ᵀ; `first`: = instead. */
#define MULTIPLY(N, LIST, A, B, P, ...)                                                                                \
    static __device__ __forceinline__ void multiply(float(&d)[N / 2], uint64_t a, uint64_t b, bool first)              \
    {                                                                                                                  \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" LIST "}, " A ", " B                  \
                     ", p, 1, 1, 0, 0;\n}\n"                                                                           \
                     : __VA_ARGS__                                                                                     \
                     : "l"(a), "l"(b), "r"((int)!first));                                                              \
    }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
MULTIPLY(16, S8A, "%8", "%9", "%10", R8(0))
MULTIPLY(24, S12, "%12", "%13", "%14", R8(0), R4(8))
MULTIPLY(32, S16, "%16", "%17", "%18", R16(0))
MULTIPLY(40, S20, "%20", "%21", "%22", R16(0), R4(16))
MULTIPLY(64, S32, "%32", "%33", "%34", R32(0))
MULTIPLY(72, S36, "%36", "%37", "%38", R32(0), R4(32))
MULTIPLY(128, S64, "%64", "%65", "%66", R32(0), R32(32))
MULTIPLY(136, S68, "%68", "%69", "%70", R32(0), R32(32), R4(64))
#endif

/* --- the kernel ------------------------------------------------------------------------------------------------- */

struct work {
    int rows, outputs, tiles, splits, chunks; /* chunks: tiles of inputs in all */
    int stages;
    float *y;
    size_t part_stride;
    __nv_bfloat16 *gated;
};

/* Chunks [*first, *last) of the unit's share, and which tile of outputs it is. */
static __device__ __forceinline__ int take_unit(const struct work &call, int unit, int *first, int *last)
{
    int split = unit / call.tiles;
    *first = (int)((long long)call.chunks * split / call.splits);
    *last = (int)((long long)call.chunks * (split + 1) / call.splits);
    return unit % call.tiles;
}

/* GROUPS: warpgroups that multiply. GATE: the tile is half of gate rows and half of their up rows. */
template <int N, int GROUPS, bool GATE>
static __global__ void __launch_bounds__(GROUP *GROUPS + WARP)
    skinny(const struct work call, const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int OUTPUTS = 64 * GROUPS, STAGE = GROUPS * TILE_BYTES + N * DEPTH * 2, PITCH = OUTPUTS + 4;
    extern __shared__ char memory[];
    __shared__ uint64_t full[16], empty[16], drained;
    char *ring = (char *)(((uintptr_t)memory + 1023) / 1024 * 1024);
    float *results = (float *)ring; /* GATE: [N, PITCH], once all tiles of a unit are multiplied */
    int units = call.tiles * call.splits, stages = call.stages;

    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], GROUPS * GROUP / WARP);
        }
        barrier_init(&drained, GROUPS * GROUP / WARP);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (threadIdx.x >= GROUP * GROUPS) { /* fills */
        if (threadIdx.x % WARP != 0) {
            wait_for_previous();
            return;
        }
        auto copy_weights = [&](int tile, int chunk, int stage) {
            char *to = ring + stage * STAGE;
            barrier_expect(&full[stage], STAGE);
            if (GATE) {
                copy_tile(to, &weights, chunk * DEPTH, tile * OUTPUTS / 2, &full[stage], EVICT_FIRST);
                copy_tile(to + GROUPS * TILE_BYTES / 2, &weights, chunk * DEPTH, call.outputs / 2 + tile * OUTPUTS / 2,
                          &full[stage], EVICT_FIRST);
            } else {
                copy_tile(to, &weights, chunk * DEPTH, tile * OUTPUTS, &full[stage], EVICT_FIRST);
            }
        };
        auto copy_rows = [&](int chunk, int stage) {
            copy_tile(ring + stage * STAGE + GROUPS * TILE_BYTES, &x, chunk * DEPTH, 0, &full[stage], EVICT_LAST);
        };
        int first, last, stage = 0, filled = 0;
        int early = 0;
        if ((int)blockIdx.x < units) {
            int tile = take_unit(call, (int)blockIdx.x, &first, &last);
            early = min(last - first, stages);
            for (int i = 0; i < early; i++)
                copy_weights(tile, first + i, i);
        }
        wait_for_previous();
        let_next_start();
        for (int i = 0; i < early; i++)
            copy_rows(first + i, i);
        for (int unit = (int)blockIdx.x; unit < units; unit += (int)gridDim.x) {
            int tile = take_unit(call, unit, &first, &last);
            if (GATE && unit != (int)blockIdx.x)
                barrier_wait(&drained, (unsigned)(unit / (int)gridDim.x - 1) & 1);
            for (int chunk = first; chunk < last; chunk++, filled++) {
                if (filled >= early) {
                    if (filled >= stages)
                        barrier_wait(&empty[stage], (unsigned)(filled / stages - 1) & 1);
                    copy_weights(tile, chunk, stage);
                    copy_rows(chunk, stage);
                }
                stage = stage + 1 == stages ? 0 : stage + 1;
            }
        }
        return;
    }

    wait_for_previous(); /* what it writes may still be read */
    int group = (int)threadIdx.x / GROUP, thread = (int)threadIdx.x % GROUP, lane = thread % WARP;
    int stage = 0, used = 0;
    for (int unit = (int)blockIdx.x; unit < units; unit += (int)gridDim.x) {
        int first, last, tile = take_unit(call, unit, &first, &last), before = -1;
        float d[N / 2];
        for (int chunk = first; chunk < last; chunk++, used++) {
            const char *from = ring + stage * STAGE;
            barrier_wait(&full[stage], (unsigned)(used / stages) & 1);
            uint64_t a = describe_tile(from + group * TILE_BYTES), b = describe_tile(from + GROUPS * TILE_BYTES);
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
            stage = stage + 1 == stages ? 0 : stage + 1;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            asm volatile("" : "+f"(d[i])::"memory");
        if (lane == 0)
            barrier_arrive(&empty[before]);

        /* d[4 j + 2 h + c]: output 16 warp + lane / 4 + 8 h of the group's, row 8 j + 2 (lane % 4) + c. */
        int output = group * 64 + thread / WARP * 16 + lane / 4, row = lane % 4 * 2;
        if (GATE) {
            asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS)
                         : "memory"); /* the other warpgroups are through, too */
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                results[(i / 4 * 8 + row + i % 2) * PITCH + output + i / 2 % 2 * 8] = d[i];
            asm volatile("bar.sync 1, %0;" ::"n"(GROUP * GROUPS) : "memory");
            constexpr int HALF = OUTPUTS / 2;
            int inner = call.outputs / 2, start = tile * HALF;
            for (int i = (int)threadIdx.x; i < call.rows * HALF; i += GROUP * GROUPS) {
                int at = i / HALF, column = i % HALF;
                float g = results[at * PITCH + column], u = results[at * PITCH + HALF + column];
                if (start + column < inner)
                    store(&call.gated[(size_t)at * (size_t)inner + (size_t)(start + column)],
                          g / (1.0f + expf(-g)) * u);
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* before the copy engine writes there again */
            __syncwarp();
            if (lane == 0)
                barrier_arrive(&drained);
        } else {
            float *y = call.y + (size_t)(unit / call.tiles) * call.part_stride;
            output += tile * OUTPUTS;
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                int at = i / 4 * 8 + row + i % 2, to = output + i / 2 % 2 * 8;
                if (at < call.rows && to < call.outputs)
                    y[(size_t)at * (size_t)call.outputs + (size_t)to] = d[i];
            }
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

template <int N, int GROUPS, bool GATE>
static void launch_skinny(const struct skinny_call *from, struct work call, cudaStream_t stream)
{
    constexpr int STAGE = GROUPS * TILE_BYTES + N * DEPTH * 2;
    static_assert(2 * STAGE + 2048 <= SHARED_MAXIMUM, "two stages");
    size_t results = GATE ? (size_t)N * (64 * GROUPS + 4) * sizeof(float) : 0;
    int stages = (SHARED_MAXIMUM / (from->half ? 2 : 1) - 2048) / STAGE;
    call.stages = stages < 2 ? 2 : stages < 16 ? stages : 16;
    size_t ring = (size_t)call.stages * STAGE, shared = 1024 + (ring > results ? ring : results);
    CUtensorMap weights =
        map_matrix(from->weights, from->outputs, from->inputs, from->inputs, 64 * GROUPS / (GATE ? 2 : 1));
    CUtensorMap x = map_matrix(from->x, from->rows, from->inputs, from->stride, N);
    int units = call.tiles * call.splits, blocks = device_multiprocessors();
    CUDA_CHECK(cudaFuncSetAttribute(skinny<N, GROUPS, GATE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch(skinny<N, GROUPS, GATE>, dim3((unsigned)(units < blocks ? units : blocks)), GROUP * GROUPS + WARP, shared,
           stream, call, weights, x);
}

template <int N> static void launch_rows(const struct skinny_call *from, const struct work &call, cudaStream_t stream)
{
    bool gate = from->gated != NULL;
    if (from->warpgroups == 1)
        gate ? launch_skinny<N, 1, true>(from, call, stream) : launch_skinny<N, 1, false>(from, call, stream);
    else if (from->warpgroups == 2)
        gate ? launch_skinny<N, 2, true>(from, call, stream) : launch_skinny<N, 2, false>(from, call, stream);
    else
        gate ? launch_skinny<N, 3, true>(from, call, stream) : launch_skinny<N, 3, false>(from, call, stream);
}

bool kernels_skinny_takes(enum element type, int rows, int inputs, int outputs, int stride)
{
    return type == ELEMENT_BFLOAT16 && device_has_wgmma() && rows <= SKINNY_ROWS_MAXIMUM && inputs % DEPTH == 0 &&
           stride % 8 == 0 && outputs % 2 == 0;
}

void kernels_skinny(const struct skinny_call *from, cudaStream_t stream)
{
    int outputs = 64 * from->warpgroups;
    struct work call;
    call.rows = from->rows;
    call.outputs = from->outputs;
    call.tiles = (from->outputs + outputs - 1) / outputs;
    call.splits = from->splits;
    call.chunks = from->inputs / DEPTH;
    call.stages = 0;
    call.y = from->y;
    call.part_stride = (size_t)from->rows * (size_t)from->outputs;
    call.gated = (__nv_bfloat16 *)from->gated;
    if (from->rows <= 16)
        launch_rows<16>(from, call, stream);
    else if (from->rows <= 24)
        launch_rows<24>(from, call, stream);
    else if (from->rows <= 32)
        launch_rows<32>(from, call, stream);
    else if (from->rows <= 40)
        launch_rows<40>(from, call, stream);
    else if (from->rows <= 64)
        launch_rows<64>(from, call, stream);
    else if (from->rows <= 72)
        launch_rows<72>(from, call, stream);
    else if (from->rows <= 128)
        launch_rows<128>(from, call, stream);
    else
        launch_rows<136>(from, call, stream);
}
