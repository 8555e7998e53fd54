/* Rows at both ends of a round, against what the host makes of the same numbers: embeddings with the norm behind them,
 * and the kept rows of a tree. Skipped where there is no GPU that CUDA can use. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EPSILON 1e-6f

static bool usable;

static int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    return 0;
}

/* --- embeddings --------------------------------------------------------------------------------------------------- */

#define VOCABULARY 97

/* What becomes of the rows: no norm, a norm, or a norm that the product behind finishes. */
enum ending { PLAIN, NORMED, LEFT_UNNORMED };

struct scene {
    enum element type;
    int rows, width;
    enum ending ending;
    float *table, *weight; /* host; the table as the type holds it */
    int *tokens;           /* host, pinned, and padded as copies take it */
};

static float held(enum element type, const void *values, size_t at)
{
    return type == ELEMENT_BFLOAT16 ? bfloat16_to_float(((const uint16_t *)values)[at]) : ((const float *)values)[at];
}

static void check_row(const struct scene *scene, int row, const float *x, const float *squares, const void *out)
{
    size_t width = (size_t)scene->width, first = (size_t)row * width;
    const float *from = scene->table + (size_t)scene->tokens[row] * width;
    double sum = 0, tolerance = scene->type == ELEMENT_BFLOAT16 ? 0.005 : 1e-5;
    for (size_t i = 0; i < width; i++)
        sum += (double)from[i] * (double)from[i];
    if (scene->ending == LEFT_UNNORMED)
        assert_true(fabs((double)squares[row] - sum) <= 1e-5 * sum);
    double scale = scene->ending == LEFT_UNNORMED ? 1 : 1 / sqrt(sum / (double)width + (double)EPSILON);
    for (size_t i = 0; i < width; i++) {
        if (x[first + i] != from[i])
            fail_msg("width %zu, row %d, column %zu: %g, not %g", width, row, i, (double)x[first + i], (double)from[i]);
        double expected = (double)from[i] * scale * (double)scene->weight[i];
        if (scene->ending != PLAIN)
            assert_true(fabs((double)held(scene->type, out, first + i) - expected) <= tolerance * fabs(expected));
    }
}

static void check_embeddings(const struct scene *scene)
{
    size_t rows = (size_t)scene->rows, width = (size_t)scene->width, elements = rows * width;
    size_t bytes = elements * element_size(scene->type), padded = (rows + 3) / 4 * 4 * sizeof(int);
    float *x = device_allocate(elements * sizeof *x), *squares = device_allocate(rows * sizeof *squares);
    float *weight = gpu_send(scene->weight, width * sizeof *weight);
    float *found = xcalloc(elements, sizeof *found), *sums = xcalloc(rows, sizeof *sums);
    void *table = gpu_send_typed(scene->type, scene->table, VOCABULARY * width);
    void *out = device_allocate(bytes), *rounded = xcalloc(1, bytes);
    int *tokens = device_allocate(padded);
    const struct add_norm_call call = {.type = scene->type,
                                       .rows = scene->rows,
                                       .width = scene->width,
                                       .table = table,
                                       .tokens = tokens,
                                       .x = x,
                                       .weight = scene->ending == PLAIN ? NULL : weight,
                                       .epsilon = EPSILON,
                                       .squares = scene->ending == LEFT_UNNORMED ? squares : NULL,
                                       .out = out};
    kernels_copy(tokens, scene->tokens, padded, NULL);
    kernels_add_norm(&call, NULL);
    gpu_fetch(found, x, elements * sizeof *found);
    gpu_fetch(sums, squares, rows * sizeof *sums);
    gpu_fetch(rounded, out, bytes);
    for (int row = 0; row < scene->rows; row++)
        check_row(scene, row, found, sums, rounded);
    void *all[] = {x, squares, weight, table, out, tokens};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree(all[i]));
    free(rounded);
    free(found);
    free(sums);
}

