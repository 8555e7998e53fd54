/* How the rows of a tile of skinny.cu end: how they are scaled, and what becomes of their sums, a warp a row. A lane
 * has two outputs of each 64 of the tile. */
#ifndef COLLECT_ENGINE_CUDA_SKINNY_ENDS_CUH
#define COLLECT_ENGINE_CUDA_SKINNY_ENDS_CUH

#include "collect/engine/cuda/heads.cuh"

struct skinny_row {
    int tile, row;
    float scale;
    const float *sums; /* of the tile's outputs */
};

/* Two values of each 64 outputs. */
template <int GROUPS> struct pairs {
    float2 of[GROUPS];
};

/* The lane's outputs within the tile. */
static __device__ __forceinline__ int column_of(int group)
{
    return group * 64 + (int)threadIdx.x % WARP * 2;
}

static __device__ __forceinline__ bool has_column(const struct skinny_call &call, int tile, int column)
{
    return column < call.tile && tile * call.tile + column < call.outputs;
}

/* Gates that a tile has room for before its ups: each begin where the swizzle does. */
static __host__ __device__ __forceinline__ int padded(int gates)
{
    return (gates + 7) / 8 * 8;
}

/* The row that a block of a cluster ends as its `index`-th: by eights they go round. */
static __device__ __forceinline__ int ended_row(int index, int splits, int split)
{
    return (index / 8 * splits + split) * 8 + index % 8;
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

/* So many lanes add up a row's squares, of so many rows at a time. */
#define SCALE_LANES 8
#define SCALE_ROWS 3

/* By one warp: 1 / sqrt(mean(x²) + epsilon) of those rows that the block ends, which were not normed, in scales[rows].
 * All that a lane reads of a hundred tiles is on its way at once. */
static __device__ __forceinline__ void make_scales(const struct skinny_call &call, int split, float *scales)
{
    constexpr int ROWS = WARP / SCALE_LANES, AT_ONCE = 12;
    int lane = (int)threadIdx.x % WARP, part = lane % SCALE_LANES, first = lane / SCALE_LANES;
    auto row_at = [&](int k) { return ended_row(first + k * ROWS, call.splits, split); };
#pragma unroll 1
    for (; __any_sync(ALL_LANES, row_at(0) < call.rows); first += SCALE_ROWS * ROWS) {
        float sums[SCALE_ROWS] = {};
#pragma unroll 1
        for (int start = part; start < call.square_count; start += AT_ONCE * SCALE_LANES)
#pragma unroll
            for (int i = 0; i < SCALE_ROWS * AT_ONCE; i++) {
                int row = row_at(i / AT_ONCE), at = start + i % AT_ONCE * SCALE_LANES;
                if (row < call.rows && at < call.square_count)
                    sums[i / AT_ONCE] += __ldcg(call.squares + row * call.square_count + at);
            }
#pragma unroll
        for (int k = 0; k < SCALE_ROWS; k++) {
            int row = row_at(k);
            for (int lanes = 1; lanes < SCALE_LANES; lanes *= 2)
                sums[k] += __shfl_xor_sync(ALL_LANES, sums[k], lanes);
            if (part == 0 && row < call.rows)
                scales[row] = 1.0f / sqrtf(sums[k] / (float)call.inputs + call.epsilon);
        }
    }
}

/* --- what a row needs besides its sums ---------------------------------------------------------------------------- */

/* Of the warp's rows the lanes know the places; of all of them that of one. */
static __device__ __forceinline__ struct head_place place_among(const struct head_place &places, int lane)
{
    return {__shfl_sync(ALL_LANES, places.position, lane), __shfl_sync(ALL_LANES, places.session, lane),
            __shfl_sync(ALL_LANES, places.slot, lane)};
}

/* What all rows of a tile are weighted by: those that are added by the norm behind them, heads by their own. */
template <int GROUPS>
static __device__ __forceinline__ struct pairs<GROUPS> load_norms(const struct skinny_call &call, int tile) {
    struct pairs<GROUPS> norms = {
    };
    if (call.added.x) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (has_column(call, tile, column_of(g)))
                norms.of[g] = *(const float2 *)(call.added.norm + tile * call.tile + column_of(g));
    } else if (call.heads.heads && tile < call.heads.heads + call.heads.kv_heads) {
        struct head_rotation<GROUPS> rotation;
        load_norm(call.heads, norm_of(call.heads, 0, tile), rotation);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            norms.of[g] = make_float2(rotation.low[g], rotation.high[g]);
    }
    return norms;
}

