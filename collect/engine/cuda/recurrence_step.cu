/* The delta rule by its own steps: rows that advance their sessions one at a time, and commits. A block has a value
 * head's state in its registers, reads it once and writes it once. */
#include "collect/engine/cuda/recurrence.cuh"

#define PADDED (RECURRENT_SIZE_MAXIMUM + 64) /* keys, and zeros up to a whole share */
#define TOGETHER 16                          /* rows of a path that are convolved together */
#define WARPS (STEP_THREADS / WARP)

/* Channels of the block's value head, one behind the other: its key head's query, its key, its value. */
static __device__ __forceinline__ int channel_of(const struct recurrent_sizes &sizes, int head, int element)
{
    int key_head = head / (sizes.value_heads / sizes.key_heads), keys = sizes.key_size;
    if (element < keys)
        return key_head * keys + element;
    if (element < 2 * keys)
        return (sizes.key_heads + key_head) * keys + element - keys;
    return 2 * sizes.key_heads * keys + head * sizes.value_size + element - 2 * keys;
}

/* A warp brings a head in shared memory to its length. */
static __device__ __forceinline__ void scale_head(float *head, int size, float length)
{
    int lane = (int)threadIdx.x % WARP;
    float values[LANE_ELEMENTS];
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        values[i] = lane + i * WARP < size ? head[lane + i * WARP] : 0;
    float scale = length_scale(values, length);
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        if (lane + i * WARP < size)
            head[lane + i * WARP] = __fmul_rn(values[i], scale);
}

static __device__ __forceinline__ float *state_of(const struct recurrent_layer &layer, int session, int head)
{
    const struct recurrent_sizes &sizes = layer.sizes;
    size_t index = (size_t)session * (size_t)sizes.value_heads + (size_t)head;
    return layer.states + index * (size_t)sizes.key_size * (size_t)sizes.value_size;
}

/* Grid: [value head, segment]. */
template <typename T, int KERNEL, int ROWS>
static __global__ void __launch_bounds__(STEP_THREADS) step(const struct recurrent_call call)
{
    __shared__ float query[PADDED], key[PADDED], value[RECURRENT_SIZE_MAXIMUM], sums[2][STEP_THREADS], parts[WARP];
    __shared__ float2 shared_gates;
    const struct recurrent_sizes &sizes = call.layer.sizes;
    const struct attention_segment segment = call.segments[blockIdx.y];
    const struct state_share share = share_state(sizes, ROWS);
    int head = (int)blockIdx.x, row = segment.first, warp = (int)threadIdx.x / WARP, thread = (int)threadIdx.x;
    int keys = sizes.key_size, size = sizes.value_size, channels = channels_of(sizes);
    bool answers = thread < size; /* whose column is `thread` */
    float *session_state = state_of(call.layer, segment.session, head), state[ROWS];

    /* What the kernel before does not touch. */
    read_state(state, share, keys, session_state);
    float norm = answers ? call.layer.norm[thread] : 0;
    for (int i = thread; i < PADDED; i += STEP_THREADS)
        query[i] = key[i] = 0;
    wait_for_previous();
    let_next_start();
    float gate = answers ? fused_column(call, row, channels + head * size + thread) : 0;
    __syncthreads();

    bool keeps_keys = head % (sizes.value_heads / sizes.key_heads) == 0;
    for (int i = thread; i < 2 * keys + size; i += STEP_THREADS) {
        int channel = channel_of(sizes, head, i);
        float own = 0;
        float mixed = convolve<KERNEL>(call.layer, channel, [&](int t) {
            float input = t == 0 ? rounded<T>(fused_column(call, row, channel))
                                 : window_at<T>(call.layer, segment.session, sizes.kernel_size - 1 - t, channel);
            own = t == 0 ? input : own;
            return input;
        });
        *(i < keys ? &query[i] : i < 2 * keys ? &key[i - keys] : &value[i - 2 * keys]) = mixed;
        if (keeps_keys || i >= 2 * keys)
            store((T *)call.layer.inputs + (size_t)row * (size_t)channels + (size_t)channel, own);
    }
    if (thread == STEP_THREADS - 1)
        shared_gates = gates_of(call, row, head);
    __syncthreads();
    if (warp == 0)
        scale_head(query, keys, query_length(sizes));
    else if (warp == 1)
        scale_head(key, keys, 1.0f);
    __syncthreads();

    advance_state(state, share, key, value[share.column], shared_gates, sums[0]);
    write_state(state, share, keys, session_state);
    float output = 0;
    if (!share.idle)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            output = fmaf(query[share.part * ROWS + i], state[i], output);
    output = sum_parts(output, share, sums[1]);

    float scale = 1.0f / sqrtf(block_sum(answers ? output * output : 0, parts) / (float)size + call.layer.epsilon);
    if (answers)
        store((T *)call.out + (size_t)row * (size_t)(sizes.value_heads * size) + (size_t)(head * size + thread),
              output * scale * norm * silu(gate));
}

