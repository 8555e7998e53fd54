/* Which attempt counts in each block of a cell, and the reason where none does. */
#include "tests/analyze/campaign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void add(struct campaign *campaign, const char *arm, int block, int try_number)
{
    campaign_add(campaign, &(struct campaign_attempt){arm, block, try_number, 1000, 1000});
}

static void assert_counted(const struct cell *cell, int block, const char *id)
{
    assert_non_null(cell->blocks[block - 1].counted);
    assert_string_equal(cell->blocks[block - 1].counted->attempt.id, id);
    assert_null(cell->blocks[block - 1].reason.rule);
}

static void assert_missing(const struct cell *cell, int block, const char *rule)
{
    assert_null(cell->blocks[block - 1].counted);
    assert_string_equal(cell->blocks[block - 1].reason.rule, rule);
    assert_non_null(cell->blocks[block - 1].reason.detail);
}

static void test_each_block_has_its_attempt(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 2; block++)
        add(&campaign, "tp1-b16", block, 1);
    campaign_read(&campaign);
    const struct cell *cell = campaign_cell(&campaign, "tp1-b16", "maths");
    assert_counted(cell, 1, "demo/tp1-b16/1-1");
    assert_counted(cell, 2, "demo/tp1-b16/2-1");
    assert_missing(cell, 3, "NOT_MEASURED");
    assert_int_equal(cell->tries, 2);
    assert_int_equal(campaign_cell(&campaign, "tp1-b8", "maths")->tries, 0);
    campaign_close(&campaign);
}

static void test_invalid_block_has_its_rule(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 2, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .torn = true});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 2, 1, 1000, 1000, .failed_prompt = 2});
    campaign_read(&campaign);
    assert_missing(campaign_cell(&campaign, "tp1-b16", "code"), 1, "INCOMPLETE");
    assert_missing(campaign_cell(&campaign, "tp1-b16", "maths"), 1, "INCOMPLETE");
    assert_missing(campaign_cell(&campaign, "tp1-b16", "code"), 2, "FAILED_REQUEST");
    assert_counted(campaign_cell(&campaign, "tp1-b16", "maths"), 2, "demo/tp1-b16/2-1");
    campaign_close(&campaign);
}

static void test_last_valid_try_counts(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    add(&campaign, "tp1-b16", 1, 1);
    add(&campaign, "tp1-b16", 1, 2);
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 3, 1000, 1000, .torn = true});
    campaign_read(&campaign);
    assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 1, "demo/tp1-b16/1-2");
    assert_int_equal(campaign_cell(&campaign, "tp1-b16", "code")->tries, 3);
    campaign_close(&campaign);
}

/* Three blocks under old settings, and `newer_blocks` of them again under new ones. */
static void open_with_two_settings(struct campaign *campaign, int newer_blocks)
{
    campaign_open(campaign, 3, "{}");
    for (int block = 1; block <= 3; block++)
        add(campaign, "tp1-b16", block, 1);
    for (int block = 1; block <= newer_blocks; block++)
        campaign_add(campaign, &(struct campaign_attempt){"tp1-b16", block, 2, 900, 900, "2026-03-01T13:00:00Z",
                                                          .cell_suffix = "newer"});
    campaign_read(campaign);
}

static void test_new_settings_wait_for_enough_blocks(void **state)
{
    (void)state;
    struct campaign campaign;
    open_with_two_settings(&campaign, 2);
    const struct cell *cell = campaign_cell(&campaign, "tp1-b16", "code");
    for (int block = 1; block <= 3; block++)
        assert_int_equal(cell->blocks[block - 1].counted->attempt.try_number, 1);
    campaign_close(&campaign);
}

static void test_newest_settings_with_enough_blocks_count_alone(void **state)
{
    (void)state;
    struct campaign campaign;
    open_with_two_settings(&campaign, 3);
    const struct cell *cell = campaign_cell(&campaign, "tp1-b16", "code");
    for (int block = 1; block <= 3; block++)
        assert_int_equal(cell->blocks[block - 1].counted->attempt.try_number, 2);
    campaign_close(&campaign);
}