/* And what one row is added to, or, as cosine and sine, turned by. */
template <int GROUPS>
static __device__ __forceinline__ struct pairs<GROUPS> load_row(const struct skinny_call &call, int tile, int row,
                                                                const struct head_place &place) {
    struct pairs<GROUPS> ahead = {
    };
    if (row >= call.rows)
        return ahead;
    if (call.added.x) {
        const float *x = call.added.x + (size_t)row * (size_t)call.outputs + (size_t)tile * (size_t)call.tile;
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (has_column(call, tile, column_of(g)))
                ahead.of[g] = *(const float2 *)(x + column_of(g));
    } else if (call.heads.heads && is_rotated(call.heads, place, tile)) {
        struct head_rotation<GROUPS> rotation;
        load_angles(call.heads, place.position, rotation);
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            ahead.of[g] = make_float2(rotation.cosine[g], rotation.sine[g]);
    }
    return ahead;
}

/* --- the ends ----------------------------------------------------------------------------------------------------- */

template <int GROUPS>
static __device__ __forceinline__ void end_plain(const struct skinny_call &call, const struct skinny_row &row)
{
    float *y = call.y + (size_t)row.row * (size_t)call.outputs + (size_t)row.tile * (size_t)call.tile;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        float2 pair = *(const float2 *)(row.sums + column_of(g));
        if (has_column(call, row.tile, column_of(g)))
            *(float2 *)(y + column_of(g)) = make_float2(pair.x * row.scale, pair.y * row.scale);
    }
}

/* Without what it takes to get numbers right that are too small to be normal: beside 1 they are nothing. */
static __device__ __forceinline__ float swiglu(float gate, float up)
{
    float power, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(gate * -1.442695041f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
    return gate * inverse * up;
}

/* The tile is gate rows, and then their up rows. Four outputs a lane: what one of them waits for the others do not add
 * to. */
template <int ROWS>
static __device__ __forceinline__ void end_gated(const struct skinny_call &call, const struct skinny_row &row)
{
    int inner = call.outputs / 2, ups = padded(call.tile), first = row.tile * call.tile;
    int count = min(call.tile, inner - first);
    __nv_bfloat16 *out = (__nv_bfloat16 *)call.gated + (size_t)row.row * (size_t)inner + (size_t)first;
#pragma unroll
    for (int from = 0; from < ROWS / 2; from += 4 * WARP) {
        int column = from + (int)threadIdx.x % WARP * 4;
        if (column >= count)
            break;
        float4 gate = *(const float4 *)(row.sums + column), up = *(const float4 *)(row.sums + ups + column);
        const float values[] = {
            swiglu(gate.x * row.scale, up.x * row.scale), swiglu(gate.y * row.scale, up.y * row.scale),
            swiglu(gate.z * row.scale, up.z * row.scale), swiglu(gate.w * row.scale, up.w * row.scale)};
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            if (inner % 2 == 0 && column + i < count)
                *(__nv_bfloat162 *)(out + column + i) = __floats2bfloat162_rn(values[i], values[i + 1]);
        if (inner % 2)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (column + i < count)
                    store(out + column + i, values[i]);
    }
}

template <int GROUPS>
static __device__ __forceinline__ void end_head(const struct skinny_call &call, const struct skinny_row &row,
                                                const struct head_place &place, const struct pairs<GROUPS> &norms,
                                                const struct pairs<GROUPS> &angles)
{
    struct head_rotation<GROUPS> rotation;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        rotation.low[g] = norms.of[g].x;
        rotation.high[g] = norms.of[g].y;
        rotation.cosine[g] = angles.of[g].x;
        rotation.sine[g] = angles.of[g].y;
    }
    put_head<__nv_bfloat16>(call.heads, rotation, 0, row.row, place, row.tile,
                            [&](int i) { return row.sums[i] * row.scale; });
}

/* tiles: how many squares a row has. */
template <int GROUPS>
static __device__ __forceinline__ void end_added(const struct skinny_call &call, const struct skinny_row &row,
                                                 int tiles, const struct pairs<GROUPS> &norms,
                                                 const struct pairs<GROUPS> &x)
{
    const struct skinny_added &added = call.added;
    size_t first = (size_t)row.tile * (size_t)call.tile, start = (size_t)row.row * (size_t)call.outputs + first;
    float squares = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int column = column_of(g);
        if (!has_column(call, row.tile, column))
            continue;
        size_t at = start + (size_t)column;
        float2 value = x.of[g], weight = norms.of[g], pair = *(const float2 *)(row.sums + column);
        value.x += pair.x;
        value.y += pair.y;
        squares = fmaf(value.x, value.x, fmaf(value.y, value.y, squares));
        *(float2 *)(added.x + at) = value;
        *(__nv_bfloat162 *)((__nv_bfloat16 *)added.out + at) =
            __floats2bfloat162_rn(value.x * weight.x, value.y * weight.y);
        if (added.features)
            *(__nv_bfloat162 *)((__nv_bfloat16 *)added.features +
                                ((size_t)row.row * (size_t)added.feature_count + (size_t)added.feature_index) *
                                    (size_t)call.outputs +
                                first + (size_t)column) = __floats2bfloat162_rn(value.x, value.y);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0)
        added.squares[(size_t)row.row * (size_t)tiles + (size_t)row.tile] = squares;
}

#endif