/* Grid: [value head, path, layer]. Pointers are moved from the first layer's to the block's. */
template <typename T, int KERNEL, int ROWS>
static __global__ void __launch_bounds__(STEP_THREADS, ROWS > 32 ? 1 : 2) commit(const struct recurrent_kept kept)
{
    __shared__ float key[TOGETHER][PADDED], value[TOGETHER][RECURRENT_SIZE_MAXIMUM], sums[2][STEP_THREADS];
    __shared__ float2 gates[TOGETHER];
    __shared__ int places[TOGETHER + KERNEL_MAXIMUM]; /* the rows of these, and of those before them */
    const struct recurrent_sizes &sizes = kept.layer.sizes;
    const struct state_share share = share_state(sizes, ROWS);
    size_t index = blockIdx.z, channels = (size_t)channels_of(sizes), heads = (size_t)sizes.value_heads;
    int head = (int)blockIdx.x, thread = (int)threadIdx.x, keys = sizes.key_size, size = sizes.value_size;
    struct recurrent_layer layer = kept.layer;
    layer.convolution += index * channels * (size_t)sizes.kernel_size;
    layer.states += index * (size_t)kept.sessions * heads * (size_t)keys * (size_t)size;
    layer.windows = (T *)layer.windows + index * (size_t)kept.sessions * (size_t)(sizes.kernel_size - 1) * channels;
    layer.inputs = (T *)layer.inputs + index * (size_t)kept.rows * channels;
    layer.decays += index * (size_t)kept.rows * heads;
    layer.betas += index * (size_t)kept.rows * heads;
#pragma unroll 1
    for (int i = thread; i < TOGETHER * PADDED; i += STEP_THREADS)
        (&key[0][0])[i] = 0;
    if (kept.paths_are_new)
        wait_for_previous();
    const struct compact_path path = kept.paths[blockIdx.y];
    const int *rows = kept.path_rows + path.first;
    float *session_state = state_of(layer, path.session, head), state[ROWS];
    for (int i = thread * 32; i < keys * size; i += STEP_THREADS * 32) /* the kernel before does not touch it */
        asm volatile("prefetch.global.L2 [%0];" ::"l"(session_state + i));
    wait_for_previous();
    let_next_start();

    for (int first = 0; first < path.length; first += TOGETHER) {
        int count = min(path.length - first, TOGETHER), taps = sizes.kernel_size - 1;
        __syncthreads(); /* what is here was used */
        if (thread < count + taps)
            places[thread] = first + thread < taps ? -1 : rows[first + thread - taps];
        __syncthreads();
#pragma unroll 2
        for (int i = thread; i < count * (keys + size); i += STEP_THREADS) {
            int at = i / (keys + size), element = i % (keys + size), channel = channel_of(sizes, head, keys + element);
            float mixed = convolve<KERNEL>(layer, channel, [&](int t) {
                int before = first + at - t;
                if (before < 0)
                    return window_at<T>(layer, path.session, sizes.kernel_size - 1 + before, channel);
                return load(((const T *)layer.inputs)[(size_t)places[at + taps - t] * channels + (size_t)channel]);
            });
            *(element < keys ? &key[at][element] : &value[at][element - keys]) = mixed;
        }
        if (first == 0)
            read_state(state, share, keys, session_state);
        if (thread < count) {
            size_t gate = (size_t)places[taps + thread] * heads + (size_t)head;
            gates[thread] = make_float2(layer.decays[gate], layer.betas[gate]);
        }
        __syncthreads();
        for (int at = thread / WARP; at < count; at += WARPS)
            scale_head(key[at], keys, 1.0f);
        __syncthreads();
        for (int at = 0; at < count; at++)
            advance_state(state, share, key[at], value[at][share.column], gates[at], sums[at % 2]);
    }
    if (path.length > 0)
        write_state(state, share, keys, session_state);
}

/* --- windows ---------------------------------------------------------------------------------------------------- */

#define WINDOW_THREADS 256

/* Grid: [channels by WINDOW_THREADS, segment or path, layer]. A thread has a channel of all rows: none is overwritten
 * before it was read. */
