#include "collect/session.h"

#include "collect/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct judged attempt_at(const char *boot_id, const char *started)
{
    return (struct judged){.attempt = {.boot_id = (char *)boot_id, .started = (char *)started}};
}

static void splits_by_boot_and_by_twelve_hours(void **state)
{
    (void)state;
    struct judged attempts[] = {
        attempt_at("b", "2026-03-01T08:00:00Z"),
        attempt_at("a", "2026-03-01T21:00:01Z"),
        attempt_at("a", "2026-03-01T09:00:00Z"),
        attempt_at("a", "2026-03-01T21:00:00Z"),
        attempt_at("a", NULL),
        attempt_at(NULL, "2026-03-01T09:00:00Z"),
    };
    struct run run = {.attempts = attempts, .attempt_count = 6};
    struct sessions sessions;
    sessions_init(&run, "a", clock_parse_utc("2026-03-02T09:00:01Z"), &sessions);
    const int *of = sessions.of_attempt;
    assert_int_equal(of[2], of[3]);     /* 12 hours after the first, on the second */
    assert_int_not_equal(of[1], of[2]); /* a second later */
    assert_int_not_equal(of[0], of[2]); /* another boot */
    assert_int_equal(of[4], -1);        /* nobody knows when */
    assert_int_equal(of[5], -1);        /* nobody knows where */
    assert_int_equal(sessions.current, of[1]);
    sessions_free(&sessions);

    sessions_init(&run, "a", clock_parse_utc("2026-03-02T09:00:02Z"), &sessions);
    for (int i = 0; i < 6; i++)
        assert_int_not_equal(sessions.current, sessions.of_attempt[i]);
    sessions_free(&sessions);

    sessions_init(&run, "b", clock_parse_utc("2026-03-01T10:00:00Z"), &sessions);
    assert_int_equal(sessions.current, sessions.of_attempt[0]);
    sessions_free(&sessions);
}

static void begins_a_session_where_there_is_none(void **state)
{
    (void)state;
    struct run run = {0};
    struct sessions sessions;
    sessions_init(&run, "a", clock_parse_utc("2026-03-01T10:00:00Z"), &sessions);
    assert_int_equal(sessions.current, 0);
    sessions_free(&sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_by_boot_and_by_twelve_hours),
        cmocka_unit_test(begins_a_session_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