static void test_other_settings_leave_a_gap(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 2, "{}");
    add(&campaign, "tp1-b16", 1, 1);
    campaign_add(&campaign,
                 &(struct campaign_attempt){"tp1-b16", 2, 1, 900, 900, "2026-03-01T13:00:00Z", .cell_suffix = "newer"});
    campaign_read(&campaign);
    assert_missing(campaign_cell(&campaign, "tp1-b16", "code"), 1, "FINGERPRINT");
    assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 2, "demo/tp1-b16/2-1");
    campaign_close(&campaign);
}

/* All of two workloads, then one of them again under settings of which a summary has only one. */
static void test_workloads_of_other_settings_do_not_count_beside_the_newest(void **state)
{
    (void)state;
    static const struct campaign_attempt newer[] = {
        {.dtype = "bfloat16"}, {.temperature = .8}, {.drafter = "y"}, {.cpu = "other"}, {.device = "cuda"}};
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        const char *rule = newer[i].cpu || newer[i].device ? "MIXED_DEVICES" : "FINGERPRINT";
        struct campaign campaign;
        campaign_open(&campaign, 3, "{}");
        for (int block = 1; block <= 3; block++) {
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 1000, 1000, .drafter = "x"});
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1000, 1000, .drafter = "x"});
            struct campaign_attempt again = newer[i];
            again.arm = "tp1-b16", again.block = block, again.try_number = 2, again.code_tpot_ns = 900;
            again.started = "2026-03-01T13:00:00Z", again.cell_suffix = "newer";
            campaign_add(&campaign, &again);
        }
        campaign_read(&campaign);
        for (int block = 1; block <= 3; block++) {
            assert_int_equal(campaign_cell(&campaign, "tp1-b16", "code")->blocks[block - 1].counted->attempt.try_number,
                             2);
            assert_missing(campaign_cell(&campaign, "tp1-b16", "maths"), block, rule);
        }
        const struct comparison *all = campaign_comparison(&campaign, "tp1-b16", "tp1-auto", NULL);
        assert_string_equal(all->pairs[0].reason.rule, rule);
        campaign_close(&campaign);
    }
}

static void note_begin(struct ledger *ledger, const char *id)
{
    struct error error = {0};
    assert_int_equal(ledger_append(ledger, LEDGER_COLLECT, "begin", json_pack("{s:s}", "attempt", id), &error), 0);
}

/* The same files under another path are the same model: what is measured anew takes nothing away. */
static void test_a_model_that_was_moved_is_the_same(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        add(&campaign, "tp1-b8", block, 1);
        add(&campaign, "tp1-b16", block, 1);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 2, 900, .started = "2026-03-01T13:00:00Z",
                                                           .cell_suffix = "newer", .target_path = "elsewhere"});
    }
    campaign_read(&campaign);
    assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 1, "demo/tp1-b16/1-2");
    assert_counted(campaign_cell(&campaign, "tp1-b16", "maths"), 1, "demo/tp1-b16/1-1");
    assert_counted(campaign_cell(&campaign, "tp1-b8", "code"), 1, "demo/tp1-b8/1-1");
    campaign_close(&campaign);
}

/* In that order. */
static void note_begun(const struct campaign *campaign, const char *const *ids)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(campaign->folder, &ledger, &error), 0);
    for (; *ids; ids++)
        note_begin(&ledger, *ids);
    ledger_close(&ledger);
}

/* Arms that were asked for other outputs stand in no row beside those that were not; what a header does not say is the
 * default, and no other. */
