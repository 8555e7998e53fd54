#include "collect/engine/cuda/product.h"

#include "collect/engine/cuda/device.h"

#include <cublasLt.h>
#include <stdlib.h>

struct product_library {
    cudaDataType type;
    size_t size; /* of an element */
    cudaStream_t stream;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    void *workspace;
};

/* One number of rows. */
struct shape {
    cublasLtMatrixLayout_t x, y;
    cublasLtMatmulAlgo_t algorithm;
};

/* cuBLASLt counts columns first: W is [inputs, outputs] to it, y [outputs, rows]. */
struct product {
    const struct product_library *library;
    int inputs, outputs, shape_count;
    cublasLtMatrixLayout_t weights;
    struct shape shapes[];
};

#define LT_CHECK(call) check((call), __LINE__)
static void check(cublasStatus_t status, int line)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        die("%s:%d: cuBLASLt: %s", __FILE__, line, cublasLtGetStatusString(status));
}

/* --- shapes ----------------------------------------------------------------------------------------------------- */

/* Every number of rows up to the first limit, then rising by wider steps. */
static const struct {
    int limit, step;
} ranges[] = {{16, 1}, {128, 8}, {1024, 64}, {1 << 30, 256}};

/* Which shape has so many rows, and in *rounded how many it computes. */
static int shape_of(int rows, int *rounded)
{
    int index = -1, before = 0;
    for (size_t i = 0;; i++) {
        int reached = rows < ranges[i].limit ? rows : ranges[i].limit;
        int steps = (reached - before + ranges[i].step - 1) / ranges[i].step;
        index += steps;
        if (rows <= ranges[i].limit) {
            *rounded = before + steps * ranges[i].step;
            return index;
        }
        before = ranges[i].limit;
    }
}

int product_rows(int rows)
{
    int rounded;
    shape_of(rows, &rounded);
    return rounded;
}

/* --- the library ------------------------------------------------------------------------------------------------ */

struct product_library *product_library_open(enum element type, cudaStream_t stream)
{
    struct product_library *library = xcalloc(1, sizeof *library);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    library->type = type == ELEMENT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
    library->size = element_size(type);
    library->stream = stream;
    library->workspace = device_allocate(PRODUCT_WORKSPACE);
    LT_CHECK(cublasLtCreate(&library->handle));
    LT_CHECK(cublasLtMatmulDescCreate(&library->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_CHECK(cublasLtMatmulDescSetAttribute(library->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed));
    return library;
}

void product_library_close(struct product_library *library)
{
    if (!library)
        return;
    LT_CHECK(cublasLtMatmulDescDestroy(library->operation));
    LT_CHECK(cublasLtDestroy(library->handle));
    CUDA_CHECK(cudaFree(library->workspace));
    free(library);
}

/* --- products --------------------------------------------------------------------------------------------------- */

static cublasLtMatrixLayout_t create_layout(cudaDataType type, int rows, int columns)
{
    cublasLtMatrixLayout_t layout;
    LT_CHECK(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns, rows));
    return layout;
}

/* What every row's address is a multiple of: the largest such power of two up to 256. */
static uint32_t row_alignment(size_t row_bytes)
{
    uint32_t alignment = 256;
    while (row_bytes % alignment)
        alignment /= 2;
    return alignment;
}

static cublasLtMatmulPreference_t create_preference(const struct product *product)
{
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* parts of K are added in a fixed order */
    const uint32_t alignment = row_alignment((size_t)product->inputs * product->library->size);
    const size_t workspace = PRODUCT_WORKSPACE;
    cublasLtMatmulPreference_t preference;
    LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace));
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                  sizeof reductions));
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment,
                                                  sizeof alignment));
    return preference;
}

/* The heuristic's first. It offers more, best first as it believes: choosing among them by timing belongs here. */
static void ready_shape(const struct product *product, struct shape *shape, int rows)
{
    const struct product_library *library = product->library;
    cublasLtMatmulPreference_t preference = create_preference(product);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    shape->x = create_layout(library->type, product->inputs, rows);
    shape->y = create_layout(CUDA_R_32F, product->outputs, rows);
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library->handle, library->operation, product->weights,
                                                           shape->x, shape->y, shape->y, preference, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0)
        die("cuBLASLt has no algorithm for %d rows of %d inputs and %d outputs: %s", rows, product->inputs,
            product->outputs, cublasLtGetStatusString(status));
    shape->algorithm = found.algo;
    LT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
}

struct product *product_create(const struct product_library *library, int inputs, int outputs, int most_rows)
{
    int most, count = shape_of(most_rows, &most) + 1;
    struct product *product = xcalloc(1, sizeof *product + (size_t)count * sizeof *product->shapes);
    product->library = library;
    product->inputs = inputs;
    product->outputs = outputs;
    product->shape_count = count;
    product->weights = create_layout(library->type, inputs, outputs);
    for (int i = 0, rows = 1; i < count; i++, rows = product_rows(rows + 1))
        ready_shape(product, &product->shapes[i], rows);
    return product;
}

void product_destroy(struct product *product)
{
    if (!product)
        return;
    for (int i = 0; i < product->shape_count; i++) {
        LT_CHECK(cublasLtMatrixLayoutDestroy(product->shapes[i].x));
        LT_CHECK(cublasLtMatrixLayoutDestroy(product->shapes[i].y));
    }
    LT_CHECK(cublasLtMatrixLayoutDestroy(product->weights));
    free(product);
}

void product_apply(const struct product *product, int rows, const void *x, const void *weights, float *y, bool add)
{
    const struct product_library *library = product->library;
    const float one = 1, before = add ? 1 : 0;
    int rounded, index = shape_of(rows, &rounded);
    if (index >= product->shape_count)
        die("a product of %d rows, where %d shapes were readied", rows, product->shape_count);
    const struct shape *shape = &product->shapes[index];
    LT_CHECK(cublasLtMatmul(library->handle, library->operation, &one, weights, product->weights, x, shape->x, &before,
                            y, shape->y, y, shape->y, &shape->algorithm, library->workspace, PRODUCT_WORKSPACE,
                            library->stream));
}
