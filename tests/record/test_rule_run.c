/* What only other attempts and the ledger show of an attempt: copies, and clocks that ran ahead. */
#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/record/run.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An attempt of arm tp1-b16 with two requests of "code" and one of "maths"; `later_ns` is added to the decode time of
 * code's last. version: of the server, NULL: it was none. */
static void write_served(int block, const char *started, int64_t later_ns, const char *version)
{
    struct error error = {0};
    char hex[FILE_HASH_SIZE], *home = xformat("%s/attempts/tp1-b16", fixture_folder),
                              *path = xformat("%s/%d-1.jsonl", home, block);
    json_t *header = fixture_header("tp1-b16", block, 1);
    json_set(header, "started", json_text(started));
    if (version)
        json_set(header, "server", json_pack("{s:s, s:s}", "model", "m", "version", version));
    assert_int_equal(file_make_folder(home, &error), 0);
    struct attempt_writer *writer = attempt_writer_open(path, header, &error);
    static const char *const places[][2] = {{"code", "a"}, {"code", "b"}, {"maths", "a"}};
    for (int i = 0; i < 3; i++) {
        struct sample sample;
        fixture_sample(&sample, places[i][0], places[i][1]);
        sample.start_ns += i == 2 ? block : 0;
        sample.decode_ns += i == 1 ? later_ns : 0;
        assert_int_equal(attempt_writer_add(writer, sample_to_json(&sample), &error), 0);
        sample_free(&sample);
    }
    assert_int_equal(attempt_writer_end(writer, &(struct attempt_end){.status = "complete"}, hex, &error), 0);
    free(home);
    free(path);
}

static void write_attempt(int block, const char *started, int64_t later_ns)
{
    write_served(block, started, later_ns, NULL);
}

static void read_well(const struct rule_settings *settings, struct run *run)
{
    struct error error = {0};
    fixture_enter(fixture_folder);
    run_read(fixture_folder, settings, run, &error);
    assert_string_equal(error.message, "");
}

static const struct verdict *find(const struct run *run, int attempt, enum rule_id rule)
{
    const struct verdicts *verdicts = &run->attempts[attempt].verdicts;
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].rule == rule)
            return &verdicts->items[i];
    return NULL;
}

#define STARTED "2026-03-01T12:00:00Z"

static void test_a_copy_is_invalid_and_its_original_is_not(void **state)
{
    (void)state;
    struct run run;
    write_attempt(2, STARTED, 0);
    fixture_enter(fixture_folder); /* the ledger knows it first */
    write_attempt(1, STARTED, 0);
    write_attempt(3, STARTED, 1);
    read_well(NULL, &run);
    const struct verdict *copy = find(&run, 0, RULE_DUPLICATE);
    assert_non_null(copy);
    assert_int_equal(copy->level, RULE_INVALID);
    assert_string_equal(copy->workload, "code");
    assert_true(copy->observed == 8);
    assert_non_null(strstr(copy->detail, "demo/tp1-b16/2-1"));
    assert_null(find(&run, 1, RULE_DUPLICATE));
    assert_null(find(&run, 2, RULE_DUPLICATE)); /* one nanosecond is another */
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(fixture_folder, &ledger, &error), 0);
    int verdicts = run.attempts[0].verdicts.count;
    run_update(&run, &ledger, NULL);
    assert_int_equal(run.attempts[0].verdicts.count, verdicts);
    ledger_close(&ledger);
    run_free(&run);
}

static void write_at(int block, int64_t from_now_s)
{
    char started[CLOCK_UTC_SIZE];
    write_attempt(block, clock_format_utc(clock_wall_s() + from_now_s, started), block);
}

static void test_a_clock_that_ran_ahead_is_suspect(void **state)
{
    (void)state;
    struct run run;
    write_at(1, 240);
    write_at(2, 400);
    write_at(3, -400);
    read_well(NULL, &run);
    assert_null(find(&run, 0, RULE_CLOCK));
    assert_null(find(&run, 2, RULE_CLOCK));
    const struct verdict *ahead = find(&run, 1, RULE_CLOCK);
    assert_non_null(ahead);
    assert_int_equal(ahead->level, RULE_SUSPECT);
    assert_null(ahead->workload);
    assert_true(ahead->observed > 300 && ahead->observed <= 400 && ahead->threshold == 300);
    run_free(&run);
}

static void test_a_longer_lead_that_the_plan_allows_is_noted(void **state)
{
    (void)state;
    struct run run;
    struct rule_settings settings;
    struct error error = {0};
    rule_settings_read(NULL, "", &settings, &error);
    settings.threshold[RULE_CLOCK] = 1000;
    write_at(1, 400);
    read_well(&settings, &run);
    assert_int_equal(find(&run, 0, RULE_CLOCK)->level, RULE_NOTE);
    run_free(&run);
}

/* --- clocks ------------------------------------------------------------------------------------------------------- */

