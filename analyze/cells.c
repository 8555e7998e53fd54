#include "analyze/cells_parts.h"

#include "collect/base/json.h"
#include "collect/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- reasons ------------------------------------------------------------------------------------------------------ */

struct reason reason_make(enum rule_id rule, char *detail)
{
    return (struct reason){rule_table[rule].id, detail};
}

bool cells_verdict_applies(const struct verdict *verdict, const char *workload)
{
    return !verdict->workload || strcmp(verdict->workload, workload) == 0;
}

struct reason reason_from_verdicts(const struct attempt *attempt, const struct verdicts *verdicts, const char *workload,
                                   unsigned metrics)
{
    for (int i = 0; i < verdicts->count; i++) {
        const struct verdict *verdict = &verdicts->items[i];
        const struct rule *rule = &rule_table[verdict->rule];
        if (verdict->level == RULE_INVALID && rule->voids & metrics && cells_verdict_applies(verdict, workload))
            return (struct reason){rule->id, xformat("%s: %s", attempt->id, verdict->detail)};
    }
    return (struct reason){0};
}

struct reason reason_copy(const struct reason *reason)
{
    return (struct reason){reason->rule, reason->detail ? xstrdup(reason->detail) : NULL};
}

void reason_free(struct reason *reason)
{
    free(reason->detail);
    *reason = (struct reason){0};
}

/* --- which attempts count ----------------------------------------------------------------------------------------- */

/* Sequence number of the ledger line that begins the attempt; 0 where there is none. */
static int begin_sequence(const struct run *run, const struct attempt *attempt)
{
    const struct history_entry *entry = run_history(run, attempt);
    return entry ? entry->begun : 0;
}

