/* Under which settings cells are measured that count: each cell's, and those that all of a summary have in common. */
#include "analyze/cells_parts.h"

#include "collect/base/json.h"
#include "collect/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- candidates --------------------------------------------------------------------------------------------------- */

/* A cell hash that occurs, and the newest attempt that has it. */
struct candidate {
    const char *hash;
    const struct attempt *newest;
};

static bool is_of_cell(const struct cells *cells, const struct cell *cell, const struct attempt *attempt)
{
    return cells_block_of(cells, attempt) && arm_equal(&attempt->arm, cell->arm);
}

static int find_candidates(const struct cells *cells, const struct cell *cell, struct candidate *candidates)
{
    const struct run *run = cells->run;
    int count = 0;
    for (int i = 0; i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        if (!is_of_cell(cells, cell, attempt))
            continue;
        const struct attempt_workload *workload = attempt_find_workload(attempt, cell->workload->name);
        if (!workload)
            continue;
        int at = 0;
        while (at < count && strcmp(candidates[at].hash, workload->cell_hash) != 0)
            at++;
        if (at == count)
            candidates[count++] = (struct candidate){workload->cell_hash, attempt};
        else if (cells_is_newer(run, attempt, candidates[at].newest))
            candidates[at].newest = attempt;
    }
    return count;
}

static int count_blocks(const struct cells *cells, const struct cell *cell, const char *hash)
{
    int counted = 0;
    for (int block = 1; block <= cells->blocks; block++)
        counted += run_counted(cells->run, cell->arm, cells->before + block, cell->workload->name, hash) != NULL;
    return counted;
}

/* --- what cells have in common ------------------------------------------------------------------------------------ */

/* A summary says of all its cells on which machine, of which target and with which sampling they are, of all cells of a
 * workload what it asks for, and takes means over all cells of an arm. On each of these the cells agree in turn: */
static int count_steps(const struct cells *cells)
{
    return 1 + cells->plan->workload_count + cells->plan->arm_count;
}

static bool is_concerned(const struct cells *cells, const struct cell *cell, int step)
{
    const struct plan *plan = cells->plan;
    if (step == 0)
        return true;
    return step <= plan->workload_count ? cell->workload == &plan->workloads[step - 1]
                                        : cell->arm == &plan->arms[step - 1 - plan->workload_count];
}

/* What a header does not say is the default. */
static bool share(const json_t *a, const json_t *b, const char *const *keys)
{
    bool same = true;
    for (; same && *keys; keys++) {
        const json_t *of_a = json_object_get(a, *keys), *of_b = json_object_get(b, *keys);
        same = of_a == of_b || json_equal(of_a, of_b);
    }
    return same;
}

/* "target" or "drafter". A model is known by its files, wherever they lie; one of a server by its name. */
static bool share_model(const struct attempt *a, const struct attempt *b, const char *which)
{
    const json_t *of_a = json_object_get(a->header, "source"), *of_b = json_object_get(b->header, "source");
    const char *const named[] = {which, NULL}, *const hashed[] = {"sha256", NULL};
    const json_t *model = json_object_get(of_a, which), *other = json_object_get(of_b, which);
    return json_object_get(model, "sha256") ? share(model, other, hashed) : share(of_a, of_b, named);
}

static bool share_machine(const struct attempt *a, const struct attempt *b)
{
    json_t *of_a = machine_identity(json_object_get(a->header, "machine"));
    json_t *of_b = machine_identity(json_object_get(b->header, "machine"));
    const bool same = json_equal(of_a, of_b);
    json_decref(of_a);
    json_decref(of_b);
    return same;
}

static bool share_setting(const struct attempt *a, const struct attempt *b)
{
    static const char *const of_source[] = {"kind",  "device",  "gpu", "dtype", "dialect",
                                            "route", "request", "env", NULL};
    static const char *const of_header[] = {"sampling", NULL};
    return share(json_object_get(a->header, "source"), json_object_get(b->header, "source"), of_source) &&
           share(a->header, b->header, of_header) && share_model(a, b, "target") && share_machine(a, b);
}

static bool share_workload(const struct attempt *a, const struct attempt *b, const char *workload, bool prompts)
{
    static const char *const keys[] = {"prompts_sha256", "prompts",        "template",   "chat",
                                       "context_tokens", "max_new_tokens", "ignore_eos", NULL};
    return share(json_object_get(json_object_get(a->header, "workloads"), workload),
                 json_object_get(json_object_get(b->header, "workloads"), workload), prompts ? keys : keys + 2);
}

