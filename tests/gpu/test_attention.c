/* The attention kernels against the sums written out in double precision, over head sizes, groups, cache lengths,
 * trees, runs and windows. What no row may see is NaN. Skipped where there is no GPU that CUDA can use.
 *
 * With the argument "bench": the time of a call at the shapes of Qwen3-8B, Qwen3-0.6B and Qwen3.6-27B. */
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
#define TERMS 20000000 /* of a case's expected values, which are of some rows and heads only where it is large */

static bool usable;
static float pool[POOL];

static int find_gpu(void **state)
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

static const struct shape shapes[] = {
    {1, ATTENTION_TREE, 0, 0},    {2, ATTENTION_TREE, 0, 0},    {16, ATTENTION_TREE, 0, 0},
    {17, ATTENTION_TREE, 0, 0},   {65, ATTENTION_TREE, 0, 0},   {129, ATTENTION_TREE, 0, 0},
    {512, ATTENTION_RUN, 0, 0},   {65, ATTENTION_RUN, 0, 0},    {16, ATTENTION_WHOLE, 0, 0},
    {65, ATTENTION_TREE, 9, 1},   {129, ATTENTION_TREE, 70, 0}, {512, ATTENTION_RUN, 100, 1},
    {16, ATTENTION_WHOLE, 40, 0}, {16, ATTENTION_WHOLE, 9, 1},  {129, ATTENTION_WHOLE, 30, 0},
    {1, ATTENTION_RUN, 64, 1},    {33, ATTENTION_TREE, 0, 0},   {48, ATTENTION_RUN, 0, 0},
};
static const int head_sizes[] = {64, 80, 128, 256}, groups[] = {1, 4, 5, 8};
static const int lengths[] = {0, 1, 63, 64, 65, 511, 4095, 16384};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

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

static size_t cache_elements(const struct attention_call *call)
{
    return (size_t)SESSIONS * KV_HEADS * (size_t)call->capacity * (size_t)call->head_size;
}

static size_t row_elements(const struct attention_call *call)
{
    return (size_t)call->rows * (size_t)call->heads * (size_t)call->head_size;
}

static float *at(float *cache, const struct attention_call *call, int session, int kv_head, int slot)
{
    size_t head = (size_t)(session * KV_HEADS + kv_head);
    return cache + (head * (size_t)call->capacity + (size_t)slot) * (size_t)call->head_size;
}

static void fill(float *out, size_t count, int offset)
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
static int parent_of(const struct shape *shape, int node)
{
    return node == 0 || shape->sight != ATTENTION_TREE ? node - 1 : (node - 1) * 3 / 4;
}

static void add_rows(struct scene *scene, const struct shape *shape, const struct attention_segment *segment)
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
static void mark_cache(struct scene *scene, const struct attention_segment *segment)
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

/* The tiles of all segments; one of an empty segment and one of none besides. */
static void add_tiles(struct scene *scene)
{
    struct attention_call *call = &scene->call;
    int queries = kernels_attention_queries(call->type, call->head_size), group = call->heads / KV_HEADS, tiles = 0;
    scene->tiles = xcalloc((size_t)(call->rows * group / queries + 2 * SESSIONS + 2), sizeof *scene->tiles);
    scene->tiles[tiles++] = (struct attention_tile){-1, 0};
    for (int i = 0; i <= scene->segment_count; i++)
        for (int query = 0; query == 0 || query < scene->segments[i].count * group; query += queries)
            scene->tiles[tiles++] = (struct attention_tile){i, query};
    call->tile_count = tiles;
}

static void make_scene(struct scene *scene, enum element type, int head_size, int group, int length,
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
                                          .reach = number % 3 ? length + shape->rows : 0,
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
    add_tiles(scene);
}

static void free_scene(struct scene *scene)
{
    free(scene->queries);
    free(scene->keys);
    free(scene->values);
    free(scene->attended);
    free(scene->positions);
    free(scene->visible);
    free(scene->tiles);
}

/* --- on the GPU --------------------------------------------------------------------------------------------------- */

