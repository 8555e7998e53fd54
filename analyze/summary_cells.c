#include "analyze/summary_parts.h"

#include "analyze/devices.h"
#include "collect/base/json.h"
#include "collect/base/parallel.h"
#include "collect/record/divergence.h"

#include <math.h>
#include <stdlib.h>

/* --- counts and reasons ------------------------------------------------------------------------------------------- */

/* The attempt, if any number is made of it. */
static const struct judged *used_in(const struct cell *cell, int block)
{
    const struct cell_block *at = &cell->blocks[block - 1];
    return at->voided == RULE_VOIDS_ALL ? NULL : at->counted;
}

static int session_of(const struct cells *cells, const struct judged *judged)
{
    return cells->sessions.of_attempt[judged - cells->run->attempts];
}

static int count_sessions(const struct cells *cells, const struct cell *cell)
{
    int count = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct judged *judged = used_in(cell, block);
        bool known = !judged;
        for (int before = 1; before < block && !known; before++)
            known = used_in(cell, before) && session_of(cells, used_in(cell, before)) == session_of(cells, judged);
        count += !known;
    }
    return count;
}

/* Of the times that blocks were added to the plan, those behind which this cell has any. */
static json_t *make_extensions(const struct cells *cells, const struct cell *cell, const json_t *all)
{
    json_t *array = json_array();
    int last = 0;
    for (int block = 1; block <= cells->blocks; block++)
        if (used_in(cell, block))
            last = block;
    for (size_t i = 0; i < json_array_size(all); i++)
        if (json_integer_value(json_array_get(all, i)) < last)
            json_append(array, json_incref(json_array_get(all, i)));
    return array;
}

static int count_valid(const struct cells *cells, const struct cell *cell)
{
    int valid = 0;
    for (int block = 1; block <= cells->blocks; block++)
        valid += cell_usable(cell, block, RULE_VOIDS_TIMES) != NULL;
    return valid;
}

/* Of imports nothing was planned: the blocks that files speak of. */
static int count_planned(const struct cells *cells, const struct cell *cell)
{
    int planned = 0;
    if (cells->plan->source != PLAN_SOURCE_IMPORT)
        return cells->plan->blocks;
    for (int block = 0; block < cells->blocks; block++)
        planned += cell->blocks[block].counted || cell->blocks[block].reason.rule != rule_table[RULE_NOT_MEASURED].id;
    return planned;
}

static void set_counts(const struct cells *cells, const struct cell *cell, const json_t *extensions, json_t *object)
{
    int used = 0;
    json_t *attempts = json_array();
    for (int block = 1; block <= cells->blocks; block++) {
        const struct judged *judged = used_in(cell, block);
        used += judged != NULL;
        if (judged)
            json_append(attempts, json_text(judged->attempt.id));
    }
    json_set(object, "blocks_valid", json_integer(count_valid(cells, cell)));
    json_set(object, "blocks_planned", json_integer(count_planned(cells, cell)));
    json_set(object, "tries", json_integer(cell->tries));
    json_set(object, "excluded", json_integer(cell->tries - used));
    json_set(object, "sessions", json_integer(count_sessions(cells, cell)));
    json_set(object, "extended_from", make_extensions(cells, cell, extensions));
    json_set(object, "attempts", attempts);
}

/* Why the cell has no times at all: of its last block that was attempted, or of the first. */
static json_t *make_missing(const struct cells *cells, const struct cell *cell)
{
    const struct reason *reason = &cell->blocks[0].reason;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct reason *other = &cell->blocks[block - 1].reason;
        if (cell_usable(cell, block, RULE_VOIDS_TIMES))
            return json_null();
        if (other->rule != rule_table[RULE_NOT_MEASURED].id)
            reason = other;
    }
    return summary_make_reason(reason);
}

static json_t *make_cell_marks(const struct comparisons *comparisons, const struct cell *cell, int valid)
{
    const struct cells *cells = comparisons->cells;
    bool marks[RULE_COUNT] = {false};
    for (int block = 1; block <= cells->blocks; block++)
        if (used_in(cell, block)) {
            summary_note_marks(&used_in(cell, block)->verdicts, cell->workload->name, marks);
            summary_note_marks(&cell->blocks[block - 1].verdicts, cell->workload->name, marks);
            marks[RULE_REPETITION] |= suspects_are_repetitive(cells, cell->arm, cell->workload, block - 1);
        }
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        if (comparison->arm == cell->arm && comparison->workload == cell->workload &&
            comparison->baseline->method == METHOD_AUTO)
            for (int block = 0; block < cells->blocks; block++)
                summary_note_marks(&comparison->pairs[block].verdicts, cell->workload->name, marks);
    }
    if (valid > 0)
        summary_note_marks(&cells->verdicts, cell->workload->name, marks);
    marks[RULE_MIN_BLOCKS] = valid > 0 && valid < cells->plan->min_blocks;
    return summary_make_marks(marks);
}

