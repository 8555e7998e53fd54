/* A single row through half a layer in one kernel, against the same sums written out in double precision, with what the
 * kernel rounds rounded. Skipped where there is no GPU that CUDA can use, or none that takes halves. With the argument
 * "bench": the time of a layer's halves at Qwen3-0.6B's shape. Another is the name of the only tests to run. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD 128
#define EPSILON 1e-6f
#define CAPACITY 4096
#define SESSION 1
#define SESSIONS 2

static bool usable;

static int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    if (usable && !kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3072)) {
        printf("SKIPPED: no halves of layers on this GPU\n");
        usable = false;
    }
    return 0;
}

/* --- numbers there and here ------------------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

/* Uniform in [-size, size), as bfloat16 holds it. */
static float *make(size_t count, float size)
{
    float *made = xcalloc(count, sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = bfloat16_to_float(bfloat16_from_float(size * gpu_random(&seed)));
    return made;
}

static float *make_norm(size_t count)
{
    float *norm = make(count, 0.25f);
    for (size_t i = 0; i < count; i++)
        norm[i] += 1;
    return norm;
}

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

/* --- the residual stream ----------------------------------------------------------------------------------------- */

struct stream {
    struct half_stream call;
    float *x, *parts, *norm;
    int clusters;
};

static struct stream make_stream(int width, int part_count, int clusters)
{
    size_t elements = (size_t)width, all = (size_t)part_count * elements;
    struct stream stream = {
        .x = make(elements, 3), .parts = make(all ? all : 1, 1), .norm = make_norm(elements), .clusters = clusters};
    stream.call = (struct half_stream){.width = width,
                                       .part_count = part_count,
                                       .x = gpu_send(stream.x, elements * sizeof(float)),
                                       .parts = gpu_send(stream.parts, (all ? all : 1) * sizeof(float)),
                                       .sum = device_allocate(elements * sizeof(float)),
                                       .feature = device_allocate(elements * 2),
                                       .norm = gpu_send(stream.norm, elements * sizeof(float)),
                                       .epsilon = EPSILON,
                                       .out = device_allocate((size_t)clusters * elements * sizeof(float))};
    return stream;
}

static void free_stream(struct stream *stream)
{
    const void *there[] = {stream->call.x,       stream->call.parts, stream->call.sum,
                           stream->call.feature, stream->call.norm,  stream->call.out};
    for (int i = 0; i < COUNT(there); i++)
        CUDA_CHECK(cudaFree((void *)(uintptr_t)there[i]));
    free(stream->x);
    free(stream->parts);
    free(stream->norm);
}

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

struct attention {
    struct stream stream;
    struct attention_half_call call;
    int kv_heads, group, length;
    float *qkv, *o, *q_norm, *k_norm, *turns;
    float *keys, *values; /* [session, kv_head, CAPACITY, HEAD]; NaN where nothing may be read */
};

static size_t cache_elements(const struct attention *own)
{
    return (size_t)SESSIONS * (size_t)own->kv_heads * CAPACITY * HEAD;
}

static float *at(float *cache, const struct attention *own, int kv_head, int slot)
{
    return cache + ((size_t)(SESSION * own->kv_heads + kv_head) * CAPACITY + (size_t)slot) * HEAD;
}

static float *make_cache(const struct attention *own)
{
    float *cache = xcalloc(cache_elements(own), sizeof *cache);
    memset(cache, 0xff, cache_elements(own) * sizeof *cache);
    for (int kv_head = 0; kv_head < own->kv_heads; kv_head++)
        for (int i = 0; i < own->length * HEAD; i++)
            at(cache, own, kv_head, 0)[i] = bfloat16_to_float(bfloat16_from_float(gpu_random(&seed)));
    return cache;
}

static float *make_turns(void)
{
    float *turns = xcalloc((size_t)CAPACITY * HEAD, sizeof *turns);
    for (int i = 0; i < CAPACITY * HEAD / 2; i++) {
        double angle = i / (HEAD / 2) * pow(10000, -(i % (HEAD / 2)) / (HEAD / 2.0));
        turns[i] = (float)cos(angle);
        turns[CAPACITY * HEAD / 2 + i] = (float)sin(angle);
    }
    return turns;
}

static struct attention make_attention(int width, int kv_heads, int group, int length, int part_count)
{
    struct attention own = {
        .stream = make_stream(width, part_count, kv_heads), .kv_heads = kv_heads, .group = group, .length = length};
    int heads = kv_heads * group, places[] = {length, SESSION, length};
    size_t rows = (size_t)(heads + 2 * kv_heads) * HEAD, columns = (size_t)heads * HEAD, elements = (size_t)width;
    own.qkv = make(rows * elements, 0.1f);
    own.o = make(elements * columns, 0.1f);
    own.q_norm = make_norm(HEAD);
    own.k_norm = make_norm(HEAD);
    own.turns = make_turns();
    own.keys = make_cache(&own);
    own.values = make_cache(&own);
    for (int i = 0; i < HEAD; i++)
        own.q_norm[i] *= 4; /* so that some keys count more than others */
    int *there = gpu_send(places, sizeof places);
    float *cosines = gpu_send(own.turns, (size_t)CAPACITY * HEAD * sizeof(float));
    own.call = (struct attention_half_call){
        .stream = own.stream.call,
        .qkv = gpu_send_typed(ELEMENT_BFLOAT16, own.qkv, rows * elements),
        .o = gpu_send_typed(ELEMENT_BFLOAT16, own.o, elements * columns),
        .heads = {.type = ELEMENT_BFLOAT16,
                  .rows = 1,
                  .layers = 1,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .head_size = HEAD,
                  .capacity = CAPACITY,
                  .query_size = HEAD,
                  .rotary_size = HEAD,
                  .q_norm = gpu_send(own.q_norm, HEAD * sizeof(float)),
                  .k_norm = gpu_send(own.k_norm, HEAD * sizeof(float)),
                  .cosines = cosines,
                  .sines = cosines + CAPACITY * HEAD / 2,
                  .positions = there,
                  .sessions = there + 1,
                  .slots = there + 2,
                  .epsilon = EPSILON,
                  .keys = gpu_send_typed(ELEMENT_BFLOAT16, own.keys, cache_elements(&own)),
                  .values = gpu_send_typed(ELEMENT_BFLOAT16, own.values, cache_elements(&own))},
    };
    return own;
}

static void free_attention(struct attention *own)
{
    const struct heads_call *heads = &own->call.heads;
    const void *there[] = {own->call.qkv,  own->call.o,      heads->q_norm, heads->k_norm,
                           heads->cosines, heads->positions, heads->keys,   heads->values};
    float *here[] = {own->qkv, own->o, own->q_norm, own->k_norm, own->turns, own->keys, own->values};
    for (int i = 0; i < COUNT(there); i++)
        CUDA_CHECK(cudaFree((void *)(uintptr_t)there[i]));
    for (int i = 0; i < COUNT(here); i++)
        free(here[i]);
    free_stream(&own->stream);
}

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

/* --- layers ------------------------------------------------------------------------------------------------------ */

#define LAYERS 28

struct bench {
    struct attention_half_call attention[LAYERS];
    struct mlp_half_call mlp[LAYERS];
    int kinds; /* 1: attention, 2: the MLP, 3: both */
};

/* Layers of Qwen3-0.6B's shape behind each other, all with the attention's cache; weights: of each its own and zero, or
 * all the same. */
static void make_layers(struct bench *bench, const struct attention *own, const void *gate_up, const void *down)
{
    int clusters = kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3072);
    float *between = device_allocate(1024 * sizeof(float)), *added = device_allocate(HALF_PARTS * 1024 * sizeof(float));
    for (int layer = 0; layer < LAYERS; layer++) {
        struct attention_half_call *attention = &bench->attention[layer];
        *attention = own->call;
        attention->stream.feature = NULL;
        attention->stream.sum = between;
        attention->stream.parts = added;
        attention->stream.part_count = layer > 0 ? clusters : 0;
        if (!gate_up) {
            attention->qkv = device_allocate(4096 * 1024 * 2);
            attention->o = device_allocate(2048 * 1024 * 2);
            attention->heads.keys = device_allocate(cache_elements(own) * 2);
            attention->heads.values = device_allocate(cache_elements(own) * 2);
        }
        struct mlp_half_call mlp = {.stream = attention->stream,
                                    .inner = 3072,
                                    .clusters = clusters,
                                    .gate_up = gate_up ? gate_up : device_allocate(6144 * 1024 * 2),
                                    .down = down ? down : device_allocate(3072 * 1024 * 2)};
        mlp.stream.x = between;
        mlp.stream.sum = (float *)(uintptr_t)own->call.stream.x;
        mlp.stream.parts = own->call.stream.out;
        mlp.stream.part_count = own->kv_heads;
        mlp.stream.out = added;
        bench->mlp[layer] = mlp;
    }
}

