/* The residual stream between two products: the ranks' sums are added, or it begins with embeddings, and the row is
 * normed. */
#include "collect/engine/cuda/meeting.cuh"

#define ROW_THREADS 1024 /* that have a row together */
#define SENDERS_TOGETHER 4
#define ROW_PARTS 8 /* blocks that share a row which is not normed, where GPUs meet */

/* W elements that are loaded and stored together. */
template <int W> struct pack {
    float values[W];
};

template <int W> static __device__ __forceinline__ struct pack<W> load_pack(const float *from) {
    struct pack<W> pack;
    if (W == 4) {
        float4 quad = __ldcg((const float4 *)from);
        pack.values[0] = quad.x, pack.values[W / 4] = quad.y, pack.values[W / 2] = quad.z, pack.values[W - 1] = quad.w;
    } else {
        pack.values[0] = __ldcg(from);
    }
    return pack;
}

template <int W>
static __device__ __forceinline__ struct pack<W> load_pack(const __nv_bfloat16 *from) {
    struct pack<W> pack;
    if (W == 4) {
        uint2 quad = __ldcg((const uint2 *)from);
        float2 low = __bfloat1622float2(*(const __nv_bfloat162 *)&quad.x);
        float2 high = __bfloat1622float2(*(const __nv_bfloat162 *)&quad.y);
        pack.values[0] = low.x, pack.values[W / 4] = low.y, pack.values[W / 2] = high.x, pack.values[W - 1] = high.y;
    } else {
        pack.values[0] = load(*from);
    }
    return pack;
}

template <int W>
static __device__ __forceinline__ void add(struct pack<W> &to, const struct pack<W> &more)
{
#pragma unroll
    for (int w = 0; w < W; w++)
        to.values[w] += more.values[w];
}

template <int W> static __device__ __forceinline__ struct words<W> words_of(const struct pack<W> &pack) {
    struct words<W> words;
#pragma unroll
    for (int w = 0; w < W; w++)
        words.values[w] = __float_as_uint(pack.values[w]);
    return words;
}

template <int W>
static __device__ __forceinline__ struct pack<W> pack_of(const struct words<W> &words) {
    struct pack<W> pack;
#pragma unroll
    for (int w = 0; w < W; w++)
        pack.values[w] = __uint_as_float(words.values[w]);
    return pack;
}

/* Columns of this thread: `first`, and VALUES - 1 that each lie `step` behind, as far as the row goes. */
template <int W>
static __device__ __forceinline__ size_t first_column(void)
{
    return ((size_t)blockIdx.y * blockDim.x + threadIdx.x) * W;
}

template <int W> static __device__ __forceinline__ size_t column_step(void)
{
    return (size_t)gridDim.y * blockDim.x * W;
}

/* This thread's columns of a row; zeros where there is no row. */
template <int W, int VALUES, typename T>
static __device__ __forceinline__ void load_row(const T *rows, size_t row, size_t width, struct pack<W> *held)
{
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = first_column<W>() + v * column_step<W>();
        held[v] = rows && i < width ? load_pack<W>(rows + row * width + i) : (struct pack<W>){};
    }
}

/* What becomes of a row's sum. parts: shared, [WARP]. */
template <typename T, int W, int VALUES>
static __device__ __forceinline__ void finish_row(const struct add_norm_call &call, size_t row,
                                                  const struct pack<W> *held, const struct pack<W> *weights,
                                                  float *parts)
{
    size_t width = (size_t)call.width, first = first_column<W>(), step = column_step<W>();
    float *x = call.sum_count || call.table ? call.x : NULL, squares = 0;
    T *features = (T *)call.features + (row * (size_t)call.feature_count + (size_t)call.feature_index) * width;
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = first + v * step;
        if (i >= width)
            continue;
#pragma unroll
        for (int w = 0; w < W; w++) {
            float value = held[v].values[w];
            squares = fmaf(value, value, squares);
            if (x)
                x[row * width + i + w] = value;
            if (call.features)
                store(features + i + w, value);
        }
    }
    if (!call.weight)
        return;
    squares = block_sum(squares, parts);
    if (call.squares && threadIdx.x == 0)
        call.squares[row] = squares;
    float scale = call.squares ? 1 : 1.0f / sqrtf(squares / (float)width + call.epsilon);
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = first + v * step;
#pragma unroll
        for (int w = 0; w < W && i < width; w++)
            store((T *)call.out + row * width + i + w, held[v].values[w] * scale * weights[v].values[w]);
    }
}

