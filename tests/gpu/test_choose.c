/* The kernels that read logits against a sort on the host and against sample.h: widths, ties, slices of a vocabulary.
 * Skipped where there is no GPU that CUDA can use.
 *
 * With the argument "bench": the time of a call over Qwen3's vocabulary. */
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 5

static bool usable;

static int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    return 0;
}

/* Logits of several kinds: all different; few values, so that most tie; all the same; falling, so that the largest
 * stand together; and half of them minus infinity. */
static float *make_logits(int stride)
{
    float *logits = xcalloc((size_t)ROWS * (size_t)stride, sizeof *logits);
    uint64_t seed = 362436069u;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < stride; i++) {
            float x = 10 * gpu_random(&seed);
            float kinds[ROWS] = {x, floorf(x), -0.0f, 20 - (float)i / 64, i % 2 ? x : -INFINITY};
            logits[row * stride + i] = kinds[row];
        }
    return logits;
}

static const float *sorted; /* logits that by_rank() compares by */

static int by_rank(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (sorted[i] != sorted[j])
        return sorted[i] < sorted[j] ? 1 : -1;
    return i - j;
}

static void check_top_row(const float *logits, int stride, int count, int first_token, int width, const int *tokens,
                          const float *values, float log_sum)
{
    int *order = xcalloc((size_t)count, sizeof *order);
    double sum = 0;
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = 0; i < stride; i++)
        sum += exp((double)logits[i]);
    sorted = logits;
    qsort(order, (size_t)count, sizeof *order, by_rank);
    assert_true(fabs((double)log_sum - log(sum)) < 1e-4);
    for (int i = 0; i < width; i++) {
        if (i >= count) {
            assert_int_equal(tokens[i], -1);
            assert_true(values[i] == -INFINITY);
            continue;
        }
        if (tokens[i] != first_token + order[i])
            fail_msg("width %d of %d: token %d at place %d, not %d", width, count, tokens[i], i,
                     first_token + order[i]);
        double expected = (double)logits[order[i]] - log(sum);
        assert_true((double)values[i] == expected || fabs((double)values[i] - expected) < 1e-4);
    }
    free(order);
}

