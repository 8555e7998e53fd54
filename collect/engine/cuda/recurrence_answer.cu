/* Rows answered from one committed state and from each other, without a state for any of them (the equations are in
 * CONTRIBUTING.md and recurrence.h of the CPU backend).
 *
 * A block has a value head of a segment and 64 columns of its state, a pair a lane, in shared memory. Rows are taken in
 * tiles: the products of keys and queries with ancestors' keys, times the decays between them, which the blocks of a
 * head share out; the state's answers to the tile's keys and queries by one product; then all rows add one ancestor a
 * turn, until each has all of its own; and the gated norm, for which the blocks of a head add up their squares. A run
 * that advances its session folds each tile into the state and begins anew; other segments of more than a tile look
 * their ancestors in earlier tiles up in memory. */
#include "collect/engine/cuda/recurrence_tile.cuh"

/* --- the state's answers ----------------------------------------------------------------------------------------- */

/* The factors, keys and then queries. */
static __device__ __forceinline__ const float *factor_at(const struct scene &scene, int row)
{
    row = min(row, 2 * scene.count - 1);
    return row < scene.count ? scene.keys + row * scene.pitch : scene.queries + (row - scene.count) * scene.pitch;
}

#define LEFTOVER 2 /* a root, its key and its query, behind whole 16-row tiles */

/* reads of up to LEFTOVER factors from `row` on, by threads: eight have a column, and a share of the keys each. */
static __device__ __forceinline__ void read_leftover(const struct scene &scene, int row)
{
    int lane = (int)threadIdx.x % WARP, column = (int)threadIdx.x / WARP * 4 + lane % 4;
    const float *one = factor_at(scene, row), *other = factor_at(scene, row + 1), *state = scene.state + column;
    float first = 0, second = 0;
#pragma unroll 4
    for (int key = lane / 4; key < scene.pitch - 4; key += 8) {
        first = fmaf(one[key], state[key * STATE_PITCH], first);
        second = fmaf(other[key], state[key * STATE_PITCH], second);
    }
    for (int step = 4; step < WARP; step *= 2) {
        first += __shfl_xor_sync(ALL_LANES, first, step);
        second += __shfl_xor_sync(ALL_LANES, second, step);
    }
    if (lane < 4)
        scene.reads[row * STATE_PITCH + column] = first;
    if (lane < 4 && row + 1 < 2 * scene.count)
        scene.reads[(row + 1) * STATE_PITCH + column] = second;
}

/* reads = the factors times the state, to be multiplied by the rows' decays from the root on. A warp has 16 columns and
 * every fourth 16 rows of factors, of which there are eight times 16: up to two, together, for which it splits the
 * state once. Each number is two of 10 bits, of which the product of what is left is left out: float32's precision,
 * nearly. */
