#include "collect/bench_report.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/engine/cost.h"
#include "collect/machine.h"

#include <math.h>
#include <stdio.h>

static double milliseconds(int64_t ns)
{
    return (double)ns * 1e-6;
}

static double bytes_a_second(const struct bench_time *time)
{
    return (double)time->read_bytes / (double)time->ns * 1e9;
}

static double prefill_flop_s(const struct bench_report *report)
{
    return cost_prefill_flop(report->bench->target, report->prefill_tokens) / (double)report->prefill_ns * 1e9;
}

/* A round's time over auto's step. */
static double over_auto(const struct bench_report *report, int index)
{
    return (double)report->results[index].round.ns / (double)report->results[0].round.ns;
}

/* --- table ------------------------------------------------------------------------------------------------------ */

static void print_head(const struct bench_report *report)
{
    const struct bench *bench = report->bench;
    const char *gpu = json_string_value(json_object_get(report->device, "gpu"));
    printf("%s, %s, %s%s%s, tp %d: medians of %d rounds behind %d tokens\n", bench->target->folder, report->dtype,
           bench->class->name, gpu ? ": " : "", gpu ? gpu : "", bench->ranks, bench->rounds, bench->context);
    printf("measured in this run: memory read at %.4g GB/s, one large matrix product at %.4g TFLOP/s\n",
           report->rates.read_bytes_s * 1e-9, report->rates.product_flop_s * 1e-12);
    if (report->trees)
        printf("SYNTHETIC_ACCEPTANCE: the weights are random, each round is made to keep %d tokens of a tree whose "
               "shape was "
               "recorded\n(%s): times are real, acceptance is not\n",
               bench->forced->length, report->trees);
    printf("\n%-7s %-7s %5s  %9s %8s %7s %5s  %9s  %7s  %5s\n", "arm", "stage", "rows", "ms", "GB read", "GB/s",
           "of bw", "products*", "of auto", "host");
}

/* One stage, or the whole round; what it does not have is left blank. */
static void print_time(const struct bench_report *report, const char *label, const char *stage, int rows,
                       const struct bench_time *time)
{
    printf("%-7s %-7s %5d  %9.4f", label, stage, rows, milliseconds(time->ns));
    if (time->read_bytes > 0)
        printf(" %8.4f %7.4g %4.0f%%  %9.4f", (double)time->read_bytes * 1e-9, bytes_a_second(time) * 1e-9,
               100 * bytes_a_second(time) / report->rates.read_bytes_s, milliseconds(time->products_ns));
}

static void print_arm(const struct bench_report *report, int index)
{
    const struct arm *arm = &report->arms[index];
    const struct bench_arm *result = &report->results[index];
    bool drafts = arm->method != METHOD_AUTO;
    char label[ARM_NAME_SIZE];
    arm_method_label(arm, label);
    const int rows[STAGE_COUNT] = {[STAGE_DRAFT] = drafts ? report->bench->drafter->block_size : 0,
                                   [STAGE_BUILD] = result->rows,
                                   [STAGE_VERIFY] = result->rows,
                                   [STAGE_COMMIT] = (int)(result->tokens + .5)};
    for (int stage = 0; drafts && stage < STAGE_COUNT; stage++) {
        print_time(report, label, stage_names[stage], rows[stage], &result->stages[stage]);
        putchar('\n');
    }
    print_time(report, label, drafts ? "round" : "step", result->rows, &result->round);
    printf("  %7.3f  %4.1f%%", over_auto(report, index), 100 * (double)result->host_ns / (double)result->round.ns);
    if (drafts)
        printf("  keeps %.3g%s", result->tokens, report->trees ? " (forced)" : "");
    putchar('\n');
}

/* A line for each stage whose parts are known. */
static void print_parts(const struct bench_report *report, int index)
{
    char label[ARM_NAME_SIZE];
    arm_method_label(&report->arms[index], label);
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        const struct bench_parts *parts = &report->results[index].parts[stage];
        int64_t sum = 0;
        for (int i = 0; i < parts->count; i++)
            sum += parts->items[i].ns;
        if (parts->count)
            printf("%-7s %-7s %8.4f:", label, stage_names[stage], milliseconds(sum));
        for (int i = 0; i < parts->count; i++)
            printf(" %s %.4f", parts->items[i].name, milliseconds(parts->items[i].ns));
        if (parts->count)
            putchar('\n');
    }
}

static void print_all_parts(const struct bench_report *report)
{
    if (!report->results[0].parts[STAGE_VERIFY].count)
        return;
    printf("\nparts of a stage in ms, of all layers together, each waiting for the one before; their sum is more than "
           "the stage\n");
    for (int i = 0; i < report->count; i++)
        print_parts(report, i);
}