static void test_arms_of_a_workload_are_asked_the_same(void **state)
{
    (void)state;
    static const char *const begun[] = {"demo/tp1-b8/1-1",
                                        "demo/tp1-b8/2-1",
                                        "demo/tp1-b8/3-1",
                                        "demo/tp1-b16/1-1",
                                        "demo/tp1-b16/2-1",
                                        "demo/tp1-b16/3-1",
                                        NULL};
    for (int asked = 0; asked <= 13; asked += 13) {
        struct campaign campaign;
        campaign_open(&campaign, 3, "{}");
        for (int block = 1; block <= 3; block++) {
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", block, 1, 1000, 1000, .asked = asked});
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 900, 900, .asked = 14});
        }
        note_begun(&campaign, begun);
        campaign_read(&campaign);
        assert_missing(campaign_cell(&campaign, "tp1-b8", "code"), 1, "FINGERPRINT");
        assert_counted(campaign_cell(&campaign, "tp1-b8", "maths"), 1, "demo/tp1-b8/1-1");
        assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 1, "demo/tp1-b16/1-1");
        campaign_close(&campaign);
    }
}

/* The first attempt under an amended plan, with too few blocks under the one before: valid it is what the others are
 * held against, torn it takes nothing away, not even from its own cell. */
static void test_what_does_not_count_settles_nothing(void **state)
{
    (void)state;
    static const char *const begun[] = {"demo/tp1-b8/1-1", "demo/tp1-b16/1-1", "demo/tp1-b16/1-2", NULL};
    for (int torn = 0; torn <= 1; torn++) {
        struct campaign campaign;
        campaign_open(&campaign, 3, "{}");
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 1, 1, 1000, 1000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 2, 900, 900, .dtype = "bfloat16",
                                                           .cell_suffix = "newer", .torn = torn});
        note_begun(&campaign, begun);
        campaign_read(&campaign);
        if (torn) {
            assert_counted(campaign_cell(&campaign, "tp1-b8", "code"), 1, "demo/tp1-b8/1-1");
            assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 1, "demo/tp1-b16/1-1");
        } else {
            assert_missing(campaign_cell(&campaign, "tp1-b8", "code"), 1, "FINGERPRINT");
            assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 1, "demo/tp1-b16/1-2");
        }
        campaign_close(&campaign);
    }
}

static void test_the_ledger_says_what_is_newest(void **state)
{
    (void)state;
    struct campaign campaign;
    struct ledger ledger;
    struct error error = {0};
    campaign_open(&campaign, 2, "{}");
    add(&campaign, "tp1-b16", 1, 1);
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 2, 1, 900, 900, "2025-01-01T00:00:00Z",
                                                       .cell_suffix = "newer"}); /* the clock was wrong */
    assert_int_equal(ledger_open(campaign.folder, &ledger, &error), 0);
    note_begin(&ledger, "demo/tp1-b16/1-1");
    note_begin(&ledger, "demo/tp1-b16/2-1");
    ledger_close(&ledger);
    campaign_read(&campaign);
    assert_missing(campaign_cell(&campaign, "tp1-b16", "code"), 1, "FINGERPRINT");
    assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 2, "demo/tp1-b16/2-1");
    campaign_close(&campaign);
}

static void test_blocks_beyond_the_plan_are_seen(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    add(&campaign, "tp1-b16", 4, 1);
    campaign_read(&campaign);
    assert_int_equal(campaign.cells.blocks, 4);
    assert_counted(campaign_cell(&campaign, "tp1-b16", "code"), 4, "demo/tp1-b16/4-1");
    campaign_close(&campaign);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_block_has_its_attempt),
        cmocka_unit_test(test_invalid_block_has_its_rule),
        cmocka_unit_test(test_last_valid_try_counts),
        cmocka_unit_test(test_new_settings_wait_for_enough_blocks),
        cmocka_unit_test(test_newest_settings_with_enough_blocks_count_alone),
        cmocka_unit_test(test_other_settings_leave_a_gap),
        cmocka_unit_test(test_workloads_of_other_settings_do_not_count_beside_the_newest),
        cmocka_unit_test(test_a_model_that_was_moved_is_the_same),
        cmocka_unit_test(test_arms_of_a_workload_are_asked_the_same),
        cmocka_unit_test(test_what_does_not_count_settles_nothing),
        cmocka_unit_test(test_the_ledger_says_what_is_newest),
        cmocka_unit_test(test_blocks_beyond_the_plan_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