bool cells_is_newer(const struct run *run, const struct attempt *a, const struct attempt *b)
{
    int begun_a = begin_sequence(run, a), begun_b = begin_sequence(run, b);
    if (begun_a && begun_b)
        return begun_a > begun_b;
    return a->started && b->started && strcmp(a->started, b->started) > 0;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static json_t *describe_device(const struct attempt *attempt)
{
    json_t *device = machine_identity(json_object_get(attempt->header, "machine"));
    const json_t *source = json_object_get(attempt->header, "source");
    static const char *const keys[] = {"device", "devices"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(source, keys[i]))
            json_set(device, keys[i], json_incref(json_object_get(source, keys[i])));
    return device;
}

enum rule_id cells_other_settings(const struct attempt *attempt, const struct attempt *other)
{
    json_t *device = describe_device(attempt), *other_device = describe_device(other);
    const bool same = json_equal(device, other_device);
    json_decref(device);
    json_decref(other_device);
    return same ? RULE_FINGERPRINT : RULE_MIXED_DEVICES;
}

static struct reason explain_block(const struct cells *cells, const struct cell *cell, int block)
{
    char name[ARM_NAME_SIZE];
    const struct judged *last = run_last_try(cells->run, cell->arm, cells->before + block, cell->workload->name);
    if (!last)
        return reason_make(RULE_NOT_MEASURED,
                           xformat("%s has no attempt in block %d", arm_name(cell->arm, name), cells->before + block));
    struct reason reason = reason_from_verdicts(&last->attempt, &last->verdicts, cell->workload->name, RULE_VOIDS_ALL);
    if (!reason.rule)
        reason = reason_make(cells_other_settings(&last->attempt, cell->newest),
                             xformat("%s was measured under other settings", last->attempt.id));
    return reason;
}

unsigned cells_void_metrics(const struct verdicts *verdicts, const char *workload)
{
    unsigned voided = 0;
    for (unsigned metric = 1; metric <= RULE_VOIDS_ALL; metric <<= 1)
        if (rule_worst(verdicts, workload, metric) == RULE_INVALID)
            voided |= metric;
    return voided;
}

static void note_voided(struct cell_block *block, const struct verdicts *verdicts, const char *workload)
{
    unsigned voided = cells_void_metrics(verdicts, workload);
    /* What takes the times away says more than what came before it and did not. */
    bool times = voided & ~block->voided & RULE_VOIDS_TIMES;
    if (times || (voided && !block->reason.rule)) {
        reason_free(&block->reason);
        block->reason =
            reason_from_verdicts(&block->counted->attempt, verdicts, workload, times ? RULE_VOIDS_TIMES : voided);
    }
    block->voided |= voided;
}

void cell_void(struct cell *cell, int block, const struct verdicts *verdicts)
{
    note_voided(&cell->blocks[block - 1], verdicts, cell->workload->name);
}

/* An attempt that cannot be read may have held any workload. */
static int count_tries(const struct cells *cells, const struct cell *cell)
{
    int tries = 0;
    for (int i = 0; i < cells->run->attempt_count; i++) {
        const struct attempt *attempt = &cells->run->attempts[i].attempt;
        tries += cells_block_of(cells, attempt) && arm_equal(&attempt->arm, cell->arm) &&
                 (!attempt->header || attempt_find_workload(attempt, cell->workload->name));
    }
    return tries;
}

static void fill_cell(const struct cells *cells, struct cell *cell)
{
    cell->blocks = xcalloc((size_t)cells->blocks, sizeof *cell->blocks);
    cell->tries = count_tries(cells, cell);
    for (int block = 1; block <= cells->blocks; block++) {
        struct cell_block *at = &cell->blocks[block - 1];
        if (cell->cell_hash)
            at->counted =
                run_counted(cells->run, cell->arm, cells->before + block, cell->workload->name, cell->cell_hash);
        if (at->counted)
            note_voided(at, &at->counted->verdicts, cell->workload->name);
        else
            at->reason = explain_block(cells, cell, block);
    }
}

int cells_block_of(const struct cells *cells, const struct attempt *attempt)
{
    const int block = attempt->block - cells->before;
    return block >= 1 && block <= cells->blocks ? block : 0;
}

static int count_measured(const struct run *run)
{
    int last = 0;
    for (int i = 0; i < run->attempt_count; i++)
        if (run->attempts[i].attempt.block > last)
            last = run->attempts[i].attempt.block;
    return last;
}

static void init(const struct plan *plan, const struct run *run, enum cells_part part, struct cells *cells)
{
    *cells = (struct cells){plan, run, .count = plan->arm_count * plan->workload_count};
    cells->before = part == CELLS_TUNING ? 0 : plan->tuning_blocks;
    cells->blocks = part == CELLS_TUNING ? plan->tuning_blocks : plan->blocks;
    if (part == CELLS_REPORTED && count_measured(run) > plan_block_count(plan))
        cells->blocks = count_measured(run) - plan->tuning_blocks;
    cells->items = xcalloc((size_t)cells->count, sizeof *cells->items);
    for (int i = 0; i < cells->count; i++) {
        cells->items[i].arm = &plan->arms[i / plan->workload_count];
        cells->items[i].workload = &plan->workloads[i % plan->workload_count];
    }
}

void cells_init(const struct plan *plan, const struct run *run, enum cells_part part, struct cells *cells)
{
    struct cells reported = {0};
    init(plan, run, part, cells);
    if (part == CELLS_TUNING && cells->blocks) {
        init(plan, run, CELLS_REPORTED, &reported);
        cells_choose(&reported, NULL);
    }
    cells_choose(cells, reported.items ? &reported : NULL);
    free(reported.items);
    sessions_init(run, "", 0, &cells->sessions);
    for (int i = 0; i < cells->count; i++)
        fill_cell(cells, &cells->items[i]);
}

void cells_free(struct cells *cells)
{
    for (int i = 0; i < cells->count; i++) {
        for (int block = 0; block < cells->blocks; block++) {
            reason_free(&cells->items[i].blocks[block].reason);
            verdicts_free(&cells->items[i].blocks[block].verdicts);
        }
        free(cells->items[i].blocks);
    }
    free(cells->items);
    verdicts_free(&cells->verdicts);
    sessions_free(&cells->sessions);
    *cells = (struct cells){0};
}

struct cell *cells_at(const struct cells *cells, int arm, int workload)
{
    return &cells->items[arm * cells->plan->workload_count + workload];
}

const struct cell *cells_find_auto(const struct cells *cells, const struct arm *arm,
                                   const struct plan_workload *workload)
{
    const struct plan *plan = cells->plan;
    for (int i = 0; i < plan->arm_count; i++)
        if (plan->arms[i].method == METHOD_AUTO && plan->arms[i].tensor_parallel == arm->tensor_parallel &&
            plan->arms[i].concurrency == arm->concurrency)
            return cells_at(cells, i, (int)(workload - plan->workloads));
    return NULL;
}

const struct attempt *cell_usable(const struct cell *cell, int block, unsigned metrics)
{
    const struct cell_block *at = &cell->blocks[block - 1];
    return at->counted && !(at->voided & metrics) ? &at->counted->attempt : NULL;
}
