#include "render/summary.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>

const char *const summary_stage_names[SUMMARY_STAGE_COUNT] = {"draft", "build", "verify", "commit", "other"};
const char *const summary_metric_names[SUMMARY_METRIC_COUNT] = {"ttft_ms", "tpot_ms", "end_to_end_ms"};

void summary_free(struct summary *summary)
{
    for (int i = 0; summary->cells && i < summary->cell_count; i++) {
        free(summary->cells[i].histogram);
        free(summary->cells[i].latency);
    }
    for (int i = 0; summary->round_models && i < summary->round_model_count; i++) {
        free(summary->round_models[i].terms);
        free(summary->round_models[i].fits);
    }
    free(summary->runs);
    free(summary->arms);
    free(summary->workloads);
    free(summary->cells);
    free(summary->comparisons);
    free(summary->scaling);
    free(summary->best_budgets);
    free(summary->round_models);
    free(summary->telemetry);
    free(summary->drift.residuals);
    free(summary->versus.cells);
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

const char *summary_baseline_text(const struct summary *summary, const struct comparison *comparison)
{
    bool alike = summary_alike(summary, comparison->arm, comparison->baseline);
    bool plain = summary->arms[comparison->baseline].budget < 1;
    return alike && plain ? summary->arms[comparison->baseline].method
                          : summary_arm_text(summary, comparison->baseline);
}

const char *summary_workload_text(const struct summary *summary, int workload)
{
    return workload == SUMMARY_ALL_WORKLOADS ? "all workloads" : summary->workloads[workload].name;
}

bool summary_alike(const struct summary *summary, int arm, int other)
{
    return summary->arms[arm].tensor_parallel == summary->arms[other].tensor_parallel &&
           summary->arms[arm].concurrency == summary->arms[other].concurrency;
}

char *summary_group_text(const struct summary *summary, int arm)
{
    const struct summary_arm *of = &summary->arms[arm];
    return xformat("TP %d, %d in flight", of->tensor_parallel, of->concurrency);
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

bool summary_is_imported(const struct summary *summary)
{
    const char *kind = json_string_value(json_object_get(summary->source, "kind"));
    return kind && strcmp(kind, "import") == 0;
}

/* All zero where the summary names none. */
static struct summary_run reported_run(const struct summary *summary)
{
    return summary->run_count ? summary->runs[0] : (struct summary_run){0};
}

int summary_sessions(const struct summary *summary)
{
    return reported_run(summary).sessions;
}

int summary_attempts(const struct summary *summary)
{
    return reported_run(summary).attempts;
}

int summary_invalid_attempts(const struct summary *summary)
{
    return reported_run(summary).attempts_invalid;
}

int64_t summary_date(const struct summary *summary)
{
    const char *text = reported_run(summary).last_started;
    const int64_t date = text ? clock_parse_utc(text) : 0;
    return date > 0 ? date : 0;
}