template <typename T>
static __global__ void __launch_bounds__(WINDOW_THREADS) move_windows(const struct recurrent_kept kept)
{
    size_t channels = (size_t)channels_of(kept.layer.sizes),
           channel = blockIdx.x * (size_t)WINDOW_THREADS + threadIdx.x;
    int size = kept.layer.sizes.kernel_size - 1, session, first, count;
    wait_for_previous();
    let_next_start();
    if (channel >= channels)
        return;
    if (kept.segments) {
        const struct attention_segment segment = kept.segments[blockIdx.y];
        session = segment.session, first = segment.first - kept.first_kept, count = segment.count;
    } else {
        const struct compact_path path = kept.paths[blockIdx.y];
        session = path.session, first = path.first, count = path.length;
    }
    size_t at = (size_t)blockIdx.z * (size_t)kept.sessions + (size_t)session;
    T *window = (T *)kept.layer.windows + at * (size_t)size * channels + channel;
    const T *inputs = (const T *)kept.layer.inputs + (size_t)blockIdx.z * (size_t)kept.rows * channels + channel;
    for (int i = 0; i < size; i++) {
        int row = count - size + i;
        if (row < 0)
            window[(size_t)i * channels] = window[(size_t)(i + count) * channels];
        else
            window[(size_t)i * channels] =
                inputs[(size_t)(kept.segments ? first + row : kept.path_rows[first + row]) * channels];
    }
}

void kernels_recurrent_move_windows(const struct recurrent_kept *kept, cudaStream_t stream)
{
    int channels = recurrent_channels(&kept->layer.sizes);
    dim3 grid((unsigned)((channels + WINDOW_THREADS - 1) / WINDOW_THREADS), (unsigned)kept->count,
              (unsigned)kept->layers);
    OF_TYPE(kept->layer.type, launch(move_windows<T>, grid, WINDOW_THREADS, 0, stream, *kept));
}

/* --- launching -------------------------------------------------------------------------------------------------- */

#define FEW_ROWS 8
#define USUAL_ROWS 32
#define MANY_ROWS 64

static bool fits(const struct recurrent_sizes *sizes, int rows)
{
    return STEP_THREADS / sizes->value_size * rows >= sizes->key_size;
}

bool kernels_recurrence_takes(const struct recurrent_sizes *sizes)
{
    return sizes->key_size <= RECURRENT_SIZE_MAXIMUM && sizes->value_size <= RECURRENT_SIZE_MAXIMUM &&
           sizes->kernel_size <= KERNEL_MAXIMUM && fits(sizes, MANY_ROWS);
}

template <typename T, int ROWS> static void launch_step(const struct recurrent_call *call, cudaStream_t stream)
{
    dim3 grid((unsigned)call->layer.sizes.value_heads, (unsigned)call->segment_count);
    if (call->layer.sizes.kernel_size == 4)
        launch(step<T, 4, ROWS>, grid, STEP_THREADS, 0, stream, *call);
    else
        launch(step<T, 0, ROWS>, grid, STEP_THREADS, 0, stream, *call);
}

void kernels_recurrent_step(const struct recurrent_call *call, cudaStream_t stream)
{
    if (fits(&call->layer.sizes, FEW_ROWS))
        OF_TYPE(call->layer.type, (launch_step<T, FEW_ROWS>(call, stream)));
    else if (fits(&call->layer.sizes, USUAL_ROWS))
        OF_TYPE(call->layer.type, (launch_step<T, USUAL_ROWS>(call, stream)));
    else
        OF_TYPE(call->layer.type, (launch_step<T, MANY_ROWS>(call, stream)));
}

template <typename T, int ROWS> static void launch_commit(const struct recurrent_kept *kept, cudaStream_t stream)
{
    dim3 grid((unsigned)kept->layer.sizes.value_heads, (unsigned)kept->count, (unsigned)kept->layers);
    if (kept->layer.sizes.kernel_size == 4)
        launch(commit<T, 4, ROWS>, grid, STEP_THREADS, 0, stream, *kept);
    else
        launch(commit<T, 0, ROWS>, grid, STEP_THREADS, 0, stream, *kept);
}

void kernels_recurrent_commit(const struct recurrent_kept *kept, cudaStream_t stream)
{
    if (fits(&kept->layer.sizes, FEW_ROWS))
        OF_TYPE(kept->layer.type, (launch_commit<T, FEW_ROWS>(kept, stream)));
    else if (fits(&kept->layer.sizes, USUAL_ROWS))
        OF_TYPE(kept->layer.type, (launch_commit<T, USUAL_ROWS>(kept, stream)));
    else
        OF_TYPE(kept->layer.type, (launch_commit<T, MANY_ROWS>(kept, stream)));
}
