/* The likeliest tokens of rows, and what the rows weigh. The parts of a row nominate, then a block ranks. */
#include "collect/engine/cuda/element.cuh"

#define TOP_THREADS 512
#define TOP_WARPS (TOP_THREADS / WARP)
#define TOP_PARTS 16            /* of a row, a block each: they nominate, another block ranks */
#define SORTED_MAXIMUM 2048     /* a power of two, and room_for(TOP_WIDTH_MAXIMUM) at least */
#define NEAR_MAXIMUM (64 << 10) /* bytes that a block holds in shared memory */

/* A column with its logit as one number: a larger logit is larger, of equal logits the lower column. 0: none. */
typedef unsigned long long rank_key;

static __device__ __forceinline__ rank_key key_of(float logit, int column)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit); /* -0 is 0 */
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (rank_key)bits << 32 | (0xffffffffu - (uint32_t)column);
}

static __device__ __forceinline__ int column_of(rank_key key)
{
    return (int)(0xffffffffu - (uint32_t)key);
}

static __device__ __forceinline__ float logit_of(rank_key key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

/* Keys that are wanted from more than fit: where a search is content. */
static __host__ __device__ __forceinline__ int room_for(int width)
{
    return width + width / 4 + WARP;
}

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

/* The block's sum of `own`. counts: shared [2, TOP_WARPS], of which calls take turns by `turn`. */
static __device__ __forceinline__ int block_count(int own, int turn, int (*counts)[TOP_WARPS])
{
    int lane = (int)threadIdx.x % WARP;
    own = __reduce_add_sync(ALL_LANES, own);
    if (lane == 0)
        counts[turn % 2][threadIdx.x / WARP] = own;
    __syncthreads();
    return __reduce_add_sync(ALL_LANES, lane < TOP_WARPS ? counts[turn % 2][lane] : 0);
}

template <typename Source>
static __device__ __forceinline__ int count_from(const Source &source, int count, rank_key least, int turn,
                                                 int (*counts)[TOP_WARPS])
{
    int own = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS)
        own += source.at(i) >= least;
    return block_count(own, turn, counts);
}

/* The highest and the lowest upper half of the threads' best keys. */
static __device__ __forceinline__ void find_bounds(uint32_t own, uint32_t *highest, uint32_t *lowest)
{
    __shared__ uint32_t high[TOP_WARPS], low[TOP_WARPS];
    int lane = (int)threadIdx.x % WARP;
    uint32_t most = __reduce_max_sync(ALL_LANES, own), least = __reduce_min_sync(ALL_LANES, own);
    if (lane == 0) {
        high[threadIdx.x / WARP] = most;
        low[threadIdx.x / WARP] = least;
    }
    __syncthreads();
    *highest = __reduce_max_sync(ALL_LANES, lane < TOP_WARPS ? high[lane] : 0);
    *lowest = __reduce_min_sync(ALL_LANES, lane < TOP_WARPS ? low[lane] : 0xffffffffu);
}

/* A key that at least `width` of a source's keys reach and at most room_for(width) do; all, where they are no more than
 * that. The interval between a key that enough reach and one that too few do is halved until it fits: no two keys are
 * equal. Enough reach the lowest of the threads' best keys where the threads are enough. */
