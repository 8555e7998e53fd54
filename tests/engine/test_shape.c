/* Shapes without files: published sizes, numbers that stay finite, and what a step of them must read. Sizes are from
 * the models' cards and configs, the mixing of bits from MurmurHash3's own test values. */
#include "collect/engine/backend.h"
#include "collect/engine/bfloat16.h"
#include "collect/engine/cost.h"
#include "collect/engine/shape.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pair {
    struct model *target, *drafter;
};

static struct pair open_shape(const char *name)
{
    struct pair pair = {0};
    struct error error = {0};
    assert_int_equal(shape_open(name, &pair.target, &pair.drafter, &error), 0);
    return pair;
}

static void close_pair(struct pair *pair)
{
    model_close(pair->drafter);
    model_close(pair->target);
}

static void has_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters; /* billions */
        int cache_bytes;   /* of a position, in bfloat16 */
    } shapes[] = {
        {"qwen3-0.6b", .596, 114688}, {"qwen3-1.7b", 1.721, 114688}, {"qwen3-4b", 4.022, 147456},
        {"qwen3-8b", 8.191, 147456},  {"qwen3-14b", 14.768, 163840}, {"qwen3-32b", 32.762, 262144},
        {"qwen3.5-4b", 4.206, 32768}, {"qwen3.5-9b", 8.954, 32768},  {"qwen3.6-27b", 26.896, 65536},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_shape(shapes[i].name);
        assert_true(fabs((double)model_parameter_count(pair.target) * 1e-9 - shapes[i].parameters) < 6e-4);
        int64_t empty = cost_read_bytes(pair.target, NULL, BACKEND_VERIFY, 0, 2);
        assert_int_equal(cost_read_bytes(pair.target, NULL, BACKEND_VERIFY, 1000, 2) - empty,
                         1000 * shapes[i].cache_bytes);
        assert_int_equal(pair.drafter->layer_count, 5);
        assert_int_equal(pair.drafter->block_size, 16);
        close_pair(&pair);
    }
}

/* Of Qwen3.6-27B: 851 tensors of text, states of 150,994,944 bytes and windows of 2,949,120, features after layers 1,
 * 16, 31, 46 and 61; a step reads about 51 GB of weights. */
static void costs_what_is_known_of_qwen36_27b(void **state)
{
    (void)state;
    static const int features[] = {1, 16, 31, 46, 61}, windows[] = {2048, 2048, 2048, 2048, 0};
    struct pair pair = open_shape("qwen3.6-27b");
    assert_int_equal(safetensors_count(pair.target->weights), 851);
    assert_memory_equal(pair.drafter->feature_layers, features, sizeof features);
    assert_memory_equal(pair.drafter->windows, windows, sizeof windows);
    int64_t embedding = pair.target->embedding->elements, vectors = 0, step = 0;
    for (int i = 0; i < safetensors_count(pair.target->weights); i++) {
        const struct tensor *tensor = safetensors_at(pair.target->weights, i);
        vectors += tensor->dimensions != 2 ? tensor->elements : 0; /* convolutions among them */
    }
    step = cost_read_bytes(pair.target, pair.drafter, BACKEND_VERIFY, 0, 2);
    assert_int_equal(step, 2 * (model_parameter_count(pair.target) - embedding - vectors) + 150994944 + 2949120);
    assert_true(fabs((double)step * 1e-9 - 51.4) < .1);
    close_pair(&pair);
}

/* The 8B drafter's published features: layers 1, 9, 17, 25, 33; a pass streams 15.1 GB, and a round 18.5. */
static void costs_what_is_known_of_qwen3_8b(void **state)
{
    (void)state;
    static const int features[] = {1, 9, 17, 25, 33};
    struct pair pair = open_shape("qwen3-8b");
    assert_int_equal(pair.drafter->feature_count, 5);
    assert_memory_equal(pair.drafter->feature_layers, features, sizeof features);
    double verify = (double)cost_read_bytes(pair.target, pair.drafter, BACKEND_VERIFY, 0, 2) * 1e-9;
    double draft = (double)cost_read_bytes(pair.target, pair.drafter, BACKEND_DRAFT, 0, 2) * 1e-9;
    double commit = (double)cost_read_bytes(pair.target, pair.drafter, BACKEND_COMMIT, 0, 2) * 1e-9;
    assert_true(fabs(verify - 15.1) < .1);
    assert_true(fabs(verify + draft + commit - 18.5) < .1);
    /* One token: twice the weights it meets, and attention of one query head at a time over one key. */
    double one = 2 * (verify / 2 * 1e9) + 4.0 * 32 * 128 * 36;
    assert_true(fabs(cost_prefill_flop(pair.target, 1) / one - 1) < 1e-9);
    close_pair(&pair);
}

