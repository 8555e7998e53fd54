/* The target's steps of one row through the whole backend in bfloat16, by halves of layers where these are small: each
 * is held to the same tokens brought together, as a prompt, which goes through other kernels; near the caches'
 * beginning and behind what halves take. Skipped where there is no GPU that CUDA can use. */
#include "collect/engine/backend.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/sized_models.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS 12
#define CAPACITY 4200
#define TOLERANCE 0.06f /* of the largest: bfloat16, rounded at other places */

static const struct backend_class *cuda;

/* Those with heads of 128 go by halves, with two queries for a KV head or one. */
static const struct sizes models[] = {
    {256, 392, 4, 2, 128, 1002, 8, "{}", "{}"},
    {1024, 3072, 16, 8, 128, 777, 8, "{}", "{}"},
    {384, 1000, 3, 3, 128, 777, 8, "{}", "{}"},
    {320, 640, 5, 1, 64, 515, 16, "{}", "{}"},
};
static const int lengths[] = {1, 15, 500, 4090};

static int find_gpu(void **state)
{
    (void)state;
    cuda = gpu_backend();
    return 0;
}

struct opened {
    struct model *target, *drafter;
    struct backend *backend;
    int vocabulary, features;
};

static struct opened open_model(const struct sizes *sizes, bool drafts)
{
    struct opened opened = {.vocabulary = sizes->vocabulary};
    struct error error = {0};
    char *target = fixture_make_folder(), *drafter = fixture_make_folder();
    sized_models_write(sizes, target, drafter);
    opened.target = model_open_target(target, &error);
    assert_string_equal(error.message, "");
    if (drafts) {
        opened.drafter = model_open_drafter(drafter, opened.target, &error);
        assert_string_equal(error.message, "");
        opened.features = opened.drafter->feature_count * sizes->hidden;
    }
    const struct backend_options options = {.target = opened.target,
                                            .drafter = opened.drafter,
                                            .dtype = ENGINE_BFLOAT16,
                                            .ranks = 1,
                                            .sessions = 2,
                                            .capacity = CAPACITY,
                                            .nodes = 17,
                                            .draft_width = 16,
                                            .vocabulary = sizes->vocabulary,
                                            .algorithms = kept_algorithms()};
    opened.backend = backend_open(cuda, &options, &error);
    assert_string_equal(error.message, "");
    fixture_remove_folder(target);
    fixture_remove_folder(drafter);
    return opened;
}

static void close_model(struct opened *opened)
{
    cuda->close(opened->backend);
    model_close(opened->drafter);
    model_close(opened->target);
}

static struct choice extend(struct opened *opened, int session, const int *tokens, int count)
{
    struct choice choice;
    const struct segment segment = {session, count, tokens, NULL};
    cuda->extend(opened->backend, &segment, 1, &choice);
    return choice;
}

static void compare(const char *what, int length, const float *actual, const float *expected, int count)
{
    float largest = 0;
    for (int i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(expected[i]));
    for (int i = 0; i < count; i++)
        if (!(fabsf(actual[i] - expected[i]) <= TOLERANCE * largest))
            fail_msg("%s behind %d, %d: %g, not %g; the largest %g", what, length, i, (double)actual[i],
                     (double)expected[i], (double)largest);
}

static int largest_of(const float *logits, int count)
{
    int largest = 0;
    for (int i = 1; i < count; i++)
        if (logits[i] > logits[largest])
            largest = i;
    return largest;
}

/* What the last row of session 0 left, and chose, against the same tokens as a prompt of session 1. */
static void check_last(struct opened *opened, const int *tokens, int count)
{
    float *actual = xcalloc((size_t)opened->vocabulary, sizeof(float));
    float *expected = xcalloc((size_t)opened->vocabulary, sizeof(float));
    float *own = xcalloc((size_t)opened->features + 1, sizeof(float));
    float *other = xcalloc((size_t)opened->features + 1, sizeof(float));
    int last = count - 1 - (count - 1) / 2048 * 2048; /* of the prompt's last piece */
    cuda->inspect(opened->backend, INSPECT_LOGITS, 0, 1, actual);
    assert_int_equal(largest_of(actual, opened->vocabulary), tokens[count]);
    if (opened->features)
        cuda->inspect(opened->backend, INSPECT_FEATURES, 0, 1, own);
    cuda->reset(opened->backend, 1, &(struct sampling){.top_p = 1});
    extend(opened, 1, tokens, count);
    cuda->inspect(opened->backend, INSPECT_LOGITS, last, 1, expected);
    if (opened->features)
        cuda->inspect(opened->backend, INSPECT_FEATURES, last, 1, other);
    compare("logit", count - 1, actual, expected, opened->vocabulary);
    compare("feature", count - 1, own, other, opened->features);
    free(actual);
    free(expected);
    free(own);
    free(other);
}

static void check_steps(struct opened *opened, int length)
{
    int tokens[CAPACITY];
    for (int i = 0; i < length; i++)
        tokens[i] = (i * i + 7 * i) % opened->vocabulary;
    cuda->reset(opened->backend, 0, &(struct sampling){.top_p = 1});
    tokens[length] = extend(opened, 0, tokens, length).token;
    for (int step = 0; step < STEPS; step++, length++) {
        tokens[length + 1] = extend(opened, 0, &tokens[length], 1).token;
        if (step % 4 == 3)
            check_last(opened, tokens, length + 1);
    }
}

static void steps_agree_with_prompts(void **state)
{
    (void)state;
    if (!cuda)
        skip();
    for (int i = 0; i <= COUNT(models); i++) { /* with a drafter by turns, the first in both ways */
        struct opened opened = open_model(&models[i % COUNT(models)], i % 2 == 0);
        for (int j = 0; j < COUNT(lengths); j++)
            check_steps(&opened, lengths[j]);
        close_model(&opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_agree_with_prompts)};
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
