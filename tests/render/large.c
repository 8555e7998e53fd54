#include "tests/render/large.h"

#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 6
#define NAME_SIZE 64
#define KINDS 5 /* of arms in a group */

struct large_arm {
    char name[32];
    const char *label, *method;
    int ranks, in_flight, budget;
};

static struct large_arm arm_of(int index)
{
    static const char *const labels[KINDS] = {"auto", "linear", "b8", "b16", "b64"};
    static const char *const crowded[KINDS] = {"auto-c64", "linear-c64", "b8-c64", "b16-c64", "b64-c64"};
    static const char *const methods[KINDS] = {"auto", "linear", "ddtree", "ddtree", "ddtree"};
    static const int ranks[] = {1, 4, 8}, budgets[KINDS] = {0, 0, 8, 16, 64};
    int kind = index % KINDS, group = index / KINDS;
    struct large_arm arm = {.label = group % 2 ? crowded[kind] : labels[kind],
                            .method = methods[kind],
                            .ranks = ranks[group / 2],
                            .in_flight = group % 2 ? 64 : 1,
                            .budget = budgets[kind]};
    snprintf(arm.name, sizeof arm.name, "tp%d-%s", arm.ranks, arm.label);
    return arm;
}

static void workload_name(int index, char *name)
{
    snprintf(name, NAME_SIZE, "%s-in-long-documents-of-courts-%02d", index % 2 ? "questions" : "retrieved", index);
}

static json_t *interval(double value, double spread, const char *over)
{
    return json_pack("{s:f, s:f, s:f, s:i, s:s}", "value", value, "low", value / (1 + spread), "high",
                     value * (1 + spread), "n", BLOCKS, "over", over);
}

/* From 0.02 to 200. */
static double speedup_of(int arm, int workload)
{
    return .02 * pow(10, fmod(.37 * arm + .61 * workload, 4));
}

static json_t *missing(void)
{
    return json_pack("{s:s, s:s}", "rule", "ACCEPT_OUT_OF_RANGE", "detail", "a round committed 17 tokens");
}

static bool is_missing(int arm, int workload)
{
    return (arm + workload) % 7 == 6;
}

static json_t *histogram(int arm)
{
    json_t *array = json_array();
    for (int i = 0; i < 17; i++)
        json_append(array, json_integer(i == 0 ? 0 : (7 * i + 3 * arm) % 11 * 10));
    return array;
}

static json_t *make_cell(int index, int workload)
{
    struct large_arm arm = arm_of(index);
    char name[NAME_SIZE];
    workload_name(workload, name);
    json_t *cell = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i}", "arm", arm.name, "workload", name, "blocks_valid",
                             BLOCKS, "blocks_planned", BLOCKS, "tries", BLOCKS, "sessions", 2);
    if (is_missing(index, workload)) {
        json_set(cell, "missing", missing());
        return cell;
    }
    double speed = 20 * speedup_of(index, workload);
    json_set(cell, "tokens_per_s", interval(speed, .02, "blocks"));
    json_set(cell, "tpot_ms", interval(1000 / speed, .02, "blocks"));
    json_set(cell, "ttft_ms", interval(31.4, .05, "blocks"));
    json_set(cell, "tau", interval(1 + index % KINDS, index % KINDS ? .1 : 0, "prompts"));
    json_set(cell, "end_to_end_tokens_per_s", interval(.8 * speed, .02, "blocks"));
    json_set(cell, "aggregate_tokens_per_s", interval(speed * arm.in_flight, .02, "blocks"));
    json_set(cell, "aggregate_per_device", interval(speed * arm.in_flight / arm.ranks, .02, "blocks"));
    json_set(cell, "pareto", json_boolean(index % 3 == 0));
    json_set(cell, "accepted_histogram", histogram(index));
    json_set(cell, "stages_ms",
             json_pack("{s:f, s:f, s:f}", "draft", 1., "verify", 3. + 40 * (index % 3), "other", .1));
    json_set(cell, "stages_share", json_pack("{s:f, s:f}", "draft", .24, "verify", .74));
    if (index % 5 == 1)
        json_set(cell, "marks", json_pack("[s]", "REPETITION"));
    return cell;
}