/* Adds the prompts of all attempts with that hash; or answers whether any of them is there. */
static bool visit_prompts(const struct cells *cells, const struct cell *cell, const char *hash, json_t *prompts,
                          bool adds)
{
    const char *name = cell->workload->name;
    for (int i = 0; i < cells->run->attempt_count; i++) {
        const struct attempt *attempt = &cells->run->attempts[i].attempt;
        const struct attempt_workload *workload = attempt_find_workload(attempt, name);
        const struct sample *sample;
        if (!workload || !is_of_cell(cells, cell, attempt) || strcmp(workload->cell_hash, hash) != 0)
            continue;
        for (int at = 0; (sample = attempt_next_sample(attempt, name, &at));)
            if (adds)
                json_set(prompts, sample->prompt, json_true());
            else if (json_object_get(prompts, sample->prompt))
                return true;
    }
    return false;
}

/* Whether a candidate for tuning was measured as what is reported is, on other prompts: where the seed or the prompts
 * were changed since, the halves are others. */
static bool suits_reported(const struct cells *cells, const struct cell *cell, const struct cells *reported,
                           const struct candidate *candidate)
{
    const struct cell *other = &reported->items[cell - cells->items];
    if (!other->cell_hash || !other->cell_hash[0])
        return true;
    json_t *prompts = json_object();
    visit_prompts(reported, other, other->cell_hash, prompts, true);
    const bool suits = share_setting(candidate->newest, other->newest) &&
                       share_model(candidate->newest, other->newest, "drafter") &&
                       share_workload(candidate->newest, other->newest, cell->workload->name, false) &&
                       !visit_prompts(cells, cell, candidate->hash, prompts, false);
    json_decref(prompts);
    return suits;
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

/* agreed[count_steps()]: the attempts that were agreed on; NULL: none as yet. Of imports nobody can say. */
static bool is_as_agreed(const struct cells *cells, const struct cell *cell, const struct attempt *const *agreed,
                         const struct attempt *attempt)
{
    const struct attempt *workload = agreed[1 + (cell->workload - cells->plan->workloads)];
    const struct attempt *arm = agreed[1 + cells->plan->workload_count + (cell->arm - cells->plan->arms)];
    return attempt_is_imported(attempt) ||
           ((!agreed[0] || share_setting(attempt, agreed[0])) &&
            (!workload || share_workload(attempt, workload, cell->workload->name, true)) &&
            (!arm || share_model(attempt, arm, "drafter")));
}

/* The newest hash with enough blocks, or the newest, of those that may be chosen. */
static void choose(const struct cells *cells, const struct cells *reported, const struct attempt *const *agreed,
                   struct cell *cell)
{
    struct candidate *candidates = xcalloc((size_t)cells->run->attempt_count + 1, sizeof *candidates);
    int count = find_candidates(cells, cell, candidates);
    const struct candidate *chosen = NULL;
    bool chosen_enough = false;
    for (int i = 0; i < count; i++) {
        if (!is_as_agreed(cells, cell, agreed, candidates[i].newest) ||
            (reported && !suits_reported(cells, cell, reported, &candidates[i])))
            continue;
        bool enough = count_blocks(cells, cell, candidates[i].hash) >= cells->plan->min_blocks;
        if (!chosen || enough > chosen_enough ||
            (enough == chosen_enough && cells_is_newer(cells->run, candidates[i].newest, chosen->newest))) {
            chosen = &candidates[i];
            chosen_enough = enough;
        }
    }
    cell->cell_hash = chosen ? chosen->hash : count ? "" : NULL;
    cell->newest = chosen ? chosen->newest : !count ? NULL : agreed[0] ? agreed[0] : candidates[0].newest;
    free(candidates);
}

/* Of the cells of that step the newest choice with enough blocks, or the newest of which something counts; NULL where
 * nothing does. */
static const struct attempt *find_agreed(const struct cells *cells, int step)
{
    const struct attempt *agreed = NULL;
    bool agreed_enough = false;
    for (int i = 0; i < cells->count; i++) {
        const struct cell *cell = &cells->items[i];
        if (!is_concerned(cells, cell, step) || !cell->newest || !cell->cell_hash[0] ||
            attempt_is_imported(cell->newest))
            continue;
        const int counted = count_blocks(cells, cell, cell->cell_hash);
        const bool enough = counted >= cells->plan->min_blocks;
        if (!counted)
            continue;
        if (!agreed || enough > agreed_enough ||
            (enough == agreed_enough && cells_is_newer(cells->run, cell->newest, agreed))) {
            agreed = cell->newest;
            agreed_enough = enough;
        }
    }
    return agreed;
}

void cells_choose(struct cells *cells, const struct cells *reported)
{
    const struct attempt **agreed = xcalloc((size_t)count_steps(cells), sizeof *agreed);
    for (int i = 0; i < cells->count; i++)
        choose(cells, reported, agreed, &cells->items[i]);
    for (int step = 0; step < count_steps(cells); step++) {
        agreed[step] = find_agreed(cells, step);
        for (int i = 0; i < cells->count; i++) {
            struct cell *cell = &cells->items[i];
            if (is_concerned(cells, cell, step) && cell->newest && !is_as_agreed(cells, cell, agreed, cell->newest))
                choose(cells, reported, agreed, cell);
        }
    }
    free(agreed);
}
