/* Attention of sessions that bring one row each, as `auto` does, from the product of queries, keys and values on: heads
 * are normed and rotated here, the new key and value stored, and the committed ones, which the kernel before does not
 * touch, are fetched before that has ended. A block has one KV head of one row, and one split of its keys; the last
 * block to arrive joins the splits in their order. */
#include "collect/engine/cuda/attention.cuh"
#include "collect/engine/cuda/heads.cuh"

#define WARPS 16
#define THREADS (WARPS * WARP)

/* Of heads of D elements and groups of up to GROUP queries a KV head a lane has V = D / WARP elements of each row, and
 * of the scores of a warp's KEYS = WARP / GROUP keys the one of key lane / GROUP and head lane % GROUP. */

template <int V> struct lane_row {
    uint32_t pairs[V / 2];
};

template <int V> static __device__ __forceinline__ void load_lane(struct lane_row<V> &row, const __nv_bfloat16 *from)
{
    const uint32_t *words = (const uint32_t *)(from + (int)threadIdx.x % WARP * V);
    if (V == 2) {
        row.pairs[0] = words[0];
    } else if (V == 4) {
        uint2 v = *(const uint2 *)words;
        row.pairs[0] = v.x;
        row.pairs[V / 2 - 1] = v.y;
    } else {
        uint4 v = *(const uint4 *)words;
        row.pairs[0] = v.x;
        row.pairs[V / 8] = v.y;
        row.pairs[V / 4] = v.z;
        row.pairs[V / 2 - 1] = v.w;
    }
}

static __device__ __forceinline__ float2 unpack_pair(uint32_t pair)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)&pair);
}

/* sums[lane] over all lanes, of the 32 values of each. */
static __device__ __forceinline__ float transpose_sum(float (&values)[WARP])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = WARP; n > 1; n /= 2) {
        bool high = lane & n / 2;
#pragma unroll
        for (int i = 0; i < WARP / 2; i++)
            if (i < n / 2) {
                float sent = high ? values[i] : values[i + n / 2], kept = high ? values[i + n / 2] : values[i];
                values[i] = kept + __shfl_xor_sync(ALL_LANES, sent, n / 2);
            }
    }
    return values[0];
}

/* The keys of a warp's turn: from `first` on, as far as there are. */
template <int D, int GROUP> struct turn {
    struct lane_row<D / WARP> keys[WARP / GROUP], values[WARP / GROUP];
};

template <int D, int GROUP>
static __device__ __forceinline__ void fetch(struct turn<D, GROUP> &turn, const __nv_bfloat16 *keys,
                                             const __nv_bfloat16 *values, int first, int to)
{
#pragma unroll
    for (int k = 0; k < WARP / GROUP; k++) {
        int key = min(first + k, to - 1);
        load_lane<D / WARP>(turn.keys[k], keys + (size_t)key * D);
        load_lane<D / WARP>(turn.values[k], values + (size_t)key * D);
    }
}

/* A warp's softmax so far: best and total are of head lane % GROUP, total of the lane's own keys alone. */
template <int D, int GROUP> struct running {
    float best, total, sums[GROUP][D / WARP];
};

template <int D, int GROUP>
static __device__ __forceinline__ void take(struct running<D, GROUP> &running, const struct turn<D, GROUP> &turn,
                                            const float (&q)[GROUP][D / WARP], int count)
{
    constexpr int V = D / WARP, KEYS = WARP / GROUP;
    int lane = (int)threadIdx.x % WARP;
    float scores[WARP];
#pragma unroll
    for (int k = 0; k < KEYS; k++)
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            float sum = 0;
#pragma unroll
            for (int p = 0; p < V / 2; p++) {
                float2 key = unpack_pair(turn.keys[k].pairs[p]);
                sum = fmaf(q[h][2 * p], key.x, sum);
                sum = fmaf(q[h][2 * p + 1], key.y, sum);
            }
            scores[k * GROUP + h] = sum;
        }
    float score = transpose_sum(scores), best = running.best;
    if (lane / GROUP >= count)
        score = -INFINITY;
    float highest = fmaxf(best, score);
#pragma unroll
    for (int step = GROUP; step < WARP; step *= 2)
        highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, step));
    float factor = best == highest ? 1 : __expf(best - highest),
          weight = score == -INFINITY ? 0 : __expf(score - highest);
    running.best = highest;
    running.total = running.total * factor + weight;
    weight = rounded<__nv_bfloat16>(weight);
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
        float scale = __shfl_sync(ALL_LANES, factor, h);
#pragma unroll
        for (int v = 0; v < V; v++)
            running.sums[h][v] *= scale;
    }
#pragma unroll
    for (int k = 0; k < KEYS; k++)
#pragma unroll
        for (int h = 0; h < GROUP; h++) {
            float w = __shfl_sync(ALL_LANES, weight, k * GROUP + h);
#pragma unroll
            for (int p = 0; p < V / 2; p++) {
                float2 value = unpack_pair(turn.values[k].pairs[p]);
                running.sums[h][2 * p] = fmaf(w, value.x, running.sums[h][2 * p]);
                running.sums[h][2 * p + 1] = fmaf(w, value.y, running.sums[h][2 * p + 1]);
            }
        }
}

