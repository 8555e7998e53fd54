/* Tables of two runs: what changed of each speedup, and tokens/s of both, which are not judged. */
#include "render/tables.h"

#include <stdlib.h>

#define FORMAT_RATE 1
#define FORMAT_SPEEDUP TABLE_RATIOS
#define FORMAT_CHANGE (TABLE_RATIOS + 1)

static void put_names(struct table *table, const struct summary *summary, const struct versus_cell *cell)
{
    const struct comparison pair = {.arm = cell->arm, .baseline = cell->baseline};
    tables_put_pair(table, summary, &pair);
    tables_put_workload(table, summary, cell->workload);
}

void tables_fill_versus(struct table *table, const struct summary *summary)
{
    table->repeated = 2;
    table_add_column(table, COLUMN_TEXT, "comparison", "comparison");
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_alike(table, COLUMN_INTERVAL, "before", "before", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "after", "after", FORMAT_SPEEDUP);
    table_add_alike(table, COLUMN_INTERVAL, "change", "after / before", FORMAT_CHANGE);
    table_add_alike(table, COLUMN_LIMITS, "simultaneous", "simultaneous", FORMAT_CHANGE);
    table_add_column(table, COLUMN_TEXT, "verdict", "difference");
    for (int i = 0; i < summary->versus.cell_count; i++) {
        const struct versus_cell *cell = &summary->versus.cells[i], *last = i > 0 ? cell - 1 : cell;
        table_add_row(table, NULL);
        if (cell->arm != last->arm || cell->baseline != last->baseline)
            table_set_apart(table);
        put_names(table, summary, cell);
        const json_t *marks = cell->change.present ? NULL : cell->marks;
        table_put_marked(table, &cell->before, &marks, NULL);
        table_put_marked(table, &cell->after, &marks, NULL);
        table_put_interval(table, &cell->change, cell->marks, cell->missing.rule);
        table_put_limits(table, cell->simultaneous.low, cell->simultaneous.high);
        tables_put_verdict(table, summary, cell->verdict);
    }
}

/* Of an arm on a workload once, whatever it is compared with. */
static bool is_first(const struct versus *versus, int index)
{
    for (int i = 0; i < index; i++)
        if (versus->cells[i].arm == versus->cells[index].arm &&
            versus->cells[i].workload == versus->cells[index].workload)
            return false;
    return versus->cells[index].tokens_before.present || versus->cells[index].tokens_after.present;
}

void tables_fill_versus_times(struct table *table, const struct summary *summary)
{
    table->section_key = xstrdup("workload");
    table_add_column(table, COLUMN_TEXT, "arm", "arm");
    table_add_alike(table, COLUMN_INTERVAL, "before", "before", FORMAT_RATE);
    table_add_alike(table, COLUMN_INTERVAL, "after", "after", FORMAT_RATE);
    for (int workload = 0; workload < summary->workload_count; workload++)
        for (int i = 0; i < summary->versus.cell_count; i++) {
            const struct versus_cell *cell = &summary->versus.cells[i];
            if (cell->workload != workload || !is_first(&summary->versus, i))
                continue;
            table_add_row(table, summary_workload_text(summary, workload));
            tables_put_arm(table, summary, cell->arm);
            const json_t *marks = cell->tokens_marks;
            table_put_marked(table, &cell->tokens_before, &marks, NULL);
            table_put_marked(table, &cell->tokens_after, &marks, NULL);
        }
}
