/* Calls of the attention kernels at every shape, with all that they read, and the sums written out in double precision
 * that they are held to. What no row may see is NaN. */
#ifndef TESTS_GPU_ATTENTION_SCENE_H
#define TESTS_GPU_ATTENTION_SCENE_H

#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KV_HEADS 3
#define SESSIONS 3
#define POOL (1 << 20)

static bool usable;
static float pool[POOL];

static inline int find_gpu(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    usable = gpu_is_usable();
    for (int i = 0; i < POOL; i++)
        pool[i] = bfloat16_to_float(bfloat16_from_float(gpu_random(&seed)));
    return 0;
}

/* Rows of each segment, and what they see. */
struct shape {
    int rows;
    enum attention_sight sight;
    int window, causal_window;
};

static const int groups[] = {1, 4, 5, 8};
static const int lengths[] = {0, 1, 63, 64, 65, 511, 4095, 16384};

/* A call and all it reads, on the host; caches [session, kv_head, capacity, head_size]. */
struct scene {
    struct attention_call call;
    struct attention_segment segments[SESSIONS + 1];
    int segment_count;
    struct attention_tile *tiles;
    float *queries, *keys, *values; /* as the type holds them */
    int *positions;
    uint64_t *visible;
    void *attended; /* of the type */
};

static inline size_t cache_elements(const struct attention_call *call)
{
    return (size_t)SESSIONS * KV_HEADS * (size_t)call->capacity * (size_t)call->head_size;
}

static inline size_t row_elements(const struct attention_call *call)
{
    return (size_t)call->rows * (size_t)call->heads * (size_t)call->head_size;
}

static inline float *at(float *cache, const struct attention_call *call, int session, int kv_head, int slot)
{
    size_t head = (size_t)(session * KV_HEADS + kv_head);
    return cache + (head * (size_t)call->capacity + (size_t)slot) * (size_t)call->head_size;
}

static inline void fill(float *out, size_t count, int offset)
{
    for (size_t done = 0; done < count; done += POOL) {
        size_t some = count - done < POOL ? count - done : POOL, from = (size_t)offset % (POOL / 2);
        size_t first = some < POOL - from ? some : POOL - from;
        memcpy(out + done, pool + from, first * sizeof *out);
        memcpy(out + done + first, pool, (some - first) * sizeof *out);
        offset += 7919;
    }
}

/* Node i hangs below some node before it, so that branches have many lengths. */
static inline int parent_of(const struct shape *shape, int node)
{
    return node == 0 || shape->sight != ATTENTION_TREE ? node - 1 : (node - 1) * 3 / 4;
}

