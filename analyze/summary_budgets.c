/* The best budget: chosen on tuning blocks and reported on others, or chosen on what is reported and bounded over all
 * that competed. */
#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

/* Trees that differ in their budget alone, over one auto, on one workload or all: those are compared. */
static bool compete(const struct comparison *a, const struct comparison *b)
{
    return method_has_budget(b->arm->method) && a->baseline == b->baseline && a->workload == b->workload;
}

/* Whether `a` goes before `b`: one with limits before one without, which a lucky block or two may have put in front;
 * else the faster one. */
static bool goes_before(struct interval a, struct interval b)
{
    const bool limits = !isnan(a.low), other_limits = !isnan(b.low);
    if (isnan(a.value) || isnan(b.value))
        return !isnan(a.value);
    return limits != other_limits ? limits : a.value > b.value;
}

/* The competitor with the largest speedup in `chosen_on`, of those that have limits if any has, which has the same
 * comparisons in the same order as `comparisons`; -1: none is known. *count: how many compete. */
static int find_best(const struct comparisons *chosen_on, int first, int *count)
{
    const struct comparison *leader = &chosen_on->items[first];
    int best = -1;
    struct interval most = {NAN, NAN, NAN, 0};
    *count = 0;
    for (int i = 0; i < chosen_on->count; i++) {
        if (!compete(leader, &chosen_on->items[i]))
            continue;
        const struct interval speedup = summary_estimate_speedup(chosen_on, &chosen_on->items[i], 1);
        if (goes_before(speedup, most)) {
            most = speedup;
            best = i;
        }
        ++*count;
    }
    return best;
}

/* Why there is no speedup: no budget could be chosen, or the one that was has no pair. */
static json_t *make_missing(const struct comparisons *comparisons, const struct comparisons *tuning, int first,
                            int best)
{
    const struct comparisons *lacking = best < 0 && tuning ? tuning : comparisons;
    return summary_make_pairs_missing(lacking, &lacking->items[best < 0 ? first : best]);
}

static json_t *make_entry(const struct comparisons *comparisons, const struct comparisons *tuning, int first)
{
    const struct comparison *leader = &comparisons->items[first];
    const struct plan *plan = comparisons->cells->plan;
    int count;
    const int best = find_best(tuning ? tuning : comparisons, first, &count);
    const struct comparison *chosen = best < 0 ? NULL : &comparisons->items[best];
    struct interval speedup = {NAN, NAN, NAN, 0}, bound = speedup, of_tuning = speedup;
    if (chosen) {
        speedup = summary_estimate_speedup(comparisons, chosen, 1);
        bound = summary_estimate_speedup(comparisons, chosen, tuning ? 1 : count);
    }
    if (chosen && tuning)
        of_tuning = summary_estimate_speedup(tuning, &tuning->items[best], 1);
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "tensor_parallel", json_integer(leader->arm->tensor_parallel));
    json_set(object, "concurrency", json_integer(leader->arm->concurrency));
    json_set(object, "workload", leader->workload ? json_text(leader->workload->name) : json_null());
    json_set(object, "budgets", json_integer(count));
    json_set(object, "selected_on", json_string(tuning ? "tuning" : "reported"));
    json_set(object, "arm", chosen ? json_text(arm_name(chosen->arm, name)) : json_null());
    json_set(object, "baseline", json_text(arm_name(leader->baseline, name)));
    json_set(object, "tuning_speedup", summary_make_interval(of_tuning, "blocks"));
    json_set(object, "speedup", summary_make_interval(speedup, "blocks"));
    json_set(object, "bound", summary_make_limits(bound));
    json_set(object, "alpha", json_number(tuning ? plan->alpha : plan->alpha / count));
    json_set(object, "missing", isnan(speedup.value) ? make_missing(comparisons, tuning, first, best) : json_null());
    return object;
}

json_t *summary_make_best_budgets(const struct comparisons *comparisons, const struct comparisons *tuning)
{
    json_t *array = json_array();
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        bool is_first = method_has_budget(comparison->arm->method) && comparison->baseline->method == METHOD_AUTO;
        for (int before = 0; before < i && is_first; before++)
            is_first = !compete(comparison, &comparisons->items[before]);
        if (is_first)
            json_append(array, make_entry(comparisons, tuning, i));
    }
    return array;
}