/* A warp's head: query heads first, then the new key and value, which split 0 makes and stores. */
struct unit {
    int index;
    bool is_query, is_key, is_value;
    size_t fused, cache; /* where it begins in fused; of the new row in the cache */
    struct head_rotation rotation;
};

static __device__ __forceinline__ struct unit find_unit(const struct heads_call &heads, int row, int kv_head,
                                                        bool stores)
{
    struct unit unit = {};
    int group = heads.heads / heads.kv_heads, index = (int)threadIdx.x / WARP, size = heads.head_size;
    unit.index = index;
    unit.is_query = index < group;
    unit.is_key = stores && index == group;
    unit.is_value = stores && index == group + 1;
    int head = index < group ? kv_head * group + index : heads.heads + (index - group) * heads.kv_heads + kv_head;
    unit.fused = (size_t)row * heads.stride + (size_t)head_column(heads, head);
    unit.cache = (((size_t)heads.sessions[row] * (size_t)heads.kv_heads + (size_t)kv_head) * (size_t)heads.capacity +
                  (size_t)heads.slots[row]) *
                 (size_t)size;
    if (unit.is_query || unit.is_key)
        unit.rotation = load_rotation(heads, unit.is_query ? heads.q_norm : heads.k_norm, heads.positions[row]);
    return unit;
}

/* Into q[GROUP, D] and new_rows[2, D], rounded as the type holds them. */
template <int D>
static __device__ __forceinline__ void make_head(const struct heads_call &heads, const struct unit &unit, float (*q)[D],
                                                 float (*new_rows)[D])
{
    int lane = (int)threadIdx.x % WARP;
    float *own = unit.is_query ? q[unit.index] : new_rows[unit.is_value];
    if (unit.is_query || unit.is_key)
        rotate_head(heads, unit.rotation, unit.fused, unit.is_query ? 1.0f / sqrtf((float)D) : 1.0f, own);
    __syncwarp();
    for (int i = lane; i < D && (unit.is_query || unit.is_key || unit.is_value); i += WARP) {
        float value = rounded<__nv_bfloat16>(unit.is_value ? fused_at(heads, unit.fused + (size_t)i) : own[i]);
        own[i] = value;
        if (!unit.is_query)
            store((__nv_bfloat16 *)(unit.is_key ? heads.keys : heads.values) + unit.cache + i, value);
    }
}

