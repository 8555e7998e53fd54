/* Half a layer in one kernel, for a single row of a model that is small enough: attention from the residual stream to
 * what it adds there (attention_half.cu), and the MLP the same (mlp_half.cu). Such a model is bound not by reading its
 * weights, but by the time from one kernel to the next, of which a layer has two here in place of five.
 *
 * Clusters of eight blocks share a half out so that they need each other only at its end. A cluster has a KV head with
 * its queries, or some of the MLP's inner elements; its blocks compute a part of these each and send it to all eight;
 * then each multiplies what the cluster has made with its share of the outputs' rows. What clusters add to the residual
 * stream is left beside each other, and the next kernel, whose blocks need all of the stream anyway, adds it in the
 * clusters' order.
 *
 * A block asks for all of its weights when it starts, while the half before is still at work. So both halves' blocks
 * must have a place at a time, one to a multiprocessor. */
#ifndef COLLECT_ENGINE_CUDA_HALVES_CUH
#define COLLECT_ENGINE_CUDA_HALVES_CUH

#include "collect/engine/cuda/cluster.cuh"
#include "collect/engine/cuda/hopper.cuh"
#include "collect/engine/cuda/mma.cuh"

typedef __nv_bfloat16 bf16;

static constexpr int BLOCKS = 8; /* of a cluster */
static constexpr int WARPS = 8;  /* of a block: as many, since each sends to one block */
static constexpr int THREADS = WARPS * WARP;
static constexpr int TILE = 8;                     /* rows of weights that are multiplied at a time */
static constexpr int STEP = 64;                    /* columns */
static constexpr int STEPS = 2;                    /* of a warp's share of the stream: */
static constexpr int WIDTH = WARPS * STEPS * STEP; /* the stream's elements at most */
static constexpr int HEAD = 128;                   /* elements of a head */
static constexpr int GROUP = 2;                    /* queries of a KV head at most */

/* --- weights and their products ---------------------------------------------------------------------------------- */

/* A lane's share of TILE rows and STEP columns: 16 bytes of rows lane / 8 and lane / 8 + 4. */
struct piece {
    uint4 low, high;
};

static __device__ __forceinline__ int lane_row(void)
{
    return (int)threadIdx.x % WARP / 8;
}

static __device__ __forceinline__ int lane_column(void)
{
    return (int)threadIdx.x % 8 * 8;
}

/* Of a tile whose rows are `pitch` elements apart, in shared memory. */
static __device__ __forceinline__ struct piece piece_at(const bf16 *tile, int pitch)
{
    const bf16 *low = tile + lane_row() * pitch + lane_column();
    return {*(const uint4 *)low, *(const uint4 *)(low + 4 * pitch)};
}

/* sums += weights · row, on tensor cores, where a lane's 16 bytes are its fragments of two products, whatever the order
 * of the columns. Row g of A is half of the columns of row g / 2, the first half where g is even, so that eight lanes
 * read a whole line: what that is multiplied with stands in B's even columns, and in its odd ones for the second half.
 * row: row_at() of the step. */
static __device__ __forceinline__ void multiply_piece(float (&sums)[4], const struct piece &weights, const uint4 &row)
{
    const uint32_t first[4] = {weights.low.x, weights.high.x, weights.low.y, weights.high.y};
    const uint32_t second[4] = {weights.low.z, weights.high.z, weights.low.w, weights.high.w};
    multiply(sums, first, row.x, row.y);
    multiply(sums, second, row.z, row.w);
}

static __device__ __forceinline__ uint4 row_at(const bf16 *row, int step)
{
    return *(const uint4 *)(row + step * STEP + lane_column());
}

/* What lanes 0, 8, 16 and 24 have for rows lane / 8 (x) and lane / 8 + 4 (y) of the tile. */
static __device__ __forceinline__ float2 sums_of(const float (&sums)[4])
{
    bool odd = threadIdx.x & 4;
    float low = odd ? sums[1] : sums[0], high = odd ? sums[3] : sums[2];
    return make_float2(low + __shfl_xor_sync(ALL_LANES, low, 4), high + __shfl_xor_sync(ALL_LANES, high, 4));
}

/* out[0, 2 * TILE) = what the warp's two tiles add, of weights in shared memory: `steps` of at most COUNT. */
template <int COUNT>
static __device__ __forceinline__ void put_added(const bf16 *weights, int pitch, const bf16 *row, int steps, float *out)
{
    float sums[2][2][4] = {};
#pragma unroll
    for (int s = 0; s < COUNT; s++)
        if (s < steps)
#pragma unroll
            for (int i = 0; i < 2; i++)
                multiply_piece(sums[i][s % 2], piece_at(weights + i * TILE * pitch + s * STEP, pitch), row_at(row, s));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 even = sums_of(sums[i][0]), odd = sums_of(sums[i][1]);
        if (threadIdx.x % 8 == 0) {
            out[i * TILE + lane_row()] = even.x + odd.x;
            out[i * TILE + lane_row() + 4] = even.y + odd.y;
        }
    }
}

