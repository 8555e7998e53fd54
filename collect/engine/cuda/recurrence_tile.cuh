/* A tile of rows that are answered from one committed state and from each other: what a block has of it in shared
 * memory, how it comes there, and the rows' weights of their ancestors. */
#ifndef COLLECT_ENGINE_CUDA_RECURRENCE_TILE_CUH
#define COLLECT_ENGINE_CUDA_RECURRENCE_TILE_CUH

#include "collect/engine/cuda/cluster.cuh"
#include "collect/engine/cuda/mma.cuh"
#include "collect/engine/cuda/recurrence.cuh"

#define WARPS 16
#define THREADS (WARPS * WARP)
#define COLUMNS (2 * WARP)        /* of the state, that a block has: a pair a lane */
#define TILE 65                   /* rows */
#define SHORT_TILE RECURRENT_NEAR /* of runs, and where trees are deep: all ancestors in it are among the nearest */
#define OWN ((TILE + WARPS - 1) / WARPS)          /* rows of a tile that a warp has: every WARPS-th */
#define BLOCKS (RECURRENT_SIZE_MAXIMUM / COLUMNS) /* of a head, at most */

/* --- the blocks of a head, which are a cluster -------------------------------------------------------------------- */

static __device__ __forceinline__ void store_there(uint32_t to, float x)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}

static __device__ __forceinline__ void store_there(uint32_t to, float2 x)
{
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x.x), "f"(x.y) : "memory");
}

/* Stores x at the place in each block's shared memory that `to` is in this one's. */
template <typename T> static __device__ __forceinline__ void tell(T *to, T x, int blocks)
{
#if __CUDA_ARCH__ >= 900
    uint32_t here = shared_address(to), there;
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
        store_there(there, x);
    }
#else
    (void)blocks;
    *to = x;
#endif
}

/* --- shared memory ----------------------------------------------------------------------------------------------- */

/* In floats. Keys and queries are padded to whole float4; rows are longer than what they hold, to spread the banks. */
#define STATE_PITCH (COLUMNS + 8)

struct layout {
    int pitch, keys, queries, reads, weights, deltas, gates, squares, betas, decays, totals, selves, levels, near, size;
};

static inline int padded(int keys)
{
    return (keys + 3) / 4 * 4;
}

static inline struct layout lay_out(int keys, int rows)
{
    struct layout at;
    at.pitch = padded(keys) + 4;
    at.keys = padded(keys) * STATE_PITCH;
    at.queries = at.keys + rows * at.pitch;
    at.reads = at.queries + rows * at.pitch;
    at.weights = at.reads + 2 * rows * STATE_PITCH;
    at.deltas = at.weights + 2 * rows * RECURRENT_NEAR;
    at.gates = at.deltas + rows * COLUMNS;
    at.squares = at.gates + rows * COLUMNS;
    at.near = at.squares + rows * BLOCKS;
    at.betas = at.near + rows * RECURRENT_NEAR / 2;
    at.decays = at.betas + rows;
    at.totals = at.decays + rows;
    at.selves = at.totals + rows;
    at.levels = at.selves + rows;
    at.size = at.levels + rows;
    return at;
}

/* What the functions below share. Places are of the segment, rows of the tile. */
struct scene {
    const struct recurrent_call &call;
    struct attention_segment segment;
    int head, column, start, count; /* column: the lane's first; the tile's first place, and how many it has */
    int root;                       /* what lies before this place is in the state */
    int pitch;                      /* of keys and queries */
    float2 norm;                    /* the weights of the lane's columns */
    float *state;                   /* [keys, STATE_PITCH] */
    float *keys, *queries;          /* [rows, pitch] */
    float *reads;                   /* [2 rows, STATE_PITCH]: what the state says to keys, then outputs; and to
                                       queries */
    float2 *weights;                /* [rows, RECURRENT_NEAR]: of ancestors in the tile, the key's and the query's */
    float *deltas;                  /* [rows, COLUMNS]: values, until they are answered */
    float *gates;                   /* [rows, COLUMNS]: z */
    float *squares;                 /* [rows, BLOCKS]: each block's sum over its outputs */
    float *betas, *decays;          /* [rows] */
    float *totals, *selves;         /* [rows]: the product of all decays from the root on; query times key */
    int *levels;                    /* [rows]: how many ancestors are in the tile; they are the first of: */
    int16_t *near; /* [rows, RECURRENT_NEAR]: the nearest ancestors' places; below the root there is none */
};

