/* One row times a matrix in bfloat16, bound by the reading of the weights. A thread owns columns, so that the row stays
 * in registers and each row of the matrix is one coalesced 16-byte load a thread and chunk; the next rows are on their
 * way while these are summed, and the first are asked for before the kernel waits for the one before it. Rows are
 * spread evenly over THREADS_EACH threads a multiprocessor. Of short rows there are blocks for no more threads than
 * have columns, and two products fit a multiprocessor at a time, so that all of the next one's first weights are on
 * their way while this one ends. */
#include "collect/engine/cuda/element.cuh"

#define GATHERED 64      /* rows whose sums stand in shared memory at a time */
#define THREADS_EACH 512 /* of a product on a multiprocessor */

/* What 8 bfloat16 stand for: a float's upper half each. */
static __device__ __forceinline__ void unpack_eight(float (&to)[8], uint4 from)
{
    unsigned pairs[] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __uint_as_float(pairs[i] << 16);
        to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000);
    }
}

static __device__ __forceinline__ float dot(uint4 weights, const float (&x)[8], float sum)
{
    float w[8];
    unpack_eight(w, weights);
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf(w[i], x[i], sum);
    return sum;
}

/* The sums of ROWS values over a warp's lanes, of all rows together: a lane gets that of row *mine. */
template <int ROWS> static __device__ __forceinline__ float warp_sums(float (&sums)[ROWS], int *mine)
{
    int lane = (int)threadIdx.x % WARP, width = WARP / 2;
    *mine = 0;
#pragma unroll
    for (int n = ROWS; n > 1; n /= 2, width /= 2) {
        bool high = lane & width;
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++)
            if (i < n / 2) {
                float sent = high ? sums[i] : sums[i + n / 2], kept = high ? sums[i + n / 2] : sums[i];
                sums[i] = kept + __shfl_xor_sync(ALL_LANES, sent, width);
            }
        *mine = 2 * *mine + high;
    }
    float sum = sums[0];
    for (; width; width /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, width);
    return sum;
}

/* The sum over the block, for every thread, once a kernel. In block_sum()'s order, up to 8 warps. */
template <int WARPS> static __device__ __forceinline__ float sum_of_block(float x)
{
    static_assert(WARPS % 4 == 0, "four warps' sums are read at a time");
    __shared__ float4 parts[WARPS / 4];
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        ((float *)parts)[threadIdx.x / WARP] = x;
    __syncthreads();
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < WARPS / 4; i++)
        sum = make_float4(sum.x + parts[i].x, sum.y + parts[i].y, sum.z + parts[i].z, sum.w + parts[i].w);
    return (sum.x + sum.z) + (sum.y + sum.w);
}

static __device__ __forceinline__ void load_eight(float (&to)[8], const float *from)
{
    float4 low = __ldcg((const float4 *)from), high = __ldcg((const float4 *)from + 1);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

#define NORM_EARLY(chunks) ((chunks) <= 3) /* so far registers hold the norm beside the first weights */

/* The thread's columns of the row: 8 of each chunk. */
template <int THREADS, int CHUNKS, bool NORM>
static __device__ __forceinline__ void load_row(const struct matvec_call &call, float per_input,
                                                float (&norm)[CHUNKS][8], float (&x)[CHUNKS][8])
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + (int)threadIdx.x) * 8;
        if (column < call.inputs && NORM)
            load_eight(x[c], call.x + column);
        else if (column < call.inputs)
            unpack_eight(x[c], __ldcg((const uint4 *)((const __nv_bfloat16 *)call.input + column)));
    }
    if (!NORM)
        return;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            squares = fmaf(x[c][i], x[c][i], squares);
    float scale = rsqrtf(fmaf(sum_of_block<THREADS / WARP>(squares), per_input, call.epsilon));
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + (int)threadIdx.x) * 8;
        if (!NORM_EARLY(CHUNKS) && column < call.inputs)
            load_eight(norm[c], call.norm + column);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            float low = x[c][i] * scale * norm[c][i], high = x[c][i + 1] * scale * norm[c][i + 1];
            float2 pair = __bfloat1622float2(__floats2bfloat162_rn(low, high));
            x[c][i] = pair.x;
            x[c][i + 1] = pair.y;
        }
    }
}

/* Outputs of each block, which lie behind one another; each of the first `longer` blocks has one more. */
struct shares {
    int each, longer;
    float per_input; /* 1 / inputs */
};

/* ROWS rows at a time; where they are gated, half of them are gate rows and the others their up rows. What is done once
 * is not unrolled: its instructions have to be fetched as well. */