/* --- what blocks wait for --------------------------------------------------------------------------------------- */

/* Barriers, each for so many bytes. They are there for the own block's first warp behind this; for the other threads
 * once they have met, and for other blocks once the clusters' have. */
template <int COUNT>
static __device__ __forceinline__ void expect(uint64_t (&barriers)[COUNT], const unsigned (&bytes)[COUNT])
{
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            barrier_init(&barriers[i], 1);
            barrier_expect(&barriers[i], bytes[i]);
        }
        barriers_show();
    }
    __syncwarp();
}

/* --- the residual stream ----------------------------------------------------------------------------------------- */

/* A thread's four elements. */
static __device__ __forceinline__ float4 read_stream(const struct half_stream &stream, int column)
{
    float4 x = __ldcg((const float4 *)(stream.x + column)), parts[HALF_PARTS];
#pragma unroll
    for (int p = 0; p < HALF_PARTS; p++)
        if (p < stream.part_count)
            parts[p] = __ldcg((const float4 *)(stream.parts + (size_t)p * (size_t)stream.width + column));
#pragma unroll
    for (int p = 0; p < HALF_PARTS; p++)
        if (p < stream.part_count)
            x = make_float4(x.x + parts[p].x, x.y + parts[p].y, x.z + parts[p].z, x.w + parts[p].w);
    return x;
}

static __device__ __forceinline__ uint2 pack_four(const float4 &x)
{
    return make_uint2(pack(x.x, x.y), pack(x.z, x.w));
}

static __device__ __forceinline__ void keep_stream(const struct half_stream &stream, int column, const float4 &x)
{
    *(float4 *)(stream.sum + column) = x;
    if (stream.feature)
        *(uint2 *)((bf16 *)stream.feature + column) = pack_four(x);
}

/* What a half reads of the stream: x · norm, rounded, whose products are to be multiplied by scale(). */
struct row_room {
    float squares[WARPS];
    __align__(16) bf16 row[WIDTH];
};

static __device__ __forceinline__ void ready_row(const struct half_stream &stream, const float4 &norm,
                                                 struct row_room *room)
{
    int column = 4 * (int)threadIdx.x;
    float squares = 0;
    if (column < stream.width) {
        const float4 x = read_stream(stream, column);
        squares = x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
        *(uint2 *)(room->row + column) = pack_four(make_float4(x.x * norm.x, x.y * norm.y, x.z * norm.z, x.w * norm.w));
        if (blockIdx.x == 0)
            keep_stream(stream, column, x);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0)
        room->squares[threadIdx.x / WARP] = squares;
}

static __device__ __forceinline__ float scale(const struct half_stream &stream, const struct row_room *room)
{
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += room->squares[w];
    return rsqrtf(sum / (float)stream.width + stream.epsilon);
}

/* Two neighbouring rows' products, which each warp has a part of; scaled. */
template <int COUNT>
static __device__ __forceinline__ float2 sum_warps(const float (*parts)[COUNT], int row, float scale)
{
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const float2 part = *(const float2 *)&parts[w][row];
        sum.x += part.x;
        sum.y += part.y;
    }
    return make_float2(sum.x * scale, sum.y * scale);
}

/* The warp's part of what tiles [first, last) of COUNT give of the stream is added to `sums`; weights(step, tile): a
 * piece, of the warp's step. */
template <int COUNT, typename Weights>
static __device__ __forceinline__ void multiply_stream(float (&sums)[COUNT][4], int first, int last,
                                                       const struct half_stream &stream, const struct row_room *room,
                                                       int warp, Weights weights)
{
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        int step = warp * STEPS + s;
        if (step * STEP >= stream.width)
            break;
        const uint4 row = row_at(room->row, step);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i >= first && i < last)
                multiply_piece(sums[i], weights(s, i), row);
    }
}

/* That part, to where all of the block's warps leave theirs. */
template <int COUNT>
static __device__ __forceinline__ void leave_parts(float (*parts)[COUNT * TILE], int warp,
                                                   const float (&sums)[COUNT][4])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float2 own = sums_of(sums[i]);
        if (threadIdx.x % 8)
            continue;
        parts[warp][i * TILE + lane_row()] = own.x;
        parts[warp][i * TILE + lane_row() + 4] = own.y;
    }
}

#endif