static __device__ __forceinline__ void read_state(const struct scene &scene)
{
    static_assert(2 * TILE <= 2 * 4 * 16 + LEFTOVER, "more rows than two a warp");
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    int width = scene.pitch - 4, rows = 2 * scene.count, first = warp / 4 * 16;
    if (rows % 16 <= LEFTOVER && rows % 16 > 0) {
        rows -= rows % 16;
        read_leftover(scene, rows);
    }
    if (first >= rows)
        return;
    bool both = first + 4 * 16 < rows;
    const float *state = scene.state + t * STATE_PITCH + warp % 4 * 16 + g, *factors[4];
    float sums[2][2][2][4] = {}; /* leading parts' products, and what is left's */
#pragma unroll
    for (int i = 0; i < 4; i++)
        factors[i] = factor_at(scene, first + i / 2 * 4 * 16 + i % 2 * 8 + g) + t;
#pragma unroll 1
    for (int step = 0; step < width; step += 8) {
        int second = min(step + 4, width - 4); /* of an odd last step the other half is 0 */
        bool there = step + 4 < width;
        uint32_t leading[2][2], left[2][2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            split_value(state[step * STATE_PITCH + n * 8], &leading[n][0], &left[n][0]);
            split_value(there ? state[second * STATE_PITCH + n * 8] : 0, &leading[n][1], &left[n][1]);
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint32_t a[4], rest[4];
            if (m && !both)
                break;
#pragma unroll
            for (int i = 0; i < 4; i++)
                split_value(factors[m * 2 + i % 2][i < 2 ? step : second], &a[i], &rest[i]);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                multiply_leading(sums[m][0][n], a, leading[n]);
                multiply_leading(sums[m][1][n], a, left[n]);
                multiply_leading(sums[m][1][n], rest, leading[n]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int m = i / 8, half = i / 4 % 2, n = i / 2 % 2, row = first + m * 4 * 16 + half * 8 + g;
        if (row < rows)
            scene.reads[row * STATE_PITCH + warp % 4 * 16 + n * 8 + t * 2 + i % 2] =
                sums[m][0][n][half * 2 + i % 2] + sums[m][1][n][half * 2 + i % 2];
    }
}

/* --- the rows' answers to each other ------------------------------------------------------------------------------ */

static __device__ __forceinline__ float2 add_scaled(float factor, float2 x, float2 sum)
{
    return make_float2(fmaf(factor, x.x, sum.x), fmaf(factor, x.y, sum.y));
}

/* Adds to a row's reads what its ancestors in earlier tiles say: all from memory. */
static __device__ __forceinline__ void add_earlier(const struct scene &scene, int row)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int lane = (int)threadIdx.x % WARP, keys = sizes.key_size, place = scene.start + row, first = scene.levels[row];
    const float *key = scene.keys + row * scene.pitch, *query = scene.queries + row * scene.pitch;
    float *key_read = scene.reads + row * STATE_PITCH, *query_read = scene.reads + (scene.count + row) * STATE_PITCH;
    float carry = scene.decays[row];
    float2 key_sum = {}, query_sum = {};
    do {
        int ancestor = ancestor_of(scene, place);
        float all, weight = carry * product_before(ancestor >= 0 ? decay_of(scene, ancestor) : 1.0f, &all);
        int there = __popc(__ballot_sync(ALL_LANES, ancestor >= 0));
#pragma unroll 1
        for (int i = first; i < there; i++) {
            int other = __shfl_sync(ALL_LANES, ancestor, i);
            const float *other_key = mixed_row(scene.call, scene.segment.first + other) +
                                     (sizes.key_heads + key_head_of(sizes, scene.head)) * keys;
            float by_key = 0, by_query = 0, its = __shfl_sync(ALL_LANES, weight, i);
#pragma unroll 1
            for (int k = lane; k < keys; k += WARP) {
                by_key = fmaf(key[k], other_key[k], by_key);
                by_query = fmaf(query[k], other_key[k], by_query);
            }
            float2 delta = fetch_pair(scene, delta_at(scene, other));
            key_sum = add_scaled(its * warp_sum(by_key), delta, key_sum);
            query_sum = add_scaled(its * warp_sum(by_query), delta, query_sum);
        }
        carry *= all;
        first = 0;
        place = __shfl_sync(ALL_LANES, ancestor, WARP - 1);
    } while (place >= 0);
    put_pair(key_read, add_scaled(scene.totals[row], pair_at(key_read), key_sum));
    put_pair(query_read, add_scaled(scene.totals[row], pair_at(query_read), query_sum));
    __syncwarp();
    if (lane == 0)
        scene.totals[row] = 1; /* it was multiplied */
}

/* The rows' deltas, and their outputs but for the own delta's part, of every WARPS-th row: all rows add their ancestors
 * from the tile's first on, so that turn t needs what has t of them, and each turn answers those that have one more. */
static __device__ __forceinline__ void solve(const struct scene &scene, float2 (&deltas)[OWN], float2 (&outputs)[OWN])
{
    int warp = (int)threadIdx.x / WARP, left[OWN] = {}; /* ancestors that are not added yet */
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int row = i * WARPS + warp;
        if (row >= scene.count)
            break;
        float beta = scene.betas[row], total = scene.totals[row];
        float2 value = pair_at(scene.deltas + row * COLUMNS), none = make_float2(0, 0);
        left[i] = scene.levels[row];
        outputs[i] = add_scaled(total, pair_at(scene.reads + (scene.count + row) * STATE_PITCH), none);
        deltas[i] = add_scaled(beta, add_scaled(-total, pair_at(scene.reads + row * STATE_PITCH), value), none);
        put_pair(scene.deltas + row * COLUMNS, deltas[i]);
    }
#pragma unroll 1
    for (;;) {
        const float *from[OWN];
        float2 weights[OWN], others[OWN];
        int any = 0;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            int at = (i * WARPS + warp) * RECURRENT_NEAR + left[i] - 1;
            any |= left[i];
            if (left[i]) {
                from[i] = scene.deltas + (scene.near[at] - scene.start) * COLUMNS;
                weights[i] = scene.weights[at];
            }
        }
        if (!__syncthreads_or(any))
            break;
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (left[i])
                others[i] = pair_at(from[i]);
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (left[i]) {
                deltas[i] = add_scaled(-weights[i].x, others[i], deltas[i]);
                outputs[i] = add_scaled(weights[i].y, others[i], outputs[i]);
                if (--left[i] == 0)
                    put_pair(scene.deltas + (i * WARPS + warp) * COLUMNS, deltas[i]);
            }
    }
}

