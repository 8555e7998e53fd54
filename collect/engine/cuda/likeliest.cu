/* The likeliest tokens of rows, and what the rows weigh. The parts of a row nominate, then a block ranks. */
#include "collect/engine/cuda/element.cuh"

#include <float.h>
#include <limits.h>

#define THREADS 512
#define WARPS (THREADS / WARP)
#define PARTS 16         /* of a row, a block each: they nominate, another block ranks */
#define QUAD 4           /* logits that are read together where they lie so */
#define BLOCKS 3         /* that nominate, of a multiprocessor at a time */
#define DEPTH 5          /* quads that a thread asks for at a time: a part of Qwen3's vocabulary */
#define GATHERED 4       /* keys of a thread that find their places together */
#define SPARE WARP       /* keys that a search may answer beyond those that are wanted */
#define APART (24 << 10) /* bytes of shared memory that are not for what a search reads; 21 KB in rank() */

/* A column with its logit as one number: a larger logit is larger, of equal logits the lower column. 0: none. */
typedef unsigned long long rank_key;

static __device__ __forceinline__ rank_key key_of(float logit, int column)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit); /* -0 is 0 */
    bits ^= (uint32_t)((int32_t)bits >> 31) | 0x80000000u;
    return (rank_key)bits << 32 | (0xffffffffu - (uint32_t)column);
}

static __device__ __forceinline__ uint32_t upper_half(rank_key key)
{
    return (uint32_t)(key >> 32);
}

static __device__ __forceinline__ int column_of(rank_key key)
{
    return (int)(0xffffffffu - (uint32_t)key);
}

static __device__ __forceinline__ float logit_of(rank_key key)
{
    uint32_t bits = upper_half(key);
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

static __host__ __device__ __forceinline__ int room_for(int width)
{
    return width + SPARE;
}

/* --- the search ------------------------------------------------------------------------------------------------- */

/* Where keys come from: logits from column `first` on, or keys. */
struct logit_source {
    const float *logits;
    int first;
    __device__ __forceinline__ rank_key at(int i) const
    {
        return key_of(logits[i], first + i);
    }
};

struct key_source {
    const rank_key *keys;
    __device__ __forceinline__ rank_key at(int i) const
    {
        return keys[i];
    }
};

/* A thread's own key alone. */
struct own_source {
    rank_key key;
    __device__ __forceinline__ rank_key at(int) const
    {
        return key;
    }
};

/* Where the lowest of a source's `width` largest keys lies: `above` keys are higher than `high`, and `reached` are not
 * lower than `low`, INT_MAX where that is not counted. */
struct search {
    rank_key low, high;
    int above, reached;
};

/* From the lowest of the threads' best to the highest; own: the upper half of the thread's, 0 where it has none. */
static __device__ __forceinline__ struct search begin_search(uint32_t own)
{
    __shared__ uint32_t lows[WARPS], highs[WARPS];
    int lane = (int)threadIdx.x % WARP;
    uint32_t low = __reduce_min_sync(ALL_LANES, own > 0 ? own : UINT32_MAX), high = __reduce_max_sync(ALL_LANES, own);
    if (lane == 0) {
        lows[threadIdx.x / WARP] = low;
        highs[threadIdx.x / WARP] = high;
    }
    __syncthreads();
    low = __reduce_min_sync(ALL_LANES, lows[lane % WARPS]);
    high = __reduce_max_sync(ALL_LANES, highs[lane % WARPS]);
    return {low <= high ? (rank_key)low << 32 : 1, (rank_key)high << 32 | UINT32_MAX, 0, INT_MAX};
}

/* Divides the interval into as many bins as there are threads, counts the source's keys in each, and answers the bin
 * that holds the width-th largest; what is below the interval where it holds too few. A bin of one number has one key
 * at most, no two being equal. */
template <typename Source>
static __device__ __forceinline__ struct search narrow(const Source &source, int count, int width, struct search in)
{
    __shared__ int bins[THREADS], sums[WARPS];
    __shared__ struct search out;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int shift = max(64 - __clzll((long long)(in.high - in.low)) - __popc(THREADS - 1), 0);
    bins[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        rank_key key = source.at(i);
        if (key >= in.low && key <= in.high)
            atomicAdd(&bins[(key - in.low) >> shift], 1);
    }
    __syncthreads();
    int bin = THREADS - 1 - (int)threadIdx.x, own = bins[bin], reached = own;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        int before = __shfl_up_sync(ALL_LANES, reached, step);
        reached += lane >= step ? before : 0;
    }
    if (lane == WARP - 1)
        sums[warp] = reached;
    __syncthreads();
    reached += in.above + __reduce_add_sync(ALL_LANES, lane < warp ? sums[lane % WARPS] : 0);
    if (reached >= width && reached - own < width) {
        rank_key low = in.low + ((rank_key)bin << shift), last = ((rank_key)1 << shift) - 1;
        out = {low, in.high - low < last ? in.high : low + last, reached - own, reached};
    } else if (bin == 0 && reached < width) {
        out = {1, in.low - 1, reached, in.low > 1 ? INT_MAX : reached};
    }
    __syncthreads();
    return out;
}

