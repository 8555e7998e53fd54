#include "collect/engine/cuda/product.h"

#include "collect/base/json.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/skinny_ways.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAXIMUM 16
#define TIMED_PRODUCTS 24 /* in one timing, */
#define LARGE_PRODUCTS 4  /* but so many of more than LARGE_ROWS */
#define LARGE_ROWS 256
#define TIMINGS 3 /* after one to warm up; the quickest of all counts */

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

/* How a product is computed: by cuBLASLt's algorithm, or (own.tile > 0) by kernels_skinny(). */
struct way {
    cublasLtMatmulAlgo_t algorithm;
    struct skinny_way own;
};

/* One number of rows. */
struct shape {
    int rows;
    cublasLtMatrixLayout_t x, y;
    struct way way;
};

/* cuBLASLt counts columns first: W is [inputs, outputs] to it, y [outputs, rows]. */
struct product {
    const struct product_library *library;
    int inputs, outputs, stride;
    bool gated;
    int head_size; /* 0: outputs are not heads */
    cublasLtMatrixLayout_t weights;
    int shape_count;
    struct shape *shapes; /* [shape_count], by rising rows */
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

struct product *product_create_gated(const struct product_library *library, int inputs, int outputs)
{
    struct product *product = product_create(library, inputs, outputs, inputs);
    product->gated = true;
    return product;
}

struct product *product_create_heads(const struct product_library *library, int inputs, int outputs, int head_size)
{
    struct product *product = product_create(library, inputs, outputs, inputs);
    product->head_size = head_size;
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
    free(product->shapes);
    free(product);
}

static void multiply_skinny(const struct product *product, const struct way *way, int rows, const void *x,
                            const void *weights, const struct skinny_call *ends)
{
    struct skinny_call call = *ends;
    call.rows = rows;
    call.inputs = product->inputs;
    call.outputs = product->outputs;
    call.stride = product->stride;
    call.tile = way->own.tile;
    call.splits = way->own.splits;
    call.x = x;
    call.weights = weights;
    kernels_skinny(&call, product->library->stream);
}

static enum element type_of(const struct product_library *library)
{
    return library->size == 2 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32;
}

/* 0, or where cuBLASLt's algorithm does not run, not. */
static cublasStatus_t multiply(const struct product *product, const struct shape *shape, const struct way *way,
                               const void *x, const void *weights, float *y, void *gated)
{
    const struct product_library *library = product->library;
    const float one = 1, zero = 0;
    if (way->own.tile > 0) {
        const struct skinny_call ends = {.y = y, .gated = product->gated ? gated : NULL};
        multiply_skinny(product, way, shape->rows, x, weights, &ends);
        return CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t status =
        cublasLtMatmul(library->handle, library->operation, &one, weights, product->weights, x, shape->x, &zero, y,
                       shape->y, y, shape->y, &way->algorithm, library->workspace, PRODUCT_WORKSPACE, library->stream);
    if (product->gated)
        kernels_gate(type_of(library), y, shape->rows, product->outputs / 2, gated, library->stream);
    return status;
}

static const struct shape *shape_for(const struct product *product, int rows)
{
    int index = 0;
    while (index < product->shape_count && product->shapes[index].rows < rows)
        index++;
    if (index == product->shape_count)
        die("a product of %d rows, of %d inputs and %d outputs, that was not readied", rows, product->inputs,
            product->outputs);
    return &product->shapes[index];
}

void product_apply(const struct product *product, int rows, const void *x, const void *weights, float *y, void *gated)
{
    const struct shape *shape = shape_for(product, rows);
    LT_CHECK(multiply(product, shape, &shape->way, x, weights, y, gated));
}

bool product_is_own(const struct product *product, int rows)
{
    return rows <= PRODUCT_OWN_ROWS &&
           kernels_skinny_takes(type_of(product->library), rows, product->inputs, product->outputs, product->stride);
}

bool product_has_heads(const struct product *product)
{
    return product->head_size % 64 == 0 && product->head_size <= SKINNY_TILE && product->head_size > 0;
}

int product_tiles(const struct product *product, int rows)
{
    return skinny_tiles(product->gated ? product->outputs / 2 : product->outputs,
                        shape_for(product, rows)->way.own.tile);
}

void product_apply_ends(const struct product *product, int rows, const void *x, const void *weights,
                        const struct skinny_call *ends)
{
    multiply_skinny(product, &shape_for(product, rows)->way, rows, x, weights, ends);
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

/* A graph of so many products one after the other, as they are used; NULL where cuBLASLt's algorithm does not run. */
static cudaGraphExec_t capture_way(const struct product *product, const struct shape *shape, const struct way *way,
                                   const struct product_trial *trial, int products)
{
    cudaStream_t stream = product->library->stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready = NULL;
    bool runs = true;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < products && runs; i++)
        runs = !multiply(product, shape, way, trial->x, trial->weights[i % trial->count], trial->y, trial->gated);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    if (runs)
        CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return ready;
}

/* Its milliseconds. */
static float time_graph(const struct product_library *library, cudaGraphExec_t graph)
{
    float time = 0;
    CUDA_CHECK(cudaEventRecord(library->start, library->stream));
    CUDA_CHECK(cudaGraphLaunch(graph, library->stream));
    CUDA_CHECK(cudaEventRecord(library->end, library->stream));
    CUDA_CHECK(cudaEventSynchronize(library->end));
    CUDA_CHECK(cudaEventElapsedTime(&time, library->start, library->end));
    return time;
}

/* The shortest time of a product in milliseconds; infinity where it does not run. */
static float quickest(const struct product *product, const struct shape *shape, const struct way *way,
                      const struct product_trial *trial, float best)
{
    int products = shape->rows > LARGE_ROWS ? LARGE_PRODUCTS : TIMED_PRODUCTS;
    if (multiply(product, shape, way, trial->x, trial->weights[0], trial->y, trial->gated))
        return HUGE_VALF;
    CUDA_CHECK(cudaStreamSynchronize(product->library->stream)); /* loaded, before it is captured */
    cudaGraphExec_t graph = capture_way(product, shape, way, trial, products);
    float least = HUGE_VALF;
    for (int i = 0; graph && i <= TIMINGS; i++) {
        float time = time_graph(product->library, graph) / (float)products;
        least = time < least ? time : least;
        if (time > 1.5f * best)
            break;
    }
    if (graph)
        CUDA_CHECK(cudaGraphExecDestroy(graph));
    return least;
}

/* The own kernels' ways; 0: they do not take the product. */
static int list_ways(const struct product *product, const struct shape *shape, struct skinny_way *ways)
{
    const struct skinny_sizes sizes = {.rows = shape->rows,
                                       .inputs = product->inputs,
                                       .outputs = product->outputs,
                                       .gated = product->gated,
                                       .head_size = product_has_heads(product) ? product->head_size : 0};
    if (!kernels_skinny_takes(type_of(product->library), shape->rows, product->inputs, product->outputs,
                              product->stride))
        return 0;
    return skinny_list_ways(&sizes, ways);
}

/* Microseconds of one product. */
static double choose_by_timing(const struct product *product, struct shape *shape, const struct product_trial *trial)
{
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAXIMUM];
    struct skinny_way ways[SKINNY_WAYS_MAXIMUM];
    int count = product_is_own(product, shape->rows) ? 0 : list_candidates(product, shape, candidates);
    int own = list_ways(product, shape, ways);
    float best = HUGE_VALF;
    for (int i = 0; i < count + own; i++) {
        struct way way = {0};
        if (i < count)
            way.algorithm = candidates[i].algo;
        else
            way.own = ways[i - count];
        float time = quickest(product, shape, &way, trial, best);
        if (time < best) {
            best = time;
            shape->way = way;
        }
    }
    if (best == HUGE_VALF)
        die("nothing runs %d rows of %d inputs and %d outputs", shape->rows, product->inputs, product->outputs);
    return 1e3 * (double)best;
}

/* --- what was chosen -------------------------------------------------------------------------------------------- */

static char *name_of(const struct product *product, int rows)
{
    return xformat("%s %dx%d/%d%s rows %d", product->library->size == 2 ? "bfloat16" : "float32", product->outputs,
                   product->inputs, product->stride, product->gated ? " gated" : "", rows);
}

/* An algorithm of cuBLASLt is 64 opaque bytes, good for one version of it. */
static json_t *describe(const struct way *way, double us)
{
    char text[2 * sizeof way->algorithm.data + 1];
    json_t *chosen = json_object();
    for (size_t i = 0; i < sizeof way->algorithm.data; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)way->algorithm.data)[i]);
    json_set(chosen, "us", json_real(us));
    if (way->own.tile == 0) {
        json_set(chosen, "cublaslt", json_string(text));
        return chosen;
    }
    json_set(chosen, "tile", json_integer(way->own.tile));
    json_set(chosen, "splits", json_integer(way->own.splits));
    return chosen;
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

