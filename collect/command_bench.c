#include "collect/base/file.h"
#include "collect/base/option.h"
#include "collect/bench_report.h"
#include "collect/command.h"
#include "collect/engine/recorded_trees.h"
#include "collect/engine/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARMS_MAXIMUM 32
#define FORCED_TOKENS 6 /* that a round keeps where no drafter was trained */
#define PREFILL 4096

struct options {
    const char *shape, *target, *drafter, *dtype, *device, *budgets, *trees, *json;
    int ranks, context, rounds;
};

/* auto, linear and the budgets of "8,16,64". */
static int list_arms(const struct options *options, bool drafts, struct arm *arms, struct error *error)
{
    int count = 0;
    arms[count++] = (struct arm){options->ranks, METHOD_AUTO, 0, 1};
    if (!drafts)
        return count;
    arms[count++] = (struct arm){options->ranks, METHOD_LINEAR, 0, 1};
    for (const char *at = options->budgets; *at;) {
        char *end;
        long budget = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || budget < 1 || budget > ARM_BUDGET_MAXIMUM || count == ARMS_MAXIMUM)
            return fail(error, "--budgets %s: give at most %d budgets from 1 to %d, parted by commas", options->budgets,
                        ARMS_MAXIMUM - 2, ARM_BUDGET_MAXIMUM);
        arms[count++] = (struct arm){options->ranks, METHOD_DDTREE, (int)budget, 1};
        at = *end ? end + 1 : end;
    }
    return count;
}

static int write_json(const struct bench_report *report, const char *path, struct error *error)
{
    json_t *object = bench_report_to_json(report);
    char *text = json_dumps(object, JSON_INDENT(2)), *whole = xformat("%s\n", text);
    int result = file_write_whole(path, whole, strlen(whole), error);
    free(whole);
    free(text);
    json_decref(object);
    return result;
}

static int measure(const struct bench *bench, const struct options *options, const char *trees, struct error *error)
{
    struct arm arms[ARMS_MAXIMUM];
    struct bench_arm results[ARMS_MAXIMUM];
    struct bench_report report = {
        .bench = bench, .dtype = options->dtype, .trees = trees, .arms = arms, .results = results};
    report.count = list_arms(options, bench->drafter != NULL, arms, error);
    if (report.count < 0)
        return -1;
    if (bench->class->measure_rates(bench->device, bench->ranks, bench->dtype, &report.rates, error))
        return -1;
    for (int i = 0; i < report.count; i++)
        if (bench_measure_arm(bench, &arms[i], &results[i], error))
            return -1;
    report.prefill_tokens = options->shape ? PREFILL : 0;
    if (report.prefill_tokens && bench_measure_prefill(bench, PREFILL, &report.prefill_ns, error))
        return -1;
    json_t *device = bench->class->describe_device(bench->device, bench->dtype);
    report.device = device;
    bench_report_print(&report);
    int result = options->json ? write_json(&report, options->json, error) : 0;
    json_decref(device);
    return result;
}

static int open_models(const struct options *options, struct model **target, struct model **drafter,
                       struct error *error)
{
    if (options->shape)
        return shape_open(options->shape, target, drafter, error);
    *target = model_open_target(options->target, error);
    if (*target && options->drafter)
        *drafter = model_open_drafter(options->drafter, *target, error);
    return *target && (*drafter || !options->drafter) ? 0 : -1;
}

static void run(const struct options *options, struct error *error)
{
    struct model *target = NULL, *drafter = NULL;
    struct recorded_trees trees = {0};
    struct bench bench = {.class = backend_find(options->device, error),
                          .dtype = strcmp(options->dtype, "bfloat16") == 0 ? ENGINE_BFLOAT16 : ENGINE_FLOAT32,
                          .device = options->device,
                          .algorithms = json_object(),
                          .ranks = options->ranks,
                          .context = options->context,
                          .rounds = options->rounds};
    if (bench.class && !open_models(options, &target, &drafter, error) &&
        (!options->shape || !recorded_trees_read(options->trees, &trees, error))) {
        const struct forced_trees forced = {trees.count, FORCED_TOKENS, trees.parents};
        bench.target = target;
        bench.drafter = drafter;
        bench.forced = options->shape ? &forced : NULL;
        measure(&bench, options, trees.source, error);
    }
    recorded_trees_free(&trees);
    json_decref(bench.algorithms);
    model_close(drafter);
    model_close(target);
}

/* NULL, or what is wrong with the call. */
static const char *find_fault(const struct options *options)
{
    if (!options->shape == !options->target)
        return "give --shape NAME, or --target DIR";
    if (options->shape && options->drafter)
        return "--shape brings its own drafter; --drafter goes with --target";
    if (strcmp(options->dtype, "bfloat16") != 0 && strcmp(options->dtype, "float32") != 0)
        return "--dtype: give bfloat16 or float32";
    if (strcmp(options->device, "auto") != 0 && strcmp(options->device, "cpu") != 0 &&
        strncmp(options->device, "cuda", 4) != 0)
        return "--device: give auto, cpu or cuda";
    return NULL;
}

int command_bench(int argc, char **argv)
{
    struct options options = {.dtype = "bfloat16",
                              .device = "auto",
                              .budgets = "8,16,32,64",
                              .trees = "data/trees/demo.json",
                              .ranks = 1,
                              .context = 512,
                              .rounds = 24};
    char *shapes = xformat("a model without files, of random weights: %s", shape_names());
    const struct option_entry entries[] = {
        {"--shape", OPTION_TEXT, &options.shape, "NAME", shapes},
        {"--target", OPTION_TEXT, &options.target, "DIR", "or the target's folder"},
        {"--drafter", OPTION_TEXT, &options.drafter, "DIR", "the drafter's folder; without it only auto is timed"},
        {"--tp", OPTION_COUNT, &options.ranks, "N", "tensor-parallel ranks (default 1)"},
        {"--dtype", OPTION_TEXT, &options.dtype, "TYPE", "bfloat16 (default) or float32"},
        {"--device", OPTION_TEXT, &options.device, "NAME", "auto (default), cpu or cuda"},
        {"--budgets", OPTION_TEXT, &options.budgets, "N,...", "budgets of ddtree (default 8,16,32,64)"},
        {"--context", OPTION_COUNT, &options.context, "N", "tokens of the prompt (default 512)"},
        {"--rounds", OPTION_COUNT, &options.rounds, "N", "rounds that are timed (default 24)"},
        {"--trees", OPTION_TEXT, &options.trees, "FILE", "recorded trees for --shape (default data/trees/demo.json)"},
        {"--json", OPTION_TEXT, &options.json, "FILE", "writes the figures there as well"},
        {0},
    };
    const struct option_command command = {
        "collect bench --shape NAME | --target DIR [--drafter DIR] [options]",
        "Times the engine's rounds and their stages, beside the memory's bandwidth and beside their matrix products "
        "alone.",
        entries, 0, 0};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    free(shapes);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    const char *fault = find_fault(&options);
    if (fault) {
        fprintf(stderr, "%s; collect bench --help says more\n", fault);
        return EXIT_CODE_USAGE;
    }
    run(&options, &error);
    if (!error.message[0])
        return EXIT_CODE_OK;
    fprintf(stderr, "%s\n", error.message);
    return EXIT_CODE_FAILURE;
}