static void *send_typed(enum element type, const float *from, size_t count)
{
    if (type == ELEMENT_FLOAT32)
        return gpu_send(from, count * sizeof *from);
    uint16_t *held = xcalloc(count, sizeof *held);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        held[i] = bfloat16_from_float(from[i]);
    void *sent = gpu_send(held, count * sizeof *held);
    free(held);
    return sent;
}

/* Twice: the second time must give the same bits. */
static void attend(struct scene *scene)
{
    struct attention_call call = scene->call;
    size_t bytes = row_elements(&call) * element_size(call.type), rows = (size_t)call.rows;
    void *queries = send_typed(call.type, scene->queries, row_elements(&call)), *again = xcalloc(1, bytes);
    void *keys = send_typed(call.type, scene->keys, cache_elements(&call));
    void *values = send_typed(call.type, scene->values, cache_elements(&call));
    void *segments = gpu_send(scene->segments, sizeof scene->segments);
    void *tiles = gpu_send(scene->tiles, (size_t)call.tile_count * sizeof *scene->tiles);
    void *positions = gpu_send(scene->positions, rows * sizeof(int));
    void *visible = gpu_send(scene->visible, rows * (size_t)call.words * sizeof(uint64_t));
    call.queries = queries;
    call.keys = keys;
    call.values = values;
    call.segments = segments;
    call.tiles = tiles;
    call.positions = positions;
    call.visible = visible;
    call.partial = device_allocate(kernels_attention_partials(call.rows, call.heads, call.head_size) * sizeof(float));
    call.attended = device_allocate(bytes);
    kernels_attend(&call, NULL);
    gpu_fetch(again, call.attended, bytes);
    CUDA_CHECK(cudaMemset(call.attended, 0, bytes));
    kernels_attend(&call, NULL);
    gpu_fetch(scene->attended, call.attended, bytes);
    assert_memory_equal(scene->attended, again, bytes);
    free(again);
    void *all[] = {queries, keys, values, segments, tiles, positions, visible, call.partial, call.attended};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree(all[i]));
}

/* --- written out -------------------------------------------------------------------------------------------------- */

static bool row_sees(const struct scene *scene, const struct attention_segment *segment, int row, int key)
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
static void expect(struct scene *scene, const struct attention_segment *segment, int row, int head, double *out,
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
static bool misses(struct scene *scene, int row, int head, struct miss *miss)
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
static void check_rows(struct scene *scene, int checked, const char *name)
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

static void check(enum element type, int head_size, int group, int length, const struct shape *shape, int number)
{
    struct scene scene;
    char name[128];
    snprintf(name, sizeof name, "%s, head size %d, group %d, sight %d, window %d",
             type == ELEMENT_FLOAT32 ? "float32" : "bfloat16", head_size, group, (int)shape->sight, shape->window);
    make_scene(&scene, type, head_size, group, length, shape, number);
    attend(&scene);
    int all = scene.call.rows * scene.call.heads, checked = 1 + TERMS / ((length + shape->rows) * head_size);
    check_rows(&scene, checked < all ? checked : all, name);
    free_scene(&scene);
}

/* Every combination; of the long caches every fifth. */
static void check_all(enum element type, int most_length)
{
    int number = 0;
    for (int size = 0; size < COUNT(head_sizes); size++)
        for (int group = 0; group < COUNT(groups); group++)
            for (int length = 0; length < COUNT(lengths) && lengths[length] <= most_length; length++)
                for (int shape = 0; shape < COUNT(shapes); shape++)
                    if (number++, lengths[length] < 1000 || (size + group + length + shape) % 5 == 0)
                        check(type, head_sizes[size], groups[group], lengths[length], &shapes[shape], number);
}

static void bfloat16_agrees_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_all(ELEMENT_BFLOAT16, 16384);
    for (int number = 2; number <= 3; number++) { /* one session, and three in a call of any reach */
        check(ELEMENT_BFLOAT16, 128, 4, 16384, &shapes[4], number);
        check(ELEMENT_BFLOAT16, 256, 6, 512, &shapes[4], number);
        check(ELEMENT_BFLOAT16, 256, 6, 16384, &shapes[4], number);
    }
    check(ELEMENT_BFLOAT16, 96, 2, 700, &shapes[4], 1);
    check(ELEMENT_BFLOAT16, 6, 2, 700, &shapes[4], 1);
}

