#include "analyze/versus.h"

#include "analyze/summary_parts.h"
#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what both have ----------------------------------------------------------------------------------------------- */

static bool agree(const json_t *a, const json_t *b, const char *key)
{
    return json_equal(json_object_get(a, key), json_object_get(b, key));
}

/* The element of the list that agrees with `item` in these keys; NULL: none. */
static const json_t *find_alike(const json_t *list, const json_t *item, const char *const *keys)
{
    size_t i;
    const json_t *other;
    json_array_foreach(list, i, other)
    {
        bool alike = true;
        for (const char *const *key = keys; *key; key++)
            alike &= agree(item, other, *key);
        if (alike)
            return other;
    }
    return NULL;
}

static const json_t *find_comparison(const json_t *summary, const json_t *item)
{
    static const char *const keys[] = {"arm", "baseline", "workload", NULL};
    return find_alike(json_object_get(summary, "comparisons"), item, keys);
}

static const json_t *find_workload(const json_t *summary, const json_t *name)
{
    size_t i;
    const json_t *workload;
    json_array_foreach(json_object_get(json_object_get(summary, "plan"), "workloads"), i, workload)
    {
        if (json_equal(json_object_get(workload, "name"), name))
            return workload;
    }
    return NULL;
}

/* Whether a workload asks the same of both; all of them where the name is null. */
static bool ask_the_same(const json_t *before, const json_t *after, const json_t *name)
{
    static const char *const keys[] = {"max_new_tokens", "ignore_eos", "prompts_sha256"};
    if (json_is_null(name)) {
        size_t i;
        const json_t *each;
        bool all = agree(before, after, "workloads");
        json_array_foreach(json_object_get(after, "workloads"), i, each) all = all && ask_the_same(before, after, each);
        return all;
    }
    const json_t *a = find_workload(before, name), *b = find_workload(after, name);
    bool same = a && b;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        same = same && agree(a, b, keys[i]);
    return same;
}

/* --- estimates ---------------------------------------------------------------------------------------------------- */

/* The log ratios of a comparison's blocks, to be free()d. */
static double *read_logs(const json_t *comparison, int *count)
{
    const json_t *blocks = json_object_get(comparison, "blocks");
    double *logs = xcalloc(json_array_size(blocks) + 1, sizeof *logs);
    *count = (int)json_array_size(blocks);
    for (int i = 0; i < *count; i++)
        logs[i] = json_number_value(json_object_get(json_array_get(blocks, (size_t)i), "log_ratio"));
    return logs;
}

static double plan_number(const json_t *summary, const char *key)
{
    return json_number_value(json_object_get(json_object_get(summary, "plan"), key));
}

static struct interval estimate(const json_t *before, const json_t *after, const json_t *summary, int family)
{
    int count_before, count_after;
    double *of_before = read_logs(before, &count_before), *of_after = read_logs(after, &count_after);
    struct interval interval = {NAN, NAN, NAN, count_before + count_after};
    if (count_before && count_after)
        interval = statistics_welch_log_interval(of_after, count_after, of_before, count_before,
                                                 plan_number(summary, "alpha") / family);
    /* Without limits of its own, a ratio has none beside another either. */
    if (count_before < plan_number(summary, "min_blocks") || count_after < plan_number(summary, "min_blocks") ||
        !json_is_number(json_object_get(json_object_get(before, "speedup"), "low")) ||
        !json_is_number(json_object_get(json_object_get(after, "speedup"), "low")))
        interval.low = interval.high = NAN;
    free(of_before);
    free(of_after);
    return interval;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *copy_or_null(const json_t *value)
{
    return value ? json_deep_copy(value) : json_null();
}

/* The marks of both. */
static json_t *make_marks(const json_t *before, const json_t *after)
{
    const json_t *const both[] = {json_object_get(before, "marks"), json_object_get(after, "marks")};
    json_t *marks = json_array();
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < json_array_size(both[i]); j++)
            summary_append_once(marks, 0, json_string_value(json_array_get(both[i], j)));
    return marks;
}

static json_t *make_rates(const json_t *before, const json_t *after, const json_t *item)
{
    static const char *const keys[] = {"arm", "workload", NULL};
    const json_t *a = find_alike(json_object_get(before, "cells"), item, keys);
    const json_t *b = find_alike(json_object_get(after, "cells"), item, keys);
    json_t *object = json_object();
    json_set(object, "before", copy_or_null(json_object_get(a, "tokens_per_s")));
    json_set(object, "after", copy_or_null(json_object_get(b, "tokens_per_s")));
    json_set(object, "covered", json_false());
    json_set(object, "marks", make_marks(a, b));
    return object;
}

static json_t *make_missing(bool same, struct interval change)
{
    if (same && !isnan(change.value))
        return json_null();
    struct reason reason = same ? reason_make(RULE_NOT_MEASURED, xstrdup("one of the runs has no pair of attempts"))
                                : reason_make(RULE_FINGERPRINT, xstrdup("the runs' prompts or output lengths differ"));
    json_t *object = summary_make_reason(&reason);
    reason_free(&reason);
    return object;
}

static json_t *make_cell(const json_t *before, const json_t *after, const json_t *was, const json_t *is, int family)
{
    static const char *const keys[] = {"arm", "baseline", "workload"};
    const bool same = ask_the_same(before, after, json_object_get(is, "workload"));
    const struct interval nothing = {NAN, NAN, NAN, 0};
    const struct interval change = same ? estimate(was, is, after, 1) : nothing;
    const struct interval all = same ? estimate(was, is, after, family) : nothing;
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_set(object, keys[i], copy_or_null(json_object_get(is, keys[i])));
    json_set(object, "before", copy_or_null(json_object_get(was, "speedup")));
    json_set(object, "after", copy_or_null(json_object_get(is, "speedup")));
    json_set(object, "change", summary_make_interval(change, "unpaired blocks"));
    json_set(object, "simultaneous", summary_make_limits(all));
    summary_set_verdict(all, object);
    json_set(object, "tokens_per_s", make_rates(before, after, is));
    json_set(object, "missing", make_missing(same, change));
    json_set(object, "marks", make_marks(was, is));
    return object;
}

static const char *name_of(const json_t *summary)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(summary, "runs"), 0), "name"));
}

json_t *versus_make(const json_t *before, const json_t *after)
{
    json_t *versus = json_object(), *cells = json_array();
    const json_t *comparisons = json_object_get(after, "comparisons");
    size_t i;
    const json_t *is;
    int family = 0;
    json_array_foreach(comparisons, i, is) family += find_comparison(before, is) != NULL;
    json_array_foreach(comparisons, i, is)
    {
        const json_t *was = find_comparison(before, is);
        if (was)
            json_append(cells, make_cell(before, after, was, is, family));
    }
    json_set(versus, "before", summary_text_or_null(name_of(before)));
    json_set(versus, "after", summary_text_or_null(name_of(after)));
    json_set(versus, "cells", cells);
    return versus;
}
