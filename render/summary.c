#include "render/summary.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>

const char *const summary_stage_names[SUMMARY_STAGE_COUNT] = {"draft", "build", "verify", "commit", "other"};

void summary_free(struct summary *summary)
{
    for (int i = 0; summary->cells && i < summary->cell_count; i++)
        free(summary->cells[i].histogram);
    free(summary->runs);
    free(summary->arms);
    free(summary->workloads);
    free(summary->cells);
    free(summary->comparisons);
    free(summary->verdicts);
    json_decref(summary->json);
    *summary = (struct summary){0};
}

const struct cell *summary_find_cell(const struct summary *summary, int arm, int workload)
{
    for (int i = 0; i < summary->cell_count; i++)
        if (summary->cells[i].arm == arm && summary->cells[i].workload == workload)
            return &summary->cells[i];
    return NULL;
}

const struct comparison *summary_compare(const struct summary *summary, int arm, const char *baseline, int workload)
{
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (comparison->arm == arm && comparison->workload == workload &&
            summary_is_method(summary, comparison->baseline, baseline))
            return comparison;
    }
    return NULL;
}

const char *summary_arm_text(const struct summary *summary, int arm)
{
    return summary->labels_unique ? summary->arms[arm].label : summary->arms[arm].name;
}

const char *summary_workload_text(const struct summary *summary, int workload)
{
    return workload == SUMMARY_ALL_WORKLOADS ? "all workloads" : summary->workloads[workload].name;
}

bool summary_is_method(const struct summary *summary, int arm, const char *method)
{
    return strcmp(summary->arms[arm].method, method) == 0;
}

const char *summary_explain(const struct summary *summary, const char *rule)
{
    for (size_t i = 0; i < json_array_size(summary->rules); i++) {
        const json_t *object = json_array_get(summary->rules, i);
        const char *id = json_string_value(json_object_get(object, "id"));
        if (id && strcmp(id, rule) == 0)
            return json_string_value(json_object_get(object, "explanation"));
    }
    return NULL;
}

int64_t summary_date(const struct summary *summary)
{
    int64_t latest = 0;
    for (int i = 0; i < summary->run_count; i++) {
        const char *text = summary->runs[i].last_started;
        int64_t date = text ? clock_parse_utc(text) : -1;
        if (date > latest)
            latest = date;
    }
    return latest;
}