static void float32_agrees_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_all(ELEMENT_FLOAT32, 511);
    check(ELEMENT_FLOAT32, 10, 33, 4095, &shapes[4], 3);
    check(ELEMENT_FLOAT32, 128, 4, 4095, &shapes[4], 2);
}

/* --- single rows from the product on ------------------------------------------------------------------------------ */

static void receive(float *to, const void *from, size_t count)
{
    uint16_t *held = xcalloc(count, sizeof *held);
    gpu_fetch(held, from, count * sizeof *held);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        to[i] = bfloat16_to_float(held[i]);
    free(held);
}

/* Heads of all rows of a scene of single rows; all that it points to is on the GPU, random and of the right size. */
static struct heads_call make_heads(const struct scene *scene, void *keys, void *values, void *queries, int rotary_size)
{
    const struct attention_call *call = &scene->call;
    int size = call->head_size, turned = rotary_size / 2, width = (call->heads + 2 * KV_HEADS) * size;
    float *fused = xcalloc((size_t)(call->rows * width), sizeof *fused), norms[2 * ATTENTION_HEAD_SIZE_MAXIMUM];
    float *turns = xcalloc((size_t)(2 * call->capacity * turned), sizeof *turns);
    int sessions[SESSIONS] = {0}, slots[SESSIONS] = {0};
    fill(fused, (size_t)(call->rows * width), 17 * size);
    for (int i = 0; i < 2 * size; i++)
        norms[i] = (i < size ? 6 : 1) * (1 + pool[i] / 4);
    for (int i = 0; i < call->capacity * turned; i++) {
        double angle = i / turned * pow(10000, -(i % turned) / (double)turned);
        turns[i] = (float)cos(angle);
        turns[call->capacity * turned + i] = (float)sin(angle);
    }
    for (int row = 0; row < call->rows; row++) {
        float *new_values = fused + row * width + (call->heads + KV_HEADS) * size;
        sessions[row] = scene->segments[row].session;
        slots[row] = scene->segments[row].base;
        for (int i = 0; i < KV_HEADS * size; i++)
            new_values[i] *= 1 + (float)slots[row] / 64;
    }
    float *there = gpu_send(norms, 2 * (size_t)size * sizeof *norms);
    float *cosines = gpu_send(turns, (size_t)(2 * call->capacity * turned) * sizeof *turns);
    struct heads_call heads = {.type = ELEMENT_BFLOAT16,
                               .rows = call->rows,
                               .layers = 1,
                               .heads = call->heads,
                               .kv_heads = KV_HEADS,
                               .head_size = size,
                               .capacity = call->capacity,
                               .query_size = size,
                               .rotary_size = rotary_size,
                               .stride = (size_t)width,
                               .cache_stride = cache_elements(call),
                               .fused = gpu_send(fused, (size_t)(call->rows * width) * sizeof *fused),
                               .q_norm = there,
                               .k_norm = there + size,
                               .cosines = cosines,
                               .sines = cosines + call->capacity * turned,
                               .positions = gpu_send(scene->positions, (size_t)call->rows * sizeof(int)),
                               .sessions = gpu_send(sessions, sizeof sessions),
                               .slots = gpu_send(slots, sizeof slots),
                               .epsilon = 1e-6f,
                               .queries = queries,
                               .keys = keys,
                               .values = values};
    free(fused);
    free(turns);
    return heads;
}

static void free_heads(const struct heads_call *heads)
{
    const void *all[] = {heads->fused, heads->q_norm, heads->cosines, heads->positions, heads->sessions,
                         heads->slots, heads->keys,   heads->values,  heads->queries};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree((void *)(uintptr_t)all[i]));
}

