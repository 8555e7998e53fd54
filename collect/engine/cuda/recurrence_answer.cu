/* Rows answered from one committed state and from each other, without a state for any of them (the equations are in
 * CONTRIBUTING.md and recurrence.h of the CPU backend).
 *
 * A block has a value head of a segment and 32 columns of its state, a lane each, in shared memory. Rows are taken in
 * tiles: the state's answers to the tile's keys and queries by one product; the products of keys and queries with
 * ancestors' keys, times the decays between them; then the rows by levels, those whose ancestors are answered. A run
 * that advances its session folds each tile into the state and begins anew; other segments of more than a tile look
 * their ancestors in earlier tiles up in memory. */
#include "collect/engine/cuda/mma.cuh"
#include "collect/engine/cuda/recurrence.cuh"

#define WARPS 8
#define THREADS (WARPS * WARP)
#define TILE 65                   /* so that two blocks of heads of 128 fit a multiprocessor of Hopper's */
#define SHORT_TILE RECURRENT_NEAR /* of runs and deep trees: all ancestors in the tile are among the nearest */
#define GROUPS (THREADS / 8)      /* of the fold: a thread has 4 columns of 4 keys of so many */
#define PRODUCT_TILES 9           /* of 16 rows: 2 TILE, rounded up */
#define KEY_LANES 8               /* of a product of two keys: a warp has WARP / KEY_LANES of them at a time */

/* Shared memory in floats; keys and queries are padded to whole float4, and rows one further to spread the banks. */
struct layout {
    int pitch, keys, reads, key_weights, query_weights, deltas, betas, decays, totals, selves, levels, ancestors, size;
};

static __host__ __device__ __forceinline__ int padded(int keys)
{
    return (keys + 3) / 4 * 4;
}

/* The rows' queries stand behind their keys; once they are multiplied, what the state answered to both takes their
 * place. */
static __host__ __device__ __forceinline__ struct layout lay_out(int keys, int rows)
{
    struct layout at;
    int queries = rows * (padded(keys) + 4), reads = 2 * rows * WARP;
    at.pitch = padded(keys) + 4;
    at.keys = padded(keys) * WARP;
    at.reads = at.keys + rows * at.pitch;
    at.key_weights = at.reads + (queries > reads ? queries : reads);
    at.query_weights = at.key_weights + rows * RECURRENT_NEAR;
    at.deltas = at.query_weights + rows * RECURRENT_NEAR;
    at.betas = at.deltas + rows * WARP;
    at.decays = at.betas + rows;
    at.totals = at.decays + rows;
    at.selves = at.totals + rows;
    at.levels = at.selves + rows;
    at.ancestors = at.levels + rows;
    at.size = at.ancestors + rows * RECURRENT_NEAR / 2;
    return at;
}

/* What the functions below share. Places are of the segment, rows of the tile. */
struct scene {
    const struct recurrent_call &call;
    struct attention_segment segment;
    int head, column, start, count; /* column: the lane's; the tile's first place, and how many it has */
    int root;                       /* what lies before this place is in the state */
    float *state, *keys, *queries, *reads, *key_weights, *query_weights, *deltas;
    float *betas, *decays, *totals, *selves;
    int *levels;
    int16_t *ancestors;
    int pitch;
};

static __device__ __forceinline__ float *mixed_row(const struct recurrent_call &call, int row)
{
    return call.mixed + (size_t)row * (size_t)channels_of(call.layer.sizes);
}

static __device__ __forceinline__ int key_head_of(const struct recurrent_sizes &sizes, int head)
{
    return head / (sizes.value_heads / sizes.key_heads);
}

/* Of place `place`: the element of its value, or output, that is the lane's. */
static __device__ __forceinline__ float *value_at(const struct scene &scene, int place)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    return mixed_row(scene.call, scene.segment.first + place) + 2 * sizes.key_heads * sizes.key_size +
           scene.head * sizes.value_size + scene.column;
}

static __device__ __forceinline__ float *delta_at(const struct scene &scene, int place)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    size_t row = (size_t)(scene.segment.first + place) * (size_t)(sizes.value_heads * sizes.value_size);
    return scene.call.deltas + row + scene.head * sizes.value_size + scene.column;
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

