/* A single row through half a layer in one kernel, against the same sums written out in double precision, with what the
 * kernel rounds rounded. Skipped where there is no GPU that CUDA can use, or none that takes halves. An argument is the
 * name of the only tests to run. */
#include "tests/gpu/halves_scene.h"

static double held(double x)
{
    return (double)bfloat16_to_float(bfloat16_from_float((float)x));
}

/* out[outputs] = W[outputs, inputs] · row */
static void multiply(const float *weights, const double *row, int outputs, int inputs, double *out)
{
    for (int i = 0; i < outputs; i++) {
        out[i] = 0;
        for (int j = 0; j < inputs; j++)
            out[i] += (double)weights[(size_t)i * (size_t)inputs + (size_t)j] * row[j];
    }
}

/* --- what halves leave -------------------------------------------------------------------------------------------- */

/* The stream with its parts, in their order and to the bit; and what the half reads of it. */
static void check_stream(const struct stream *stream, double *row)
{
    int width = stream->call.width;
    float *sum = xcalloc((size_t)width, sizeof *sum), *actual = xcalloc((size_t)width, sizeof *actual);
    uint16_t *feature = xcalloc((size_t)width, sizeof *feature);
    double squares = 0;
    for (int i = 0; i < width; i++) {
        sum[i] = stream->x[i];
        for (int p = 0; p < stream->call.part_count; p++)
            sum[i] += stream->parts[p * width + i];
        squares += (double)sum[i] * (double)sum[i];
    }
    gpu_fetch(actual, stream->call.sum, (size_t)width * sizeof *actual);
    gpu_fetch(feature, stream->call.feature, (size_t)width * sizeof *feature);
    assert_memory_equal(actual, sum, (size_t)width * sizeof *sum);
    for (int i = 0; i < width; i++) {
        assert_int_equal(feature[i], bfloat16_from_float(sum[i]));
        row[i] = held((double)(sum[i] * stream->norm[i])) / sqrt(squares / width + (double)EPSILON);
    }
    free(sum);
    free(actual);
    free(feature);
}

/* What the clusters add, together, within what rounding on the way may cost. */
static void check_added(const struct stream *stream, const double *expected, double tolerance)
{
    int width = stream->call.width;
    size_t count = (size_t)(stream->clusters * width);
    float *parts = xcalloc(count, sizeof *parts);
    double largest = 0;
    gpu_fetch(parts, stream->call.out, count * sizeof *parts);
    for (int i = 0; i < width; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (int i = 0; i < width; i++) {
        double added = 0;
        for (int c = 0; c < stream->clusters; c++)
            added += (double)parts[c * width + i];
        if (!(fabs(added - expected[i]) <= tolerance * largest))
            fail_msg("element %d of %d is %g, not %g; the largest %g", i, width, added, expected[i], largest);
    }
    free(parts);
}

/* Twice: the second time must give the same bits. */
static void run_twice(void (*run)(const void *call), const void *call, const struct stream *stream)
{
    size_t bytes = (size_t)(stream->clusters * stream->call.width) * sizeof(float);
    void *first = xcalloc(1, bytes), *second = xcalloc(1, bytes);
    run(call);
    gpu_fetch(first, stream->call.out, bytes);
    CUDA_CHECK(cudaMemset(stream->call.out, 0xff, bytes));
    run(call);
    gpu_fetch(second, stream->call.out, bytes);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

/* A head normed, rotated and rounded. */
static void turn(const struct attention *own, const double *head, const float *norm, double factor, double *out)
{
    const float *cosines = own->turns + own->length * HEAD / 2, *sines = cosines + CAPACITY * HEAD / 2;
    double squares = 0;
    for (int i = 0; i < HEAD; i++)
        squares += head[i] * head[i];
    double scale = factor / sqrt(squares / HEAD + (double)EPSILON);
    for (int i = 0; i < HEAD / 2; i++) {
        double low = head[i] * scale * (double)norm[i];
        double high = head[i + HEAD / 2] * scale * (double)norm[i + HEAD / 2];
        out[i] = held(low * (double)cosines[i] - high * (double)sines[i]);
        out[i + HEAD / 2] = held(high * (double)cosines[i] + low * (double)sines[i]);
    }
}

static void attend(const struct attention *own, const float *keys, const float *values, const double *query,
                   double *out)
{
    int to = own->length + 1;
    double weights[CAPACITY], best = -INFINITY, total = 0;
    memset(out, 0, HEAD * sizeof *out);
    for (int key = 0; key < to; key++) {
        weights[key] = 0;
        for (int i = 0; i < HEAD; i++)
            weights[key] += query[i] * (double)keys[key * HEAD + i];
        best = fmax(best, weights[key]);
    }
    for (int key = 0; key < to; key++)
        total += weights[key] = exp(weights[key] - best);
    for (int key = 0; key < to; key++)
        for (int i = 0; i < HEAD; i++)
            out[i] += weights[key] / total * (double)values[key * HEAD + i];
    for (int i = 0; i < HEAD; i++)
        out[i] = held(out[i]);
}

/* The new rows stand in the caches, and everything else as before. */
static void check_cache(const struct attention *own, const float *expected, const void *there)
{
    size_t count = cache_elements(own);
    uint16_t *actual = xcalloc(count, sizeof *actual);
    gpu_fetch(actual, there, count * sizeof *actual);
    for (size_t i = 0; i < count; i++) {
        float x = bfloat16_to_float(actual[i]);
        if (isnan(expected[i]) ? !isnan(x) : !(fabsf(x - expected[i]) <= 0.02f * fabsf(expected[i]) + 0.005f))
            fail_msg("element %zu of a cache: %g, not %g", i, (double)x, (double)expected[i]);
    }
    free(actual);
}

static void run_attention(const void *call)
{
    kernels_attention_half(call, NULL);
}

static void check_attention(int width, int kv_heads, int group, int length, int part_count)
{
    struct attention own = make_attention(width, kv_heads, group, length, part_count);
    int heads = kv_heads * group, rows = (heads + 2 * kv_heads) * HEAD;
    double *row = xcalloc((size_t)width, sizeof *row), *made = xcalloc((size_t)rows, sizeof *made);
    double *attended = xcalloc((size_t)(heads * HEAD), sizeof *attended),
           *added = xcalloc((size_t)width, sizeof *added);
    double query[HEAD], key[HEAD];
    run_twice(run_attention, &own.call, &own.stream);
    check_stream(&own.stream, row);
    multiply(own.qkv, row, rows, width, made);
    for (int kv_head = 0; kv_head < kv_heads; kv_head++) {
        const double *value = made + (heads + kv_heads + kv_head) * HEAD;
        float *keys = at(own.keys, &own, kv_head, 0), *values = at(own.values, &own, kv_head, 0);
        turn(&own, made + (heads + kv_head) * HEAD, own.k_norm, 1, key);
        for (int i = 0; i < HEAD; i++) {
            keys[length * HEAD + i] = (float)key[i];
            values[length * HEAD + i] = (float)held(value[i]);
        }
        for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
            turn(&own, made + head * HEAD, own.q_norm, 1 / sqrt(HEAD), query);
            attend(&own, keys, values, query, attended + head * HEAD);
        }
    }
    multiply(own.o, attended, width, heads * HEAD, added);
    check_added(&own.stream, added, 0.02);
    check_cache(&own, own.keys, own.call.heads.keys);
    check_cache(&own, own.values, own.call.heads.values);
    free(row);
    free(made);
    free(attended);
    free(added);
    free_attention(&own);
}

/* Few enough for a sanitizer to watch (sanitize.sh). */
static void some_attention_agrees_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_attention(128, 1, 1, 0, 0);
    check_attention(256, 2, 2, 100, 3);
    check_attention(256, 2, 2, 1100, HALF_PARTS);
}