/* As the kernel that stores heads by themselves stores them, which is tested elsewhere; NaN where that left it so. */
static void check_cache(const float *expected, const void *cache, size_t count)
{
    float *actual = xcalloc(count, sizeof *actual);
    receive(actual, cache, count);
    for (size_t i = 0; i < count; i++)
        if (isnan(expected[i]) ? !isnan(actual[i]) : !(fabsf(actual[i] - expected[i]) <= 0.008f * fabsf(expected[i])))
            fail_msg("element %zu of a cache: %g, not %g", i, (double)actual[i], (double)expected[i]);
    free(actual);
}

/* Twice: the second time must give the same bits. */
static void attend_rows(struct scene *scene, struct heads_call *heads)
{
    struct attention_call call = scene->call;
    size_t bytes = row_elements(&call) * 2;
    void *segments = gpu_send(scene->segments, sizeof scene->segments), *again = xcalloc(1, bytes);
    call.keys = heads->keys;
    call.values = heads->values;
    call.segments = segments;
    call.partial = device_allocate(kernels_attention_partials(call.rows, call.heads, call.head_size) * sizeof(float));
    call.attended = device_allocate(bytes);
    assert_true(kernels_attend_rows_takes(call.type, call.rows, call.heads, call.kv_heads, call.head_size));
    kernels_attend_rows(heads, &call, NULL);
    gpu_fetch(again, call.attended, bytes);
    CUDA_CHECK(cudaMemset(call.attended, 0, bytes));
    kernels_attend_rows(heads, &call, NULL);
    gpu_fetch(scene->attended, call.attended, bytes);
    assert_memory_equal(scene->attended, again, bytes);
    free(again);
    void *all[] = {segments, call.partial, call.attended};
    for (int i = 0; i < COUNT(all); i++)
        CUDA_CHECK(cudaFree(all[i]));
}

static void check_single(int head_size, int group, int length, const struct shape *shape, int number)
{
    struct scene scene;
    char name[128];
    snprintf(name, sizeof name, "single rows, head size %d, group %d, window %d", head_size, group, shape->window);
    make_scene(&scene, ELEMENT_BFLOAT16, head_size, group, length, shape, number);
    size_t cache = cache_elements(&scene.call), queries = row_elements(&scene.call);
    for (int i = 0; i < scene.segment_count; i++)
        for (int kv_head = 0; kv_head < KV_HEADS; kv_head++) { /* the new row is to be made */
            const struct attention_segment *segment = &scene.segments[i];
            memset(at(scene.keys, &scene.call, segment->session, kv_head, segment->base), 0xff,
                   (size_t)head_size * sizeof(float));
            memset(at(scene.values, &scene.call, segment->session, kv_head, segment->base), 0xff,
                   (size_t)head_size * sizeof(float));
        }
    void *keys = send_typed(ELEMENT_BFLOAT16, scene.keys, cache);
    void *values = send_typed(ELEMENT_BFLOAT16, scene.values, cache);
    struct heads_call heads =
        make_heads(&scene, keys, values, device_allocate(queries * 2), number % 2 ? head_size : head_size / 2);
    attend_rows(&scene, &heads);
    heads.keys = send_typed(ELEMENT_BFLOAT16, scene.keys, cache);
    heads.values = send_typed(ELEMENT_BFLOAT16, scene.values, cache);
    kernels_store_heads(&heads, NULL);
    receive(scene.queries, heads.queries, queries);
    receive(scene.keys, heads.keys, cache);
    receive(scene.values, heads.values, cache);
    check_cache(scene.keys, keys, cache);
    check_cache(scene.values, values, cache);
    check_rows(&scene, scene.call.rows * scene.call.heads, name);
    CUDA_CHECK(cudaFree(keys));
    CUDA_CHECK(cudaFree(values));
    free_heads(&heads);
    free_scene(&scene);
}