/* --- a tile ----------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void load_tile(const struct scene &scene)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int keys = sizes.key_size, key_head = key_head_of(sizes, scene.head), quads = padded(keys) / 4;
    int queries_width = sizes.key_heads * keys;
    bool whole = keys % 4 == 0 && channels_of(sizes) % 4 == 0;
    for (int i = (int)threadIdx.x; i < 2 * scene.count * quads; i += THREADS) {
        int row = i / quads, column = i % quads * 4, place = scene.start + row % scene.count;
        const float *from = mixed_row(scene.call, scene.segment.first + place) + key_head * keys + column +
                            (row < scene.count ? queries_width : 0);
        float4 quad;
        if (whole)
            quad = *(const float4 *)from;
        else
            quad = make_float4(from[0], column + 1 < keys ? from[1] : 0, column + 2 < keys ? from[2] : 0,
                               column + 3 < keys ? from[3] : 0);
        *(float4 *)(scene.keys + row * scene.pitch + column) = quad;
    }
    for (int i = (int)threadIdx.x; i < scene.count * WARP; i += THREADS) /* the lane's column */
        scene.deltas[i] = scene.column < sizes.value_size ? *value_at(scene, scene.start + i / WARP) : 0;
    for (int i = (int)threadIdx.x; i < scene.count; i += THREADS) {
        size_t gate = (size_t)(scene.segment.first + scene.start + i) * (size_t)sizes.value_heads;
        scene.decays[i] = scene.call.layer.decays[gate + (size_t)scene.head];
        scene.betas[i] = scene.call.layer.betas[gate + (size_t)scene.head];
    }
}

static __device__ __forceinline__ float dot_quads(float4 x, float4 y, float sum)
{
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
}

/* A row's weights of its ancestors in the tile, and the product of all decays from the root to it. */
static __device__ __forceinline__ void weigh_row(const struct scene &scene, int row)
{
    int lane = (int)threadIdx.x % WARP, width = scene.pitch - 4, ancestor = ancestor_of(scene, scene.start + row);
    const float *key = scene.keys + row * scene.pitch, *query = scene.queries + row * scene.pitch;
    float all, before = product_before(ancestor >= 0 ? decay_of(scene, ancestor) : 1.0f, &all);
    float weight = scene.decays[row] * before, total = scene.decays[row] * all, key_weight = 0, query_weight = 0;
    int inside = __popc(__ballot_sync(ALL_LANES, ancestor >= scene.start));
    for (int first = 0; first < inside; first += WARP / KEY_LANES) {
        int own = min(first + lane / KEY_LANES, inside - 1), from = (lane - first) * KEY_LANES % WARP;
        const float *other = scene.keys + (__shfl_sync(ALL_LANES, ancestor, own) - scene.start) * scene.pitch;
        float by_key = 0, by_query = 0;
        for (int k = lane % KEY_LANES * 4; k < width; k += 4 * KEY_LANES) {
            float4 quad = *(const float4 *)(other + k);
            by_key = dot_quads(*(const float4 *)(key + k), quad, by_key);
            by_query = dot_quads(*(const float4 *)(query + k), quad, by_query);
        }
        for (int step = 1; step < KEY_LANES; step *= 2) {
            by_key += __shfl_xor_sync(ALL_LANES, by_key, step);
            by_query += __shfl_xor_sync(ALL_LANES, by_query, step);
        }
        by_key = __shfl_sync(ALL_LANES, by_key, from & (WARP - 1));
        by_query = __shfl_sync(ALL_LANES, by_query, from & (WARP - 1));
        if (lane >= first && lane < min(first + WARP / KEY_LANES, inside)) {
            key_weight = weight * by_key;
            query_weight = weight * by_query;
        }
    }
    float self = 0;
    for (int k = lane * 4; k < width; k += 4 * WARP)
        self = dot_quads(*(const float4 *)(query + k), *(const float4 *)(key + k), self);
    self = warp_sum(self);
    for (int far = __shfl_sync(ALL_LANES, ancestor, WARP - 1); far >= 0;) {
        int next = ancestor_of(scene, far);
        product_before(next >= 0 ? decay_of(scene, next) : 1.0f, &all);
        total *= all;
        far = __shfl_sync(ALL_LANES, next, WARP - 1);
    }
    scene.key_weights[row * RECURRENT_NEAR + lane] = key_weight;
    scene.query_weights[row * RECURRENT_NEAR + lane] = query_weight;
    scene.ancestors[row * RECURRENT_NEAR + lane] = (int16_t)(lane < inside ? ancestor - scene.start : 0);
    if (lane == 0) {
        scene.totals[row] = total;
        scene.selves[row] = self;
        scene.levels[row] = inside;
    }
}

