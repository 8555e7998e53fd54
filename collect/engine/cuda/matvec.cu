/* One row times a matrix in bfloat16, bound by the reading of the weights. A thread owns columns, so that the row stays
 * in registers and each row of the matrix is one coalesced 16-byte load a thread and chunk; the next rows are on their
 * way while these are summed, and the first are asked for before the kernel waits for the one before it. Rows are
 * spread evenly over two blocks a multiprocessor. */
#include "collect/engine/cuda/element.cuh"

#define GATHERED 64 /* rows whose sums stand in shared memory at a time */
#define BLOCKS_EACH 2

static __device__ __forceinline__ uint4 load_weights(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ float dot(uint4 weights, const float *x, float sum)
{
    const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&weights;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 w = __bfloat1622float2(pairs[i]);
        sum = fmaf(w.x, x[2 * i], sum);
        sum = fmaf(w.y, x[2 * i + 1], sum);
    }
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

#define NORM_EARLY(chunks) ((chunks) <= 3) /* so far registers hold the norm beside the first weights */

/* The norm's weights of the thread's columns, which are there before the row is. */
template <int THREADS, int CHUNKS>
static __device__ __forceinline__ void load_norm(const struct matvec_call &call, float (&norm)[CHUNKS][8])
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + (int)threadIdx.x) * 8;
        float4 low = {}, high = {};
        if (column < call.inputs) {
            low = *(const float4 *)(call.norm + column);
            high = *(const float4 *)(call.norm + column + 4);
        }
        norm[c][0] = low.x, norm[c][1] = low.y, norm[c][2] = low.z, norm[c][3] = low.w;
        norm[c][4] = high.x, norm[c][5] = high.y, norm[c][6] = high.z, norm[c][7] = high.w;
    }
}

/* The thread's columns of the row: 8 of each chunk. */
template <int THREADS, int CHUNKS, bool NORM>
static __device__ __forceinline__ void load_row(const struct matvec_call &call, const float (&norm)[CHUNKS][8],
                                                float (&x)[CHUNKS][8])
{
    __shared__ float parts[WARP];
    float squares = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + (int)threadIdx.x) * 8;
        if (column >= call.inputs) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[c][i] = 0;
        } else if (NORM) {
            float4 low = __ldcg((const float4 *)(call.x + column)),
                   high = __ldcg((const float4 *)(call.x + column + 4));
            x[c][0] = low.x, x[c][1] = low.y, x[c][2] = low.z, x[c][3] = low.w;
            x[c][4] = high.x, x[c][5] = high.y, x[c][6] = high.z, x[c][7] = high.w;
#pragma unroll
            for (int i = 0; i < 8; i++)
                squares = fmaf(x[c][i], x[c][i], squares);
        } else {
            uint4 v = __ldcg((const uint4 *)((const __nv_bfloat16 *)call.input + column));
            const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&v;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 pair = __bfloat1622float2(pairs[i]);
                x[c][2 * i] = pair.x;
                x[c][2 * i + 1] = pair.y;
            }
        }
    }
    if (!NORM)
        return;
    float scale = 1.0f / sqrtf(block_sum(squares, parts) / (float)call.inputs + call.epsilon);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int column = (c * THREADS + (int)threadIdx.x) * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float weight = NORM_EARLY(CHUNKS) ? norm[c][i] : column < call.inputs ? call.norm[column + i] : 0;
            x[c][i] = rounded<__nv_bfloat16>(x[c][i] * scale * weight);
        }
    }
}

/* ROWS rows at a time; where they are gated, half of them are gate rows and the others their up rows. */
template <int THREADS, int CHUNKS, int ROWS, bool NORM, bool GATE>
static __global__ void __launch_bounds__(THREADS, CHUNKS == 1 ? 3 : 512 / THREADS) matvec(const struct matvec_call call)
{
    constexpr int WARPS = THREADS / WARP, STEP = GATE ? (ROWS + 1) / 2 : ROWS;
    __shared__ float sums[WARPS][GATHERED];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int outputs = GATE ? call.outputs / 2 : call.outputs;
    int first = (int)((long long)outputs * blockIdx.x / gridDim.x);
    int last = (int)((long long)outputs * (blockIdx.x + 1) / gridDim.x);
    size_t pitch = (size_t)call.inputs / 8;
    const uint4 *weights = (const uint4 *)call.weights + threadIdx.x;
    uint4 held[ROWS][CHUNKS];

    auto fetch = [&](int start) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int output = start + (GATE ? r % STEP : r);
            const uint4 *row = weights + (size_t)(GATE && r >= STEP ? output + outputs : output) * pitch;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                if (output < last && (c * THREADS + (int)threadIdx.x) * 8 < call.inputs)
                    held[r][c] = load_weights(row + c * THREADS);
        }
    };
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            held[r][c] = make_uint4(0, 0, 0, 0);
    fetch(first);
    float x[CHUNKS][8], norm[CHUNKS][8] = {}, before = 0;
    if (NORM && NORM_EARLY(CHUNKS))
        load_norm<THREADS, CHUNKS>(call, norm);
    if (!GATE && call.add && first + (int)threadIdx.x < last)
        before = call.y[first + (int)threadIdx.x]; /* which the kernel before this one does not write */
    wait_for_previous();
    let_next_start();
    load_row<THREADS, CHUNKS, NORM>(call, norm, x);

    constexpr int AT_ONCE = GATE ? GATHERED / 2 : GATHERED;
    for (int from = first; from < last; from += AT_ONCE) {
        int to = min(from + AT_ONCE, last);
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
            fetch(start + STEP);
            float sum = warp_sums<ROWS>(own, &mine);
            if (lane % (WARP / ROWS) == 0)
                sums[warp][(start - from) * (GATE ? 2 : 1) + mine] = sum;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < to - from; i += THREADS) {
            int at = GATE ? i / STEP * ROWS + i % STEP : i;
            float sum = 0, up = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                sum += sums[w][at];
                if (GATE)
                    up += sums[w][at + STEP];
            }
            if (GATE)
                store((__nv_bfloat16 *)call.gated + from + i, sum / (1.0f + expf(-sum)) * up);
            else
                call.y[from + i] = call.add ? (from == first ? before : call.y[from + i]) + sum : sum;
        }
        __syncthreads();
    }
}

template <int THREADS, int CHUNKS, int ROWS>
static void launch_matvec(const struct matvec_call *call, cudaStream_t stream)
{
    dim3 grid((unsigned)(BLOCKS_EACH * device_multiprocessors()));
    if (call->gated)
        launch(matvec < THREADS, CHUNKS, ROWS < 2 ? 2 : ROWS, true, true >, grid, THREADS, 0, stream, *call);
    else if (call->x)
        launch(matvec<THREADS, CHUNKS, ROWS, true, false>, grid, THREADS, 0, stream, *call);
    else
        launch(matvec<THREADS, CHUNKS, ROWS, false, false>, grid, THREADS, 0, stream, *call);
}

void kernels_matvec(const struct matvec_call *call, cudaStream_t stream)
{
    int chunks = (call->inputs + 2047) / 2048;
    if (chunks <= 1)
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