static void attention_agrees_with_sums_written_out(void **state)
{
    static const int lengths[] = {0, 1, 15, 16, 63, 64, 65, 577, 1024, 2500, CAPACITY - 1};
    (void)state;
    if (!usable)
        skip();
    for (int i = 0; i < COUNT(lengths); i++) {
        check_attention(1024, 8, 2, lengths[i], i % 8);
        check_attention(128 * (1 + i % 8), 1 + i % 7, 1 + i % 2, lengths[i], HALF_PARTS);
    }
}

/* --- the MLP ----------------------------------------------------------------------------------------------------- */

static void run_mlp(const void *call)
{
    kernels_mlp_half(call, NULL);
}

static void check_mlp(int width, int inner, int clusters, int part_count)
{
    struct stream stream = make_stream(width, part_count, clusters);
    size_t all = (size_t)width * (size_t)inner;
    float *gate_up = make(2 * all, 0.1f), *down = make(all, 0.1f);
    const struct mlp_half_call call = {.stream = stream.call,
                                       .inner = inner,
                                       .clusters = clusters,
                                       .gate_up = gpu_send_typed(ELEMENT_BFLOAT16, gate_up, 2 * all),
                                       .down = gpu_send_typed(ELEMENT_BFLOAT16, down, all)};
    double *row = xcalloc((size_t)width, sizeof *row), *made = xcalloc(2 * (size_t)inner, sizeof *made);
    double *added = xcalloc((size_t)width, sizeof *added);
    run_twice(run_mlp, &call, &stream);
    check_stream(&stream, row);
    multiply(gate_up, row, 2 * inner, width, made);
    for (int i = 0; i < inner; i++)
        made[i] = held(made[i] / (1 + exp(-made[i])) * made[inner + i]);
    multiply(down, made, width, inner, added);
    check_added(&stream, added, 0.01);
    CUDA_CHECK(cudaFree((void *)(uintptr_t)call.gate_up));
    CUDA_CHECK(cudaFree((void *)(uintptr_t)call.down));
    free(gate_up);
    free(down);
    free(row);
    free(made);
    free(added);
    free_stream(&stream);
}

static void some_of_the_mlp_agrees_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_mlp(256, 440, 1, 2);
    check_mlp(128, 1000, 3, 0);
}

static void the_mlp_agrees_with_sums_written_out(void **state)
{
    static const int inners[] = {8, 64, 72, 440, 1000, 3072};
    int clusters = usable ? kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3072) : 0;
    (void)state;
    if (!usable)
        skip();
    for (int i = 0; i < COUNT(inners); i++) {
        check_mlp(1024, inners[i], clusters, 8);
        check_mlp(128 * (1 + i), inners[i], inners[i] > 448 ? clusters : 1 + i, i);
    }
}

/* --- which layers ------------------------------------------------------------------------------------------------ */

static void only_small_layers_are_taken(void **state)
{
    (void)state;
    if (!usable)
        skip();
    assert_false(kernels_halves_take(ELEMENT_FLOAT32, 1024, 16, 8, HEAD, 3072));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 1152, 16, 8, HEAD, 3072));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 960, 16, 8, HEAD, 3072));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 1024, 24, 8, HEAD, 3072));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, 64, 3072));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3076));
    assert_false(kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 9216));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_attention_agrees_with_sums_written_out),
        cmocka_unit_test(attention_agrees_with_sums_written_out),
        cmocka_unit_test(some_of_the_mlp_agrees_with_sums_written_out),
        cmocka_unit_test(the_mlp_agrees_with_sums_written_out),
        cmocka_unit_test(only_small_layers_are_taken),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
