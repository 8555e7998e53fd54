/* Suspect numbers are marked in every table that prints them, whatever else of their row is missing. */
#include "render/tables.h"

#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

/* How many numbers of the table are marked. */
static int count_marked(tables_fill *fill, const struct summary *summary, int *present)
{
    struct table table;
    int marked = 0;
    table_init(&table, "any");
    fill(&table, summary);
    *present = 0;
    for (int row = 0; row < table.row_count; row++)
        for (int column = 0; column < table.column_count; column++) {
            const struct table_cell *cell = table_find_cell(&table, row, column);
            marked += json_array_size(cell->marks) > 0;
            *present += cell->present && table.columns[column].kind == COLUMN_INTERVAL;
        }
    table_free(&table);
    return marked;
}

/* A cell alone, of a summary with nothing else, with several requests in flight. */
static void leave_alone(struct summary *summary, const struct cell *cell)
{
    for (int i = 0; i < summary->comparison_count; i++)
        if (summary->comparisons[i].arm == cell->arm && summary->comparisons[i].workload == cell->workload)
            summary->comparisons[i].break_even_tau = (struct interval){true, 2, 1.9, 2.1, 6, "blocks"};
    for (int i = 0; i < summary->cell_count; i++) {
        struct cell *other = &summary->cells[i];
        const struct interval some = {true, 2, 1.9, 2.1, 6, "blocks"}, none = {0};
        const struct interval set = other == cell ? some : none;
        other->tokens_per_s = other->end_to_end_tokens_per_s = other->tau = other->joules_per_token = set;
        other->aggregate_tokens_per_s = other->aggregate_per_device = other->ttft_ms = other->tpot_ms = set;
        if (other != cell)
            other->marks = NULL;
    }
    summary->arms[cell->arm].concurrency = 2;
}

static void test_a_row_has_its_marks_at_what_is_left_of_it(void **state)
{
    (void)state;
    struct summary summary;
    struct interval some = {true, 2, 1.9, 2.1, 6, "blocks"};
    struct latency latency = {SUMMARY_TPOT, .5, some, some};
    example_read(&summary);
    struct cell *cell = (struct cell *)summary_find_cell(&summary, 6, 2);
    assert_true(json_array_size(cell->marks) > 0);
    leave_alone(&summary, cell);
    const struct cell before = *cell;
    cell->latency = &latency;
    cell->latency_count = 1;
    /* One number after the other goes. */
    struct interval *const intervals[] = {&cell->tokens_per_s,
                                          &cell->ttft_ms,
                                          &cell->end_to_end_tokens_per_s,
                                          &cell->tau,
                                          &cell->tpot_ms,
                                          &cell->aggregate_tokens_per_s,
                                          &cell->joules_per_token,
                                          &latency.over_prompts};
    tables_fill *const fills[] = {tables_fill_absolute, tables_fill_throughput, tables_fill_latency,
                                  tables_fill_latency_blocks, tables_fill_rounds};
    for (size_t gone = 0; gone <= sizeof intervals / sizeof *intervals; gone++) {
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
            int present;
            const int marked = count_marked(fills[i], &summary, &present);
            assert_int_equal(marked, present > 0);
        }
        if (gone < sizeof intervals / sizeof *intervals)
            intervals[gone]->present = false;
    }
    cell->latency = before.latency;
    cell->latency_count = before.latency_count;
    summary_free(&summary);
}

/* Two runs: at their quotient, or at what is left where there is none. */
static void test_two_runs_have_the_marks_of_both(void **state)
{
    (void)state;
    struct summary summary;
    example_read(&summary);
    json_t *marks = json_pack("[s]", "REPETITION");
    const struct interval some = {true, 2, 1.9, 2.1, 6, "blocks"};
    struct versus_cell *cell = xcalloc(1, sizeof *cell);
    *cell = (struct versus_cell){5, 0, 0, some, some, some, some, some, {1.8, 2.2}, "faster", {0}, marks, marks};
    free(summary.versus.cells);
    summary.versus = (struct versus){true, "old", "new", cell, 1};
    struct interval *const intervals[] = {&cell->change, &cell->before, &cell->after, &cell->tokens_before,
                                          &cell->tokens_after};
    for (int gone = 0; gone <= 5; gone++) {
        int present;
        const int marked = count_marked(tables_fill_versus, &summary, &present);
        assert_int_equal(marked, present > 0);
        const int marked_times = count_marked(tables_fill_versus_times, &summary, &present);
        assert_int_equal(marked_times, present > 0);
        if (gone < 5)
            intervals[gone]->present = false;
    }
    summary_free(&summary);
    json_decref(marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_has_its_marks_at_what_is_left_of_it),
        cmocka_unit_test(test_two_runs_have_the_marks_of_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