/* --- on one GPU ------------------------------------------------------------------------------------------------- */

/* The row before anything is added. */
template <typename T, int W, int VALUES>
static __device__ __forceinline__ void load_first(const struct add_norm_call &call, size_t row, struct pack<W> *held)
{
    if (call.table)
        load_row<W, VALUES>((const T *)call.table, (size_t)call.tokens[row], (size_t)call.width, held);
    else
        load_row<W, VALUES>(call.x, row, (size_t)call.width, held);
}

/* A row a block. What the kernel before does not write is asked for before that ends. */
template <typename T, int W, int VALUES>
static __global__ void __launch_bounds__(ROW_THREADS) add_norm(const struct add_norm_call call)
{
    __shared__ float parts[WARP];
    size_t row = blockIdx.x, width = (size_t)call.width;
    struct pack<W> held[VALUES], weights[VALUES];
    load_row<W, VALUES>(call.weight, 0, width, weights);
    if (call.sum_count)
        load_first<T, W, VALUES>(call, row, held);
    wait_for_previous();
    let_next_start();
    if (!call.sum_count)
        load_first<T, W, VALUES>(call, row, held);
#pragma unroll 4
    for (int s = 0; s < call.sum_count; s++) {
        struct pack<W> more[VALUES];
        load_row<W, VALUES>(call.sums[s], row, width, more);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            add(held[v], more[v]);
    }
    finish_row<T, W, VALUES>(call, row, held, weights, parts);
}

/* --- on several ------------------------------------------------------------------------------------------------- */

/* Rows that one GPU adds for all, or that each adds for itself: -1. */
static __device__ __forceinline__ int owner_of(const struct add_norm_call &call, bool shared, size_t row)
{
    return shared ? (int)(row % (size_t)call.meeting.gpus) : -1;
}

/* Sends packs of a row to GPU `to`, or to all others: -1. */
template <int W, int VALUES>
static __device__ __forceinline__ void send_row(const struct add_norm_call &call, unsigned side, int to, size_t row,
                                                const struct pack<W> *held)
{
    size_t width = (size_t)call.width;
    for (int other = 0; other < call.meeting.gpus; other++)
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            size_t i = first_column<W>() + v * column_step<W>();
            if (other != call.meeting.index && (to < 0 || to == other) && i < width)
                send(call.meeting, side, other, row * width + i, words_of(held[v]));
        }
}

/* held += the sums of all GPUs in their order, at element `at`. Some are looked for at the same time. */
template <int W>
static __device__ __forceinline__ void add_sums(const struct add_norm_call &call, unsigned side, size_t at,
                                                struct pack<W> &held)
{
    const struct meeting &meeting = call.meeting;
    for (int first = 0; first < meeting.gpus; first += SENDERS_TOGETHER) {
        struct words<W> news[SENDERS_TOGETHER];
#pragma unroll
        for (int i = 0; i < SENDERS_TOGETHER; i++)
            if (first + i == meeting.index)
                news[i] = words_of(load_pack<W>(call.sums[meeting.index] + at));
            else if (first + i < meeting.gpus)
                news[i] = expect<W>(meeting, side, first + i, at);
#pragma unroll
        for (int i = 0; i < SENDERS_TOGETHER; i++) {
            if (first + i >= meeting.gpus)
                continue;
            if (first + i != meeting.index)
                news[i] = receive(meeting, side, first + i, at, news[i]);
            add(held, pack_of(news[i]));
        }
    }
}

template <int W, int VALUES>
static __device__ __forceinline__ void receive_row(const struct add_norm_call &call, unsigned side, int from,
                                                   size_t row, struct pack<W> *held)
{
    size_t width = (size_t)call.width;
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        size_t i = first_column<W>() + v * column_step<W>(), at = row * width + i;
        if (i < width)
            held[v] = pack_of(receive(call.meeting, side, from, at, expect<W>(call.meeting, side, from, at)));
    }
}