/* Copies the keys from `least` on, in any order, as far as there is room; answers how many they are. */
template <typename Source>
static __device__ __forceinline__ int gather(const Source &source, int count, rank_key least, rank_key *keys, int room)
{
    __shared__ int total;
    int lane = (int)threadIdx.x % WARP;
    __syncthreads();
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
#pragma unroll 1
    for (int first = (int)threadIdx.x; first - lane < count; first += GATHERED * THREADS) {
        rank_key own[GATHERED];
        unsigned reach[GATHERED];
        int reached = 0, at = 0;
#pragma unroll
        for (int k = 0; k < GATHERED; k++) {
            int i = first + k * THREADS;
            own[k] = i < count ? source.at(i) : 0;
            reach[k] = __ballot_sync(ALL_LANES, own[k] >= least);
            reached += __popc(reach[k]);
        }
        if (reached == 0)
            continue;
        if (lane == 0)
            at = atomicAdd(&total, reached);
        at = __shfl_sync(ALL_LANES, at, 0);
#pragma unroll
        for (int k = 0; k < GATHERED; k++) {
            int to = at + __popc(reach[k] & ((1u << lane) - 1));
            if (own[k] >= least && to < room)
                keys[to] = own[k];
            at += __popc(reach[k]);
        }
    }
    __syncthreads();
    return total;
}

/* Copies to keys[room_for(width)] the `width` largest of a source's keys, all where they are fewer, and at most SPARE
 * more, in any order; answers how many. own: the upper half of the thread's best key, 0 where it has none. The best of
 * `width` threads are a bound, which few more keys reach while it is few of the threads; the bound of many, or one that
 * too many keys reach, is narrowed first. */
template <typename Source>
static __device__ __forceinline__ int gather_largest(const Source &source, int count, uint32_t own, int width,
                                                     rank_key *keys)
{
    struct search search = begin_search(own);
    int room = room_for(width), reached = INT_MAX;
    if (width <= THREADS) {
        const struct own_source best = {(rank_key)own << 32};
        search.low = narrow(best, THREADS, width, search).low; /* 1 where fewer have a key */
    }
    if (width <= THREADS / 4)
        reached = gather(source, count, search.low, keys, room);
    if (reached <= room)
        return reached;
#pragma unroll 1
    while (search.reached > room)
        search = narrow(source, count, width, search);
    return gather(source, count, search.low, keys, room);
}

/* --- the parts of a row ----------------------------------------------------------------------------------------- */

/* The scratch: row_sum [rows, PARTS], of each part; then the nominated keys [rows, PARTS, room_for(width)]. */
static __device__ __forceinline__ struct row_sum *sums_at(void *scratch, int row)
{
    return (struct row_sum *)scratch + (size_t)row * PARTS;
}

