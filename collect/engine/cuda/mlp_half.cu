/* The MLP's half of a layer for a single row (halves.cuh): norm, gates and ups, SwiGLU, and down; which layers go by
 * halves; and what is behind the last. A cluster has some of the MLP's inner elements. Of a block's gates and ups a
 * part stands in registers, since shared memory does not hold them all. */
#include "collect/engine/cuda/halves.cuh"

static constexpr int HELD = 4;                      /* of the tiles that stand in registers */
static constexpr int GATED = 7;                     /* tiles of gates that a block has at most, and as many of ups */
static constexpr int INNER = GATED * TILE * BLOCKS; /* elements of a cluster at most */

struct mlp_room {
    __align__(128) bf16 gate_up[GATED - HELD][2][TILE][WIDTH]; /* rows are as wide as the stream; and so */
    __align__(128) bf16 down[WIDTH / BLOCKS][INNER];           /* as the cluster's elements */
    __align__(16) float parts[WARPS][GATED * 2 * TILE];
    __align__(16) bf16 gated[INNER];
    struct row_room stream;
    uint64_t barriers[3];
};
enum mlp_barrier { GATES_THERE, DOWN_THERE, GATED_MADE };

/* What a block of so many tiles has: elements first, ..., of the cluster's from `base` on; beyond `inner` there are
 * none. */
struct mlp_share {
    int tiles, held, base, first, count, pitch;
};

/* By the first warp: the tiles behind those that are held, and the cluster's columns of the block's outputs. */
static __device__ __forceinline__ void ask_for_mlp(const struct mlp_half_call &call, const struct mlp_share &share,
                                                   int block, struct mlp_room *room)
{
    int lane = (int)threadIdx.x, width = call.stream.width, outputs = width / BLOCKS;
    for (int i = share.held * 2 + lane; i < share.tiles * 2; i += WARP) {
        int row = share.first + i / 2 * TILE + i % 2 * call.inner;
        copy_bytes((bf16 *)room->gate_up + (i - share.held * 2) * TILE * width,
                   (const bf16 *)call.gate_up + (size_t)(unsigned)row * (size_t)width,
                   (unsigned)(TILE * width) * sizeof(bf16), &room->barriers[GATES_THERE], EVICT_FIRST);
    }
    for (int row = lane; row < outputs && share.count > 0; row += WARP)
        copy_bytes((bf16 *)room->down + row * share.pitch,
                   (const bf16 *)call.down + (size_t)(unsigned)(block * outputs + row) * (size_t)call.inner +
                       share.base,
                   (unsigned)share.count * sizeof(bf16), &room->barriers[DOWN_THERE], EVICT_FIRST);
}

