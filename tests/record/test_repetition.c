#include "collect/record/repetition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LENGTH 200

/* Different tokens, but for `covered` of them from `from` on, which have this period. */
static void fill(int *ids, int from, int covered, int period)
{
    for (int i = 0; i < LENGTH; i++)
        ids[i] = 1000 + i;
    for (int i = from + period; i < from + covered; i++)
        ids[i] = ids[i - period];
}

static void test_cycles_of_every_period(void **state)
{
    (void)state;
    int ids[LENGTH];
    for (int period = 1; period <= 40; period++) {
        int covered = 3 * period;
        fill(ids, 11, covered, period);
        assert_int_equal(repetition_longest_cycle(ids, LENGTH), period <= REPETITION_PERIOD_MAXIMUM ? covered : 0);
        fill(ids, 11, covered - 1, period);
        assert_int_equal(repetition_longest_cycle(ids, LENGTH), 0);
        fill(ids, LENGTH - covered - 2, covered + 2, period);
        assert_int_equal(repetition_longest_cycle(ids, LENGTH), period <= REPETITION_PERIOD_MAXIMUM ? covered + 2 : 0);
    }
}

static void test_a_quarter_is_enough(void **state)
{
    (void)state;
    int ids[LENGTH];
    fill(ids, 30, 50, 7);
    assert_true(repetition_found(ids, LENGTH));
    fill(ids, 30, 49, 7);
    assert_false(repetition_found(ids, LENGTH));
}

static void test_short_outputs(void **state)
{
    (void)state;
    const int ids[3] = {5, 5, 5};
    assert_false(repetition_found(ids, 0));
    assert_false(repetition_found(ids, 1));
    assert_false(repetition_found(ids, 2));
    assert_true(repetition_found(ids, 3));
    assert_int_equal(repetition_longest_cycle(ids, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cycles_of_every_period),
        cmocka_unit_test(test_a_quarter_is_enough),
        cmocka_unit_test(test_short_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