static __device__ __forceinline__ rank_key *keys_at(void *scratch, int rows, int row, int width)
{
    return (rank_key *)sums_at(scratch, rows) + (size_t)row * PARTS * (size_t)room_for(width);
}

size_t kernels_top_partials(int rows, int width)
{
    return (size_t)rows * PARTS * (sizeof(struct row_sum) + (size_t)room_for(width) * sizeof(rank_key));
}

/* Whole quads, so that parts begin where quads do. */
static __host__ __device__ __forceinline__ int span_of(const struct top_call &call)
{
    return (call.summed + PARTS * QUAD - 1) / (PARTS * QUAD) * QUAD;
}

/* By what differences of logits become exponents of two. */
static __device__ __forceinline__ float sharpness_of(const struct top_call &call, int row)
{
    float temperature = call.how ? call.how[row].temperature : 1;
    return fminf(1.44269504f / (temperature > 0 ? temperature : 1), FLT_MAX);
}

/* The largest of the logits that the thread reads; `room`, where there is one, becomes a copy of all. */
static __device__ __forceinline__ float read_part(const float *__restrict__ from, int count, float *__restrict__ room)
{
    int quads = (uintptr_t)from % sizeof(float4) == 0 ? count / QUAD : 0;
    float best = -INFINITY;
#pragma unroll 1
    for (int first = (int)threadIdx.x; first < quads; first += DEPTH * THREADS) {
        float4 logits[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            logits[d] = ((const float4 *)from)[min(first + d * THREADS, quads - 1)]; /* the last again harms nothing */
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            best = fmaxf(best, fmaxf(fmaxf(logits[d].x, logits[d].y), fmaxf(logits[d].z, logits[d].w)));
            if (room && first + d * THREADS < quads)
                ((float4 *)room)[first + d * THREADS] = logits[d];
        }
    }
#pragma unroll 4
    for (int i = quads * QUAD + (int)threadIdx.x; i < count; i += THREADS) {
        best = fmaxf(best, from[i]);
        if (room)
            room[i] = from[i];
    }
    return best;
}

/* Grid: [PARTS, row]. */
static __global__ void __launch_bounds__(THREADS, BLOCKS) nominate(const struct top_call call, bool holds)
{
    __shared__ float parts[WARP];
    extern __shared__ __align__(16) char near[];
    int rows = (int)gridDim.y, row = (int)blockIdx.y, part = (int)blockIdx.x, span = span_of(call);
    int first = min(part * span, call.summed), count = min(first + span, call.summed) - first;
    int columns = max(min(first + count, call.count) - first, 0);
    wait_for_previous();
    let_next_start();
    const float *x = call.logits + (size_t)row * (size_t)call.stride + first;
    float best = block_largest(read_part(x, count, holds ? (float *)near : NULL), parts);
    float sharpness = sharpness_of(call, row), sum = 0;
    uint32_t own = 0;
    x = holds ? (const float *)near : x;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        float logit = x[i];
        sum += logit > -INFINITY ? exp2f((logit - best) * sharpness) : 0;
        own = max(own, i < columns ? upper_half(key_of(logit, 0)) : 0);
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0)
        sums_at(call.partial, row)[part] = {best, sum};
    const struct logit_source source = {x, first};
    int room = room_for(call.width);
    rank_key *keys = keys_at(call.partial, rows, row, call.width) + (size_t)part * (size_t)room;
    int found = gather_largest(source, columns, own, call.width, keys);
#pragma unroll 1
    for (int i = found + (int)threadIdx.x; i < room; i += THREADS)
        keys[i] = 0;
}

/* --- the ranking ------------------------------------------------------------------------------------------------ */

/* Bitonic, best first: a key of each lane. */
static __device__ __forceinline__ rank_key sort_warp(rank_key key)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int size = 2; size <= WARP; size *= 2)
#pragma unroll
        for (int step = size / 2; step > 0; step /= 2) {
            rank_key other = __shfl_xor_sync(ALL_LANES, key, step);
            key = ((lane & step) == 0) == ((lane & size) == 0) ? max(key, other) : min(key, other);
        }
    return key;
}

