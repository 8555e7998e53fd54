/* The kernels that read logits against a sort on the host and against sample.h: widths, ties, slices of a vocabulary.
 * Skipped where there is no GPU that CUDA can use.
 *
 * With the argument "bench": the time of a call over Qwen3's vocabulary. Another is the name of the only tests to run.
 */
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 6

static bool usable;

static int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    return 0;
}

/* Logits of several kinds: all different; few values, so that most tie; all the same; falling, so that the largest
 * stand together; half of them minus infinity; and the largest all with few of the threads that look for them. */
static float *make_logits(int stride)
{
    float *logits = xcalloc((size_t)ROWS * (size_t)stride, sizeof *logits);
    uint64_t seed = 362436069u;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < stride; i++) {
            float x = 10 * gpu_random(&seed);
            float kinds[ROWS] = {
                x, floorf(x), -0.0f, 20 - (float)i / 64, i % 2 ? x : -INFINITY, i % 512 < 20 ? 20 + x : x};
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

/* A row's list against the sort, and what its `summed` columns weigh. */
static void check_top_row(const float *logits, const struct top_call *call, float temperature, const int *tokens,
                          const float *values, struct row_sum sum)
{
    int *order = xcalloc((size_t)call->count, sizeof *order);
    double mass = 0;
    for (int i = 0; i < call->count; i++)
        order[i] = i;
    for (int i = 0; i < call->summed; i++)
        mass += exp(((double)logits[i] - (double)sum.largest) / (double)temperature);
    sorted = logits;
    qsort(order, (size_t)call->count, sizeof *order, by_rank);
    assert_true(fabs((double)sum.sum - mass) <= TOP_SUM_ERROR * mass);
    for (int i = 0; i < call->width; i++) {
        if (i >= call->count) {
            assert_int_equal(tokens[i], -1);
            assert_true(values[i] == -INFINITY);
            continue;
        }
        if (tokens[i] != call->first_token + order[i])
            fail_msg("width %d of %d: token %d at place %d, not %d", call->width, call->count, tokens[i], i,
                     call->first_token + order[i]);
        assert_true(values[i] == logits[order[i]]);
    }
    assert_true(call->summed > call->count || sum.largest == logits[order[0]]);
    free(order);
}

/* What a call answers for logits[ROWS, stride]. */
struct lists {
    int *tokens;   /* [ROWS, width] */
    float *values; /* the same */
    struct row_sum sums[ROWS];
};

/* Runs the call on logits and temperatures (NULL: none) that are the host's. */
static struct lists run_top(struct top_call call, const float *logits, const struct choose_row *how)
{
    size_t entries = ROWS * (size_t)call.width;
    struct lists lists = {xcalloc(entries, sizeof(int)), xcalloc(entries, sizeof(float)), {{0, 0}}};
    float *there = gpu_send(logits, (size_t)ROWS * (size_t)call.stride * sizeof *logits);
    struct choose_row *how_there = how ? gpu_send(how, ROWS * sizeof *how) : NULL;
    call.rows = ROWS;
    call.logits = there;
    call.how = how_there;
    call.partial = device_allocate(kernels_top_partials(ROWS, call.width));
    call.tokens = device_allocate(entries * sizeof *call.tokens);
    call.values = device_allocate(entries * sizeof *call.values);
    call.sums = device_allocate(sizeof lists.sums);
    kernels_top(&call, NULL);
    gpu_fetch(lists.tokens, call.tokens, entries * sizeof *call.tokens);
    gpu_fetch(lists.values, call.values, entries * sizeof *call.values);
    gpu_fetch(lists.sums, call.sums, sizeof lists.sums);
    void *all[] = {there, how_there, call.partial, call.tokens, call.values, call.sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA_CHECK(cudaFree(all[i]));
    return lists;
}

static void free_lists(struct lists *lists)
{
    free(lists->tokens);
    free(lists->values);
}

/* how: the rows' temperatures, or NULL. */
static void check_top(int stride, int count, int first_token, int width, int summed, const struct choose_row *how)
{
    float *logits = make_logits(stride);
    const struct top_call call = {
        .stride = stride, .count = count, .first_token = first_token, .width = width, .summed = summed};
    struct lists lists = run_top(call, logits, how);
    for (int row = 0; row < ROWS; row++)
        check_top_row(logits + row * stride, &call, how && how[row].temperature > 0 ? how[row].temperature : 1,
                      lists.tokens + row * width, lists.values + row * width, lists.sums[row]);
    free_lists(&lists);
    free(logits);
}

static void the_likeliest_are_a_sorts_first(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const int sizes[][3] = {{151936, 151669, 0}, {18992, 18992, 18992}, {777, 770, 5},
                                   {540, 530, 3},       {50, 47, 0},           {4099, 4099, 1}};
    static const int widths[] = {1, 2, 16, 33, 64, 128, 129, 512, 513, 1024};
    static const struct choose_row how[ROWS] = {{0.7f, 0, 0}, {0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {0.05f, 0, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            check_top(sizes[i][0], sizes[i][1], sizes[i][2], widths[w], sizes[i][w % 2], w % 3 ? how : NULL);
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

/* As many rows as leave each row few blocks, or one; with what the calls before left in the scratch. */
static void check_many_rows(void *partial, int rows, float temperature)
{
    enum { COLUMNS = 1237 };
    size_t all = (size_t)rows * COLUMNS;
    float *logits = xcalloc(all, sizeof *logits);
    uint64_t seed = 88172645463325252u + (uint64_t)rows;
    struct choose_row *how = xcalloc((size_t)rows, sizeof *how);
    struct leader *leaders = xcalloc((size_t)rows, sizeof *leaders);
    struct sample_scratch scratch = {xcalloc(COLUMNS, sizeof(int)), xcalloc(COLUMNS, sizeof(float))};
    for (size_t i = 0; i < all; i++)
        logits[i] = floorf(40 * gpu_random(&seed)) / 4; /* with ties */
    for (int row = 0; row < rows; row++)
        how[row] = (struct choose_row){temperature, row, 0x9e3779b97f4a7c15u + (uint64_t)row};
    float *there = gpu_send(logits, all * sizeof *logits);
    struct choose_row *how_there = gpu_send(how, (size_t)rows * sizeof *how);
    struct leader *out = device_allocate((size_t)rows * sizeof *out);
    kernels_choose(there, rows, COLUMNS, COLUMNS, 0, how_there, partial, out, NULL);
    gpu_fetch(leaders, out, (size_t)rows * sizeof *leaders);
    for (int row = 0; row < rows; row++) {
        const struct sampling sampling = {temperature, 0, 1, how[row].stream};
        struct choice expected =
            sample_choose(logits + (size_t)row * COLUMNS, COLUMNS, &sampling, how[row].position, &scratch);
        assert_int_equal(leaders[row].token, expected.token);
    }
    CUDA_CHECK(cudaFree(there));
    CUDA_CHECK(cudaFree(how_there));
    CUDA_CHECK(cudaFree(out));
    free(logits);
    free(how);
    free(leaders);
    free(scratch.indices);
    free(scratch.values);
}

static void choices_are_the_samplers_in_any_number_of_rows(void **state)
{
    static const int rows[] = {1, 700, 65, 33, 300, 6};
    (void)state;
    if (!usable)
        skip();
    void *partial = device_allocate(kernels_choose_partials(700));
    for (int i = 0; i < COUNT(rows); i++)
        check_many_rows(partial, rows[i], i % 2 ? 0 : 0.7f);
    CUDA_CHECK(cudaFree(partial));
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

/* Rows in which most tokens are none, or all are equal. */
static void nan_is_not_chosen_and_infinity_is(void **state)
{
    (void)state;
    if (!usable)
        skip();
    enum { STRIDE = 20003, FIRST = 7, LAST = 19999 };
    float *logits = xcalloc((size_t)ROWS * STRIDE, sizeof *logits);
    const struct choose_row how[ROWS] = {{0, 0, 0}};
    const int expected[ROWS] = {INT32_MAX, FIRST, LAST, FIRST, 500, 3000};
    struct choice chosen[ROWS];
    for (int i = 0; i < STRIDE; i++) {
        logits[0 * STRIDE + i] = NAN;
        logits[1 * STRIDE + i] = -INFINITY;
        logits[2 * STRIDE + i] = i == LAST ? -INFINITY : NAN;
        logits[3 * STRIDE + i] = i % 2 ? -0.0f : 0.0f;
        logits[4 * STRIDE + i] = i == 500 || i == 18000 ? INFINITY : (float)(i % 9);
        logits[5 * STRIDE + i] = i == 3000 ? -1 : i == 9000 ? -2 : i % 3 ? NAN : -INFINITY;
    }
    choose(logits, STRIDE, FIRST, LAST + 1 - FIRST, how, chosen);
    for (int row = 0; row < ROWS; row++)
        assert_int_equal(chosen[row].token, expected[row]);
    assert_true(chosen[3].margin == 0 && chosen[5].margin == 1);
    free(logits);
}

/* --- lists ------------------------------------------------------------------------------------------------------ */

/* Rows as a language model's: falling by a power, the steeper the higher the row. */
static void fill_zipf(float *logits, int stride)
{
    uint64_t seed = 88172645463325252u;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < stride; i++)
            logits[row * stride + i] =
                -(1.1f + 0.4f * (float)row) * logf((1 + gpu_random(&seed)) * (float)stride + 0.5f);
}

/* What a row's list says is what sample.h says of the whole row, to the bit, and it says so wherever it would if its
 * mass were exact. */
static bool check_list(const float *logits, struct sample_list *list, double mass, const struct sampling *sampling,
                       int position, const struct sample_scratch *scratch)
{
    struct choice listed, expected = sample_choose(logits, list->count, sampling, position, scratch);
    bool settled = sample_choose_listed(list, sampling, position, &listed);
    if (settled) {
        assert_int_equal(listed.token, expected.token);
        assert_true(listed.margin == expected.margin);
    }
    list->mass = mass;
    list->error = 0;
    assert_int_equal(sample_choose_listed(list, sampling, position, &listed), settled);
    return settled;
}

/* Answers how many rows the lists settle. */
static int check_lists(const float *logits, int stride, int count, const struct sampling *sampling)
{
    int candidates = sample_candidates(sampling, count), settled = 0;
    int width = candidates < TOP_WIDTH_MAXIMUM ? candidates : TOP_WIDTH_MAXIMUM;
    struct sample_scratch scratch = {xcalloc((size_t)count, sizeof(int)), xcalloc((size_t)count, sizeof(float))};
    struct choose_row how[ROWS];
    for (int row = 0; row < ROWS; row++)
        how[row] = (struct choose_row){sampling->temperature, 0, 0};
    struct lists lists =
        run_top((struct top_call){.stride = stride, .count = count, .width = width, .summed = count}, logits, how);
    for (int row = 0; row < ROWS; row++) {
        const float *x = logits + row * stride, *values = lists.values + row * width;
        struct sample_list list = {lists.tokens + row * width,  values,       width, count,
                                   (double)lists.sums[row].sum, TOP_SUM_ERROR};
        double mass = 0;
        for (int i = 0; i < count; i++)
            mass += exp(((double)x[i] - (double)values[0]) / (double)sampling->temperature);
        settled += check_list(x, &list, mass, sampling, 100 + row, &scratch);
    }
    free_lists(&lists);
    free(scratch.indices);
    free(scratch.values);
    return settled;
}

static void lists_settle_the_samplers_choice(void **state)
{
    (void)state;
    if (!usable)
        skip();
    static const int sizes[][2] = {{151936, 151669}, {4099, 4099}, {777, 770}};
    static const float temperatures[] = {0.7f, 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int stride = sizes[i][0], count = sizes[i][1];
        float *logits = make_logits(stride), *zipf = xcalloc((size_t)ROWS * (size_t)stride, sizeof *zipf);
        fill_zipf(zipf, stride);
        for (size_t t = 0; t < 2; t++) {
            static const int top_ks[] = {1, 2, 20, 700};
            static const float top_ps[] = {0.01f, 0.5f, 0.95f, 0.999f};
            for (int k = 0; k < 4; k++) { /* all of them settled */
                assert_int_equal(
                    check_lists(logits, stride, count, &(struct sampling){temperatures[t], top_ks[k], 1, 5}), ROWS);
                assert_int_equal(
                    check_lists(zipf, stride, count, &(struct sampling){temperatures[t], top_ks[k], 0.9f, 6}), ROWS);
            }
            for (int p = 0; p < 4; p++) {
                check_lists(logits, stride, count, &(struct sampling){temperatures[t], 0, top_ps[p], 7});
                assert_true(check_lists(zipf, stride, count, &(struct sampling){temperatures[t], 0, top_ps[p], 8}) > 0);
            }
        }
        free(logits);
        free(zipf);
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
    struct row_sum *sums;
    void *partial;
};

static void queue(void *context, int index, cudaStream_t stream)
{
    const struct work *work = context;
    const struct top_call top = {.rows = work->rows,
                                 .stride = VOCABULARY,
                                 .count = VOCABULARY,
                                 .width = work->width,
                                 .summed = VOCABULARY,
                                 .logits = work->logits,
                                 .how = work->how,
                                 .partial = work->partial,
                                 .tokens = work->tokens,
                                 .values = work->values,
                                 .sums = work->sums};
    (void)index;
    if (work->width > 0)
        kernels_top(&top, stream);
    else
        kernels_choose(work->logits, work->rows, VOCABULARY, VOCABULARY, 0, work->how, work->partial, work->leaders,
                       stream);
}

static int bench(void)
{
    static const int cases[][2] = {{15, 1},    {15, 16}, {15, 64},  {15, 1024}, {16, 1}, {16, 16}, {16, 64}, {65, 20},
                                   {65, 1024}, {1, 20},  {1, 1024}, {1, 0},     {16, 0}, {65, 0},  {256, 0}};
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
        work.sums = device_allocate((size_t)work.rows * sizeof *work.sums);
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
        cmocka_unit_test(choices_are_the_samplers_in_any_number_of_rows),
        cmocka_unit_test(choices_are_the_samplers_in_slices_too),
        cmocka_unit_test(nan_is_not_chosen_and_infinity_is),
        cmocka_unit_test(lists_settle_the_samplers_choice),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