static void refuses_what_it_does_not_know(void **state)
{
    (void)state;
    struct model *target = NULL, *drafter = NULL;
    struct error error = {0};
    assert_int_equal(shape_open("qwen3-9b", &target, &drafter, &error), -1);
    assert_non_null(strstr(error.message, "no shape \"qwen3-9b\""));
    assert_non_null(strstr(error.message, "qwen3-8b"));
    assert_null(target);
    assert_null(drafter);
}

static void makes_the_elements_that_the_recipe_says(void **state)
{
    (void)state;
    /* MurmurHash3_x86_32 of nothing with seeds 1 and 0xffffffff: its finaliser alone. */
    const struct recipe one = {.seed = 1, .spread = 1}, all = {.seed = 0xffffffffu, .spread = 1};
    assert_true(recipe_element(one, 0) == (float)(0x514e28b7 >> 8) / 8388608.0f - 1.0f);
    assert_true(recipe_element(all, 0) == (float)(0x81f16f39 >> 8) / 8388608.0f - 1.0f);
    struct tensor tensor = {.type = TENSOR_MADE, .elements = 1 << 20, .recipe = {.seed = 5, .spread = .5f}};
    float *values = xcalloc(1 << 20, sizeof *values);
    uint16_t halves[64];
    double sum = 0, squares = 0, neighbours = 0;
    tensor_to_float(&tensor, 0, tensor.elements, values);
    tensor_to_bfloat16(&tensor, 1000, 64, halves);
    for (int i = 0; i < 1 << 20; i++) {
        assert_true(fabsf(values[i]) <= .5f);
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        neighbours += i ? (double)values[i] * (double)values[i - 1] : 0;
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(halves[i], bfloat16_from_float(values[1000 + i]));
    /* A mean's standard error is .29 / 1024. */
    assert_true(fabs(sum / (1 << 20)) < 1.5e-3);
    assert_true(fabs(squares / (1 << 20) - .25 / 3) < 1e-3);
    assert_true(fabs(neighbours / (1 << 20)) < 5e-4);
    free(values);
}

/* Rows that come out of the last norm are of size 1, and so must logits be. */
static void leaves_numbers_of_usual_size(void **state)
{
    (void)state;
    enum { ROWS = 12, VOCABULARY = 2048 };
    const enum engine_dtype types[] = {ENGINE_FLOAT32, ENGINE_BFLOAT16};
    for (int t = 0; t < 4; t++) {
        struct pair pair = open_shape(t < 2 ? "tiny" : "tiny-hybrid");
        struct error error = {0};
        const struct backend_options options = {.target = pair.target,
                                                .drafter = pair.drafter,
                                                .dtype = types[t % 2],
                                                .ranks = 1,
                                                .sessions = 1,
                                                .capacity = 64,
                                                .nodes = 17,
                                                .draft_width = 16,
                                                .vocabulary = VOCABULARY};
        struct backend *backend = backend_cpu.open(&options, &error);
        assert_non_null(backend);
        int prompt[ROWS];
        static float logits[ROWS * VOCABULARY];
        for (int i = 0; i < ROWS; i++)
            prompt[i] = i * 37;
        const struct segment segment = {0, ROWS, prompt, NULL};
        struct choice choice;
        backend_cpu.reset(backend, 0, &(struct sampling){.top_p = 1});
        backend_cpu.extend(backend, &segment, 1, &choice);
        backend_cpu.inspect(backend, INSPECT_LOGITS, 0, ROWS, logits);
        double squares = 0;
        for (int i = 0; i < ROWS * VOCABULARY; i++)
            squares += (double)logits[i] * (double)logits[i];
        double size = sqrt(squares / (ROWS * VOCABULARY));
        assert_true(size > .8 && size < 1.25);
        backend_cpu.close(backend);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_published_sizes),       cmocka_unit_test(costs_what_is_known_of_qwen3_8b),
        cmocka_unit_test(refuses_what_it_does_not_know), cmocka_unit_test(makes_the_elements_that_the_recipe_says),
        cmocka_unit_test(leaves_numbers_of_usual_size),  cmocka_unit_test(costs_what_is_known_of_qwen36_27b),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