/* --- memory, and what was lost ------------------------------------------------------------------------------------ */

/* The largest of each number of bytes that the attempts' headers name. */
static json_t *make_memory(const struct cells *cells, const struct cell *cell)
{
    json_t *memory = json_object();
    for (int block = 1; block <= cells->blocks; block++) {
        const struct judged *judged = used_in(cell, block);
        const char *key;
        json_t *value;
        json_object_foreach(judged ? json_object_get(judged->attempt.header, "memory") : NULL, key, value)
        {
            const json_t *known = json_object_get(memory, key);
            if (json_is_number(value) && !(known && json_number_value(known) >= json_number_value(value)))
                json_set(memory, key, json_incref(value));
        }
    }
    if (json_object_size(memory))
        return memory;
    json_decref(memory);
    return json_null();
}

static double find_peak_bytes(const struct cells *cells, const struct cell *cell)
{
    double peak = NAN;
    for (int block = 1; block <= cells->blocks; block++)
        if (used_in(cell, block))
            peak = fmax(peak, devices_peak_bytes(&used_in(cell, block)->attempt));
    return peak;
}

static const struct comparison *find_over_auto(const struct comparisons *comparisons, const struct cell *cell)
{
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        if (comparison->arm == cell->arm && comparison->workload == cell->workload &&
            comparison->baseline->method == METHOD_AUTO)
            return comparison;
    }
    return NULL;
}

/* Outputs beside auto's of the same block. */
static void set_outputs(const struct comparisons *comparisons, const struct cell *cell, json_t *object)
{
    const struct comparison *over_auto = find_over_auto(comparisons, cell);
    int compared = 0, identical = 0, diverged = 0;
    for (int block = 0; over_auto && block < comparisons->cells->blocks; block++) {
        const struct pair *pair = &over_auto->pairs[block];
        struct divergence divergence = {0};
        if (pair->arm && pair->baseline)
            divergence_measure(&pair->arm->attempt, &pair->baseline->attempt, cell->workload->name, &divergence);
        compared += divergence.compared;
        diverged += divergence.diverged;
        identical += divergence.compared - divergence.diverged - divergence.cut;
    }
    json_set(object, "requests", compared ? json_integer(compared) : json_null());
    json_set(object, "identical", compared ? json_integer(identical) : json_null());
    json_set(object, "diverged", compared ? json_integer(diverged) : json_null());
}

static json_t *make_losslessness(const struct comparisons *comparisons, const struct cell *cell)
{
    json_t *object = json_object();
    json_int_t tokens = 0;
    double regret = NAN;
    for (int block = 1; block <= comparisons->cells->blocks; block++) {
        const struct judged *judged = used_in(cell, block);
        if (!judged || !judged->attempt.audit.done)
            continue;
        tokens += judged->attempt.audit.tokens;
        regret = fmax(regret, judged->attempt.audit.regret_max);
    }
    set_outputs(comparisons, cell, object);
    if (!tokens && json_is_null(json_object_get(object, "requests"))) {
        json_decref(object);
        return json_null();
    }
    json_set(object, "audited_tokens", tokens ? json_integer(tokens) : json_null());
    json_set(object, "audit_regret_max", json_number(regret));
    return object;
}

/* --- without what is suspect -------------------------------------------------------------------------------------- */