template <int THREADS, int CHUNKS, int ROWS, bool NORM, bool GATE>
static __global__ void __launch_bounds__(THREADS, (CHUNKS == 1 ? 2 : 1) * THREADS_EACH / THREADS)
    matvec(const struct matvec_call call, const struct shares shares)
{
    constexpr int WARPS = THREADS / WARP, STEP = GATE ? (ROWS + 1) / 2 : ROWS, AT_ONCE = GATE ? GATHERED / 2 : GATHERED;
    static_assert(AT_ONCE <= THREADS && AT_ONCE % STEP == 0, "a thread ends an output, and steps end with the sums");
    __shared__ float sums[2][WARPS][GATHERED];
    int thread = (int)threadIdx.x, lane = thread % WARP, warp = thread / WARP, block = (int)blockIdx.x;
    int first = block * shares.each + min(block, shares.longer);
    int last = first + shares.each + (block < shares.longer);
    unsigned pitch = 2 * (unsigned)call.inputs;
    const char *next = (const char *)call.weights + (unsigned long long)pitch * (unsigned)first + 16 * thread;
    unsigned long long up = (unsigned long long)pitch * ((unsigned)call.outputs / 2);
    uint4 held[ROWS][CHUNKS] = {};
    float x[CHUNKS][8] = {}, norm[CHUNKS][8] = {}, before = 0;

    /* The next so many rows, as far as they are held. */
    auto fetch = [&](int rows) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const char *row = next + (unsigned long long)pitch * (unsigned)(r % STEP) + (GATE && r >= STEP ? up : 0);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                load_weights(&held[r][c], row + 16 * c * THREADS,
                             r % STEP < rows && (c * THREADS + thread) * 8 < call.inputs);
        }
        next += (unsigned long long)pitch * STEP;
    };
    fetch(last - first);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + thread) * 8;
        if (NORM && NORM_EARLY(CHUNKS) && column < call.inputs)
            load_eight(norm[c], call.norm + column);
    }
    if (!GATE && call.add && first + thread < last)
        before = call.y[first + thread]; /* which the kernel before this one does not write */
    if (first == last) /* a branch, across which ptxas does not put the loads behind the wait, as it does without one */
        return;
    wait_for_previous();
    let_next_start();
    load_row<THREADS, CHUNKS, NORM>(call, shares.per_input, norm, x);

    int side = 0;
#pragma unroll 1
    for (int from = first; from < last; from += AT_ONCE, side ^= 1) {
        int to = min(from + AT_ONCE, last);
#pragma unroll 1
        for (int start = from; start < to; start += STEP) {
            float own[ROWS];
            int mine;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                own[r] = 0;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
                    own[r] = dot(held[r][c], x[c], own[r]);
            }
            fetch(last - start - STEP);
            float sum = warp_sums<ROWS>(own, &mine);
            if (lane % (WARP / ROWS) == 0)
                sums[side][warp][(start - from) * (GATE ? 2 : 1) + mine] = sum;
        }
        __syncthreads(); /* one is enough: until the next, the other side is written */
        if (thread < to - from) {
            int at = GATE ? thread / STEP * ROWS + thread % STEP : thread, output = from + thread;
            float sum = 0, other = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                sum += sums[side][w][at];
                if (GATE)
                    other += sums[side][w][at + STEP];
            }
            if (GATE)
                store((__nv_bfloat16 *)call.gated + output, swish(sum) * other);
            else
                call.y[output] = call.add ? (from == first ? before : call.y[output]) + sum : sum;
        }
    }
}

template <int THREADS, int CHUNKS, int ROWS>
static void launch_matvec(const struct matvec_call *call, cudaStream_t stream)
{
    int blocks = THREADS_EACH / THREADS * device_multiprocessors(),
        outputs = call->gated ? call->outputs / 2 : call->outputs;
    struct shares shares = {outputs / blocks, outputs % blocks, 1.0f / (float)call->inputs};
    dim3 grid((unsigned)blocks);
    if (call->gated)
        launch(matvec < THREADS, CHUNKS, ROWS < 2 ? 2 : ROWS, true, true >, grid, THREADS, 0, stream, *call, shares);
    else if (call->x)
        launch(matvec<THREADS, CHUNKS, ROWS, true, false>, grid, THREADS, 0, stream, *call, shares);
    else
        launch(matvec<THREADS, CHUNKS, ROWS, false, false>, grid, THREADS, 0, stream, *call, shares);
}

void kernels_matvec(const struct matvec_call *call, cudaStream_t stream)
{
    int chunks = (call->inputs + 2047) / 2048;
    if (call->inputs <= 1024)
        launch_matvec<128, 1, 8>(call, stream);
    else if (chunks <= 1)
        launch_matvec<256, 1, 8>(call, stream);
    else if (chunks <= 2)
        launch_matvec<256, 2, 8>(call, stream);
    else if (chunks <= 3)
        launch_matvec<256, 3, 4>(call, stream);
    else if (chunks <= 4)
        launch_matvec<256, 4, 4>(call, stream);
    else if (chunks <= 6)
        launch_matvec<256, 6, 2>(call, stream);
    else if (chunks <= 8)
        launch_matvec<512, 4, 2>(call, stream);
    else if (call->inputs <= MATVEC_INPUTS_MAXIMUM)
        launch_matvec<512, 7, 1>(call, stream);
    else
        die("a row of %d columns, where %d are readied", call->inputs, MATVEC_INPUTS_MAXIMUM);
}
