/* The CPU backend's row operations against plain double-precision arithmetic. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cpu/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 1000 };

/* In either type; what was answered in bfloat16 is what was answered in float32, rounded. */
static void assert_rounded(const float *expected, const uint16_t *answered, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(answered[i], bfloat16_from_float(expected[i]));
}

static void fill(float *x, int count, unsigned seed, float scale)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * 2 * scale;
    }
}

/* silu(x) · 1 reaches the exponential at every x; its error bounds that of exp. */
static void gated_agrees_with_double(void **state)
{
    (void)state;
    float gate[COUNT], up[COUNT], out[COUNT];
    uint16_t rounded[COUNT];
    for (float scale = 0.01f; scale < 2000; scale *= 3) {
        fill(gate, COUNT, 1, scale);
        fill(up, COUNT, 2, 1);
        kernel_gated(PRODUCT_FLOAT32, gate, up, COUNT, out);
        kernel_gated(PRODUCT_BFLOAT16, gate, up, COUNT, rounded);
        assert_rounded(out, rounded, COUNT);
        for (int i = 0; i < COUNT; i++) {
            double expected = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
            assert_true(fabs(out[i] - expected) <= 4e-7 * fabs(expected) + 1e-30);
        }
    }
}

/* Every split of a row into columns that all see, columns with a bias, and columns that none does. */
static void weights_agree_with_double(void **state)
{
    (void)state;
    float x[COUNT], bias[COUNT], scores[COUNT], weights[COUNT];
    uint16_t rounded[COUNT];
    fill(x, COUNT, 3, 30);
    for (int i = 0; i < COUNT; i++)
        bias[i] = i % 7 == 0 ? -INFINITY : 0;
    for (int end = 1; end < COUNT; end += end < 70 ? 1 : 97) {
        struct kernel_columns columns = {end * 5 / 7, end, end + 3};
        bias[0] = columns.first == 0 ? 0 : bias[0];
        double best = -INFINITY, sum = 0;
        for (int i = 0; i < end; i++)
            best = fmax(best, (double)(i < columns.first ? x[i] : x[i] + bias[i - columns.first]));
        memcpy(scores, x, sizeof x);
        float answered = kernel_weigh(PRODUCT_BFLOAT16, scores, bias, columns, rounded);
        memcpy(scores, x, sizeof x);
        assert_float_equal(kernel_weigh(PRODUCT_FLOAT32, scores, bias, columns, weights), answered, 0);
        memcpy(scores, x, sizeof x);
        assert_float_equal(kernel_weigh(PRODUCT_FLOAT32, scores, bias, columns, scores), answered, 0);
        assert_memory_equal(scores, weights, (size_t)columns.all * sizeof *weights);
        assert_rounded(weights, rounded, columns.all);
        for (int i = 0; i < columns.all; i++) {
            bool seen = i < columns.first || (i < end && bias[i - columns.first] == 0);
            double expected = seen ? exp((double)(x[i] - (float)best)) : 0;
            assert_true(fabs(weights[i] - expected) <= 3e-7 * expected + 1e-37);
            assert_true(seen || weights[i] == 0);
            sum += expected;
        }
        assert_float_equal(answered / sum, 1, 1e-6);
    }
}

static void log_sum_agrees_with_double(void **state)
{
    (void)state;
    float x[COUNT];
    fill(x, COUNT, 3, 30);
    for (int count = 1; count < COUNT; count += count < 70 ? 1 : 97) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += exp((double)x[i]);
        assert_float_equal(kernel_log_sum_exp(x, count), log(sum), 2e-6 * fmax(1, fabs(log(sum))));
    }
}