static void the_stream_begins_with_embeddings(void **state)
{
    (void)state;
    static const int widths[] = {64, 4096, 5120, 10, 12288}, rows[] = {1, 17, 70};
    uint64_t seed = 88172645463325252u;
    if (!usable)
        skip();
    for (int i = 0; i < COUNT(widths) * COUNT(rows) * 6; i++) {
        struct scene scene = {.type = i % 2 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32,
                              .ending = (enum ending)(i / 2 % 3),
                              .rows = rows[i / 6 % COUNT(rows)],
                              .width = widths[i / 6 / COUNT(rows)]};
        size_t width = (size_t)scene.width;
        scene.table = xcalloc(VOCABULARY * width, sizeof(float));
        scene.weight = xcalloc(width, sizeof(float));
        scene.tokens = device_allocate_pinned((size_t)(scene.rows + 3) * sizeof(int));
        for (size_t at = 0; at < VOCABULARY * width; at++) {
            float value = gpu_random(&seed);
            scene.table[at] = scene.type == ELEMENT_FLOAT32 ? value : bfloat16_to_float(bfloat16_from_float(value));
        }
        for (size_t at = 0; at < width; at++)
            scene.weight[at] = gpu_random(&seed);
        for (int row = 0; row < scene.rows; row++)
            scene.tokens[row] = (row * 31 + i) % VOCABULARY;
        check_embeddings(&scene);
        CUDA_CHECK(cudaFreeHost(scene.tokens));
        free(scene.weight);
        free(scene.table);
    }
}

/* --- kept rows ---------------------------------------------------------------------------------------------------- */

enum { LAYERS = 3, SESSIONS = 4, KV_HEADS = 2, CAPACITY = 60, WORDS = 80, PATHS = 3, NODES = 40 };
enum { CACHE = LAYERS * SESSIONS * KV_HEADS * CAPACITY * WORDS };

static const struct compact_path paths[PATHS] = {{2, 7, 0, 1}, {0, 0, 1, 8}, {3, 19, 9, 21}};
static const int nodes[] = {0, 0, 1,  2,  3,  5,  8,  30, 39, 0,  1,  2,  3,  6,  7,
                            8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 25, 31, 32, 38, 39};

/* Paths of one node, of a handful, and of more than are read together, in caches of several layers and sessions. */
static void paths_move_behind_what_is_committed(void **state)
{
    (void)state;
    static uint32_t before[2][CACHE], expected[2][CACHE], found[CACHE];
    if (!usable)
        skip();
    for (int i = 0; i < 2 * CACHE; i++)
        before[i / CACHE][i % CACHE] = expected[i / CACHE][i % CACHE] = (uint32_t)i * 2654435761u;
    for (int which = 0; which < 2; which++)
        for (int head = 0; head < LAYERS * SESSIONS * KV_HEADS; head++)
            for (int p = 0; p < PATHS; p++)
                for (int i = 0; head / KV_HEADS % SESSIONS == paths[p].session && i < paths[p].length; i++) {
                    int first = head * CAPACITY + paths[p].base;
                    memcpy(&expected[which][(first + i) * WORDS],
                           &before[which][(first + nodes[paths[p].first + i]) * WORDS], WORDS * sizeof(uint32_t));
                }
    void *keys = gpu_send(before[0], sizeof before[0]), *values = gpu_send(before[1], sizeof before[1]);
    void *sent_paths = gpu_send(paths, sizeof paths), *sent_nodes = gpu_send(nodes, sizeof nodes);
    kernels_compact(keys, values, LAYERS, SESSIONS, KV_HEADS, CAPACITY, WORDS * sizeof(uint32_t), sent_paths, PATHS,
                    sent_nodes, NULL);
    gpu_fetch(found, keys, sizeof found);
    assert_memory_equal(found, expected[0], sizeof found);
    gpu_fetch(found, values, sizeof found);
    assert_memory_equal(found, expected[1], sizeof found);
    void *all[] = {keys, values, sent_paths, sent_nodes};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree(all[i]));
}

static void rows_are_gathered(void **state)
{
    (void)state;
    enum { ROW = 700 };
    static uint32_t in[NODES][ROW], out[COUNT(nodes)][ROW];
    if (!usable)
        skip();
    for (int i = 0; i < NODES * ROW; i++)
        in[i / ROW][i % ROW] = (uint32_t)i * 2654435761u;
    void *from = gpu_send(in, sizeof in), *to = device_allocate(sizeof out), *sources = gpu_send(nodes, sizeof nodes);
    kernels_gather(from, sources, COUNT(nodes), sizeof *in, to, NULL);
    gpu_fetch(out, to, sizeof out);
    for (int i = 0; i < COUNT(nodes); i++)
        assert_memory_equal(out[i], in[nodes[i]], sizeof *in);
    void *all[] = {from, to, sources};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree(all[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stream_begins_with_embeddings),
        cmocka_unit_test(paths_move_behind_what_is_committed),
        cmocka_unit_test(rows_are_gathered),
    };
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