template <int D, int GROUP>
static __global__ void __launch_bounds__(THREADS)
    attend_row(const struct heads_call heads, const struct attention_call call, int most_splits)
{
    constexpr int V = D / WARP, KEYS = WARP / GROUP, TILE = WARPS * KEYS;
    extern __shared__ float memory[];
    __shared__ float q[GROUP][D], new_rows[2][D], best[WARPS][GROUP], total[WARPS][GROUP];
    float(*sums)[GROUP][D] = (float(*)[GROUP][D])memory; /* [WARPS] */
    __shared__ bool last;
    int row = (int)blockIdx.z, kv_head = (int)blockIdx.y, split = (int)blockIdx.x;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, group = heads.heads / heads.kv_heads;
    const struct attention_segment segment = call.segments[row];
    int seen = segment.base, tiles = (seen + TILE - 1) / TILE;
    int splits = min(most_splits, max(tiles, 1)), share = (tiles + splits - 1) / splits * TILE;
    if (split >= splits) {
        wait_for_previous();
        return;
    }
    int from = min(split * share, seen), to = min(from + share, seen);
    size_t cache = ((size_t)segment.session * (size_t)heads.kv_heads + (size_t)kv_head) * (size_t)heads.capacity * D;
    const __nv_bfloat16 *keys = (const __nv_bfloat16 *)call.keys + cache;
    const __nv_bfloat16 *values = (const __nv_bfloat16 *)call.values + cache;

    struct turn<D, GROUP> turns[2];
    int first = from + warp * KEYS;
    if (first < to)
        fetch<D, GROUP>(turns[0], keys, values, first, to);
    const struct unit unit = find_unit(heads, row, kv_head, split == 0);
    for (int i = (int)threadIdx.x; i < (GROUP - group) * D; i += THREADS)
        q[group + i / D][i % D] = 0;
    wait_for_previous();
    let_next_start();
    make_head<D>(heads, unit, q, new_rows);
    __syncthreads();

    float own[GROUP][V];
    struct running<D, GROUP> running;
    running.best = -INFINITY;
    running.total = 0;
#pragma unroll
    for (int h = 0; h < GROUP; h++)
#pragma unroll
        for (int v = 0; v < V; v++) {
            own[h][v] = q[h][lane * V + v];
            running.sums[h][v] = 0;
        }
    for (; first < to; first += 2 * TILE) { /* the other turn is fetched while one is taken */
        if (first + TILE < to)
            fetch<D, GROUP>(turns[1], keys, values, first + TILE, to);
        take<D, GROUP>(running, turns[0], own, to - first);
        if (first + TILE >= to)
            break;
        if (first + 2 * TILE < to)
            fetch<D, GROUP>(turns[0], keys, values, first + 2 * TILE, to);
        take<D, GROUP>(running, turns[1], own, to - first - TILE);
    }
    if (split == 0 && warp == WARPS - 1) { /* the new key */
#pragma unroll
        for (int p = 0; p < V / 2; p++) {
            __nv_bfloat162 pair =
                __floats2bfloat162_rn(new_rows[0][lane * V + 2 * p], new_rows[0][lane * V + 2 * p + 1]);
            turns[0].keys[0].pairs[p] = *(uint32_t *)&pair;
            pair = __floats2bfloat162_rn(new_rows[1][lane * V + 2 * p], new_rows[1][lane * V + 2 * p + 1]);
            turns[0].values[0].pairs[p] = *(uint32_t *)&pair;
        }
#pragma unroll
        for (int k = 1; k < KEYS; k++) {
            turns[0].keys[k] = turns[0].keys[0];
            turns[0].values[k] = turns[0].values[0];
        }
        take<D, GROUP>(running, turns[0], own, 1);
    }

    /* The warps' softmaxes, and then the splits', become one. */
#pragma unroll
    for (int step = GROUP; step < WARP; step *= 2)
        running.total += __shfl_xor_sync(ALL_LANES, running.total, step);
    if (lane < GROUP) {
        best[warp][lane] = running.best;
        total[warp][lane] = running.total;
    }
#pragma unroll
    for (int h = 0; h < GROUP; h++)
#pragma unroll
        for (int v = 0; v < V; v++)
            sums[warp][h][lane * V + v] = running.sums[h][v];
    __syncthreads();
    float *partial = call.partial + ATTENTION_COUNTERS;
    for (int i = (int)threadIdx.x; i < group * D; i += THREADS) {
        int h = i / D, d = i % D;
        size_t head = (size_t)row * (size_t)heads.heads + (size_t)(kv_head * group + h);
        float highest = -INFINITY, weights = 0, sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            highest = fmaxf(highest, best[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float factor = best[w][h] == -INFINITY ? 0 : __expf(best[w][h] - highest);
            weights += total[w][h] * factor;
            sum += sums[w][h][d] * factor;
        }
        if (splits == 1) {
            store((__nv_bfloat16 *)call.attended + head * D + d, sum / weights);
            continue;
        }
        float *part = partial + (head * ATTENTION_SPLITS + (size_t)split) * (D + 2);
        part[d] = sum;
        if (d == 0) {
            part[D] = highest;
            part[D + 1] = weights;
        }
    }
    if (splits == 1)
        return;
    __threadfence();
    __syncthreads();
    unsigned *arrived = (unsigned *)call.partial + row * heads.kv_heads + kv_head;
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == (unsigned)splits - 1;
        if (last)
            *arrived = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (int i = (int)threadIdx.x; i < group * D; i += THREADS) {
        int h = i / D, d = i % D;
        size_t head = (size_t)row * (size_t)heads.heads + (size_t)(kv_head * group + h);
        const float *part = partial + head * ATTENTION_SPLITS * (D + 2);
        float highest = -INFINITY, weights = 0, sum = 0;
        for (int s = 0; s < splits; s++)
            highest = fmaxf(highest, __ldcg(&part[s * (D + 2) + D]));
        for (int s = 0; s < splits; s++) {
            float factor = __expf(__ldcg(&part[s * (D + 2) + D]) - highest);
            weights += __ldcg(&part[s * (D + 2) + D + 1]) * factor;
            sum += __ldcg(&part[s * (D + 2) + d]) * factor;
        }
        store((__nv_bfloat16 *)call.attended + head * D + d, sum / weights);
    }
}

bool kernels_attend_rows_takes(enum element type, int rows, int heads, int kv_heads, int head_size)
{
    return type == ELEMENT_BFLOAT16 && heads / kv_heads <= 8 && rows * kv_heads <= ATTENTION_COUNTERS &&
           (head_size == 64 || head_size == 128);
}

template <int D, int GROUP>
static void launch_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    int splits = ATTENTION_BLOCKS / (heads->rows * heads->kv_heads);
    splits = splits < 1 ? 1 : splits > ATTENTION_SPLITS ? ATTENTION_SPLITS : splits;
    dim3 grid((unsigned)splits, (unsigned)heads->kv_heads, (unsigned)heads->rows);
    size_t shared = (size_t)WARPS * GROUP * D * sizeof(float);
    CUDA_CHECK(cudaFuncSetAttribute(attend_row<D, GROUP>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    launch(attend_row<D, GROUP>, grid, THREADS, shared, stream, *heads, *call, splits);
}

template <int D>
static void launch_size(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    int group = heads->heads / heads->kv_heads;
    if (group <= 1)
        launch_rows<D, 1>(heads, call, stream);
    else if (group <= 2)
        launch_rows<D, 2>(heads, call, stream);
    else if (group <= 4)
        launch_rows<D, 4>(heads, call, stream);
    else
        launch_rows<D, 8>(heads, call, stream);
}

void kernels_attend_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream)
{
    if (heads->head_size == 64)
        launch_size<64>(heads, call, stream);
    else
        launch_size<128>(heads, call, stream);
}