/* How many of a warp's keys, best first, are larger. */
static __device__ __forceinline__ int count_larger(const rank_key *keys, rank_key key)
{
    int larger = 0;
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        larger += keys[larger + step - 1] > key ? step : 0;
    return larger + (keys[larger] > key);
}

/* Sorts the keys of shared memory, which has room for whole warps of them, best first: each warp sorts as many as it
 * has lanes, and then a key's place is after all that are larger. */
static __device__ __forceinline__ void sort_falling(rank_key *keys, int count, rank_key *sorted)
{
    int whole = (count + WARP - 1) / WARP * WARP;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < whole; i += THREADS)
        keys[i] = sort_warp(i < count ? keys[i] : 0);
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < whole; i += THREADS) {
        rank_key key = keys[i];
        int place = 0;
#pragma unroll 4
        for (int first = 0; first < whole; first += WARP)
            place += count_larger(keys + first, key);
        if (key > 0)
            sorted[place] = key;
    }
    __syncthreads();
}

/* What the parts of a row weigh together, to every lane of a warp that has a part each. */
static __device__ __forceinline__ struct row_sum sum_parts(struct row_sum part, float sharpness)
{
    float best = warp_largest(part.largest);
    return {best, warp_sum(part.sum > 0 ? part.sum * exp2f((part.largest - best) * sharpness) : 0)};
}

/* Grid: [row]. */
static __global__ void __launch_bounds__(THREADS) rank(const struct top_call call, bool holds)
{
    __shared__ rank_key keys[TOP_WIDTH_MAXIMUM + SPARE], sorted[TOP_WIDTH_MAXIMUM + SPARE];
    extern __shared__ __align__(16) char near[];
    int rows = (int)gridDim.x, row = (int)blockIdx.x, width = call.width, count = PARTS * room_for(width);
    wait_for_previous();
    let_next_start();
    int lane = (int)threadIdx.x % WARP;
    struct row_sum part = {-INFINITY, 0};
    if (lane < PARTS)
        part = sums_at(call.partial, row)[lane];
    const rank_key *nominated = keys_at(call.partial, rows, row, width);
    uint32_t own = 0;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        rank_key key = nominated[i];
        own = max(own, upper_half(key));
        if (holds)
            ((rank_key *)near)[i] = key;
    }
    const struct key_source source = {holds ? (const rank_key *)near : nominated};
    int found = gather_largest(source, count, own, width, keys);
    if (threadIdx.x / WARP == WARPS - 1) { /* the last to have keys to sort */
        const struct row_sum sum = sum_parts(part, sharpness_of(call, row));
        if (lane == 0)
            call.sums[row] = sum;
    }
    sort_falling(keys, found, sorted);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < width; i += THREADS) {
        size_t at = (size_t)row * (size_t)width + (size_t)i;
        call.tokens[at] = i < found ? call.first_token + column_of(sorted[i]) : -1;
        call.values[at] = i < found ? logit_of(sorted[i]) : -INFINITY;
    }
}

/* Lets a kernel have so many bytes, and keeps a multiprocessor divided for the most shared memory, as the product
 * before it does: one that divides its memory anew must be empty first. */
static void allow_near(void (*kernel)(struct top_call, bool), int bytes)
{
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
}

void kernels_top(const struct top_call *call, cudaStream_t stream)
{
    int near = device_shared_bytes() - APART;
    size_t span = (size_t)span_of(*call) * sizeof(float);
    size_t nominated = (size_t)(PARTS * room_for(call->width)) * sizeof(rank_key);
    bool holds_span = span <= (size_t)near, holds_nominated = nominated <= (size_t)near;
    allow_near(nominate, near);
    allow_near(rank, near);
    launch(nominate, dim3(PARTS, (unsigned)call->rows), THREADS, holds_span ? span : 0, stream, *call, holds_span);
    launch(rank, dim3((unsigned)call->rows), THREADS, holds_nominated ? nominated : 0, stream, *call, holds_nominated);
}