static void norm_agrees_with_double(void **state)
{
    (void)state;
    float x[COUNT], weight[COUNT], out[COUNT];
    uint16_t rounded[COUNT];
    double squares = 0;
    fill(x, COUNT, 4, 3);
    fill(weight, COUNT, 5, 2);
    for (int i = 0; i < COUNT; i++)
        squares += (double)x[i] * (double)x[i];
    kernel_norm(PRODUCT_FLOAT32, x, weight, COUNT, 1e-6f, out);
    kernel_norm(PRODUCT_BFLOAT16, x, weight, COUNT, 1e-6f, rounded);
    assert_rounded(out, rounded, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(out[i], (double)x[i] / sqrt(squares / COUNT + 1e-6) * (double)weight[i], 2e-6);
}

/* Of heads that are rotated whole, in part, and not at all. */
static void heads_agree_with_double(void **state)
{
    (void)state;
    enum { SIZE = 80 };
    float x[SIZE], weight[SIZE], cosines[SIZE / 2], sines[SIZE / 2], out[SIZE];
    uint16_t rounded[SIZE];
    fill(x, SIZE, 6, 2);
    fill(weight, SIZE, 9, 2);
    double squares = 0;
    for (int i = 0; i < SIZE; i++)
        squares += (double)x[i] * (double)x[i];
    for (int i = 0; i < SIZE / 2; i++) {
        cosines[i] = cosf((float)i);
        sines[i] = sinf((float)i);
    }
    for (int rotary = 0; rotary <= SIZE; rotary += 20) {
        const struct kernel_head head = {weight, SIZE, rotary, 1e-6f, 0.3f};
        kernel_rotate(PRODUCT_FLOAT32, &head, x, cosines, sines, out);
        kernel_rotate(PRODUCT_BFLOAT16, &head, x, cosines, sines, rounded);
        assert_rounded(out, rounded, SIZE);
        double normed[SIZE];
        for (int i = 0; i < SIZE; i++)
            normed[i] = (double)x[i] * (double)weight[i] / sqrt(squares / SIZE + 1e-6) * 0.3;
        for (int i = 0, half = rotary / 2; i < SIZE; i++) {
            double expected = i < half     ? normed[i] * cos(i) - normed[i + half] * sin(i)
                              : i < rotary ? normed[i] * cos(i - half) + normed[i - half] * sin(i - half)
                                           : normed[i];
            assert_float_equal(out[i], expected, 1e-6);
        }
    }
}

static void bfloat16_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t half;
    } cases[] = {{0, 0},
                 {1, 0x3f80},
                 {-1, 0xbf80},
                 {1.00390625f, 0x3f80} /* a tie, to even */,
                 {1.01171875f, 0x3f82} /* a tie, to even */,
                 {1.005f, 0x3f81},
                 {3.3895314e38f, 0x7f7f},
                 {INFINITY, 0x7f80}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t half;
        kernel_store(PRODUCT_BFLOAT16, &cases[i].value, 1, 1, &half);
        assert_int_equal(half, cases[i].half);
        assert_int_equal(bfloat16_from_float(cases[i].value), cases[i].half);
    }
    assert_true(isnan(bfloat16_to_float(bfloat16_from_float(NAN))));
}

static void choice_is_the_largest_and_its_lead(void **state)
{
    (void)state;
    float x[COUNT];
    fill(x, COUNT, 7, 5);
    static const int places[][2] = {{0, 1}, {999, 0}, {255, 256}, {256, 255}, {500, 501}, {998, 999}, {0, 999}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        float first = x[places[i][0]], second = x[places[i][1]];
        x[places[i][0]] = 10;
        x[places[i][1]] = 9.25f;
        struct choice choice = kernel_choose(x, COUNT);
        assert_int_equal(choice.token, places[i][0]);
        assert_float_equal(choice.margin, 0.75, 1e-6);
        x[places[i][1]] = 10; /* a tie goes to the lowest index */
        choice = kernel_choose(x, COUNT);
        assert_int_equal(choice.token, places[i][0] < places[i][1] ? places[i][0] : places[i][1]);
        assert_float_equal(choice.margin, 0, 0);
        x[places[i][0]] = first;
        x[places[i][1]] = second;
    }
}