static void check_top(int stride, int count, int first_token, int width)
{
    float *logits = make_logits(stride), *values = xcalloc(ROWS * (size_t)width, sizeof *values), log_sums[ROWS];
    int *tokens = xcalloc(ROWS * (size_t)width, sizeof *tokens);
    float *there = gpu_send(logits, (size_t)ROWS * (size_t)stride * sizeof *logits);
    void *partial = device_allocate(kernels_top_partials(ROWS, width));
    int *top_tokens = device_allocate(ROWS * (size_t)width * sizeof(int));
    float *top_values = device_allocate(ROWS * (size_t)width * sizeof(float));
    float *top_sums = device_allocate(sizeof log_sums);
    kernels_top(there, ROWS, stride, count, first_token, width, partial, top_tokens, top_values, top_sums, NULL);
    gpu_fetch(tokens, top_tokens, ROWS * (size_t)width * sizeof(int));
    gpu_fetch(values, top_values, ROWS * (size_t)width * sizeof(float));
    gpu_fetch(log_sums, top_sums, sizeof log_sums);
    for (int row = 0; row < ROWS; row++)
        check_top_row(logits + row * stride, stride, count, first_token, width, tokens + row * width,
                      values + row * width, log_sums[row]);
    void *all[] = {there, partial, top_tokens, top_values, top_sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA_CHECK(cudaFree(all[i]));
    free(logits);
    free(values);
    free(tokens);
}

static void the_likeliest_are_a_sorts_first(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const int sizes[][3] = {
        {151936, 151669, 0}, {18992, 18992, 18992}, {777, 770, 5}, {50, 47, 0}, {4099, 4099, 1}};
    static const int widths[] = {1, 2, 16, 33, 64, 512, 513, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            check_top(sizes[i][0], sizes[i][1], sizes[i][2], widths[w]);
}

/* Choices of a slice of logits [ROWS, stride]: columns [first, first + count). Twice, which finds a counter left over.
 */
static void choose(const float *logits, int stride, int first, int count, const struct choose_row *how,
                   struct choice *chosen)
{
    float *there = gpu_send(logits, (size_t)ROWS * (size_t)stride * sizeof *logits);
    struct choose_row *how_there = gpu_send(how, ROWS * sizeof *how);
    void *partial = device_allocate(kernels_choose_partials(ROWS));
    struct leader *out = device_allocate(ROWS * sizeof *out), leaders[ROWS];
    for (int i = 0; i < 2; i++) {
        CUDA_CHECK(cudaMemset(out, 0xff, ROWS * sizeof *out));
        kernels_choose(there + first, ROWS, stride, count, first, how_there, partial, out, NULL);
        gpu_fetch(leaders, out, sizeof leaders);
    }
    for (int row = 0; row < ROWS; row++) {
        float margin = leaders[row].best - leaders[row].second;
        chosen[row] = (struct choice){leaders[row].token, how->temperature > 0 ? margin * how->temperature : margin};
    }
    CUDA_CHECK(cudaFree(there));
    CUDA_CHECK(cudaFree(how_there));
    CUDA_CHECK(cudaFree(partial));
    CUDA_CHECK(cudaFree(out));
}

static void check_choice(int stride, int count, float temperature)
{
    float *logits = make_logits(stride);
    struct sample_scratch scratch = {xcalloc((size_t)count, sizeof(int)), xcalloc((size_t)count, sizeof(float))};
    struct choose_row how[ROWS];
    struct choice chosen[ROWS], part[ROWS];
    for (int row = 0; row < ROWS; row++)
        how[row] = (struct choose_row){temperature, 100 + row, 0x123456789abcdefu + (uint64_t)row};
    choose(logits, stride, 0, count, how, chosen);
    for (int row = 0; row < ROWS; row++) {
        const struct sampling sampling = {temperature, 0, 1, how[row].stream};
        struct choice expected = sample_choose(logits + row * stride, count, &sampling, how[row].position, &scratch);
        assert_int_equal(chosen[row].token, expected.token);
        assert_true(chosen[row].margin == expected.margin || fabsf(chosen[row].margin - expected.margin) < 1e-4f);
    }
    /* The slice that holds the whole's choice chooses it, wherever slices begin. */
    for (int first = 0, slice = count / 3 + 1; first < count; first += slice) {
        int size = slice < count - first ? slice : count - first;
        choose(logits, stride, first, size, how, part);
        for (int row = 0; row < ROWS; row++) {
            assert_in_range(part[row].token, first, first + size - 1);
            if (chosen[row].token >= first && chosen[row].token < first + size)
                assert_int_equal(part[row].token, chosen[row].token);
        }
    }
    free(logits);
    free(scratch.indices);
    free(scratch.values);
}

static void choices_are_the_samplers_in_slices_too(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const int sizes[][2] = {{151936, 151669}, {4099, 4099}, {777, 770}, {50, 47}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_choice(sizes[i][0], sizes[i][1], 0);
        check_choice(sizes[i][0], sizes[i][1], 0.7f);
    }
}

/* --- bench -------------------------------------------------------------------------------------------------------- */

#define VOCABULARY 151936

struct work {
    int rows, width; /* width 0: the choice */
    float *logits, *values;
    int *tokens;
    struct choose_row *how;
    struct leader *leaders;
    float *log_sums;
    void *partial;
};

static void queue(void *context, int index, cudaStream_t stream)
{
    const struct work *work = context;
    (void)index;
    if (work->width > 0)
        kernels_top(work->logits, work->rows, VOCABULARY, VOCABULARY, 0, work->width, work->partial, work->tokens,
                    work->values, work->log_sums, stream);
    else
        kernels_choose(work->logits, work->rows, VOCABULARY, VOCABULARY, 0, work->how, work->partial, work->leaders,
                       stream);
}

static int bench(void)
{
    static const int cases[][2] = {{15, 1},  {15, 16}, {15, 64}, {15, 1024}, {16, 1}, {16, 16},
                                   {16, 64}, {1, 0},   {16, 0},  {65, 0},    {256, 0}};
    if (!gpu_is_usable())
        return 0;
    float *logits = xcalloc((size_t)256 * VOCABULARY, sizeof *logits);
    uint64_t seed = 521288629u;
    for (size_t i = 0; i < (size_t)256 * VOCABULARY; i++)
        logits[i] = 5 * (gpu_random(&seed) + gpu_random(&seed) + gpu_random(&seed));
    float *there = gpu_send(logits, (size_t)256 * VOCABULARY * sizeof *logits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct work work = {cases[i][0], cases[i][1], there};
        size_t entries = (size_t)work.rows * (size_t)(work.width + 1);
        work.tokens = device_allocate(entries * sizeof(int));
        work.values = device_allocate(entries * sizeof(float));
        work.how = device_allocate((size_t)work.rows * sizeof *work.how);
        work.leaders = device_allocate((size_t)work.rows * sizeof *work.leaders);
        work.log_sums = device_allocate((size_t)work.rows * sizeof(float));
        work.partial = device_allocate(work.width > 0 ? kernels_top_partials(work.rows, work.width)
                                                      : kernels_choose_partials(work.rows));
        double time = gpu_time(queue, &work, 20);
        printf("%4d rows, the %4d likeliest (0: the choice): %8.2f us\n", work.rows, work.width, time);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_are_a_sorts_first),
        cmocka_unit_test(choices_are_the_samplers_in_slices_too),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