/* Adds a warp's share of [16 TILES, 8] to sums: of the factors' rows times 8 columns of the state, over half of the
 * keys. Each number is two of 10 bits, of which the product of what is left is left out: float32's precision, nearly.
 */
template <int TILES>
static __device__ __forceinline__ void multiply_state(const struct scene &scene, float (&sums)[TILES][4])
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    int width = scene.pitch - 4, steps = (width + 7) / 8, half = warp / 4, rows = 2 * scene.count;
    const float *state = scene.state + warp % 4 * 8 + g;
    for (int step = half * steps / 2; step < (half + 1) * steps / 2; step++) {
        int low = step * 8 + t, high = low + 4;
        uint32_t leading[2], left[2];
        split_value(low < width ? state[low * WARP] : 0, &leading[0], &left[0]);
        split_value(high < width ? state[high * WARP] : 0, &leading[1], &left[1]);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (tile * 16 >= rows)
                break;
            const float *upper = scene.keys + min(tile * 16 + g, rows - 1) * scene.pitch;
            const float *lower = scene.keys + min(tile * 16 + g + 8, rows - 1) * scene.pitch;
            uint32_t a[4], rest[4];
            split_value(low < width ? upper[low] : 0, &a[0], &rest[0]);
            split_value(low < width ? lower[low] : 0, &a[1], &rest[1]);
            split_value(high < width ? upper[high] : 0, &a[2], &rest[2]);
            split_value(high < width ? lower[high] : 0, &a[3], &rest[3]);
            multiply_leading(sums[tile], rest, leading);
            multiply_leading(sums[tile], a, left);
            multiply_leading(sums[tile], a, leading);
        }
    }
}

/* reads[2 count, 32] = the factors times the state, times the rows' decays from the root on. Warps have 8 columns each
 * and half of the keys. */
template <int TILES> static __device__ __forceinline__ void read_state_with(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, rows = 2 * scene.count;
    float sums[TILES][4] = {};
    multiply_state<TILES>(scene, sums);
    __syncthreads(); /* the queries were used */
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            int row = i / 2 * 16 + i % 2 * 8 + lane / 4;
            if (warp / 4 != half || row >= rows)
                continue;
            float total = scene.totals[row % scene.count];
            float2 *to = (float2 *)(scene.reads + row * WARP + warp % 4 * 8 + lane % 4 * 2);
            float2 before = half ? *to : make_float2(0, 0);
            *to = make_float2(before.x + total * sums[i / 2][i % 2 * 2], before.y + total * sums[i / 2][i % 2 * 2 + 1]);
        }
        __syncthreads();
    }
}

static __device__ __forceinline__ void read_state_of(const struct scene &scene)
{
    if (2 * scene.count <= 16)
        read_state_with<1>(scene);
    else if (2 * scene.count <= 48)
        read_state_with<3>(scene);
    else if (2 * scene.count <= 80)
        read_state_with<5>(scene);
    else
        read_state_with<PRODUCT_TILES>(scene);
}