/* Grid: [cluster, its block]. most: tiles of a block. */
static __global__ void __launch_bounds__(THREADS, 1) mlp_half(const struct mlp_half_call call, int most)
{
    extern __shared__ float4 shared[];
    struct mlp_room *room = (struct mlp_room *)shared;
    int thread = (int)threadIdx.x, lane = thread % WARP, warp = warp_index();
    int cluster = (int)blockIdx.x / BLOCKS, block = (int)blockIdx.x % BLOCKS;
    int width = call.stream.width, inner = call.inner, outputs = width / BLOCKS, pitch = most * TILE * BLOCKS;
    struct mlp_share share;
    share.pitch = pitch;
    share.base = cluster * pitch;
    share.first = share.base + block * most * TILE;
    share.count = max(min(pitch, inner - share.base), 0);
    share.tiles = max(min(most, (inner - share.first) / TILE), 0);
    share.held = min(share.tiles, HELD);
    let_next_start();

    if (warp == 0) {
        const unsigned bytes[3] = {(unsigned)((share.tiles - share.held) * 2 * TILE * width * (int)sizeof(bf16)),
                                   (unsigned)(outputs * share.count * (int)sizeof(bf16)),
                                   (unsigned)(pitch * (int)sizeof(bf16))};
        expect(room->barriers, bytes);
        ask_for_mlp(call, share, block, room);
    }
    cluster_arrive_relaxed();
    struct piece held[STEPS][HELD][2];
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < HELD * 2; i++) {
            int column = (warp * STEPS + s) * STEP + lane_column();
            int row = share.first + i / 2 * TILE + i % 2 * inner + lane_row();
            const char *from =
                (const char *)((const bf16 *)call.gate_up + (size_t)(unsigned)row * (size_t)width + column);
            bool there = i / 2 < share.tiles && column < width;
            held[s][i / 2][i % 2] = {};
            load_weights(&held[s][i / 2][i % 2].low, from, there);
            load_weights(&held[s][i / 2][i % 2].high, from + 4 * width * (int)sizeof(bf16), there);
        }
    int steps = (share.count + STEP - 1) / STEP; /* columns of the last that are not there become zero */
    for (int column = share.count; thread < outputs && column < steps * STEP; column += 8)
        *(uint4 *)((bf16 *)room->down + thread * pitch + column) = make_uint4(0, 0, 0, 0);
    float4 norm = {};
    if (4 * thread < width)
        norm = *(const float4 *)(call.stream.norm + 4 * thread);
    if (width == 0) /* a branch, across which ptxas does not put the loads behind the wait */
        return;
    wait_for_previous();

    ready_row(call.stream, norm, &room->stream);
    __syncthreads();
    float sums[GATED * 2][4] = {};
    multiply_stream(sums, 0, HELD * 2, call.stream, &room->stream, warp,
                    [&](int s, int i) { return held[s][i / 2 % HELD][i % 2]; });
    barrier_wait(&room->barriers[GATES_THERE], 0);
    multiply_stream(sums, HELD * 2, GATED * 2, call.stream, &room->stream, warp, [&](int s, int i) {
        return piece_at((const bf16 *)room->gate_up + (i - HELD * 2) * TILE * width + (warp * STEPS + s) * STEP, width);
    });
    leave_parts(room->parts, warp, sums);
    __syncthreads();
    cluster_wait(); /* all barriers are there */
    if (lane < most * TILE / 2) {
        int row = lane / 4 * 2 * TILE + lane % 4 * 2;
        bool there = lane / 4 < share.tiles;
        float own = scale(call.stream, &room->stream);
        const float2 gates = sum_warps(room->parts, row, own), ups = sum_warps(room->parts, row + TILE, own);
        send((uint32_t *)&room->gated[block * most * TILE + 2 * lane],
             there ? pack(swish(gates.x) * ups.x, swish(gates.y) * ups.y) : 0, warp, &room->barriers[GATED_MADE]);
    }
    barrier_wait(&room->barriers[DOWN_THERE], 0);
    barrier_wait(&room->barriers[GATED_MADE], 0);
    int output = warp * 2 * TILE;
    if (output < outputs)
        put_added<GATED>((const bf16 *)room->down + output * pitch, pitch, room->gated, steps,
                         call.stream.out + (size_t)(unsigned)(cluster * width + block * outputs + output));
}

/* The stream behind all layers. */
static __global__ void __launch_bounds__(THREADS) end_halves(const struct half_stream stream)
{
    int column = 4 * (int)threadIdx.x;
    wait_for_previous();
    let_next_start();
    if (column < stream.width)
        keep_stream(stream, column, read_stream(stream, column));
}

/* --- launches ---------------------------------------------------------------------------------------------------- */

/* Tiles of a block, where so many clusters share them. */
static int tiles_of(int inner, int clusters)
{
    int blocks = clusters * BLOCKS;
    return (inner / TILE + blocks - 1) / blocks;
}

static void allow_room(void)
{
    static_assert(sizeof(struct mlp_room) <= SHARED_MAXIMUM, "a block has so much");
    CUDA_CHECK(cudaFuncSetAttribute(mlp_half, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(struct mlp_room)));
}

int kernels_halves_take(enum element type, int width, int heads, int kv_heads, int head_size, int inner)
{
    if (!device_overlaps() || type != ELEMENT_BFLOAT16 || width % (BLOCKS * 2 * TILE) || width > WIDTH ||
        head_size != HEAD || heads > GROUP * kv_heads || kv_heads > HALF_PARTS || inner % TILE ||
        device_shared_bytes() < SHARED_MAXIMUM)
        return 0;
    allow_room();
    int clusters = count_clusters(mlp_half, BLOCKS, THREADS, sizeof(struct mlp_room)) - kv_heads;
    clusters = clusters < HALF_PARTS ? clusters : HALF_PARTS;
    return clusters > 0 && tiles_of(inner, clusters) <= GATED ? clusters : 0;
}

void kernels_mlp_half(const struct mlp_half_call *call, cudaStream_t stream)
{
    if (tiles_of(call->inner, call->clusters) > GATED)
        die("an MLP of %d elements for %d clusters", call->inner, call->clusters);
    allow_room();
    launch_clusters(mlp_half, BLOCKS, dim3((unsigned)(call->clusters * BLOCKS)), THREADS, sizeof(struct mlp_room),
                    stream, *call, tiles_of(call->inner, call->clusters));
}

void kernels_end_halves(const struct half_stream *stream, cudaStream_t queue)
{
    launch(end_halves, dim3(1), THREADS, 0, queue, *stream);
}
