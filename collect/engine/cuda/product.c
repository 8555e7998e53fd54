#include "collect/engine/cuda/product.h"

#include "collect/base/json.h"
#include "collect/engine/cuda/device.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES_MAXIMUM 96
#define CANDIDATES_MAXIMUM 16
#define WARM_PRODUCTS 4   /* before a candidate is timed */
#define TIMED_PRODUCTS 24 /* in one timing, */
#define LARGE_PRODUCTS 4  /* but so many of more than LARGE_ROWS */
#define LARGE_ROWS 256
#define TIMINGS 3 /* the quickest of them counts */

struct product_library {
    cudaDataType type;
    size_t size; /* of an element */
    cudaStream_t stream;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    void *workspace;
    json_t *algorithms;
    cudaEvent_t start, end;
};

/* One number of rows. */
struct shape {
    int rows;
    cublasLtMatrixLayout_t x, y;
    cublasLtMatmulAlgo_t algorithm;
};

/* cuBLASLt counts columns first: W is [inputs, outputs] to it, y [outputs, rows]. */
struct product {
    const struct product_library *library;
    int inputs, outputs, stride;
    cublasLtMatrixLayout_t weights;
    int shape_count;
    struct shape shapes[SHAPES_MAXIMUM]; /* by rising rows */
};

#define LT_CHECK(call) check((call), __LINE__)
static void check(cublasStatus_t status, int line)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        die("%s:%d: cuBLASLt: %s", __FILE__, line, cublasLtGetStatusString(status));
}

/* --- the library ------------------------------------------------------------------------------------------------ */

struct product_library *product_library_open(enum element type, cudaStream_t stream, json_t *algorithms)
{
    struct product_library *library = xcalloc(1, sizeof *library);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    library->type = type == ELEMENT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
    library->size = element_size(type);
    library->stream = stream;
    library->algorithms = algorithms;
    library->workspace = device_allocate(PRODUCT_WORKSPACE);
    CUDA_CHECK(cudaEventCreate(&library->start));
    CUDA_CHECK(cudaEventCreate(&library->end));
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
    CUDA_CHECK(cudaEventDestroy(library->start));
    CUDA_CHECK(cudaEventDestroy(library->end));
    CUDA_CHECK(cudaFree(library->workspace));
    free(library);
}

/* --- products --------------------------------------------------------------------------------------------------- */

static cublasLtMatrixLayout_t create_layout(cudaDataType type, int rows, int columns, int stride)
{
    cublasLtMatrixLayout_t layout;
    LT_CHECK(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns, stride));
    return layout;
}

struct product *product_create(const struct product_library *library, int inputs, int outputs, int stride)
{
    struct product *product = xcalloc(1, sizeof *product);
    product->library = library;
    product->inputs = inputs;
    product->outputs = outputs;
    product->stride = stride;
    product->weights = create_layout(library->type, inputs, outputs, inputs);
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

static cublasStatus_t multiply(const struct product *product, const struct shape *shape,
                               const cublasLtMatmulAlgo_t *algorithm, const void *x, const void *weights, float *y)
{
    const struct product_library *library = product->library;
    const float one = 1, zero = 0;
    return cublasLtMatmul(library->handle, library->operation, &one, weights, product->weights, x, shape->x, &zero, y,
                          shape->y, y, shape->y, algorithm, library->workspace, PRODUCT_WORKSPACE, library->stream);
}

void product_apply(const struct product *product, int rows, const void *x, const void *weights, float *y)
{
    int index = 0;
    while (index < product->shape_count && product->shapes[index].rows < rows)
        index++;
    if (index == product->shape_count)
        die("a product of %d rows, of %d inputs and %d outputs, that was not readied", rows, product->inputs,
            product->outputs);
    const struct shape *shape = &product->shapes[index];
    LT_CHECK(multiply(product, shape, &shape->algorithm, x, weights, y));
}

/* --- the choice of an algorithm --------------------------------------------------------------------------------- */

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
    const size_t size = product->library->size, workspace = PRODUCT_WORKSPACE;
    const uint32_t alignment = row_alignment((size_t)product->inputs * size | (size_t)product->stride * size);
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

static int list_candidates(const struct product *product, const struct shape *shape,
                           cublasLtMatmulHeuristicResult_t *candidates)
{
    const struct product_library *library = product->library;
    cublasLtMatmulPreference_t preference = create_preference(product);
    int count = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library->handle, library->operation, product->weights, shape->x, shape->y,
                                       shape->y, preference, CANDIDATES_MAXIMUM, candidates, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0)
        die("cuBLASLt has no algorithm for %d rows of %d inputs and %d outputs: %s", shape->rows, product->inputs,
            product->outputs, cublasLtGetStatusString(status));
    LT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    return count;
}

