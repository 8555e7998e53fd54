#include "render/axes.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <string.h>

static void check_ticks(const struct axis *axis, int count, const char *const *labels)
{
    assert_int_equal(axis->tick_count, count);
    for (int i = 0; i < count; i++) {
        char label[AXES_LABEL_CAPACITY];
        axis_label(axis, i, label);
        assert_string_equal(label, labels[i]);
    }
}

static void test_linear_axes_end_at_nice_numbers(void **state)
{
    (void)state;
    struct axis axis;
    axis_init(&axis, AXIS_LINEAR, 0, 47.3, 100, 0, 5);
    check_ticks(&axis, 6, (const char *const[]){"0", "10", "20", "30", "40", "50"});
    assert_float_equal(axis_position(&axis, 0), 100, 1e-9);
    assert_float_equal(axis_position(&axis, 50), 0, 1e-9);
    assert_float_equal(axis_position(&axis, 25), 50, 1e-9);
    axis_init(&axis, AXIS_LINEAR, -.07, .13, 0, 1, 4);
    check_ticks(&axis, 6, (const char *const[]){"−0.10", "−0.05", "0.00", "0.05", "0.10", "0.15"});
    assert_true(axis.high >= .13);
}

static void test_wide_log_axes_have_powers_of_two(void **state)
{
    (void)state;
    struct axis axis;
    axis_init(&axis, AXIS_LOG2, 7, 70, 0, 100, 6);
    check_ticks(&axis, 4, (const char *const[]){"8", "16", "32", "64"});
    assert_float_equal(axis_position(&axis, 7), 0, 1e-9);
    assert_float_equal(axis_position(&axis, 70), 100, 1e-9);
    assert_float_equal(axis_position(&axis, sqrt(7. * 70.)), 50, 1e-9);
    axis_init(&axis, AXIS_LOG2, 1, 1024, 0, 100, 4);
    assert_true(axis.tick_count <= 5);
}

static void test_labels_of_small_powers_stay_short(void **state)
{
    (void)state;
    char text[AXES_LABEL_CAPACITY];
    for (double low = 1e-4; low < 1; low *= 1.7) {
        struct axis axis;
        axis_init(&axis, AXIS_LOG2, low, 100 * low, 0, 100, 5);
        assert_in_range(axis.tick_count, 2, 8);
        for (int i = 0; i < axis.tick_count; i++) {
            axis_label(&axis, i, text);
            assert_in_range(strlen(text), 1, 6); /* 0.0001, 0.0625 */
        }
    }
}

static void test_log_axes_around_one_have_a_tick_there(void **state)
{
    (void)state;
    struct axis axis;
    axis_init(&axis, AXIS_LOG2, .6, 2.1, 0, 100, 5);
    check_ticks(&axis, 4, (const char *const[]){"0.75", "1", "1.5", "2"});
    axis_init(&axis, AXIS_LOG2, .93, 1.12, 0, 100, 4);
    check_ticks(&axis, 4, (const char *const[]){"0.95", "1.00", "1.05", "1.10"});
}

static void test_ticks_never_overflow(void **state)
{
    (void)state;
    const double highs[] = {1.0001, 1.5, 3, 17, 1e3, 1e12};
    for (int i = 0; i < 6; i++)
        for (int wanted = 0; wanted < 100; wanted += 9)
            for (int scale = AXIS_LINEAR; scale <= AXIS_LOG2; scale++) {
                struct axis axis;
                axis_init(&axis, (enum axis_scale)scale, 1, highs[i], 0, 100, wanted);
                assert_in_range(axis.tick_count, 1, AXES_TICKS_MAXIMUM);
                for (int tick = 0; tick < axis.tick_count; tick++)
                    assert_true(axis_position(&axis, axis.ticks[tick]) > -1e-6 &&
                                axis_position(&axis, axis.ticks[tick]) < 100 + 1e-6);
            }
}

/* Ends so small, or so close to each other, that a step is lost in rounding. */
static void test_ticks_come_to_an_end(void **state)
{
    (void)state;
    const double ranges[][2] = {{0, 1e-300},       {0, 5e-320},   {1e15, 1e15 + 1},
                                {1e17, 1e17 + 16}, {-1e15, 1e15}, {1, 1 + 1e-15}};
    for (int i = 0; i < 6; i++)
        for (int wanted = 1; wanted < 12; wanted++) {
            struct axis axis;
            axis_init(&axis, AXIS_LINEAR, ranges[i][0], ranges[i][1], 0, 100, wanted);
            assert_in_range(axis.tick_count, 1, AXES_TICKS_MAXIMUM);
            for (int tick = 0; tick < axis.tick_count; tick++) {
                char label[AXES_LABEL_CAPACITY];
                axis_label(&axis, tick, label);
                assert_true(strlen(label) > 0);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_axes_end_at_nice_numbers),
        cmocka_unit_test(test_wide_log_axes_have_powers_of_two),
        cmocka_unit_test(test_labels_of_small_powers_stay_short),
        cmocka_unit_test(test_log_axes_around_one_have_a_tick_there),
        cmocka_unit_test(test_ticks_never_overflow),
        cmocka_unit_test(test_ticks_come_to_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