static json_t *make_comparison(int index, int workload)
{
    struct large_arm arm = arm_of(index), baseline = arm_of(index - index % KINDS);
    char name[NAME_SIZE];
    json_t *comparison = json_pack("{s:s, s:s}", "arm", arm.name, "baseline", baseline.name);
    if (workload >= 0) {
        workload_name(workload, name);
        json_set(comparison, "workload", json_string(name));
    }
    if (is_missing(index, workload)) {
        json_set(comparison, "missing", missing());
        return comparison;
    }
    double speedup = speedup_of(index, workload);
    json_set(comparison, "speedup", interval(speedup, .04, "blocks"));
    json_set(comparison, "headline", json_boolean(workload < 0));
    if (workload < 0)
        json_set(comparison, "simultaneous", json_pack("{s:f, s:f}", "low", speedup / 1.1, "high", speedup * 1.1));
    else
        json_set(comparison, "break_even_tau", interval((1 + index % KINDS) / speedup, .02, "blocks"));
    json_set(comparison, "p_bh", json_real(index % KINDS == 1 ? .4 : .001));
    return comparison;
}

static json_t *make_scaling(int index, int workload)
{
    struct large_arm arm = arm_of(index), reference = arm_of(index % 8);
    char name[NAME_SIZE];
    json_t *scaling = json_pack("{s:s, s:s, s:s}", "arm", arm.name, "reference", reference.name, "pairing", "paired");
    if (workload >= 0) {
        workload_name(workload, name);
        json_set(scaling, "workload", json_string(name));
    }
    json_set(scaling, "speedup", interval(.7 * arm.ranks, .1, "blocks"));
    json_set(scaling, "efficiency", interval(.7, .1, "blocks"));
    return scaling;
}

static json_t *reading(double mean)
{
    return json_pack("{s:f, s:f, s:f}", "mean", mean, "minimum", .9 * mean, "maximum", 1.05 * mean);
}

static void add_run(json_t *json, int arms)
{
    json_t *residuals = json_array(), *telemetry = json_array();
    for (int i = 0; i < arms * BLOCKS; i++) {
        struct large_arm arm = arm_of(i % arms);
        json_append(residuals, json_pack("{s:s, s:i, s:f, s:b}", "arm", arm.name, "block", 1 + i / arms, "residual",
                                         .02 * sin(i), "outlier", i == 5));
        for (int device = 0; device < arm.ranks; device++) {
            json_t *one = json_pack("{s:s, s:i, s:f, s:b}", "arm", arm.name, "device", device, "start_s", 100. * i,
                                    "slowdown", i == 3);
            json_set(one, "clock_mhz", reading(1800 - i));
            json_set(one, "temperature_c", reading(50 + device));
            json_set(one, "power_w", reading(500));
            json_append(telemetry, one);
        }
    }
    json_set(json, "drift",
             json_pack("{s:f, s:f, s:i, s:o}", "p", .3, "change", .01, "n", arms * BLOCKS, "residuals", residuals));
    json_set(json, "telemetry", telemetry);
}

static json_t *make_arms(int arms)
{
    json_t *array = json_array();
    for (int i = 0; i < arms; i++) {
        struct large_arm arm = arm_of(i);
        json_t *one = json_pack("{s:s, s:s, s:s, s:i, s:i}", "name", arm.name, "label", arm.label, "method", arm.method,
                                "tensor_parallel", arm.ranks, "concurrency", arm.in_flight);
        if (arm.budget)
            json_set(one, "budget", json_integer(arm.budget));
        json_append(array, one);
    }
    return array;
}

static void add_lists(json_t *json, int arms, int workloads)
{
    json_t *cells = json_array(), *comparisons = json_array(), *scaling = json_array(), *names = json_array();
    for (int workload = -1; workload < workloads; workload++) {
        char name[NAME_SIZE];
        workload_name(workload, name);
        if (workload >= 0)
            json_append(names, json_string(name));
        for (int arm = 0; arm < arms; arm++) {
            if (workload >= 0)
                json_append(cells, make_cell(arm, workload));
            if (arm % KINDS > 0)
                json_append(comparisons, make_comparison(arm, workload));
            if (arm >= 8)
                json_append(scaling, make_scaling(arm, workload));
        }
    }
    json_set(json, "workloads", names);
    json_set(json, "cells", cells);
    json_set(json, "comparisons", comparisons);
    json_set(json, "scaling", scaling);
}

void large_write(const char *path, int arms, int workloads)
{
    json_t *json = json_pack("{s:s, s:s, s:{s:i, s:f}, s:{s:s, s:f}, s:[], s:[]}", "schema", "cleanslate.summary/1",
                             "name", "large", "plan", "blocks", BLOCKS, "alpha", .05, "method", "interval",
                             "paired log-t", "level", .95, "runs", "verdicts");
    json_set(json, "arms", make_arms(arms));
    add_lists(json, arms, workloads);
    add_run(json, arms);
    char *text = json_dumps(json, 0);
    fixture_write(path, text, strlen(text));
    free(text);
    json_decref(json);
}
