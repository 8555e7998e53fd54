/* What this GPU's memory and its tensor cores can do, for comparison with what the engine gets out of them. */
#include "collect/engine/cuda/cuda.h"
#include "collect/engine/cuda/made.h"

#include <cublasLt.h>
#include <math.h>

#define STREAM_BYTES ((size_t)4 << 30) /* far more than any cache holds */
#define READS 10                       /* of each number of blocks; the quickest counts */
#define SIDE 8192                      /* of square matrices */
#define ALGORITHMS 8                   /* that cuBLASLt proposes; the quickest counts */
#define PRODUCTS 5                     /* of each */
#define WORKSPACE ((size_t)32 << 20)

#define LT_CHECK(call) check((call), __LINE__)
static void check(cublasStatus_t status, int line)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        die("%s:%d: cuBLASLt: %s", __FILE__, line, cublasLtGetStatusString(status));
}

/* A stopwatch of the GPU's own. */
struct stopwatch {
    cudaStream_t stream;
    cudaEvent_t start, stop;
};

static void stopwatch_open(struct stopwatch *watch)
{
    CUDA_CHECK(cudaStreamCreateWithFlags(&watch->stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&watch->start));
    CUDA_CHECK(cudaEventCreate(&watch->stop));
}

static void stopwatch_close(struct stopwatch *watch)
{
    CUDA_CHECK(cudaEventDestroy(watch->start));
    CUDA_CHECK(cudaEventDestroy(watch->stop));
    CUDA_CHECK(cudaStreamDestroy(watch->stream));
}

static void stopwatch_start(const struct stopwatch *watch)
{
    CUDA_CHECK(cudaEventRecord(watch->start, watch->stream));
}

static double stopwatch_stop_s(const struct stopwatch *watch)
{
    float milliseconds;
    CUDA_CHECK(cudaEventRecord(watch->stop, watch->stream));
    CUDA_CHECK(cudaEventSynchronize(watch->stop));
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, watch->start, watch->stop));
    return (double)milliseconds * 1e-3;
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* As much as there is room for. */
static size_t stream_bytes(void)
{
    size_t available, total;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    return (available / 2 < STREAM_BYTES ? available / 2 : STREAM_BYTES) / MADE_READ_BYTES * MADE_READ_BYTES;
}

static double measure_reading(const struct stopwatch *watch)
{
    int processors = device_multiprocessors();
    size_t bytes = stream_bytes();
    void *memory = device_allocate(bytes);
    unsigned *out = device_allocate(sizeof *out);
    double best = 0;
    made_fill(ELEMENT_FLOAT32, (struct recipe){.seed = 1, .spread = 1},
              (struct made_part){0, 1, (int64_t)(bytes / 4), (int64_t)(bytes / 4)}, memory, watch->stream);
    for (int blocks = processors; blocks <= 16 * processors; blocks *= 2)
        for (int i = 0; i < READS; i++) {
            stopwatch_start(watch);
            made_read(memory, bytes, blocks, out, watch->stream);
            best = fmax(best, (double)bytes / stopwatch_stop_s(watch));
        }
    CUDA_CHECK(cudaFree(memory));
    CUDA_CHECK(cudaFree(out));
    return best;
}

/* --- products --------------------------------------------------------------------------------------------------- */

/* c = aᵀ · b of SIDE, accumulated in float32. */
struct square {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout;
    void *a, *b, *c, *workspace;
};

static void square_open(struct square *square, enum element type, cudaStream_t stream)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t elements = (size_t)SIDE * SIDE, bytes = elements * element_size(type);
    const struct recipe recipe = {.seed = 2, .spread = 1.0f / SIDE};
    const struct made_part whole = {0, SIDE, SIDE, SIDE};
    LT_CHECK(cublasLtCreate(&square->handle));
    LT_CHECK(cublasLtMatmulDescCreate(&square->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_CHECK(
        cublasLtMatmulDescSetAttribute(square->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    LT_CHECK(cublasLtMatrixLayoutCreate(&square->layout, type == ELEMENT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F, SIDE,
                                        SIDE, SIDE));
    square->a = device_allocate(bytes);
    square->b = device_allocate(bytes);
    square->c = device_allocate(bytes);
    square->workspace = device_allocate(WORKSPACE);
    made_fill(type, recipe, whole, square->a, stream);
    made_fill(type, recipe, whole, square->b, stream);
}

static void square_close(struct square *square)
{
    void *memory[] = {square->a, square->b, square->c, square->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        CUDA_CHECK(cudaFree(memory[i]));
    LT_CHECK(cublasLtMatrixLayoutDestroy(square->layout));
    LT_CHECK(cublasLtMatmulDescDestroy(square->operation));
    LT_CHECK(cublasLtDestroy(square->handle));
}

static int find_algorithms(const struct square *square, cublasLtMatmulHeuristicResult_t *found)
{
    const size_t workspace = WORKSPACE;
    cublasLtMatmulPreference_t preference;
    int count = 0;
    LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace));
    LT_CHECK(cublasLtMatmulAlgoGetHeuristic(square->handle, square->operation, square->layout, square->layout,
                                            square->layout, square->layout, preference, ALGORITHMS, found, &count));
    LT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    return count;
}

static double measure_product(enum element type, const struct stopwatch *watch)
{
    const float one = 1, zero = 0;
    struct square square;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    double best = 0;
    square_open(&square, type, watch->stream);
    int count = find_algorithms(&square, found);
    for (int i = 0; i < count * PRODUCTS; i++) {
        stopwatch_start(watch);
        LT_CHECK(cublasLtMatmul(square.handle, square.operation, &one, square.a, square.layout, square.b, square.layout,
                                &zero, square.c, square.layout, square.c, square.layout, &found[i / PRODUCTS].algo,
                                square.workspace, WORKSPACE, watch->stream));
        best = fmax(best, 2.0 * SIDE * SIDE * SIDE / stopwatch_stop_s(watch));
    }
    square_close(&square);
    return best;
}

/* Those of the ranks' first GPU, times the GPUs. */
int cuda_measure_rates(const char *device, int ranks, enum engine_dtype dtype, struct backend_rates *rates,
                       struct error *error)
{
    int devices[RANKS_MAXIMUM];
    struct stopwatch watch;
    if (device_find(device, error) != DEVICE_USABLE)
        return -1;
    if (ranks > RANKS_MAXIMUM)
        return fail(error, "tensor_parallel %d: device \"cuda\" has up to %d ranks", ranks, RANKS_MAXIMUM);
    int gpus = device_assign(device, ranks, devices, error);
    if (gpus < 0)
        return -1;
    CUDA_CHECK(cudaSetDevice(devices[0]));
    stopwatch_open(&watch);
    rates->read_bytes_s = gpus * measure_reading(&watch);
    rates->product_flop_s =
        gpus * measure_product(dtype == ENGINE_BFLOAT16 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32, &watch);
    stopwatch_close(&watch);
    return 0;
}

int cuda_list_gpus(const char *device, int ranks, char (*ids)[BACKEND_GPU_ID_SIZE])
{
    int devices[RANKS_MAXIMUM];
    struct error error = {0};
    if (ranks > RANKS_MAXIMUM || device_assign(device, ranks, devices, &error) < 0)
        return 0;
    for (int rank = 0; rank < ranks; rank++)
        device_bus_id(devices[rank], ids[rank], BACKEND_GPU_ID_SIZE);
    return ranks;
}