static void single_rows_agree_with_sums_written_out(void **state)
{
    static const int sizes[] = {64, 128, 256}, more_lengths[] = {15, 16, 17, 300, 767, 2000};
    static const struct shape all[] = {{1, ATTENTION_TREE, 0, 0}, {1, ATTENTION_RUN, 64, 1}, {1, ATTENTION_TREE, 9, 0}};
    int number = 0;
    (void)state;
    if (!usable)
        skip();
    for (int size = 0; size < COUNT(sizes); size++)
        for (int group = 0; group < COUNT(groups); group++)
            for (int shape = 0; shape < COUNT(all); shape++) {
                for (int i = 0; i < COUNT(lengths); i++)
                    if (lengths[i] < 1000 || (size + group + shape + i) % 4 == 0)
                        check_single(sizes[size], groups[group], lengths[i], &all[shape], ++number);
                for (int i = 0; i < COUNT(more_lengths); i++)
                    check_single(sizes[size], groups[group], more_lengths[i], &all[shape], ++number);
            }
}

/* --- bench -------------------------------------------------------------------------------------------------------- */

#define LAYERS 36 /* whose caches take turns, so that they come from memory */
#define CALLS 36

struct work {
    struct attention_call call;
    struct heads_call heads; /* of single rows */
    size_t layer_bytes;
};

static void queue(void *context, int index, cudaStream_t stream)
{
    const struct work *work = context;
    struct attention_call call = work->call;
    struct heads_call heads = work->heads;
    call.keys = (const char *)call.keys + (size_t)(index % LAYERS) * work->layer_bytes;
    call.values = (const char *)call.values + (size_t)(index % LAYERS) * work->layer_bytes;
    heads.keys = (char *)heads.keys + (size_t)(index % LAYERS) * work->layer_bytes;
    heads.values = (char *)heads.values + (size_t)(index % LAYERS) * work->layer_bytes;
    if (heads.rows > 0)
        kernels_attend_rows(&heads, &call, stream);
    else
        kernels_attend(&call, stream);
}

/* Values that products do not finish sooner on, unlike zeros. */
static void *random_memory(size_t bytes)
{
    char *memory = device_allocate(bytes);
    uint16_t *some = xcalloc(POOL, sizeof *some);
    for (int i = 0; i < POOL; i++)
        some[i] = bfloat16_from_float(pool[i]);
    for (size_t done = 0; done < bytes; done += POOL * sizeof *some) {
        size_t left = bytes - done, most = POOL * sizeof *some;
        CUDA_CHECK(cudaMemcpy(memory + done, some, left < most ? left : most, cudaMemcpyHostToDevice));
    }
    free(some);
    return memory;
}

/* A single row's heads, at what the caller keeps for it. */
static struct heads_call bench_heads(const struct attention_call *call, const struct attention_segment *segment)
{
    size_t width = (size_t)(call->heads + 2 * call->kv_heads) * (size_t)call->head_size;
    size_t angles = (size_t)call->capacity * (size_t)call->head_size / 2;
    float *norms = random_memory((size_t)call->head_size * sizeof(float));
    return (struct heads_call){.type = call->type,
                               .rows = 1,
                               .layers = 1,
                               .heads = call->heads,
                               .kv_heads = call->kv_heads,
                               .head_size = call->head_size,
                               .capacity = call->capacity,
                               .query_size = call->head_size,
                               .rotary_size = call->head_size,
                               .stride = width,
                               .fused = random_memory(width * sizeof(float)),
                               .q_norm = norms,
                               .k_norm = norms,
                               .cosines = random_memory(angles * sizeof(float)),
                               .sines = random_memory(angles * sizeof(float)),
                               .positions = gpu_send(&segment->base, sizeof(int)),
                               .sessions = gpu_send(&segment->session, sizeof(int)),
                               .slots = gpu_send(&segment->base, sizeof(int)),
                               .epsilon = 1e-6f,
                               .keys = (void *)(uintptr_t)call->keys,
                               .values = (void *)(uintptr_t)call->values};
}

struct bench_model {
    int heads, kv_heads, head_size;
};

/* What a case is of: rows of a tree, which may have a kernel of their own if they reach a little way only; a run; or a
 * single row, its heads not made yet. */
enum bench_kind { TREE, TREE_OF_ANY_REACH, RUN, FROM_PRODUCT };

static const char *const kind_names[] = {"a tree", "a tree of any reach", "a run", "from the product"};