static __device__ __forceinline__ float2 pair_at(const float *row)
{
    return *(const float2 *)(row + (int)threadIdx.x % WARP * 2);
}

static __device__ __forceinline__ void put_pair(float *row, float2 pair)
{
    *(float2 *)(row + (int)threadIdx.x % WARP * 2) = pair;
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float *mixed_row(const struct recurrent_call &call, int row)
{
    return call.mixed + (size_t)row * (size_t)channels_of(call.layer.sizes);
}

static __device__ __forceinline__ int key_head_of(const struct recurrent_sizes &sizes, int head)
{
    return head / (sizes.value_heads / sizes.key_heads);
}

/* Of place `place`: its value (or output, where the blocks of a head cannot meet) from the block's first column on. */
static __device__ __forceinline__ float *value_at(const struct scene &scene, int place)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    return mixed_row(scene.call, scene.segment.first + place) + 2 * sizes.key_heads * sizes.key_size +
           scene.head * sizes.value_size + (int)blockIdx.x * COLUMNS;
}

static __device__ __forceinline__ float *delta_at(const struct scene &scene, int place)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    size_t row = (size_t)(scene.segment.first + place) * (size_t)(sizes.value_heads * sizes.value_size);
    return scene.call.deltas + row + scene.head * sizes.value_size + (int)blockIdx.x * COLUMNS;
}

/* The lane's pair of such a row, as far as there are columns. */
static __device__ __forceinline__ float2 fetch_pair(const struct scene &scene, const float *row)
{
    int size = scene.call.layer.sizes.value_size, at = (int)threadIdx.x % WARP * 2;
    return make_float2(scene.column < size ? row[at] : 0, scene.column + 1 < size ? row[at + 1] : 0);
}

template <typename T> static __device__ __forceinline__ void store_pair(const struct scene &scene, T *row, float2 pair)
{
    int size = scene.call.layer.sizes.value_size, at = (int)threadIdx.x % WARP * 2;
    if (scene.column < size)
        store(&row[at], pair.x);
    if (scene.column + 1 < size)
        store(&row[at + 1], pair.y);
}

static __device__ __forceinline__ float decay_of(const struct scene &scene, int place)
{
    size_t row = (size_t)(scene.segment.first + place) * (size_t)scene.call.layer.sizes.value_heads;
    return scene.call.layer.decays[row + (size_t)scene.head];
}

/* The lane's of the nearest ancestors of a place, -1 where there is none. */
static __device__ __forceinline__ int ancestor_of(const struct scene &scene, int place)
{
    int lane = (int)threadIdx.x % WARP;
    size_t at = (size_t)(scene.segment.first + place) * RECURRENT_NEAR + (size_t)lane;
    int ancestor = scene.call.near ? scene.call.near[at] : place - 1 - lane;
    return ancestor >= scene.root ? ancestor : -1;
}