/* The stream behind all layers and steps, each of which writes the cache's next row. */
static void run_layers(const struct bench *bench, const struct attention *own, bool waits, float *out)
{
    float *x = (float *)(uintptr_t)own->call.stream.x;
    const struct half_stream end = {
        .width = 1024, .part_count = bench->mlp->clusters, .x = x, .parts = bench->mlp->stream.out, .sum = x};
    CUDA_CHECK(cudaMemcpy(x, own->stream.x, 1024 * sizeof(float), cudaMemcpyHostToDevice));
    for (int step = 0; step < 8; step++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            kernels_attention_half(&bench->attention[layer], NULL);
            if (waits)
                CUDA_CHECK(cudaDeviceSynchronize());
            kernels_mlp_half(&bench->mlp[layer], NULL);
            if (waits)
                CUDA_CHECK(cudaDeviceSynchronize());
        }
        kernels_end_halves(&end, NULL);
    }
    gpu_fetch(out, x, 1024 * sizeof *out);
}

/* Kernels that overlap give the same bits as kernels that wait for each other. */
static void halves_may_overlap(void **state)
{
    static float waited[1024], overlapped[1024];
    static struct bench bench;
    (void)state;
    if (!usable)
        skip();
    struct attention own = make_attention(1024, 8, 2, 700, 0);
    float *gate_up = make(6144 * 1024, 0.05f), *down = make(3072 * 1024, 0.05f);
    void *gate_up_there = gpu_send_typed(ELEMENT_BFLOAT16, gate_up, 6144 * 1024),
         *down_there = gpu_send_typed(ELEMENT_BFLOAT16, down, 3072 * 1024);
    make_layers(&bench, &own, gate_up_there, down_there);
    run_layers(&bench, &own, true, waited);
    for (int i = 0; i < 1024; i++)
        assert_true(isfinite(waited[i]));
    for (int turn = 0; turn < 10; turn++) {
        run_layers(&bench, &own, false, overlapped);
        assert_memory_equal(overlapped, waited, sizeof waited);
    }
    CUDA_CHECK(cudaFree(gate_up_there));
    CUDA_CHECK(cudaFree(down_there));
    free(gate_up);
    free(down);
    free_attention(&own);
}

