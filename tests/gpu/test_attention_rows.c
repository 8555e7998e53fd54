/* Attention of single rows from the product on: their outputs against the sums written out, and the caches against the
 * kernel that stores heads by itself. Skipped where there is no GPU that CUDA can use. An argument is the name of the
 * only test to run. */
#include "tests/gpu/attention_scene.h"

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
    void *keys = gpu_send_typed(ELEMENT_BFLOAT16, scene.keys, cache);
    void *values = gpu_send_typed(ELEMENT_BFLOAT16, scene.values, cache);
    struct heads_call heads =
        make_heads(&scene, keys, values, device_allocate(queries * 2), number % 2 ? head_size : head_size / 2);
    attend_rows(&scene, &heads);
    heads.keys = gpu_send_typed(ELEMENT_BFLOAT16, scene.keys, cache);
    heads.values = gpu_send_typed(ELEMENT_BFLOAT16, scene.values, cache);
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

static const int sizes[] = {64, 128, 256};
static const struct shape all[] = {{1, ATTENTION_TREE, 0, 0}, {1, ATTENTION_RUN, 64, 1}, {1, ATTENTION_TREE, 9, 0}};

/* Few enough for a sanitizer to watch (sanitize.sh). */
static void some_agree_with_sums_written_out(void **state)
{
    (void)state;
    if (!usable)
        skip();
    for (int size = 0; size < COUNT(sizes); size++) {
        check_single(sizes[size], 4, 17, &all[1], 1);
        check_single(sizes[size], 5, 767, &all[0], 2);
    }
}

static void single_rows_agree_with_sums_written_out(void **state)
{
    static const int more_lengths[] = {15, 16, 17, 300, 767, 2000};
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_agree_with_sums_written_out),
        cmocka_unit_test(single_rows_agree_with_sums_written_out),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
