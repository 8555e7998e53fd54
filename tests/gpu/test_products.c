/* The own kernels' products in bfloat16 against sums in double over the same rounded numbers, for all ways of computing
 * them. Skipped where there is no GPU that CUDA can use. An argument is the name of the only test to run. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

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
    usable = gpu_is_usable();
    if (usable)
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
    float *y = xcalloc(elements, sizeof *y);
    CUDA_CHECK(cudaMemset(call->y, 0xff, elements * sizeof *y));
    CUDA_CHECK(cudaDeviceSynchronize()); /* other streams do not wait for it */
    kernels_skinny(call, stream);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(y, call->y, elements * sizeof *y, cudaMemcpyDeviceToHost));
    for (int row = 0; row < call->rows; row++)
        for (int output = row % STEP; output < call->outputs; output += STEP) {
            double found = (double)y[(size_t)row * (size_t)call->outputs + (size_t)output];
            double expected = sum_of(x->host + (size_t)row * (size_t)call->stride,
                                     weights->host + (size_t)output * (size_t)call->inputs, call->inputs);
            if (!(fabs(found - expected) < TOLERANCE))
                fail_msg("%d rows of %d to %d, tiles of %d, %d splits: row %d, output %d: %g for %g", call->rows,
                         call->inputs, call->outputs, call->tile, call->splits, row, output, found, expected);
        }
    free(y);
}