/* Milliseconds of so many products, or infinity where the algorithm does not run. */
static float time_candidate(const struct product *product, const struct shape *shape,
                            const cublasLtMatmulAlgo_t *algorithm, const struct product_trial *trial, int products)
{
    const struct product_library *library = product->library;
    float time = 0;
    CUDA_CHECK(cudaEventRecord(library->start, library->stream));
    for (int i = 0; i < products; i++)
        if (multiply(product, shape, algorithm, trial->x, trial->weights[i % trial->count], trial->y))
            return HUGE_VALF;
    CUDA_CHECK(cudaEventRecord(library->end, library->stream));
    CUDA_CHECK(cudaEventSynchronize(library->end));
    CUDA_CHECK(cudaEventElapsedTime(&time, library->start, library->end));
    return time;
}

static void choose_by_timing(const struct product *product, struct shape *shape, const struct product_trial *trial)
{
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAXIMUM];
    int count = list_candidates(product, shape, candidates);
    int products = shape->rows > LARGE_ROWS ? LARGE_PRODUCTS : TIMED_PRODUCTS;
    float best = HUGE_VALF;
    for (int i = 0; i < count; i++) {
        const cublasLtMatmulAlgo_t *algorithm = &candidates[i].algo;
        float time = time_candidate(product, shape, algorithm, trial, WARM_PRODUCTS);
        for (int j = 0; j < TIMINGS && time < HUGE_VALF; j++) {
            time = time_candidate(product, shape, algorithm, trial, products);
            if (time < best) {
                best = time;
                shape->algorithm = *algorithm;
            }
            if (time > 1.5f * best)
                break;
        }
    }
    if (best == HUGE_VALF)
        die("no algorithm of cuBLASLt runs %d rows of %d inputs and %d outputs", shape->rows, product->inputs,
            product->outputs);
}

/* What stands in the list of chosen algorithms: an algorithm is 64 opaque bytes, good for one version of cuBLASLt. */
static char *name_of(const struct product *product, int rows)
{
    return xformat("%s %dx%d/%d rows %d", product->library->size == 2 ? "bfloat16" : "float32", product->outputs,
                   product->inputs, product->stride, rows);
}

static json_t *algorithm_text(const cublasLtMatmulAlgo_t *algorithm)
{
    char text[2 * sizeof algorithm->data + 1];
    for (size_t i = 0; i < sizeof algorithm->data; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)algorithm->data)[i]);
    return json_string(text);
}

static bool read_algorithm(const struct product *product, const struct shape *shape, const char *text,
                           cublasLtMatmulAlgo_t *algorithm)
{
    const struct product_library *library = product->library;
    cublasLtMatmulHeuristicResult_t result;
    if (!text || strlen(text) != 2 * sizeof algorithm->data)
        return false;
    for (size_t i = 0; i < sizeof algorithm->data; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1)
            return false;
        ((unsigned char *)algorithm->data)[i] = (unsigned char)value;
    }
    return cublasLtMatmulAlgoCheck(library->handle, library->operation, product->weights, shape->x, shape->y, shape->y,
                                   algorithm, &result) == CUBLAS_STATUS_SUCCESS;
}

static void choose(const struct product *product, struct shape *shape, const struct product_trial *trial)
{
    json_t *algorithms = product->library->algorithms;
    char *name = name_of(product, shape->rows);
    if (!read_algorithm(product, shape, json_string_value(json_object_get(algorithms, name)), &shape->algorithm)) {
        choose_by_timing(product, shape, trial);
        json_object_set_new(algorithms, name, algorithm_text(&shape->algorithm));
    }
    free(name);
}

void product_ready(struct product *product, int rows, const struct product_trial *trial)
{
    int at = 0;
    while (at < product->shape_count && product->shapes[at].rows < rows)
        at++;
    if (at < product->shape_count && product->shapes[at].rows == rows)
        return;
    if (product->shape_count == SHAPES_MAXIMUM)
        die("a product of more than %d numbers of rows", SHAPES_MAXIMUM);
    struct shape shape = {.rows = rows};
    shape.x = create_layout(product->library->type, product->inputs, rows, product->stride);
    shape.y = create_layout(CUDA_R_32F, product->outputs, rows, product->outputs);
    choose(product, &shape, trial);
    memmove(&product->shapes[at + 1], &product->shapes[at],
            (size_t)(product->shape_count - at) * sizeof *product->shapes);
    product->shapes[at] = shape;
    product->shape_count++;
}
