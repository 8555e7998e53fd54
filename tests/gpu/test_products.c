/* The own kernels' products in bfloat16 against sums in double over the same rounded numbers, for all ways of computing
 * them. Skipped where there is no GPU that CUDA can use. */
#include "collect/base/error.h"
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOLERANCE 2e-4 /* of sums whose terms are of the order of 1 / √inputs */

static bool usable;
static cudaStream_t stream;

static int find_gpu(void **state)
{
    (void)state;
    struct error reason = {0};
    usable = device_find(&reason) == DEVICE_USABLE;
    if (!usable)
        print_message("SKIPPED: %s\n", reason.message);
    else
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return 0;
}

/* A matrix on both sides: host in float, GPU in bfloat16. */
struct matrix {
    float *host;
    void *gpu;
};

static struct matrix make_matrix(size_t count, unsigned seed, float spread)
{
    uint16_t *rounded = xcalloc(count, sizeof *rounded);
    struct matrix matrix = {xcalloc(count, sizeof(float)), device_allocate(count * sizeof *rounded)};
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        rounded[i] = bfloat16_from_float(((float)(seed >> 8) / 8388608.0f - 1) * spread);
        matrix.host[i] = bfloat16_to_float(rounded[i]);
    }
    CUDA_CHECK(cudaMemcpy(matrix.gpu, rounded, count * sizeof *rounded, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaDeviceSynchronize()); /* the copy may still be on its way, and other streams do not wait for it */
    free(rounded);
    return matrix;
}

static void free_matrix(struct matrix *matrix)
{
    CUDA_CHECK(cudaFree(matrix->gpu));
    free(matrix->host);
}

static double sum_of(const float *x, const float *w, int inputs)
{
    double sum = 0;
    for (int i = 0; i < inputs; i++)
        sum += (double)x[i] * (double)w[i];
    return sum;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Every so many-th output of all rows. */
#define STEP 7

static void check_skinny(const struct skinny_call *call, const struct matrix *x, const struct matrix *weights)
{
    size_t elements = (size_t)call->rows * (size_t)call->outputs;
    float *y = xcalloc(elements * (size_t)call->splits, sizeof *y);
    CUDA_CHECK(cudaMemset(call->y, 0xff, elements * (size_t)call->splits * sizeof *y));
    kernels_skinny(call, stream);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(y, call->y, elements * (size_t)call->splits * sizeof *y, cudaMemcpyDeviceToHost));
    for (int row = 0; row < call->rows; row++)
        for (int output = row % STEP; output < call->outputs; output += STEP) {
            double sum = 0, expected = sum_of(x->host + (size_t)row * (size_t)call->stride,
                                              weights->host + (size_t)output * (size_t)call->inputs, call->inputs);
            for (int part = 0; part < call->splits; part++)
                sum += (double)y[(size_t)part * elements + (size_t)row * (size_t)call->outputs + (size_t)output];
            if (!(fabs(sum - expected) < TOLERANCE))
                fail_msg("%d rows of %d to %d, %d warpgroups, %d splits: row %d, output %d: %g for %g", call->rows,
                         call->inputs, call->outputs, call->warpgroups, call->splits, row, output, sum, expected);
        }
    free(y);
}

static void check_gated(struct skinny_call call, const struct matrix *x, const struct matrix *weights, void *gated)
{
    int inner = call.outputs / 2;
    size_t elements = (size_t)call.rows * (size_t)inner;
    uint16_t *out = xcalloc(elements, sizeof *out);
    call.gated = gated;
    call.splits = 1;
    kernels_skinny(&call, stream);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(out, gated, elements * sizeof *out, cudaMemcpyDeviceToHost));
    for (int row = 0; row < call.rows; row++)
        for (int i = row % STEP; i < inner; i += STEP) {
            const float *from = x->host + (size_t)row * (size_t)call.stride;
            double gate = sum_of(from, weights->host + (size_t)i * (size_t)call.inputs, call.inputs);
            double up = sum_of(from, weights->host + (size_t)(inner + i) * (size_t)call.inputs, call.inputs);
            double found = (double)bfloat16_to_float(out[(size_t)row * (size_t)inner + (size_t)i]);
            if (!(fabs(found - silu(gate) * up) < 0.005 * (0.1 + fabs(silu(gate) * up))))
                fail_msg("%d rows of %d to %d gated, %d warpgroups: row %d, output %d: %g for %g", call.rows,
                         call.inputs, call.outputs, call.warpgroups, row, i, found, silu(gate) * up);
        }
    free(out);
}