static json_t *make_cell_without(const struct comparisons *comparisons, const struct cell *cell)
{
    const struct cells *cells = comparisons->cells;
    struct suspects suspects;
    json_t *object = json_null();
    suspects_of_cell(comparisons, cell, &suspects);
    if (suspects.any) {
        json_t *left = json_array(), *outliers = json_array();
        for (int block = 1; block <= cells->blocks; block++)
            if (used_in(cell, block)) {
                const char *id = used_in(cell, block)->attempt.id;
                if (!suspects.left_out[block - 1])
                    json_append(left, json_text(id));
                if (suspects.outliers[block - 1])
                    json_append(outliers, json_text(id));
            }
        object = summary_make_without(&suspects, left, outliers);
        summary_set_metrics(cells, cell, &suspects, object);
        summary_set_tau(cells, cell, &suspects, object);
    }
    suspects_free(&suspects);
    return object;
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* Of the last block whose verdicts take it; else no attempt had its places filled. */
static json_t *make_aggregate_missing(const struct cells *cells, const struct cell *cell, const json_t *object)
{
    struct reason reason = {0};
    if (json_is_null(json_object_get(object, "tokens_per_s")) ||
        !json_is_null(json_object_get(object, "aggregate_tokens_per_s")))
        return json_null();
    for (int block = cells->blocks; block >= 1 && !reason.rule; block--)
        if (used_in(cell, block))
            reason = reason_from_verdicts(&used_in(cell, block)->attempt, &used_in(cell, block)->verdicts,
                                          cell->workload->name, SUMMARY_VOIDS_AGGREGATE);
    if (!reason.rule)
        reason = reason_make(RULE_TOO_FEW_REQUESTS,
                             xstrdup("no attempt has requests between the first filled place and the last admission"));
    json_t *missing = summary_make_reason(&reason);
    reason_free(&reason);
    return missing;
}

static json_t *make_cell(const struct comparisons *comparisons, const struct cell *cell, const json_t *extensions)
{
    const struct cells *cells = comparisons->cells;
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "arm", json_text(arm_name(cell->arm, name)));
    json_set(object, "workload", json_text(cell->workload->name));
    set_counts(cells, cell, extensions, object);
    summary_set_metrics(cells, cell, NULL, object);
    json_set(object, "aggregate_missing", make_aggregate_missing(cells, cell, object));
    json_set(object, "latency", summary_make_latency(cells, cell));
    summary_set_rounds(cells, cell, object);
    json_set(object, "memory", make_memory(cells, cell));
    json_set(object, "peak_memory_bytes", json_number(find_peak_bytes(cells, cell)));
    json_set(object, "losslessness", make_losslessness(comparisons, cell));
    json_set(object, "without_suspect", make_cell_without(comparisons, cell));
    json_set(object, "missing", make_missing(cells, cell));
    json_set(object, "marks", make_cell_marks(comparisons, cell, count_valid(cells, cell)));
    return object;
}

/* --- Pareto front ------------------------------------------------------------------------------------------------- */

static double value_of(const json_t *cell, const char *key)
{
    const json_t *value = json_object_get(json_object_get(cell, key), "value");
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool is_beaten(const json_t *cell, const json_t *other)
{
    const double user = value_of(cell, "tokens_per_s"), device = value_of(cell, "aggregate_per_device");
    const double other_user = value_of(other, "tokens_per_s"), other_device = value_of(other, "aggregate_per_device");
    return other_user >= user && other_device >= device && (other_user > user || other_device > device);
}

static void mark_front(json_t *array, int workloads)
{
    const size_t count = json_array_size(array), step = (size_t)workloads;
    for (size_t i = 0; i < count; i++) {
        json_t *cell = json_array_get(array, i);
        bool on_front = !isnan(value_of(cell, "tokens_per_s")) && !isnan(value_of(cell, "aggregate_per_device"));
        for (size_t j = i % step; j < count; j += step)
            on_front &= !is_beaten(cell, json_array_get(array, j));
        json_set(cell, "pareto", json_boolean(on_front));
    }
}

/* Nobody asked for every imported arm on every imported workload: what no file speaks of is not missing. */
static void drop_unasked(json_t *array)
{
    for (size_t i = json_array_size(array); i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(array, i), "tries")) == 0)
            json_array_remove(array, i);
}

/* What the threads share that make them. */
struct making {
    const struct comparisons *comparisons;
    const json_t *extensions;
    json_t **made;
};

static void make_one(void *context, int index)
{
    struct making *making = context;
    making->made[index] = make_cell(making->comparisons, &making->comparisons->cells->items[index], making->extensions);
}

json_t *summary_make_cells(const struct comparisons *comparisons)
{
    const struct cells *cells = comparisons->cells;
    json_t *array = json_array(), *extensions = summary_make_extensions(cells->plan, cells->run);
    json_t **made = xcalloc((size_t)cells->count, sizeof(json_t *));
    parallel_for(cells->count, make_one, &(struct making){comparisons, extensions, made});
    for (int i = 0; i < cells->count; i++)
        json_append(array, made[i]);
    free(made);
    json_decref(extensions);
    mark_front(array, cells->plan->workload_count);
    if (cells->plan->source == PLAN_SOURCE_IMPORT)
        drop_unasked(array);
    return array;
}