template <typename Source>
static __device__ __forceinline__ rank_key find_least(const Source &source, int count, int width)
{
    __shared__ int counts[2][TOP_WARPS];
    uint32_t own = 0, highest, lowest;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS)
        own = max(own, (uint32_t)(source.at(i) >> 32));
    find_bounds(own, &highest, &lowest);
    rank_key low = 1, high = highest == 0xffffffffu ? ~(rank_key)0 : (rank_key)(highest + 1) << 32;
    if (width <= TOP_THREADS && lowest > 0)
        low = (rank_key)lowest << 32;
    int turn = 0, reached = count_from(source, count, low, turn++, counts);
    while (reached > room_for(width)) {
        rank_key middle = low + (high - low) / 2;
        int above = count_from(source, count, middle, turn++, counts);
        if (above >= width) {
            low = middle;
            reached = above;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Copies the keys from `least` on, in any order, and zeros up to `room`; answers how many they are. */
template <typename Source>
static __device__ __forceinline__ int gather(const Source &source, int count, rank_key least, rank_key *keys, int room)
{
    __shared__ int total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS) {
        rank_key key = source.at(i);
        if (key >= least)
            keys[atomicAdd(&total, 1)] = key;
    }
    __syncthreads();
    for (int i = total + (int)threadIdx.x; i < room; i += TOP_THREADS)
        keys[i] = 0;
    return total;
}

/* Bitonic, best first; count: a power of two. */
static __device__ __forceinline__ void sort_falling(rank_key *keys, int count)
{
    for (int size = 2; size <= count; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < count / 2; i += TOP_THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                rank_key a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    __syncthreads();
}

/* The scratch: row_sum [rows, TOP_PARTS], of each part; then the nominated keys [rows, TOP_PARTS, room_for(width)]. */
static __device__ __forceinline__ struct row_sum *sums_at(void *scratch, int row)
{
    return (struct row_sum *)scratch + (size_t)row * TOP_PARTS;
}

static __device__ __forceinline__ rank_key *keys_at(void *scratch, int rows, int row, int width)
{
    return (rank_key *)sums_at(scratch, rows) + (size_t)row * TOP_PARTS * (size_t)room_for(width);
}

size_t kernels_top_partials(int rows, int width)
{
    return (size_t)rows * TOP_PARTS * (sizeof(struct row_sum) + (size_t)room_for(width) * sizeof(rank_key));
}

/* What is searched many times is copied to shared memory where it has room: each thread reads what it copied. */
template <typename T> static __device__ __forceinline__ const T *hold(const T *from, int count, bool holds, T *room)
{
#pragma unroll 8
    for (int i = (int)threadIdx.x; holds && i < count; i += TOP_THREADS)
        room[i] = from[i];
    return holds ? room : from;
}

static __device__ __forceinline__ float temperature_of(const struct top_call &call, int row)
{
    float temperature = call.how ? call.how[row].temperature : 1;
    return temperature > 0 ? temperature : 1;
}

/* Grid: [TOP_PARTS, row]. */
static __global__ void __launch_bounds__(TOP_THREADS) nominate(const struct top_call call, bool holds)
{
    __shared__ float parts[WARP];
    extern __shared__ __align__(16) char near[];
    int rows = (int)gridDim.y, row = (int)blockIdx.y, part = (int)blockIdx.x;
    int span = (call.summed + TOP_PARTS - 1) / TOP_PARTS, first = min(part * span, call.summed);
    int own = min(first + span, call.summed) - first;
    wait_for_previous();
    let_next_start();
    const float *x = hold(call.logits + (size_t)row * (size_t)call.stride + first, own, holds, (float *)near);
    float best = -INFINITY, sum = 0, temperature = temperature_of(call, row);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < own; i += TOP_THREADS)
        best = fmaxf(best, x[i]);
    best = block_largest(best, parts);
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < own; i += TOP_THREADS)
        sum += x[i] > -INFINITY ? expf((x[i] - best) / temperature) : 0;
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0)
        sums_at(call.partial, row)[part] = {best, sum};
    const struct logit_source source = {x, first};
    int columns = max(min(first + own, call.count) - first, 0), room = room_for(call.width);
    rank_key least = find_least(source, columns, call.width);
    gather(source, columns, least, keys_at(call.partial, rows, row, call.width) + (size_t)part * (size_t)room, room);
}

/* What the parts of a row weigh together, to every lane of a warp. */
static __device__ __forceinline__ struct row_sum sum_parts(const struct top_call &call, int row)
{
    int lane = (int)threadIdx.x % WARP;
    struct row_sum part = {-INFINITY, 0};
    if (lane < TOP_PARTS)
        part = sums_at(call.partial, row)[lane];
    float best = warp_largest(part.largest), temperature = temperature_of(call, row);
    return {best, warp_sum(part.sum > 0 ? part.sum * expf((part.largest - best) / temperature) : 0)};
}

/* Grid: [row]. */
static __global__ void __launch_bounds__(TOP_THREADS) rank(const struct top_call call, bool holds)
{
    __shared__ rank_key keys[SORTED_MAXIMUM];
    extern __shared__ __align__(16) char near[];
    int rows = (int)gridDim.x, row = (int)blockIdx.x, width = call.width;
    wait_for_previous();
    let_next_start();
    const struct row_sum sum = sum_parts(call, row);
    if (threadIdx.x == 0)
        call.sums[row] = sum;
    int count = TOP_PARTS * room_for(width), room = 2;
    const struct key_source source = {hold(keys_at(call.partial, rows, row, width), count, holds, (rank_key *)near)};
    int found = gather(source, count, find_least(source, count, width), keys, 0);
    while (room < found || room < width)
        room *= 2;
    for (int i = found + (int)threadIdx.x; i < room; i += TOP_THREADS)
        keys[i] = 0;
    sort_falling(keys, room);
    for (int i = (int)threadIdx.x; i < width; i += TOP_THREADS) {
        size_t at = (size_t)row * (size_t)width + (size_t)i;
        call.tokens[at] = keys[i] ? call.first_token + column_of(keys[i]) : -1;
        call.values[at] = keys[i] ? logit_of(keys[i]) : -INFINITY;
    }
}

void kernels_top(const struct top_call *call, cudaStream_t stream)
{
    size_t span = (size_t)((call->summed + TOP_PARTS - 1) / TOP_PARTS) * sizeof(float);
    size_t nominated = (size_t)(TOP_PARTS * room_for(call->width)) * sizeof(rank_key);
    bool holds_span = span <= NEAR_MAXIMUM, holds_nominated = nominated <= NEAR_MAXIMUM;
    CUDA_CHECK(cudaFuncSetAttribute(nominate, cudaFuncAttributeMaxDynamicSharedMemorySize, NEAR_MAXIMUM));
    CUDA_CHECK(cudaFuncSetAttribute(rank, cudaFuncAttributeMaxDynamicSharedMemorySize, NEAR_MAXIMUM));
    launch(nominate, dim3(TOP_PARTS, (unsigned)call->rows), TOP_THREADS, holds_span ? span : 0, stream, *call,
           holds_span);
    launch(rank, dim3((unsigned)call->rows), TOP_THREADS, holds_nominated ? nominated : 0, stream, *call,
           holds_nominated);
}