/* As many floats on the GPU. */
static float *make_floats(size_t count, float first, float step)
{
    float *host = xcalloc(count, sizeof *host), *gpu = device_allocate(count * sizeof *gpu);
    for (size_t i = 0; i < count; i++)
        host[i] = first + step * (float)(i % 97);
    CUDA_CHECK(cudaMemcpy(gpu, host, count * sizeof *gpu, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());
    free(host);
    return gpu;
}

static void fetch(void *to, const void *from, size_t bytes)
{
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

/* The residual stream with the sums of squares that it leaves, and the norm that the product behind makes of them. */
static void check_added(struct skinny_call call, const struct matrix *x, const struct matrix *weights)
{
    int rows = call.rows, outputs = call.outputs, tiles = (outputs + call.tile - 1) / call.tile;
    size_t elements = (size_t)rows * (size_t)outputs;
    float *squares = make_floats((size_t)rows * 3, 0.25f, 0.125f), *norm = make_floats((size_t)outputs, 0.5f, 0.01f);
    float *residual = make_floats(elements, -1, 0.03f), *left = make_floats((size_t)(rows * tiles), 0, 0);
    uint16_t *out = device_allocate(elements * sizeof *out), *features = device_allocate(2 * elements * sizeof *out);
    float *found = xcalloc(elements, sizeof *found), *sums = xcalloc((size_t)(rows * tiles), sizeof *sums);
    uint16_t *normed = xcalloc(elements, sizeof *normed), *kept = xcalloc(2 * elements, sizeof *kept);
    call.y = NULL;
    call.added = (struct skinny_added){.x = residual,
                                       .norm = norm,
                                       .out = out,
                                       .squares = left,
                                       .features = features,
                                       .feature_index = 1,
                                       .feature_count = 2};
    kernels_skinny(&call, stream);
    fetch(found, residual, elements * sizeof *found);
    fetch(sums, left, (size_t)(rows * tiles) * sizeof *sums);
    fetch(normed, out, elements * sizeof *normed);
    fetch(kept, features, 2 * elements * sizeof *kept);
    for (int row = 0; row < rows; row++) {
        double whole = 0, parts = 0;
        for (int i = 0; i < outputs; i++) {
            size_t at = (size_t)row * (size_t)outputs + (size_t)i;
            double value = (double)found[at], weight = 0.5 + 0.01 * (i % 97);
            whole += value * value;
            if (!(fabs((double)bfloat16_to_float(normed[at]) - value * weight) <= 0.005 * fabs(value * weight)) ||
                bfloat16_from_float(found[at]) != kept[(size_t)(2 * row + 1) * (size_t)outputs + (size_t)i])
                fail_msg("%d rows, output %d of row %d: rounded otherwise than %g", rows, i, row, value);
            if (i % STEP != row % STEP)
                continue;
            double expected = -1 + 0.03 * (double)(at % 97) +
                              sum_of(x->host + (size_t)row * (size_t)call.stride,
                                     weights->host + (size_t)i * (size_t)call.inputs, call.inputs);
            if (!(fabs(value - expected) < TOLERANCE))
                fail_msg("%d rows of %d to %d added, %d splits: row %d, output %d: %g for %g", rows, call.inputs,
                         outputs, call.splits, row, i, value, expected);
        }
        for (int tile = 0; tile < tiles; tile++)
            parts += (double)sums[row * tiles + tile];
        if (!(fabs(parts - whole) <= 1e-5 * whole))
            fail_msg("%d rows: squares of row %d are %g, not %g", rows, row, parts, whole);
    }
    /* Rows that were left unnormed: y comes divided by their length. */
    struct skinny_call scaled = call;
    float *plain = device_allocate(elements * sizeof *plain), *unscaled = xcalloc(elements, sizeof *unscaled);
    scaled.added.x = NULL;
    scaled.y = plain;
    kernels_skinny(&scaled, stream);
    fetch(unscaled, plain, elements * sizeof *unscaled);
    scaled.squares = squares;
    scaled.square_count = 3;
    scaled.epsilon = 0.01f;
    kernels_skinny(&scaled, stream);
    fetch(found, plain, elements * sizeof *found);
    for (size_t i = 0; i < elements; i++) {
        double sum = 0;
        for (size_t k = 0; k < 3; k++)
            sum += 0.25 + 0.125 * (double)((i / (size_t)outputs * 3 + k) % 97);
        double expected = (double)unscaled[i] / sqrt(sum / call.inputs + 0.01);
        if (!(fabs((double)found[i] - expected) <= 1e-5 * fabs(expected) + 1e-7))
            fail_msg("row %zu is normed to %g, not %g", i / (size_t)outputs, (double)found[i], expected);
    }
    void *all[] = {squares, norm, residual, left, out, features, plain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA_CHECK(cudaFree(all[i]));
    free(unscaled);
    free(found);
    free(sums);
    free(normed);
    free(kept);
}

/* Heads as the kernel makes them that reads them from memory. */
static void check_heads(struct skinny_call call)
{
    int size = call.tile, units = call.outputs / size, rows = call.rows, capacity = 200;
    size_t queries = (size_t)rows * (size_t)call.outputs, cache = (size_t)capacity * (size_t)call.outputs;
    uint16_t *made[2], *host[2];
    int *ints = device_allocate((size_t)(3 * rows) * sizeof *ints),
        *numbers = xcalloc((size_t)(3 * rows), sizeof *numbers);
    float *norms = make_floats((size_t)size, 0.5f, 0.02f), *angles = make_floats((size_t)(capacity * size), -1, 0.02f);
    for (int row = 0; row < rows; row++) {
        numbers[row] = (row * 7) % capacity;
        numbers[2 * rows + row] = row % 5 == 4 ? -1 : 20 + row;
    }
    CUDA_CHECK(cudaMemcpy(ints, numbers, (size_t)(3 * rows) * sizeof *ints, cudaMemcpyHostToDevice));
    call.heads = (struct heads_call){.type = ELEMENT_BFLOAT16,
                                     .rows = rows,
                                     .layers = 1,
                                     .heads = units - 2 * (units / 3),
                                     .kv_heads = units / 3,
                                     .head_size = size,
                                     .capacity = capacity,
                                     .query_size = size,
                                     .rotary_size = size,
                                     .stride = (size_t)call.outputs,
                                     .fused = call.y,
                                     .q_norm = norms,
                                     .k_norm = norms,
                                     .cosines = angles,
                                     .sines = angles + 2,
                                     .positions = ints,
                                     .sessions = ints + rows,
                                     .slots = ints + 2 * rows,
                                     .epsilon = 1e-6f};
    for (int fused = 0; fused < 2; fused++) {
        struct skinny_call own = call;
        made[fused] = device_allocate((queries + 2 * cache) * sizeof *made[fused]);
        host[fused] = xcalloc(queries + 2 * cache, sizeof *host[fused]);
        CUDA_CHECK(cudaMemset(made[fused], 0, (queries + 2 * cache) * sizeof *made[fused]));
        CUDA_CHECK(cudaDeviceSynchronize());
        own.heads.queries = made[fused];
        own.heads.keys = made[fused] + queries;
        own.heads.values = made[fused] + queries + cache;
        struct heads_call heads = own.heads;
        if (!fused)
            own.heads.heads = 0;
        kernels_skinny(&own, stream);
        if (!fused)
            kernels_store_heads(&heads, stream);
        fetch(host[fused], made[fused], (queries + 2 * cache) * sizeof *made[fused]);
        CUDA_CHECK(cudaFree(made[fused]));
    }
    for (size_t i = 0; i < queries + 2 * cache; i++) {
        double plain = (double)bfloat16_to_float(host[0][i]), ended = (double)bfloat16_to_float(host[1][i]);
        if (!(fabs(plain - ended) <= 0.008 * fabs(plain) + 1e-5))
            fail_msg("%d rows to heads of %d, %d splits: element %zu is %g, not %g", rows, size, call.splits, i, ended,
                     plain);
    }
    free(host[0]);
    free(host[1]);
    free(numbers);
    CUDA_CHECK(cudaFree(ints));
    CUDA_CHECK(cudaFree(norms));
    CUDA_CHECK(cudaFree(angles));
}

static void check_gated(struct skinny_call call, const struct matrix *x, const struct matrix *weights, void *gated)
{
    int inner = call.outputs / 2;
    size_t elements = (size_t)call.rows * (size_t)inner;
    uint16_t *out = xcalloc(elements, sizeof *out);
    call.gated = gated;
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
                fail_msg("%d rows of %d to %d gated, tiles of %d: row %d, output %d: %g for %g", call.rows, call.inputs,
                         call.outputs, call.tile, row, i, found, silu(gate) * up);
        }
    free(out);
}

static int tiles_of(int outputs, int tile)
{
    return (outputs + tile - 1) / tile;
}

/* All that may become of the result, as far as the sizes allow. */
static void check_ends(const struct skinny_call *call, const struct matrix *x, const struct matrix *weights,
                       void *gated)
{
    int rows = call->rows, outputs = call->outputs, tile = call->tile;
    struct skinny_call half = *call;
    check_skinny(call, x, weights);
    half.tile = tile / 4 * 2; /* gates, with as many ups */
    half.splits = 1;
    check_gated(half, x, weights, gated);
    if (outputs < 2000 && rows <= SKINNY_ENDS_ROWS)
        check_added(*call, x, weights);
    if (tile % 64 == 0 && outputs % tile == 0 && rows <= SKINNY_ENDS_ROWS && outputs < 10000 && outputs > 3 * tile)
        check_heads(*call);
}

/* Whole tiles of one to three warpgroups, and some with less; and gates of which a block has one tile. */
static const int all_tiles[] = {64, 34, 128, 100, 192, 158}, wide_tiles[] = {98, 132, 136, 120};

struct few_size {
    int inputs, outputs, stride;
};

static void check_few_rows(const struct few_size *sizes, int size_count, const int *rows, int row_count)
{
    for (int s = 0; s < size_count; s++) {
        int inputs = sizes[s].inputs, outputs = sizes[s].outputs;
        float spread = 1.7f / sqrtf(sqrtf((float)inputs));
        struct matrix x = make_matrix((size_t)(SKINNY_ROWS_MAXIMUM * sizes[s].stride), 1, spread);
        struct matrix weights = make_matrix((size_t)outputs * (size_t)inputs, 2, spread);
        float *y = device_allocate((size_t)SKINNY_ROWS_MAXIMUM * (size_t)outputs * sizeof *y);
        void *gated = device_allocate((size_t)(SKINNY_ROWS_MAXIMUM * outputs));
        for (int r = 0; r < row_count; r++)
            for (int t = r % 2; t < COUNT(all_tiles); t += 2) {
                int tile = all_tiles[t], tiles = tiles_of(outputs, tile), most = inputs / 64;
                most = most < SKINNY_SPLITS ? most : SKINNY_SPLITS;
                while (most > 1 && most * tiles > device_multiprocessors())
                    most--;
                int splits = 1 + r % most;
                const struct skinny_call call = {.rows = rows[r],
                                                 .inputs = inputs,
                                                 .outputs = outputs,
                                                 .stride = sizes[s].stride,
                                                 .tile = tile,
                                                 .splits = splits,
                                                 .x = x.gpu,
                                                 .weights = weights.gpu,
                                                 .y = y};
                assert_true(kernels_skinny_takes(ELEMENT_BFLOAT16, rows[r], inputs, outputs, sizes[s].stride));
                check_ends(&call, &x, &weights, gated);
                struct skinny_call wide = call;
                wide.splits = 1;
                wide.tile = wide_tiles[(r + t) % COUNT(wide_tiles)];
                if (rows[r] <= SKINNY_ENDS_ROWS && tiles_of(outputs / 2, wide.tile) <= device_multiprocessors())
                    check_gated(wide, &x, &weights, gated);
            }
        free_matrix(&x);
        free_matrix(&weights);
        CUDA_CHECK(cudaFree(y));
        CUDA_CHECK(cudaFree(gated));
    }
}

static void few_rows_by_tensor_cores(void **state)
{
    (void)state;
    static const int rows[] = {2, 8, 16, 17, 24, 31, 33, 40, 63, 65, 72, 100, 129, 136};
    static const struct few_size sizes[] = {{64, 64, 64},      {256, 1000, 320}, {1024, 66, 1024}, {4096, 6144, 4096},
                                            {320, 24576, 320}, {512, 1152, 512}, {320, 8770, 320}};
    if (!usable || !device_has_wgmma())
        skip();
    check_few_rows(sizes, COUNT(sizes), rows, COUNT(rows));
}

/* Few enough for a sanitizer to watch (sanitize.sh). */
static void some_by_tensor_cores(void **state)
{
    (void)state;
    static const int rows[] = {16, 17, 65, 136};
    static const struct few_size sizes[] = {{64, 64, 64}, {256, 1000, 320}, {512, 1152, 512}};
    if (!usable || !device_has_wgmma())
        skip();
    check_few_rows(sizes, COUNT(sizes), rows, COUNT(rows));
}

/* A row that the kernel norms. Where a value lies so near the middle of two in bfloat16 that it may round to either,
 * `doubt` is how far these are apart. */
struct normed {
    float *x, *norm; /* on the GPU */
    float *row, *doubt;
};

static struct normed make_normed(int inputs, double epsilon)
{
    size_t count = (size_t)inputs;
    struct normed made = {make_floats(count, -1, 0.02f), make_floats(count, 0.5f, 0.01f), xcalloc(count, sizeof(float)),
                          xcalloc(count, sizeof(float))};
    double squares = 0;
    fetch(made.row, made.x, count * sizeof(float));
    fetch(made.doubt, made.norm, count * sizeof(float));
    for (int i = 0; i < inputs; i++)
        squares += (double)made.row[i] * (double)made.row[i];
    for (int i = 0; i < inputs; i++) {
        double value = (double)made.row[i] * (double)made.doubt[i] / sqrt(squares / inputs + epsilon);
        float below = bfloat16_to_float(bfloat16_from_float((float)(value * (1 - 4e-6))));
        float above = bfloat16_to_float(bfloat16_from_float((float)(value * (1 + 4e-6))));
        made.row[i] = bfloat16_to_float(bfloat16_from_float((float)value));
        made.doubt[i] = fabsf(above - below);
    }
    return made;
}

static void free_normed(struct normed *made)
{
    CUDA_CHECK(cudaFree(made->x));
    CUDA_CHECK(cudaFree(made->norm));
    free(made->row);
    free(made->doubt);
}

/* What an output may be off by: the sum's own rounding, of terms that are `scale` times those of TOLERANCE, and what is
 * in doubt. */
static double bar_of(const struct normed *normed, const float *w, int inputs, double scale)
{
    double bar = TOLERANCE * scale;
    for (int i = 0; i < inputs; i++)
        bar += (double)normed->doubt[i] * fabs((double)w[i]);
    return bar;
}

static void check_normed(struct matvec_call call, const struct matrix *weights, double spread)
{
    int inputs = call.inputs, inner = call.outputs / 2;
    call.epsilon = 1e-6f;
    struct normed normed = make_normed(inputs, (double)call.epsilon);
    float *found = xcalloc((size_t)call.outputs, sizeof *found);
    uint16_t *gated = device_allocate((size_t)inner * sizeof *gated), *out = xcalloc((size_t)inner, sizeof *out);
    double *sums = xcalloc((size_t)call.outputs, sizeof *sums), *bars = xcalloc((size_t)call.outputs, sizeof *bars);
    call.x = normed.x;
    call.norm = normed.norm;
    call.input = NULL;
    kernels_matvec(&call, stream);
    fetch(found, call.y, (size_t)call.outputs * sizeof *found);
    call.gated = gated;
    kernels_matvec(&call, stream);
    fetch(out, gated, (size_t)inner * sizeof *out);
    for (int i = 0; i < call.outputs; i++) {
        const float *w = weights->host + (size_t)i * (size_t)inputs;
        sums[i] = sum_of(normed.row, w, inputs);
        bars[i] = bar_of(&normed, w, inputs, 2 / spread);
        if (!(fabs((double)found[i] - sums[i]) < bars[i]))
            fail_msg("%d inputs normed, output %d of %d: %g for %g", inputs, i, call.outputs, (double)found[i],
                     sums[i]);
    }
    for (int i = 0; i < inner; i++) {
        double gate = silu(sums[i]), up = sums[inner + i], got = (double)bfloat16_to_float(out[i]);
        double bar = 0.005 * fabs(gate * up) + 1.1 * fabs(up) * bars[i] + (fabs(gate) + 0.1) * bars[inner + i];
        if (!(fabs(got - gate * up) < bar))
            fail_msg("%d inputs gated, output %d of %d: %g for %g", inputs, i, inner, got, gate * up);
    }
    CUDA_CHECK(cudaFree(gated));
    free_normed(&normed);
    free(found);
    free(out);
    free(sums);
    free(bars);
}

struct one_size {
    int inputs, outputs;
};

static void check_one_row(const struct one_size *sizes, int size_count)
{
    for (int s = 0; s < size_count; s++) {
        int inputs = sizes[s].inputs, outputs = sizes[s].outputs;
        size_t count = (size_t)outputs;
        float spread = 1.7f / sqrtf(sqrtf((float)inputs)), *y = device_allocate(count * sizeof *y);
        float *found = xcalloc(count, sizeof *found);
        struct matrix x = make_matrix((size_t)inputs, 3, spread);
        struct matrix weights = make_matrix(count * (size_t)inputs, 4, spread);
        struct matvec_call call = {
            .inputs = inputs, .outputs = outputs, .weights = weights.gpu, .input = x.gpu, .y = y};
        for (int times = 1; times <= 2; times++) { /* once in place of y, then added to it */
            kernels_matvec(&call, stream);
            fetch(found, y, count * sizeof *found);
            for (int i = 0; i < outputs; i++) {
                double expected = times * sum_of(x.host, weights.host + (size_t)i * (size_t)inputs, inputs);
                if (!(fabs((double)found[i] - expected) < TOLERANCE))
                    fail_msg("%d inputs, output %d of %d: %g for %g", inputs, i, outputs, (double)found[i], expected);
            }
            call.add = true;
        }
        call.add = false;
        check_normed(call, &weights, (double)spread);
        free_matrix(&x);
        free_matrix(&weights);
        CUDA_CHECK(cudaFree(y));
        free(found);
    }
}

/* Rows of each kernel's length, a little shorter and longer ones; outputs for less than a step of a block, for a few,
 * and for more than the sums that a block keeps at a time. */
static void one_row_by_threads(void **state)
{
    (void)state;
    static const struct one_size sizes[] = {{8, 46},      {64, 1002},    {320, 46},     {1024, 36002}, {1024, 3072},
                                            {1032, 1002}, {2048, 1024},  {2048, 18002}, {2056, 1002},  {3072, 1024},
                                            {3072, 9502}, {4096, 9502},  {4104, 46},    {5120, 9502},  {6144, 46},
                                            {8192, 1002}, {12288, 2002}, {16384, 46},   {17408, 1002}, {25600, 1002}};
    if (!usable)
        skip();
    check_one_row(sizes, COUNT(sizes));
}

/* Few enough for a sanitizer to watch (sanitize.sh). */
static void some_by_threads(void **state)
{
    (void)state;
    static const struct one_size sizes[] = {{64, 1002}, {320, 46}, {1024, 3072}, {2056, 1002}, {4104, 46}, {17408, 46}};
    if (!usable)
        skip();
    check_one_row(sizes, COUNT(sizes));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_by_tensor_cores),
        cmocka_unit_test(some_by_threads),
        cmocka_unit_test(few_rows_by_tensor_cores),
        cmocka_unit_test(one_row_by_threads),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