/* Whether what was chosen earlier can be used here, in shape->way. */
static bool read_way(const struct product *product, struct shape *shape, const json_t *chosen)
{
    struct skinny_way ways[SKINNY_WAYS_MAXIMUM];
    int count = list_ways(product, shape, ways);
    for (int i = 0; i < count; i++)
        if (json_integer_value(json_object_get(chosen, "tile")) == ways[i].tile &&
            json_integer_value(json_object_get(chosen, "splits")) == ways[i].splits) {
            shape->way = (struct way){.own = ways[i]};
            return true;
        }
    shape->way = (struct way){0};
    if (product_is_own(product, shape->rows))
        return false;
    return read_algorithm(product, shape, json_string_value(json_object_get(chosen, "cublaslt")),
                          &shape->way.algorithm);
}

static void choose(const struct product *product, struct shape *shape, const struct product_trial *trial)
{
    json_t *algorithms = product->library->algorithms;
    char *name = name_of(product, shape->rows);
    if (!read_way(product, shape, json_object_get(algorithms, name))) {
        double us = choose_by_timing(product, shape, trial);
        json_set(algorithms, name, describe(&shape->way, us));
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
    struct shape shape = {.rows = rows};
    shape.x = create_layout(product->library->type, product->inputs, rows, product->stride);
    shape.y = create_layout(CUDA_R_32F, product->outputs, rows, product->outputs);
    choose(product, &shape, trial);
    product->shapes = xrealloc(product->shapes, (size_t)product->shape_count + 1, sizeof *product->shapes);
    memmove(&product->shapes[at + 1], &product->shapes[at],
            (size_t)(product->shape_count - at) * sizeof *product->shapes);
    product->shapes[at] = shape;
    product->shape_count++;
}