/* Rows in which most values are none, or all are equal: the same choices as on a GPU. */
static void choice_is_never_outside_the_row(void **state)
{
    (void)state;
    static const int expected[] = {0, 0, COUNT - 1, 500};
    for (int row = 0; row < 4; row++) {
        float *x = malloc(COUNT * sizeof *x); /* a sanitizer sees what is read behind it */
        assert_non_null(x);
        for (int i = 0; i < COUNT; i++) {
            float rows[] = {NAN, -INFINITY, i == COUNT - 1 ? -INFINITY : NAN,
                            i == 500 || i == 900 ? INFINITY : (float)(i % 9)};
            x[i] = rows[row];
        }
        struct choice choice = kernel_choose(x, COUNT);
        assert_int_equal(choice.token, expected[row]);
        assert_true(isnan(choice.margin));
        free(x);
    }
}

static void top_is_sorted_with_ties_by_index(void **state)
{
    (void)state;
    float x[COUNT], values[COUNT];
    int indices[COUNT];
    fill(x, COUNT, 8, 4);
    for (int i = 0; i < COUNT; i++)
        x[i] = roundf(x[i] * 8) / 8; /* many ties */
    for (int width = 1; width <= COUNT; width = width < 4               ? width + 1
                                                : width * 5 / 2 < COUNT ? width * 5 / 2
                                                : width < COUNT         ? COUNT
                                                                        : COUNT + 1) {
        kernel_top(x, COUNT, width, indices, values);
        for (int rank = 0; rank < width; rank++) {
            int before = 0; /* how many stand before this one in the full order */
            for (int i = 0; i < COUNT; i++)
                before += x[i] > x[indices[rank]] || (i < indices[rank] && x[i] == x[indices[rank]]);
            assert_int_equal(before, rank);
            assert_float_equal(values[rank], x[indices[rank]], 0);
        }
    }
}

/* Four rows in each type; the sum through silu. */
static void convolutions_agree_with_double(void **state)
{
    (void)state;
    enum { TAPS = 4 };
    float rows[TAPS][COUNT], weights[TAPS][COUNT], out[COUNT];
    uint16_t halves[TAPS][COUNT];
    fill(rows[0], TAPS * COUNT, 21, 3);
    fill(weights[0], TAPS * COUNT, 22, 2);
    for (int i = 0; i < TAPS * COUNT; i++)
        halves[i / COUNT][i % COUNT] = bfloat16_from_float(rows[i / COUNT][i % COUNT]);
    for (int t = 0; t < 2; t++) {
        const void *pointers[TAPS];
        for (int tap = 0; tap < TAPS; tap++)
            pointers[tap] = t ? (const void *)halves[tap] : rows[tap];
        kernel_convolve(t ? PRODUCT_BFLOAT16 : PRODUCT_FLOAT32, pointers, weights[0], TAPS, COUNT, out);
        for (int i = 0; i < COUNT; i++) {
            double sum = 0;
            for (int tap = 0; tap < TAPS; tap++)
                sum += (double)weights[tap][i] * (double)(t ? bfloat16_to_float(halves[tap][i]) : rows[tap][i]);
            assert_float_equal(out[i], sum / (1 + exp(-sum)), 1e-5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gated_agrees_with_double),
        cmocka_unit_test(weights_agree_with_double),
        cmocka_unit_test(log_sum_agrees_with_double),
        cmocka_unit_test(norm_agrees_with_double),
        cmocka_unit_test(heads_agree_with_double),
        cmocka_unit_test(bfloat16_rounds_to_nearest_even),
        cmocka_unit_test(choice_is_the_largest_and_its_lead),
        cmocka_unit_test(choice_is_never_outside_the_row),
        cmocka_unit_test(top_is_sorted_with_ties_by_index),
        cmocka_unit_test(convolutions_agree_with_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