/* Adds to a row's reads what its ancestors in earlier tiles say: all from memory. */
static __device__ __forceinline__ void add_earlier(const struct scene &scene, int row)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int lane = (int)threadIdx.x % WARP, keys = sizes.key_size, place = scene.start + row, first = scene.levels[row];
    const float *query = mixed_row(scene.call, scene.segment.first + place) + key_head_of(sizes, scene.head) * keys;
    const float *key = query + sizes.key_heads * keys;
    float carry = scene.decays[row], key_sum = 0, query_sum = 0;
    do {
        int ancestor = ancestor_of(scene, place);
        float all, weight = carry * product_before(ancestor >= 0 ? decay_of(scene, ancestor) : 1.0f, &all);
        int there = __popc(__ballot_sync(ALL_LANES, ancestor >= 0));
        for (int i = first; i < there; i++) {
            int other = __shfl_sync(ALL_LANES, ancestor, i);
            const float *other_key = mixed_row(scene.call, scene.segment.first + other) +
                                     (sizes.key_heads + key_head_of(sizes, scene.head)) * keys;
            float by_key = 0, by_query = 0, its = __shfl_sync(ALL_LANES, weight, i);
            for (int k = lane; k < keys; k += WARP) {
                by_key = fmaf(key[k], other_key[k], by_key);
                by_query = fmaf(query[k], other_key[k], by_query);
            }
            float delta = scene.column < sizes.value_size ? *delta_at(scene, other) : 0;
            key_sum = fmaf(its * warp_sum(by_key), delta, key_sum);
            query_sum = fmaf(its * warp_sum(by_query), delta, query_sum);
        }
        carry *= all;
        first = 0;
        place = __shfl_sync(ALL_LANES, ancestor, WARP - 1);
    } while (place >= 0);
    scene.reads[row * WARP + lane] += key_sum;
    scene.reads[(scene.count + row) * WARP + lane] += query_sum;
}

/* What a row's ancestors in the tile say, by their weights. */
static __device__ __forceinline__ float add_ancestors(const struct scene &scene, int row, const float *weights,
                                                      float sum)
{
    int lane = (int)threadIdx.x % WARP, level = scene.levels[row];
    for (int i = 0; i < level; i++)
        sum = fmaf(weights[row * RECURRENT_NEAR + i],
                   scene.deltas[scene.ancestors[row * RECURRENT_NEAR + i] * WARP + lane], sum);
    return sum;
}

/* The rows' deltas, level by level; until then a row's value is in its place. */
static __device__ __forceinline__ void solve(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP, level = 0;
    bool more;
    do {
        more = false;
        for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS) {
            more = more || scene.levels[row] > level;
            if (scene.levels[row] != level)
                continue;
            float *delta = &scene.deltas[row * WARP + lane];
            *delta = scene.betas[row] *
                     (*delta - add_ancestors(scene, row, scene.key_weights, scene.reads[row * WARP + lane]));
        }
        level++;
    } while (__syncthreads_or(more));
}

static __device__ __forceinline__ void put_outputs(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP;
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS) {
        float delta = scene.deltas[row * WARP + lane];
        float sum = add_ancestors(scene, row, scene.query_weights, scene.reads[(scene.count + row) * WARP + lane]);
        if (scene.column >= scene.call.layer.sizes.value_size)
            continue;
        *value_at(scene, scene.start + row) = fmaf(scene.selves[row], delta, sum);
        if (!scene.call.advances && scene.start + scene.count < scene.segment.count)
            *delta_at(scene, scene.start + row) = delta;
    }
}