/* Keeps the outputs, whose squares all blocks are told. */
static __device__ __forceinline__ void keep_outputs(const struct scene &scene, const float2 (&deltas)[OWN],
                                                    const float2 (&outputs)[OWN], int blocks)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    float squares[OWN] = {}, its = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        int row = i * WARPS + warp;
        if (row >= scene.count)
            break;
        float2 output = add_scaled(scene.selves[row], deltas[i], outputs[i]);
        squares[i] = fmaf(output.x, output.x, output.y * output.y);
        if (HAS_CLUSTERS)
            put_pair(scene.reads + row * STATE_PITCH, output);
        else
            store_pair(scene, value_at(scene, scene.start + row), output);
    }
#pragma unroll
    for (int i = 0; i < OWN && HAS_CLUSTERS; i++) {
        float sum = warp_sum(squares[i]);
        its = lane == i ? sum : its;
    }
    if (HAS_CLUSTERS && lane * WARPS + warp < scene.count)
        tell(&scene.squares[(lane * WARPS + warp) * BLOCKS + cluster_block()], its, blocks);
}

/* The outputs by their gates and the norm's weights. */
static __device__ __forceinline__ void gate_outputs(const struct scene &scene)
{
#pragma unroll 2
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS) {
        float *kept = scene.reads + row * STATE_PITCH;
        float2 output = pair_at(kept), gate = pair_at(scene.gates + row * COLUMNS);
        put_pair(kept, make_float2(output.x * (scene.norm.x * silu(gate.x)), output.y * (scene.norm.y * silu(gate.y))));
    }
}

/* Leaves the deltas in memory, for rows of later tiles. */
static __device__ __forceinline__ void put_deltas(const struct scene &scene)
{
#pragma unroll 1
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS)
        store_pair(scene, delta_at(scene, scene.start + row), pair_at(scene.deltas + row * COLUMNS));
}

/* Brings the outputs to the lengths that all blocks know now. */
static __device__ __forceinline__ void put_outputs(const struct scene &scene, int blocks)
{
    const struct recurrent_sizes &sizes = scene.call.layer.sizes;
    int width = sizes.value_heads * sizes.value_size, first = scene.head * sizes.value_size + (int)blockIdx.x * COLUMNS;
    float share = 1.0f / (float)sizes.value_size;
#pragma unroll 2
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS) {
        size_t at = (size_t)(scene.segment.first + scene.start + row) * (size_t)width + (size_t)first;
        float squares = 0;
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
            squares += block < blocks ? scene.squares[row * BLOCKS + block] : 0;
        float scale = rsqrtf(fmaf(squares, share, scene.call.layer.epsilon));
        float2 output = add_scaled(scale, pair_at(scene.reads + row * STATE_PITCH), make_float2(0, 0));
        OF_TYPE(scene.call.layer.type, store_pair(scene, (T *)scene.call.out + at, output));
    }
}