static inline void add_rows(struct scene *scene, const struct shape *shape, const struct attention_segment *segment)
{
    for (int i = 0; i < segment->count; i++) {
        int row = segment->first + i, parent = parent_of(shape, i), words = scene->call.words;
        uint64_t *set = scene->visible + row * words;
        scene->positions[row] = parent < 0 ? segment->base : scene->positions[segment->first + parent] + 1;
        if (parent >= 0)
            memcpy(set, scene->visible + (segment->first + parent) * words, (size_t)words * sizeof *set);
        set[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

/* New values grow with the cache, so that each still counts among many; what lies behind is NaN. */
static inline void mark_cache(struct scene *scene, const struct attention_segment *segment)
{
    const struct attention_call *call = &scene->call;
    int end = segment->base + segment->count;
    size_t behind = (size_t)(call->capacity - end) * (size_t)call->head_size;
    for (int kv_head = 0; kv_head < KV_HEADS; kv_head++) {
        float *new_values = at(scene->values, call, segment->session, kv_head, segment->base);
        for (int i = 0; i < segment->count * call->head_size; i++)
            new_values[i] = bfloat16_to_float(bfloat16_from_float(new_values[i] * (1 + (float)segment->base / 64)));
        memset(at(scene->keys, call, segment->session, kv_head, end), 0xff, behind * sizeof(float));
        memset(at(scene->values, call, segment->session, kv_head, end), 0xff, behind * sizeof(float));
    }
}

/* The tiles of all segments; and if there are to be `idle` ones, one of an empty segment and one of none. */
static inline void add_tiles(struct scene *scene, bool idle)
{
    struct attention_call *call = &scene->call;
    int queries = kernels_attention_queries(call->type, call->head_size), group = call->heads / KV_HEADS, tiles = 0;
    scene->tiles = xcalloc((size_t)(call->rows * group / queries + 2 * SESSIONS + 2), sizeof *scene->tiles);
    if (idle)
        scene->tiles[tiles++] = (struct attention_tile){-1, 0};
    for (int i = 0; i < scene->segment_count + idle; i++)
        for (int query = 0; query == 0 || query < scene->segments[i].count * group; query += queries)
            scene->tiles[tiles++] = (struct attention_tile){i, query};
    call->tile_count = tiles;
}

static inline void make_scene(struct scene *scene, enum element type, int head_size, int group, int length,
                              const struct shape *shape, int number)
{
    int count = number % 3 == 0 ? SESSIONS : 1;
    *scene = (struct scene){.segment_count = count};
    scene->call = (struct attention_call){.type = type,
                                          .rows = shape->rows * count,
                                          .heads = KV_HEADS * group,
                                          .kv_heads = KV_HEADS,
                                          .head_size = head_size,
                                          .capacity = length + shape->rows + (number % 2 ? 3000 : 5),
                                          .longest = shape->rows,
                                          .reach = number % 5 == 3 ? 0 : length + shape->rows,
                                          .window = shape->window,
                                          .causal_window = shape->causal_window,
                                          .words = (shape->rows + 63) / 64};
    size_t rows = (size_t)scene->call.rows, queries = row_elements(&scene->call), cache = cache_elements(&scene->call);
    scene->queries = xcalloc(queries, sizeof(float));
    scene->keys = xcalloc(cache, sizeof(float));
    scene->values = xcalloc(cache, sizeof(float));
    scene->attended = xcalloc(queries, element_size(type));
    scene->positions = xcalloc(rows, sizeof(int));
    scene->visible = xcalloc(rows * (size_t)scene->call.words, sizeof(uint64_t));
    fill(scene->queries, queries, number);
    for (size_t i = 0; i < queries; i++)
        scene->queries[i] = bfloat16_to_float(bfloat16_from_float(scene->queries[i] * 6 / sqrtf((float)head_size)));
    fill(scene->keys, cache, 3 * number + 1);
    fill(scene->values, cache, 5 * number + 2);
    for (int i = 0; i < count; i++) {
        int base = i == 0 ? length : length / (i + 1);
        scene->segments[i] =
            (struct attention_segment){(i + 2) % SESSIONS, i * shape->rows, shape->rows, base, shape->sight};
        add_rows(scene, shape, &scene->segments[i]);
        mark_cache(scene, &scene->segments[i]);
    }
    add_tiles(scene, number % 4 < 2);
}

static inline void free_scene(struct scene *scene)
{
    free(scene->queries);
    free(scene->keys);
    free(scene->values);
    free(scene->attended);
    free(scene->positions);
    free(scene->visible);
    free(scene->tiles);
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

static inline void receive(float *to, const void *from, size_t count)
{
    uint16_t *held = xcalloc(count, sizeof *held);
    gpu_fetch(held, from, count * sizeof *held);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        to[i] = bfloat16_to_float(held[i]);
    free(held);
}

/* --- written out -------------------------------------------------------------------------------------------------- */

static inline bool row_sees(const struct scene *scene, const struct attention_segment *segment, int row, int key)
{
    const struct attention_call *call = &scene->call;
    int node = key - segment->base, position = key, own = scene->positions[segment->first + row];
    if (node >= 0) {
        const uint64_t *set = scene->visible + (segment->first + row) * call->words;
        if (segment->sight == ATTENTION_TREE ? !(set[node / 64] >> (node % 64) & 1)
                                             : segment->sight == ATTENTION_RUN && node > row)
            return false;
        position = scene->positions[segment->first + node];
    }
    if (call->window == 0)
        return true;
    return own - position < call->window && position - own < (call->causal_window ? 1 : call->window);
}

/* out[head_size], and how far rounding may move each column: the root of the sum of (weight value)^2. */
static inline void expect(struct scene *scene, const struct attention_segment *segment, int row, int head, double *out,
                          double *spread)
{
    const struct attention_call *call = &scene->call;
    int size = call->head_size, kv_head = head / (call->heads / KV_HEADS), end = segment->base + segment->count;
    const float *query =
        scene->queries + ((size_t)(segment->first + row) * (size_t)call->heads + (size_t)head) * (size_t)size;
    double total = 0;
    memset(out, 0, (size_t)size * sizeof *out);
    memset(spread, 0, (size_t)size * sizeof *spread);
    for (int key = 0; key < end; key++) {
        double score = 0;
        if (!row_sees(scene, segment, row, key))
            continue;
        const float *k = at(scene->keys, call, segment->session, kv_head, key);
        const float *v = at(scene->values, call, segment->session, kv_head, key);
        for (int i = 0; i < size; i++)
            score += (double)query[i] * (double)k[i];
        double weight = exp(score);
        total += weight;
        for (int i = 0; i < size; i++) {
            out[i] += weight * (double)v[i];
            spread[i] += weight * weight * (double)v[i] * (double)v[i];
        }
    }
    for (int i = 0; i < size; i++) {
        out[i] /= total;
        spread[i] = sqrt(spread[i]) / total;
    }
}

/* A column of a row's head that is not as expected. */
struct miss {
    int place, row, head, column; /* place: of the row and head among those that are checked */
    double actual, expected, allowed;
};

/* Whether a row of the call misses somewhere in a head. */
static inline bool misses(struct scene *scene, int row, int head, struct miss *miss)
{
    const struct attention_call *call = &scene->call;
    const struct attention_segment *segment = &scene->segments[row / call->longest];
    double expected[ATTENTION_HEAD_SIZE_MAXIMUM], spread[ATTENTION_HEAD_SIZE_MAXIMUM];
    size_t first = ((size_t)row * (size_t)call->heads + (size_t)head) * (size_t)call->head_size;
    bool exact = call->type == ELEMENT_FLOAT32;
    expect(scene, segment, row - segment->first, head, expected, spread);
    for (int i = 0; i < call->head_size; i++) {
        double actual = exact ? (double)((float *)scene->attended)[first + (size_t)i]
                              : (double)bfloat16_to_float(((uint16_t *)scene->attended)[first + (size_t)i]);
        double allowed =
            exact ? 2e-5 * (fabs(expected[i]) + spread[i]) + 1e-6 : 0.004 * fabs(expected[i]) + 0.01 * spread[i] + 1e-6;
        if (!(fabs(actual - expected[i]) <= allowed)) {
            *miss = (struct miss){0, row, head, i, actual, expected[i], allowed};
            return true;
        }
    }
    return false;
}

/* So many of the call's rows and heads, the first and the last among them. */
static inline void check_rows(struct scene *scene, int checked, const char *name)
{
    int heads = scene->call.heads, all = scene->call.rows * heads;
    struct miss first = {.place = all};
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < checked; i++) {
        struct miss miss;
        int which = checked == 1 ? all - 1 : (int)((int64_t)i * (all - 1) / (checked - 1));
        if (!misses(scene, which / heads, which % heads, &miss))
            continue;
        miss.place = i;
#pragma omp critical
        first = miss.place < first.place ? miss : first;
    }
    if (first.place < all)
        fail_msg("%s: row %d of %d, head %d, column %d: %g, not %g (+- %g)", name, first.row, scene->call.rows,
                 first.head, first.column, first.actual, first.expected, first.allowed);
}

#endif