static void few_rows_by_tensor_cores(void **state)
{
    (void)state;
    static const int rows[] = {2, 8, 16, 17, 24, 31, 33, 40, 63, 65, 72, 100, 129, 136};
    static const struct {
        int inputs, outputs, stride;
    } sizes[] = {{64, 64, 64}, {256, 1000, 320}, {1024, 66, 1024}, {4096, 6144, 4096}, {320, 24576, 320}};
    if (!usable || !device_has_wgmma())
        skip();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int inputs = sizes[s].inputs, outputs = sizes[s].outputs;
        float spread = 1.7f / sqrtf(sqrtf((float)inputs));
        struct matrix x = make_matrix((size_t)(SKINNY_ROWS_MAXIMUM * sizes[s].stride), 1, spread);
        struct matrix weights = make_matrix((size_t)outputs * (size_t)inputs, 2, spread);
        float *y = device_allocate((size_t)(SKINNY_ROWS_MAXIMUM * PARTS_MAXIMUM) * (size_t)outputs * sizeof *y);
        void *gated = device_allocate((size_t)(SKINNY_ROWS_MAXIMUM * outputs));
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int warpgroups = 1; warpgroups <= 3; warpgroups++) {
                int chunks = inputs / 64;
                const struct skinny_call call = {.rows = rows[r],
                                                 .inputs = inputs,
                                                 .outputs = outputs,
                                                 .stride = sizes[s].stride,
                                                 .warpgroups = warpgroups,
                                                 .half = r % 2 == 1,
                                                 .splits =
                                                     1 + (int)r % (chunks < PARTS_MAXIMUM ? chunks : PARTS_MAXIMUM),
                                                 .x = x.gpu,
                                                 .weights = weights.gpu,
                                                 .y = y};
                assert_true(kernels_skinny_takes(ELEMENT_BFLOAT16, rows[r], inputs, outputs, sizes[s].stride));
                check_skinny(&call, &x, &weights);
                check_gated(call, &x, &weights, gated);
            }
        free_matrix(&x);
        free_matrix(&weights);
        CUDA_CHECK(cudaFree(y));
        CUDA_CHECK(cudaFree(gated));
    }
}

static void one_row_by_threads(void **state)
{
    (void)state;
    static const int inputs[] = {8, 64, 320, 2048, 2056, 4096, 6144, 8192, 12288, 16384, 17408, 25600};
    if (!usable)
        skip();
    for (size_t s = 0; s < sizeof inputs / sizeof *inputs; s++) {
        int outputs = s % 2 ? 1002 : 46;
        size_t count = (size_t)outputs;
        float spread = 1.7f / sqrtf(sqrtf((float)inputs[s])), *y = device_allocate(count * sizeof *y);
        float *found = xcalloc(count, sizeof *found);
        struct matrix x = make_matrix((size_t)inputs[s], 3, spread);
        struct matrix weights = make_matrix(count * (size_t)inputs[s], 4, spread);
        struct matvec_call call = {
            .inputs = inputs[s], .outputs = outputs, .weights = weights.gpu, .input = x.gpu, .y = y};
        for (int times = 1; times <= 2; times++) { /* once in place of y, then added to it */
            kernels_matvec(&call, stream);
            CUDA_CHECK(cudaStreamSynchronize(stream));
            CUDA_CHECK(cudaMemcpy(found, y, count * sizeof *found, cudaMemcpyDeviceToHost));
            for (int i = 0; i < outputs; i++) {
                double expected = times * sum_of(x.host, weights.host + (size_t)i * (size_t)inputs[s], inputs[s]);
                if (!(fabs((double)found[i] - expected) < TOLERANCE))
                    fail_msg("%d inputs, output %d: %g for %g", inputs[s], i, (double)found[i], expected);
            }
            call.add = true;
        }
        free_matrix(&x);
        free_matrix(&weights);
        CUDA_CHECK(cudaFree(y));
        free(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_by_tensor_cores),
        cmocka_unit_test(one_row_by_threads),
    };
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