/* The state behind the tile's last row: a run of at most a warp's lanes. */
static __device__ __forceinline__ void fold(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP, column = (int)threadIdx.x % 8 * 4, width = scene.pitch - 4;
    float decay = lane < scene.count ? scene.decays[scene.count - 1 - lane] : 1.0f; /* the last row's first */
    float all, after = product_before(decay, &all);
    __syncthreads(); /* the deltas were used */
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS)
        scene.deltas[row * WARP + lane] *= __shfl_sync(ALL_LANES, after, scene.count - 1 - row);
    __syncthreads();
    for (int key = (int)threadIdx.x / 8 * 4; key < width; key += GROUPS * 4) {
        float sums[4][4];
#pragma unroll
        for (int i = 0; i < 16; i++)
            sums[i / 4][i % 4] = all * scene.state[(key + i / 4) * WARP + column + i % 4];
        for (int row = 0; row < scene.count; row++) {
            float4 keys = *(const float4 *)(scene.keys + row * scene.pitch + key);
            float4 deltas = *(const float4 *)(scene.deltas + row * WARP + column);
            const float k[] = {keys.x, keys.y, keys.z, keys.w}, u[] = {deltas.x, deltas.y, deltas.z, deltas.w};
#pragma unroll
            for (int i = 0; i < 16; i++)
                sums[i / 4][i % 4] = fmaf(k[i / 4], u[i % 4], sums[i / 4][i % 4]);
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
            scene.state[(key + i / 4) * WARP + column + i % 4] = sums[i / 4][i % 4];
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------- */

/* Whether a row of the segment has more ancestors than are listed for it, or may have. */
static __device__ __forceinline__ bool is_deep(const struct recurrent_call &call,
                                               const struct attention_segment &segment)
{
    bool deep = !call.near;
    for (int i = (int)threadIdx.x; call.near && i < segment.count; i += THREADS)
        deep = deep || call.near[(size_t)(segment.first + i) * RECURRENT_NEAR + RECURRENT_NEAR - 1] >= 0;
    return __syncthreads_or(deep);
}

/* Grid: [columns by WARP, value head, segment]. rows: that the layout has room for. */
static __global__ void __launch_bounds__(THREADS, 2) answer(const struct recurrent_call call, int rows)
{
    extern __shared__ float4 shared[];
    float *memory = (float *)shared;
    const struct recurrent_sizes &sizes = call.layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.z];
    const struct layout at = lay_out(sizes.key_size, rows);
    int head = (int)blockIdx.y, column = (int)blockIdx.x * WARP + (int)threadIdx.x % WARP, keys = sizes.key_size;
    struct scene scene = {call,
                          segment,
                          head,
                          column,
                          0,
                          0,
                          0,
                          memory,
                          memory + at.keys,
                          NULL,
                          NULL,
                          memory + at.key_weights,
                          memory + at.query_weights,
                          memory + at.deltas,
                          memory + at.betas,
                          memory + at.decays,
                          memory + at.totals,
                          memory + at.selves,
                          (int *)(memory + at.levels),
                          (int16_t *)(memory + at.ancestors),
                          at.pitch};

    /* The committed state, which the kernel before does not touch. */
    float *committed = call.layer.states + ((size_t)segment.session * (size_t)sizes.value_heads + (size_t)head) *
                                               (size_t)keys * (size_t)sizes.value_size;
    for (int i = (int)threadIdx.x; i < padded(keys) * WARP; i += THREADS)
        scene.state[i] = i / WARP < keys && column < sizes.value_size
                             ? committed[(size_t)(i / WARP) * (size_t)sizes.value_size + (size_t)column]
                             : 0;
    wait_for_previous();
    let_next_start();

    int tile = is_deep(call, segment) ? min(rows, SHORT_TILE) : rows;
    for (int start = 0; start < segment.count; start += tile) {
        scene.start = start;
        scene.root = call.advances ? start : 0;
        scene.count = min(tile, segment.count - start);
        scene.queries = scene.reads = scene.keys + scene.count * at.pitch;
        __syncthreads(); /* the tile before was used */
        load_tile(scene);
        __syncthreads();
        for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS)
            weigh_row(scene, row);
        __syncthreads();
        read_state_of(scene);
        if (scene.root < start) {
            for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS)
                add_earlier(scene, row);
            __syncthreads();
        }
        solve(scene);
        put_outputs(scene);
        if (call.advances)
            fold(scene);
    }
    if (!call.advances)
        return;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < padded(keys) * WARP; i += THREADS)
        if (i / WARP < keys && column < sizes.value_size)
            committed[(size_t)(i / WARP) * (size_t)sizes.value_size + (size_t)column] = scene.state[i];
}

/* Rows of a tile, as far as a block's shared memory has room for them. */
static int tile_rows(const struct recurrent_call *call)
{
    int rows = call->advances || !call->near ? SHORT_TILE : TILE, limit = device_shared_bytes();
    rows = call->longest < rows ? call->longest : rows;
    while (rows > 1 && lay_out(call->layer.sizes.key_size, rows).size * (int)sizeof(float) > limit)
        rows--;
    return rows;
}

void kernels_recurrent_answer(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int rows = tile_rows(call);
    size_t bytes = (size_t)lay_out(sizes->key_size, rows).size * sizeof(float);
    dim3 grid((unsigned)((sizes->value_size + WARP - 1) / WARP), (unsigned)sizes->value_heads,
              (unsigned)call->segment_count);
    if (call->longest > 1 && !call->advances && !call->deltas)
        die("segments of %d rows without room for their deltas", call->longest);
    CUDA_CHECK(cudaFuncSetAttribute(answer, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    CUDA_CHECK(
        cudaFuncSetAttribute(answer, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    launch(answer, grid, THREADS, bytes, stream, *call, rows);
}