/* The product of what the lanes before this one have. */
static __device__ __forceinline__ float product_before(float x, float *all)
{
    int lane = (int)threadIdx.x % WARP;
    for (int step = 1; step < WARP; step *= 2) {
        float other = __shfl_up_sync(ALL_LANES, x, step);
        x = lane >= step ? x * other : x;
    }
    *all = __shfl_sync(ALL_LANES, x, WARP - 1);
    float before = __shfl_up_sync(ALL_LANES, x, 1);
    return lane ? before : 1.0f;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Whether rows begin and end at whole float4. */
static __device__ __forceinline__ bool has_quads(const struct recurrent_sizes &sizes)
{
    return sizes.key_size % 4 == 0 && sizes.value_size % 4 == 0;
}

/* Queues the copies of `there` floats of each of `count` rows, from[., stride], and of zeros behind them, to[count,
 * pitch] up to `width`. */
static __device__ __forceinline__ void copy_rows(float *to, int pitch, const float *from, int stride, int count,
                                                 int there, int width, bool quads)
{
    int warp = (int)threadIdx.x / WARP, each = quads ? 4 : 1, first = (int)threadIdx.x % WARP * each;
    from += (size_t)(warp * stride);
    to += warp * pitch;
#pragma unroll 1
    for (int row = warp; row < count; row += WARPS, from += WARPS * stride, to += WARPS * pitch)
#pragma unroll 1
        for (int i = first; i < width; i += each * WARP)
            if (quads)
                copy_start(shared_address(to + i), from + (i < there ? i : 0), i < there);
            else
                copy_word_start(shared_address(to + i), from + (i < there ? i : 0), i < there);
}

/* Queues the copy of the block's columns of the committed state. */
static __device__ __forceinline__ void copy_state(const struct scene &scene, const float *committed)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int keys = sizes.key_size, first = (int)blockIdx.x * COLUMNS, there = min(sizes.value_size - first, COLUMNS);
    copy_rows(scene.state, STATE_PITCH, committed + first, sizes.value_size, keys, there, COLUMNS, has_quads(sizes));
#pragma unroll 1
    for (int i = keys * STATE_PITCH + (int)threadIdx.x; i < (scene.pitch - 4) * STATE_PITCH; i += THREADS)
        scene.state[i] = 0;
}

/* Queues the copy of the tile's gates, which the kernel just before does not touch. */
static __device__ __forceinline__ void copy_gates(const struct scene &scene)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int width = in_width_of(sizes), first = (int)blockIdx.x * COLUMNS, there = min(sizes.value_size - first, COLUMNS);
    const float *gates = scene.call.fused + (size_t)(scene.segment.first + scene.start) * (size_t)width +
                         channels_of(sizes) + scene.head * sizes.value_size + first;
    copy_rows(scene.gates, COLUMNS, gates, width, scene.count, there, COLUMNS, has_quads(sizes) && width % 4 == 0);
}

/* What the batch says of the tile's rows, which no kernel just before touches. Whether a row may have more ancestors in
 * the tile than are listed. */
static __device__ __forceinline__ bool find_ancestors(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, ancestors[OWN];
    bool all_inside = false;
#pragma unroll
    for (int i = 0; i < OWN; i++)
        ancestors[i] = i * WARPS + warp < scene.count ? ancestor_of(scene, scene.start + i * WARPS + warp) : -1;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int row = i * WARPS + warp, inside = __popc(__ballot_sync(ALL_LANES, ancestors[i] >= scene.start));
        if (row >= scene.count)
            break;
        scene.near[row * RECURRENT_NEAR + lane] = (int16_t)ancestors[i];
        scene.levels[row] = inside;
        all_inside = all_inside || inside == RECURRENT_NEAR;
    }
    return __syncthreads_or(all_inside);
}

/* Queues the copies of the tile's keys, queries and values, and loads its gates. */
static __device__ __forceinline__ void load_tile(const struct scene &scene)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int keys = sizes.key_size, width = scene.pitch - 4, channels = channels_of(sizes);
    int there = min(sizes.value_size - (int)blockIdx.x * COLUMNS, COLUMNS);
    bool quads = has_quads(sizes);
    const float *query =
        mixed_row(scene.call, scene.segment.first + scene.start) + key_head_of(sizes, scene.head) * keys;
    copy_rows(scene.queries, scene.pitch, query, channels, scene.count, keys, width, quads);
    copy_rows(scene.keys, scene.pitch, query + sizes.key_heads * keys, channels, scene.count, keys, width, quads);
    copy_rows(scene.deltas, COLUMNS, value_at(scene, scene.start), channels, scene.count, there, COLUMNS, quads);
    copies_commit();
    if ((int)threadIdx.x < scene.count) {
        size_t row = (size_t)(scene.segment.first + scene.start) + threadIdx.x;
        size_t gate = row * (size_t)sizes.value_heads + (size_t)scene.head;
        scene.decays[threadIdx.x] = scene.call.layer.decays[gate];
        scene.betas[threadIdx.x] = scene.call.layer.betas[gate];
    }
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ void add_products(float4 &sums, float4 x, float4 y)
{
    sums.x = fmaf(x.x, y.x, sums.x);
    sums.y = fmaf(x.y, y.y, sums.y);
    sums.z = fmaf(x.z, y.z, sums.z);
    sums.w = fmaf(x.w, y.w, sums.w);
}