/* With the argument "bench". */
static void queue_layer(void *context, int index, cudaStream_t stream)
{
    const struct bench *bench = context;
    if (bench->kinds & 1)
        kernels_attention_half(&bench->attention[index % LAYERS], stream);
    if (bench->kinds & 2)
        kernels_mlp_half(&bench->mlp[index % LAYERS], stream);
}

static void bench(void)
{
    static const int lengths[] = {16, 512, 2048, 4000};
    static struct bench bench;
    for (int i = 0; i < COUNT(lengths); i++) {
        struct attention own = make_attention(1024, 8, 2, lengths[i], 0);
        make_layers(&bench, &own, NULL, NULL);
        for (bench.kinds = 1; bench.kinds <= 3; bench.kinds++)
            printf("behind %d: %s %.2f us\n", lengths[i],
                   bench.kinds == 1   ? "attention"
                   : bench.kinds == 2 ? "MLP"
                                      : "a layer",
                   gpu_time(queue_layer, &bench, LAYERS));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_attention_agrees_with_sums_written_out),
        cmocka_unit_test(attention_agrees_with_sums_written_out),
        cmocka_unit_test(some_of_the_mlp_agrees_with_sums_written_out),
        cmocka_unit_test(the_mlp_agrees_with_sums_written_out),
        cmocka_unit_test(halves_may_overlap),
        cmocka_unit_test(only_small_layers_are_taken),
    };
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        find_gpu(NULL);
        if (usable)
            bench();
        return 0;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