static void bench_case(const struct bench_model *model, int rows, int context, enum bench_kind kind, void *keys,
                       void *values, int capacity)
{
    enum attention_sight sight = kind == RUN ? ATTENTION_RUN : ATTENTION_TREE;
    struct shape shape = {rows, sight, 0, 0};
    int heads = model->heads, kv_heads = model->kv_heads, size = model->head_size, queries = rows * heads / kv_heads;
    struct scene scene = {.call = {.type = ELEMENT_BFLOAT16,
                                   .rows = rows,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_size = size,
                                   .capacity = capacity,
                                   .longest = rows,
                                   .reach = kind == TREE_OF_ANY_REACH ? 0 : context + rows,
                                   .words = (rows + 63) / 64}};
    struct attention_call *call = &scene.call;
    struct attention_segment segment = {0, 0, rows, context, sight};
    int per_tile = kernels_attention_queries(call->type, size);
    scene.positions = xcalloc((size_t)rows, sizeof(int));
    scene.visible = xcalloc((size_t)(rows * call->words), sizeof(uint64_t));
    scene.tiles = xcalloc((size_t)(queries / per_tile + 1), sizeof *scene.tiles);
    for (int query = 0; query < queries; query += per_tile)
        scene.tiles[call->tile_count++] = (struct attention_tile){0, query};
    add_rows(&scene, &shape, &segment);
    call->queries = random_memory(row_elements(call) * 2);
    call->attended = device_allocate(row_elements(call) * 2);
    call->partial = device_allocate(kernels_attention_partials(rows, heads, size) * sizeof(float));
    call->keys = keys;
    call->values = values;
    call->segments = gpu_send(&segment, sizeof segment);
    call->tiles = gpu_send(scene.tiles, (size_t)call->tile_count * sizeof *scene.tiles);
    call->positions = gpu_send(scene.positions, (size_t)rows * sizeof(int));
    call->visible = gpu_send(scene.visible, (size_t)(rows * call->words) * sizeof(uint64_t));
    struct work work = {.call = *call, .layer_bytes = (size_t)kv_heads * (size_t)capacity * (size_t)size * 2};
    if (kind == FROM_PRODUCT)
        work.heads = bench_heads(call, &segment);
    double time = gpu_time(queue, &work, CALLS);
    double seen = kind == RUN ? context + (rows + 1) / 2.0 : context + rows;
    printf("%2d heads of %d, %4d rows behind %5d, %-19s: %8.2f us, %6.1f TFLOP/s, %7.1f GB/s of cache\n", heads, size,
           rows, context, kind_names[kind], time, 4e-6 * rows * heads * size * seen / time,
           1e-3 * kv_heads * size * 4 * (context + rows) / time);
    free_scene(&scene);
}

static int bench(void)
{
    static const struct bench_model models[] = {{32, 8, 128}, {16, 8, 128}, {24, 4, 256}};
    static const struct {
        int rows, context;
        enum bench_kind kind;
    } cases[] = {{1, 512, FROM_PRODUCT}, {1, 2048, FROM_PRODUCT}, {1, 8192, FROM_PRODUCT}, {1, 16384, FROM_PRODUCT},
                 {16, 512, TREE},        {17, 512, TREE},         {65, 512, TREE},         {65, 512, TREE_OF_ANY_REACH},
                 {257, 512, TREE},       {16, 16384, TREE},       {17, 16384, TREE},       {65, 16384, TREE},
                 {512, 0, RUN},          {2048, 0, RUN},          {2048, 14336, RUN}};
    int capacity = 16384 + 1024;
    size_t bytes = (size_t)LAYERS * 8 * (size_t)capacity * 128 * 2;
    find_gpu(NULL);
    if (!usable)
        return 0;
    void *keys = random_memory(bytes), *values = random_memory(bytes);
    for (int model = 0; model < COUNT(models); model++)
        for (int i = 0; i < COUNT(cases); i++)
            bench_case(&models[model], cases[i].rows, cases[i].context, cases[i].kind, keys, values, capacity);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bfloat16_agrees_with_sums_written_out),
        cmocka_unit_test(float32_agrees_with_sums_written_out),
        cmocka_unit_test(single_rows_agree_with_sums_written_out),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
