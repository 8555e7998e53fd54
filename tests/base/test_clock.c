#include "collect/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Pairs that `date -u -d @SECONDS` gives. */
static const struct {
    int64_t seconds;
    const char *text;
} known[] = {
    {0, "1970-01-01T00:00:00Z"},          {951782399, "2000-02-28T23:59:59Z"},    {951782400, "2000-02-29T00:00:00Z"},
    {1709164800, "2024-02-29T00:00:00Z"}, {2147483647, "2038-01-19T03:14:07Z"},   {2147483648, "2038-01-19T03:14:08Z"},
    {4102444800, "2100-01-01T00:00:00Z"}, {253402300799, "9999-12-31T23:59:59Z"},
};

static void agrees_with_known_times(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[CLOCK_UTC_SIZE];
        assert_ptr_equal(clock_format_utc(known[i].seconds, text), text);
        assert_string_equal(text, known[i].text);
        assert_int_equal(clock_parse_utc(known[i].text), known[i].seconds);
    }
}

static void reads_back_what_it_wrote(void **state)
{
    (void)state;
    for (int64_t seconds = 0; seconds < 253402300800; seconds += 86399 * 97) {
        char text[CLOCK_UTC_SIZE];
        assert_int_equal(clock_parse_utc(clock_format_utc(seconds, text)), seconds);
    }
}

static void refuses_other_forms_and_times_that_do_not_exist(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "2026",
        "2026-11-29",
        "2026-11-29T17:35:51",
        "2026-11-29T17:35:51z",
        "2026-11-29T17:35:51+00:00",
        "2026-11-29T17:35:51.5Z",
        "2026-11-29 17:35:51Z",
        "2026-11-29T17:35:51Z ",
        " 2026-11-29T17:35:51Z",
        "2026-1-29T17:35:51Z",
        "+026-11-29T17:35:51Z",
        "2026-11-+9T17:35:51Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T17:60:00Z",
        "2026-11-29T17:35:60Z",
        "1969-12-31T23:59:59Z",
        "12026-11-29T17:35:51Z",
        "2026-11-29T17:35:51Z2026-11-29T17:35:51Z",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (clock_parse_utc(wrong[i]) != -1)
            fail_msg("\"%s\" was read", wrong[i]);
}

static void runs(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 2000000};
    int64_t before = clock_now_ns();
    nanosleep(&pause, NULL);
    int64_t passed = clock_now_ns() - before;
    assert_true(passed >= 2000000 && passed < 60000000000);
    assert_true(clock_wall_s() > 1700000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_known_times),
        cmocka_unit_test(reads_back_what_it_wrote),
        cmocka_unit_test(refuses_other_forms_and_times_that_do_not_exist),
        cmocka_unit_test(runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
