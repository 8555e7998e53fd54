#include "analyze/suspects.h"

#include <stdlib.h>

static void init(const struct comparisons *comparisons, struct suspects *suspects)
{
    const size_t blocks = (size_t)comparisons->cells->blocks;
    *suspects = (struct suspects){.left_out = xcalloc(blocks, sizeof *suspects->left_out),
                                  .outliers = xcalloc(blocks, sizeof *suspects->outliers)};
}

void suspects_free(struct suspects *suspects)
{
    free(suspects->left_out);
    free(suspects->outliers);
    *suspects = (struct suspects){0};
}

static void note_rule(enum rule_id rule, int block, struct suspects *suspects)
{
    suspects->any = suspects->rules[rule] = true;
    if (rule == RULE_REPETITION)
        suspects->kept = SAMPLES_VARIED;
    else
        suspects->left_out[block] = true;
}

static void note_verdicts(const struct verdicts *verdicts, const char *workload, bool of_ratio, int block,
                          struct suspects *suspects)
{
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].level == RULE_SUSPECT && cells_verdict_applies(&verdicts->items[i], workload) &&
            (of_ratio || rule_table[verdicts->items[i].rule].voids != RULE_VOIDS_SPEEDUP))
            note_rule(verdicts->items[i].rule, block, suspects);
}

static void note_attempt(const struct comparisons *comparisons, const struct judged *judged, const char *workload,
                         int block, struct suspects *suspects)
{
    note_verdicts(&judged->verdicts, workload, true, block, suspects);
    if (comparisons->drift.outliers[judged - comparisons->cells->run->attempts])
        suspects->any = suspects->left_out[block] = suspects->outliers[block] = true;
}

bool suspects_are_repetitive(const struct cells *cells, const struct arm *arm, const struct plan_workload *workload,
                             int block)
{
    const struct cell *plain = cells_find_auto(cells, arm, workload);
    const struct judged *judged = plain ? plain->blocks[block].counted : NULL;
    for (int i = 0; judged && i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (verdict->rule == RULE_REPETITION && verdict->level == RULE_SUSPECT &&
            cells_verdict_applies(verdict, workload->name))
            return true;
    }
    return false;
}

/* of_ratio: what is said of the ratio alone counts as well. */
static void note_pairs(const struct comparisons *comparisons, const struct comparison *comparison, bool of_ratio,
                       struct suspects *suspects)
{
    for (int block = 0; block < comparisons->cells->blocks; block++) {
        note_verdicts(&comparison->pairs[block].verdicts, comparison->workload->name, of_ratio, block, suspects);
        if (comparison->pairs[block].baseline &&
            suspects_are_repetitive(comparisons->cells, comparison->arm, comparison->workload, block))
            note_rule(RULE_REPETITION, block, suspects);
    }
}

void suspects_of_cell(const struct comparisons *comparisons, const struct cell *cell, struct suspects *suspects)
{
    const struct cells *cells = comparisons->cells;
    init(comparisons, suspects);
    for (int block = 0; block < cells->blocks; block++) {
        const struct cell_block *at = &cell->blocks[block];
        if (!at->counted || at->voided == RULE_VOIDS_ALL)
            continue;
        note_attempt(comparisons, at->counted, cell->workload->name, block, suspects);
        note_verdicts(&at->verdicts, cell->workload->name, true, block, suspects);
    }
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].arm == cell->arm && comparisons->items[i].workload == cell->workload &&
            comparisons->items[i].baseline->method == METHOD_AUTO)
            note_pairs(comparisons, &comparisons->items[i], false, suspects);
}

void suspects_of_comparison(const struct comparisons *comparisons, const struct comparison *comparison,
                            struct suspects *suspects)
{
    const int blocks = comparisons->cells->blocks;
    init(comparisons, suspects);
    for (int block = 0; block < blocks; block++) {
        const struct pair *pair = &comparison->pairs[block];
        if (!pair->arm || !pair->baseline)
            continue;
        note_attempt(comparisons, pair->arm, comparison->workload->name, block, suspects);
        note_attempt(comparisons, pair->baseline, comparison->workload->name, block, suspects);
    }
    note_pairs(comparisons, comparison, true, suspects);
}