static __device__ __forceinline__ float sum_quad(float4 quad)
{
    return (quad.x + quad.y) + (quad.z + quad.w);
}

/* The products of a row's key and query with the keys of its ancestors in the tile, lane i's the i-th nearest; in lane
 * `level`, with its own key. Eight lanes go along a key, whose loads meet in no bank; a group of them has two keys at a
 * time, and so the warp eight. */
static __device__ __forceinline__ float2 multiply_keys(const struct scene &scene, int row, int ancestor, int level)
{
    int lane = (int)threadIdx.x % WARP, other = lane < level ? ancestor - scene.start : row;
    const float *key = scene.keys + row * scene.pitch, *query = scene.queries + row * scene.pitch;
    float2 products = {};
#pragma unroll 1
    for (int first = 0; first <= level; first += 8) {
        const float *one = scene.keys + __shfl_sync(ALL_LANES, other, first + lane / 8) * scene.pitch;
        const float *another = scene.keys + __shfl_sync(ALL_LANES, other, first + lane / 8 + 4) * scene.pitch;
        float4 sums[4] = {};
#pragma unroll 2
        for (int k = lane % 8 * 4; k < scene.pitch - 4; k += 32) {
            float4 by_key = *(const float4 *)(key + k), by_query = *(const float4 *)(query + k);
            float4 x = *(const float4 *)(one + k), y = *(const float4 *)(another + k);
            add_products(sums[0], by_key, x);
            add_products(sums[1], by_query, x);
            add_products(sums[2], by_key, y);
            add_products(sums[3], by_query, y);
        }
        float whole[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            whole[i] = sum_quad(sums[i]);
            for (int step = 4; step > 0; step /= 2)
                whole[i] += __shfl_xor_sync(ALL_LANES, whole[i], step);
            whole[i] = __shfl_sync(ALL_LANES, whole[i], lane % 4 * 8);
        }
        if (lane / 8 == first / 8)
            products = lane % 8 < 4 ? make_float2(whole[0], whole[1]) : make_float2(whole[2], whole[3]);
    }
    return products;
}

/* A row's weights of its ancestors in the tile, a lane each, those of its key times its beta; and the product of all
 * decays from the root to it. All blocks are told. */
static __device__ __forceinline__ void weigh_row(const struct scene &scene, int row, int blocks)
{
    int lane = (int)threadIdx.x % WARP, level = scene.levels[row], at = row * RECURRENT_NEAR + lane;
    int ancestor = scene.near[at];
    const float2 products = multiply_keys(scene, row, ancestor, level);
    float all, decay = lane < level    ? scene.decays[ancestor - scene.start]
                       : ancestor >= 0 ? decay_of(scene, ancestor)
                                       : 1.0f;
    float weight = scene.decays[row] * product_before(decay, &all), total = scene.decays[row] * all;
    for (int far = __shfl_sync(ALL_LANES, ancestor, WARP - 1); far >= 0;) {
        int next = ancestor_of(scene, far);
        product_before(next >= 0 ? decay_of(scene, next) : 1.0f, &all);
        total *= all;
        far = __shfl_sync(ALL_LANES, next, WARP - 1);
    }
    if (lane < level)
        tell(&scene.weights[at], make_float2(scene.betas[row] * weight * products.x, weight * products.y), blocks);
    if (lane == level) { /* fewer than WARP are in the tile */
        tell(&scene.totals[row], total, blocks);
        tell(&scene.selves[row], products.y, blocks);
    }
}

#endif