void bench_report_print(const struct bench_report *report)
{
    print_head(report);
    for (int i = 0; i < report->count; i++)
        print_arm(report, i);
    print_all_parts(report);
    if (report->prefill_tokens)
        printf("\nprefill of %d tokens: %.4g ms, %.4g TFLOP/s, %.0f%% of the large product\n", report->prefill_tokens,
               milliseconds(report->prefill_ns), prefill_flop_s(report) * 1e-12,
               100 * prefill_flop_s(report) / report->rates.product_flop_s);
    printf("\nGB read: what the stage must read at least; of bw: of the bandwidth above. host: the device waits "
           "meanwhile\n"
           "* the matrix products of the stage alone, run after the rounds\n");
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

static json_t *time_to_json(const struct bench_report *report, const struct bench_time *time)
{
    json_t *object = json_object();
    json_set(object, "ns", json_integer(time->ns));
    if (time->read_bytes > 0) {
        json_set(object, "products_ns", json_integer(time->products_ns));
        json_set(object, "read_bytes", json_integer(time->read_bytes));
        json_set(object, "share_of_bandwidth", json_number(bytes_a_second(time) / report->rates.read_bytes_s));
    }
    return object;
}

static json_t *parts_to_json(const struct bench_parts *parts)
{
    json_t *object = json_object();
    for (int i = 0; i < parts->count; i++)
        json_set(object, parts->items[i].name, json_integer(parts->items[i].ns));
    return object;
}

static json_t *stage_to_json(const struct bench_report *report, const struct bench_arm *result, int stage)
{
    json_t *object = time_to_json(report, &result->stages[stage]);
    if (result->parts[stage].count)
        json_set(object, "parts_ns", parts_to_json(&result->parts[stage]));
    return object;
}

static json_t *arm_to_json(const struct bench_report *report, int index)
{
    const struct bench_arm *result = &report->results[index];
    char name[ARM_NAME_SIZE];
    json_t *object = json_object(), *round = time_to_json(report, &result->round), *stages = json_object();
    json_set(object, "arm", json_string(arm_name(&report->arms[index], name)));
    json_set(object, "rows", json_integer(result->rows));
    json_set(object, "tokens", json_number(result->tokens));
    json_set(round, "host_ns", json_integer(result->host_ns));
    json_set(round, "over_auto", json_number(over_auto(report, index)));
    json_set(object, "round", round);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        if (result->stages[stage].ns > 0)
            json_set(stages, stage_names[stage], stage_to_json(report, result, stage));
    json_set(object, "stages", stages);
    return object;
}

static json_t *prefill_to_json(const struct bench_report *report)
{
    json_t *object = json_object();
    json_set(object, "tokens", json_integer(report->prefill_tokens));
    json_set(object, "ns", json_integer(report->prefill_ns));
    json_set(object, "flop", json_number(cost_prefill_flop(report->bench->target, report->prefill_tokens)));
    json_set(object, "share_of_product", json_number(prefill_flop_s(report) / report->rates.product_flop_s));
    return object;
}

json_t *bench_report_to_json(const struct bench_report *report)
{
    const struct bench *bench = report->bench;
    char time[CLOCK_UTC_SIZE];
    json_t *object = json_object(), *rates = json_object(), *arms = json_array();
    json_set(object, "schema", json_string("cleanslate.bench/1"));
    json_set(object, "time", json_string(clock_format_utc(clock_wall_s(), time)));
    json_set(object, "machine", machine_describe());
    json_set(object, "device", json_deep_copy(report->device));
    json_set(object, "algorithms", json_incref(report->bench->algorithms));
    json_set(object, "target", json_text(bench->target->folder));
    json_set(object, "drafter", bench->drafter ? json_text(bench->drafter->folder) : json_null());
    json_set(object, "dtype", json_string(report->dtype));
    json_set(object, "tensor_parallel", json_integer(bench->ranks));
    json_set(object, "context", json_integer(bench->context));
    json_set(object, "rounds", json_integer(bench->rounds));
    json_set(object, "synthetic_acceptance", json_boolean(report->trees != NULL));
    json_set(object, "trees", report->trees ? json_text(report->trees) : json_null());
    json_set(rates, "read_bytes_s", json_number(report->rates.read_bytes_s));
    json_set(rates, "product_flop_s", json_number(report->rates.product_flop_s));
    json_set(object, "rates", rates);
    json_set(object, "prefill", report->prefill_tokens ? prefill_to_json(report) : json_null());
    for (int i = 0; i < report->count; i++)
        json_append(arms, arm_to_json(report, i));
    json_set(object, "arms", arms);
    return object;
}