/* The state behind the tile's last row: a run of at most a warp's lanes. A thread has 4 columns of 4 keys. */
static __device__ __forceinline__ void fold(const struct scene &scene)
{
    int lane = (int)threadIdx.x % WARP, column = (int)threadIdx.x % (COLUMNS / 4) * 4, width = scene.pitch - 4;
    float decay = lane < scene.count ? scene.decays[scene.count - 1 - lane] : 1.0f; /* the last row's first */
    float all, after = product_before(decay, &all);
    __syncthreads(); /* the deltas were used */
    for (int row = (int)threadIdx.x / WARP; row < scene.count; row += WARPS) {
        float its = __shfl_sync(ALL_LANES, after, scene.count - 1 - row), *delta = scene.deltas + row * COLUMNS;
        put_pair(delta, add_scaled(its, pair_at(delta), make_float2(0, 0)));
    }
    __syncthreads();
#pragma unroll 1
    for (int key = (int)threadIdx.x / (COLUMNS / 4) * 4; key < width; key += THREADS / (COLUMNS / 4) * 4) {
        float sums[4][4];
#pragma unroll
        for (int i = 0; i < 16; i++)
            sums[i / 4][i % 4] = all * scene.state[(key + i / 4) * STATE_PITCH + column + i % 4];
#pragma unroll 2
        for (int row = 0; row < scene.count; row++) {
            float4 keys = *(const float4 *)(scene.keys + row * scene.pitch + key);
            float4 deltas = *(const float4 *)(scene.deltas + row * COLUMNS + column);
            const float k[] = {keys.x, keys.y, keys.z, keys.w}, u[] = {deltas.x, deltas.y, deltas.z, deltas.w};
#pragma unroll
            for (int i = 0; i < 16; i++)
                sums[i / 4][i % 4] = fmaf(k[i / 4], u[i % 4], sums[i / 4][i % 4]);
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
            scene.state[(key + i / 4) * STATE_PITCH + column + i % 4] = sums[i / 4][i % 4];
    }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

/* Grid: [columns by COLUMNS, value head, segment]. rows: that the layout has room for. */
static __global__ void __launch_bounds__(THREADS)
    answer(const struct recurrent_call call, const struct layout at, int rows)
{
    extern __shared__ float4 shared[];
    float *memory = (float *)shared;
    const struct recurrent_sizes &sizes = call.layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.z];
    int head = (int)blockIdx.y, blocks = cluster_blocks(), warp = (int)threadIdx.x / WARP;
    struct scene scene = {call,
                          segment,
                          head,
                          (int)blockIdx.x * COLUMNS + (int)threadIdx.x % WARP * 2,
                          0,
                          0,
                          0,
                          at.pitch,
                          make_float2(0, 0),
                          memory,
                          memory + at.keys,
                          memory + at.queries,
                          memory + at.reads,
                          (float2 *)(memory + at.weights),
                          memory + at.deltas,
                          memory + at.gates,
                          memory + at.squares,
                          memory + at.betas,
                          memory + at.decays,
                          memory + at.totals,
                          memory + at.selves,
                          (int *)(memory + at.levels),
                          (int16_t *)(memory + at.near)};

    float *committed = call.layer.states + ((size_t)segment.session * (size_t)sizes.value_heads + (size_t)head) *
                                               (size_t)sizes.key_size * (size_t)sizes.value_size;
    if (segment.count == 0) {
        wait_for_previous(); /* if none waited, this kernel could end before the one before it */
        return;
    }
    cluster_arrive();             /* it has begun, so that it can be told something */
    copy_state(scene, committed); /* which the kernel before does not touch */
    if (HAS_CLUSTERS)
        scene.norm = fetch_pair(scene, call.layer.norm + (int)blockIdx.x * COLUMNS);
    for (int start = 0; start < segment.count; start += scene.count) {
        scene.start = start;
        scene.root = call.advances ? start : 0;
        scene.count = min(rows, segment.count - start);
        __syncthreads(); /* the tile before was used */
        if (HAS_CLUSTERS)
            copy_gates(scene);
        if (find_ancestors(scene))
            scene.count = min(scene.count, SHORT_TILE);
        if (start == 0) {
            wait_for_previous();
            let_next_start();
        }
        load_tile(scene);
        copies_wait<0>();
        if (start == 0)
            cluster_wait();
        __syncthreads();
        for (int row = warp * blocks + cluster_block(); row < scene.count; row += WARPS * blocks)
            weigh_row(scene, row, blocks);
        cluster_arrive();
        read_state(scene);
        cluster_wait();
        __syncthreads();
        if (scene.root < start) {
            for (int row = warp; row < scene.count; row += WARPS)
                add_earlier(scene, row);
            __syncthreads();
        }
        float2 deltas[OWN], outputs[OWN];
        solve(scene, deltas, outputs);
        keep_outputs(scene, deltas, outputs, blocks);
        cluster_arrive();
        if (HAS_CLUSTERS)
            gate_outputs(scene);
        if (call.advances)
            fold(scene);
        else if (start + scene.count < segment.count)
            put_deltas(scene);
        cluster_wait(); /* all have used what they were told, but the squares */
        if (HAS_CLUSTERS)
            put_outputs(scene, blocks);
    }
    if (!call.advances)
        return;
    __syncthreads();
#pragma unroll 1
    for (int key = warp; key < sizes.key_size; key += WARPS)
        store_pair(scene, committed + (size_t)key * (size_t)sizes.value_size + (size_t)((int)blockIdx.x * COLUMNS),
                   pair_at(scene.state + key * STATE_PITCH));
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

/* Where the blocks of a head cannot meet. Grid: [row, value heads by WARPS]; a warp has a head of a row. */
template <typename T> static __global__ void __launch_bounds__(THREADS) gate(const struct recurrent_call call)
{
    const struct recurrent_sizes &sizes = call.layer.sizes;
    int row = (int)blockIdx.x, head = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int size = sizes.value_size, channels = channels_of(sizes), width = sizes.value_heads * size;
    wait_for_previous();
    let_next_start();
    if (head >= sizes.value_heads)
        return;
    const float *output = call.mixed + (size_t)row * (size_t)channels + (size_t)(channels - width + head * size);
    T *out = (T *)call.out + (size_t)row * (size_t)width + (size_t)(head * size);
    float sum = 0;
    for (int i = lane; i < size; i += WARP)
        sum = fmaf(output[i], output[i], sum);
    float scale = rsqrtf(warp_sum(sum) / (float)size + call.layer.epsilon);
    for (int i = lane; i < size; i += WARP)
        store(&out[i],
              output[i] * (call.layer.norm[i] * silu(fused_column(call, row, channels + head * size + i))) * scale);
}

void kernels_recurrent_answer(const struct recurrent_call *call, cudaStream_t stream)
{
    const struct recurrent_sizes *sizes = &call->layer.sizes;
    int rows = tile_rows(call);
    const struct layout at = lay_out(sizes->key_size, rows);
    size_t bytes = (size_t)at.size * sizeof(float);
    dim3 grid((unsigned)((sizes->value_size + COLUMNS - 1) / COLUMNS), (unsigned)sizes->value_heads,
              (unsigned)call->segment_count);
    if (call->longest > 1 && !call->advances && !call->deltas)
        die("segments of %d rows without room for their deltas", call->longest);
    CUDA_CHECK(cudaFuncSetAttribute(answer, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    CUDA_CHECK(
        cudaFuncSetAttribute(answer, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    launch_clusters(answer, device_overlaps() ? grid.x : 1, grid, THREADS, bytes, stream, *call, at, rows);
    dim3 rest((unsigned)call->rows, (unsigned)((sizes->value_heads + WARPS - 1) / WARPS));
    if (!device_overlaps())
        OF_TYPE(call->layer.type, (launch(gate<T>, rest, THREADS, 0, stream, *call)));
}