/* Each GPU sends its sums to all others; or, of many bytes, to the row's owner, which sends back what x becomes. All
 * blocks run at the same time, and each sends what it has before it waits. */
template <typename T, int W, int VALUES>
static __global__ void __launch_bounds__(ROW_THREADS) add_norm_meeting(const struct add_norm_call call, bool shared)
{
    __shared__ float parts[WARP];
    const struct meeting &meeting = call.meeting;
    size_t rows = (size_t)call.rows, width = (size_t)call.width;
    struct pack<W> held[VALUES], weights[VALUES];
    load_row<W, VALUES>(call.weight, 0, width, weights);
    wait_for_previous();
    let_next_start();
    load_row<W, VALUES>(call.sums[meeting.index], blockIdx.x, width, held);
    unsigned side = meet(meeting);
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        int owner = owner_of(call, shared, row);
        if (row != blockIdx.x)
            load_row<W, VALUES>(call.sums[meeting.index], row, width, held);
        if (owner != meeting.index)
            send_row<W, VALUES>(call, side, owner, row, held);
    }
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        int owner = owner_of(call, shared, row);
        if (owner < 0 || owner == meeting.index) {
            load_row<W, VALUES>(call.x, row, width, held);
#pragma unroll
            for (int v = 0; v < VALUES; v++)
                if (first_column<W>() + v * column_step<W>() < width)
                    add_sums(call, side, row * width + first_column<W>() + v * column_step<W>(), held[v]);
        } else {
            receive_row<W, VALUES>(call, side, owner, row, held);
        }
        if (owner == meeting.index)
            send_row<W, VALUES>(call, side, -1, row, held);
        finish_row<T, W, VALUES>(call, row, held, weights, parts);
    }
}

/* --- launches --------------------------------------------------------------------------------------------------- */

template <int W, int VALUES> static void queue_alone(const struct add_norm_call *call, cudaStream_t stream)
{
    OF_TYPE(call->type, launch(add_norm<T, W, VALUES>, dim3((unsigned)call->rows), ROW_THREADS, 0, stream, *call));
}

/* As many rows at a time as a mailbox takes. */
template <int W, int VALUES> static void queue_meeting(const struct add_norm_call *call, cudaStream_t stream)
{
    size_t width = (size_t)call->width, most = call->meeting.size / width;
    size_t feature_row = (size_t)call->feature_count * width * element_size(call->type);
    unsigned parts = call->weight ? 1 : ROW_PARTS, blocks = ((unsigned)device_multiprocessors() + parts - 1) / parts;
    for (size_t first = 0; first < (size_t)call->rows; first += most) {
        size_t left = (size_t)call->rows - first, rows = left < most ? left : most;
        struct add_norm_call some = *call;
        some.rows = (int)rows;
        some.sums[call->meeting.index] += first * width;
        some.x = call->x ? call->x + first * width : NULL;
        some.features = call->features ? (char *)call->features + first * feature_row : NULL;
        some.squares = call->squares ? call->squares + first : NULL;
        some.out = (char *)call->out + first * width * element_size(call->type);
        bool shared = rows * width * sizeof(float) >= call->meeting.shared_bytes;
        dim3 grid(rows < blocks ? (unsigned)rows : blocks, parts);
        OF_TYPE(call->type, launch(add_norm_meeting<T, W, VALUES>, grid, ROW_THREADS / parts, 0, stream, some, shared));
    }
}

template <int W, int VALUES> static void queue(const struct add_norm_call *call, cudaStream_t stream)
{
    if (call->sum_count && call->meeting.gpus > 1)
        queue_meeting<W, VALUES>(call, stream);
    else
        queue_alone<W, VALUES>(call, stream);
}

void kernels_add_norm(const struct add_norm_call *call, cudaStream_t stream)
{
    if (call->width % 4 == 0 && call->width <= 4096)
        queue<4, 1>(call, stream);
    else if (call->width % 4 == 0 && call->width <= 8192)
        queue<4, 2>(call, stream);
    else if (call->width % 4 == 0 && call->width <= 16384)
        queue<4, 4>(call, stream);
    else if (call->width <= 16384)
        queue<1, 16>(call, stream);
    else
        die("rows of %d columns, where 16384 are readied", call->width);
}