/* An attempt of one request from 1000 ns on with two readings of a device within it, and one afterwards. */
static void write_clocks(const char *arm, int block, int device, double clock_mhz, bool capped)
{
    struct error error = {0};
    char hex[FILE_HASH_SIZE], *home = xformat("%s/attempts/%s", fixture_folder, arm),
                              *path = xformat("%s/%d-1.jsonl", home, block);
    struct sample sample;
    fixture_sample(&sample, "code", "a");
    sample.start_ns += block; /* no copy */
    assert_int_equal(file_make_folder(home, &error), 0);
    struct attempt_writer *writer = attempt_writer_open(path, fixture_header(arm, block, 1), &error);
    assert_int_equal(attempt_writer_add(writer, sample_to_json(&sample), &error), 0);
    for (int i = 0; i < 3; i++) {
        json_t *line =
            json_pack("{s:s, s:i, s:I, s:f, s:[s]}", "type", "telemetry", "device", device, "time_ns",
                      (json_int_t)(i == 2 ? sample.end_ns + 1 : sample.start_ns + i), "clock_mhz",
                      i == 2 ? 300.0 : clock_mhz, "throttle", capped || i == 2 ? "sw_power_cap" : "sync_boost");
        assert_int_equal(attempt_writer_add(writer, line, &error), 0);
    }
    assert_int_equal(attempt_writer_end(writer, &(struct attempt_end){.status = "complete"}, hex, &error), 0);
    sample_free(&sample);
    free(home);
    free(path);
}

/* An attempt whose clock was low from beginning to end has a median as low: only the others show it. */
static void test_a_clock_under_the_cap_stands_beside_those_of_the_cell(void **state)
{
    (void)state;
    struct run run;
    for (int block = 1; block <= 5; block++)
        write_clocks("tp1-b16", block, 0, block == 4 ? 1875 : block == 5 ? 1900 : 2000, block >= 4);
    for (int block = 1; block <= 3;
         block++) /* another arm is another cell, and slow without the cap is no throttling */
        write_clocks("tp1-b64", block, 0, block == 3 ? 1000 : 1500, block == 1);
    read_well(NULL, &run);
    assert_int_equal(run.attempt_count, 8);
    for (int i = 0; i < 8; i++)
        assert_true((find(&run, i, RULE_THROTTLED) != NULL) == (i == 3));
    const struct verdict *verdict = find(&run, 3, RULE_THROTTLED);
    assert_int_equal(verdict->level, RULE_SUSPECT);
    assert_true(verdict->observed == .9375 && verdict->threshold == .95);
    assert_non_null(strstr(verdict->detail, "device 0"));
    int verdicts = run.attempts[3].verdicts.count;
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(fixture_folder, &ledger, &error), 0);
    run_update(&run, &ledger, NULL);
    assert_int_equal(run.attempts[3].verdicts.count, verdicts);
    ledger_close(&ledger);
    run_free(&run);
}

static void test_devices_are_compared_with_themselves(void **state)
{
    (void)state;
    struct run run;
    write_clocks("tp1-b16", 1, 0, 2000, false);
    write_clocks("tp1-b16", 2, 1, 1000, true);
    write_clocks("tp1-b16", 3, 0, 2000, true);
    read_well(NULL, &run);
    for (int i = 0; i < 3; i++)
        assert_null(find(&run, i, RULE_THROTTLED));
    run_free(&run);
}

/* What the newest attempt ran on counts; which is newest, the ledger says. */
static void test_a_server_that_changed_begins_anew(void **state)
{
    (void)state;
    static const char *const versions[] = {"0.5.5", "0.5.6", "0.5.5"};
    struct run run;
    write_served(1, STARTED, 1, versions[0]);
    write_served(3, STARTED, 3, versions[2]);
    fixture_enter(fixture_folder);
    read_well(NULL, &run);
    for (int i = 0; i < 2; i++)
        assert_null(find(&run, i, RULE_FINGERPRINT));
    run_free(&run);
    write_served(2, STARTED, 2, versions[1]);
    read_well(NULL, &run);
    for (int i = 0; i < 3; i++) {
        const struct verdict *verdict = find(&run, i, RULE_FINGERPRINT);
        assert_true((verdict != NULL) == (i != 1));
        if (verdict)
            assert_string_equal(verdict->detail, "the server was \"0.5.5\" with \"m\"; in demo/tp1-b16/2-1, which is "
                                                 "newer, it is \"0.5.6\" with \"m\"");
    }
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_copy_is_invalid_and_its_original_is_not, fixture_set_up,
                                        fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_a_clock_that_ran_ahead_is_suspect, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_a_longer_lead_that_the_plan_allows_is_noted, fixture_set_up,
                                        fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_a_clock_under_the_cap_stands_beside_those_of_the_cell, fixture_set_up,
                                        fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_devices_are_compared_with_themselves, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_a_server_that_changed_begins_anew, fixture_set_up, fixture_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
