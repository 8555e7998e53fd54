/* The attention kernels against the sums written out in double precision, over head sizes, groups, cache lengths,
 * trees, runs and windows. What no row may see is NaN. Skipped where there is no GPU that CUDA can use.
 *
 * With the argument "bench": the time of a call at the shapes of Qwen3-8B, Qwen3-0.6B and Qwen3.6-27B. Another is the
 * name of the only test to run. */
#include "tests/gpu/attention_scene.h"

#define TERMS 20000000 /* of a case's expected values, which are of some rows and heads only where it is large */

static const struct shape shapes[] = {
    {1, ATTENTION_TREE, 0, 0},    {2, ATTENTION_TREE, 0, 0},    {16, ATTENTION_TREE, 0, 0},
    {17, ATTENTION_TREE, 0, 0},   {65, ATTENTION_TREE, 0, 0},   {129, ATTENTION_TREE, 0, 0},
    {512, ATTENTION_RUN, 0, 0},   {65, ATTENTION_RUN, 0, 0},    {16, ATTENTION_WHOLE, 0, 0},
    {65, ATTENTION_TREE, 9, 1},   {129, ATTENTION_TREE, 70, 0}, {512, ATTENTION_RUN, 100, 1},
    {16, ATTENTION_WHOLE, 40, 0}, {16, ATTENTION_WHOLE, 9, 1},  {129, ATTENTION_WHOLE, 30, 0},
    {1, ATTENTION_RUN, 64, 1},    {33, ATTENTION_TREE, 0, 0},   {48, ATTENTION_RUN, 0, 0},
};
static const int head_sizes[] = {64, 80, 128, 256};

/* Twice: the second time must give the same bits. */
static void attend(struct scene *scene)
{
    struct attention_call call = scene->call;
    size_t bytes = row_elements(&call) * element_size(call.type), rows = (size_t)call.rows;
    void *queries = gpu_send_typed(call.type, scene->queries, row_elements(&call)), *again = xcalloc(1, bytes);
    void *keys = gpu_send_typed(call.type, scene->keys, cache_elements(&call));
    void *values = gpu_send_typed(call.type, scene->values, cache_elements(&call));
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

/* Few enough for a sanitizer to watch (sanitize.sh): tiles of all kernels, whole and not. */
static void some_agree_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    for (int size = 0; size < COUNT(head_sizes); size++)
        for (int shape = 2; shape < 5; shape++) {
            check(ELEMENT_BFLOAT16, head_sizes[size], 4, 100, &shapes[shape], 1);
            check(ELEMENT_BFLOAT16, head_sizes[size], 2, 511, &shapes[shape], 2);
            check(ELEMENT_BFLOAT16, head_sizes[size], 4, 200, &shapes[shape], 3);
        }
    check(ELEMENT_BFLOAT16, 128, 8, 300, &shapes[9], 2);
    check(ELEMENT_BFLOAT16, 128, 4, 100, &shapes[7], 3);
    check(ELEMENT_FLOAT32, 80, 4, 100, &shapes[4], 3);
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
    for (int number = 5; number <= 7; number++) /* many turns of clusters of two; clusters of six */
        for (int size = 0; size < COUNT(head_sizes); size++) {
            check(ELEMENT_BFLOAT16, head_sizes[size], 8, 3900, &shapes[5], number);
            check(ELEMENT_BFLOAT16, head_sizes[size], 5, 900, &(struct shape){80, ATTENTION_TREE, 0, 0}, number);
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
        cmocka_unit_test(some_agree_with_sums_written_out),
        cmocka_unit_test(bfloat16_agrees_with_sums_written_out),
        cmocka_unit_test(float32_agrees_with_sums_written_out),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
