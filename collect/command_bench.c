#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARMS_MAXIMUM 32
#define BLOCK_LIMIT 64 /* positions that are set aside for a round */

struct bench {
    const char *target, *drafter, *dtype, *device, *budgets;
    int context, rounds, passes;
};

/* auto, linear and the budgets of "8,16,64". */
static int list_arms(const struct bench *bench, struct arm *arms, struct error *error)
{
    int count = 0;
    arms[count++] = (struct arm){.tensor_parallel = 1, .method = METHOD_AUTO, .concurrency = 1};
    if (!bench->drafter)
        return count;
    arms[count++] = (struct arm){.tensor_parallel = 1, .method = METHOD_LINEAR, .concurrency = 1};
    for (const char *at = bench->budgets; *at;) {
        char *end;
        long budget = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || budget < 1 || budget > ARM_BUDGET_MAXIMUM || count == ARMS_MAXIMUM)
            return fail(error, "--budgets %s: give at most %d budgets from 1 to %d, parted by commas", bench->budgets,
                        ARMS_MAXIMUM - 2, ARM_BUDGET_MAXIMUM);
        arms[count++] = (struct arm){1, METHOD_DDTREE, (int)budget, 1};
        at = *end ? end + 1 : end;
    }
    return count;
}

static void print_row(const struct arm *arm, const struct engine_benchmark *result)
{
    char label[ARM_NAME_SIZE];
    printf("%-8s %4d  %8.1f %8.1f  %5.2f  ", arm_method_label(arm, label), result->verify_rows,
           (double)result->round_ns / 1e3, (double)result->round_products_ns / 1e3,
           (double)result->round_ns / (double)result->round_products_ns);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        printf(" %8.1f", (double)result->stages_ns[stage] / 1e3);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        if (stage != STAGE_BUILD)
            printf(" %8.1f", (double)result->products_ns[stage] / 1e3);
    putchar('\n');
}

static int measure_arms(struct engine *engine, const struct bench *bench, struct error *error)
{
    const struct sampling greedy = {.top_p = 1};
    struct arm arms[ARMS_MAXIMUM];
    int count = list_arms(bench, arms, error), positions = bench->context + bench->rounds * BLOCK_LIMIT + 1;
    if (count < 0)
        return -1;
    printf("microseconds, medians of %d rounds behind a prompt of %d tokens; products: the matrix products alone\n\n",
           bench->rounds, bench->context);
    printf("%-8s %4s  %8s %8s  %5s   %8s %8s %8s %8s %8s %8s %8s\n", "arm", "rows", "round", "products", "ratio",
           "draft", "build", "verify", "commit", "draft*", "verify*", "commit*");
    for (int i = 0; i < count; i++) {
        struct engine_benchmark result;
        json_t *memory = NULL;
        if (engine_load(engine, &arms[i], &greedy, positions, &memory, error))
            return -1;
        json_decref(memory);
        for (int pass = 0; pass <= bench->passes; pass++)
            engine_measure_rounds(engine, bench->context, bench->rounds, &result);
        print_row(&arms[i], &result);
    }
    printf("\n* products alone\n");
    return 0;
}

int command_bench(int argc, char **argv)
{
    struct bench bench = {
        .dtype = "bfloat16", .device = "auto", .budgets = "8,16,32,64", .context = 128, .rounds = 24, .passes = 2};
    const struct option_entry entries[] = {
        {"--target", OPTION_TEXT, &bench.target, "DIR", "the target's folder", true},
        {"--drafter", OPTION_TEXT, &bench.drafter, "DIR", "the drafter's folder; without it only auto is timed"},
        {"--dtype", OPTION_TEXT, &bench.dtype, "TYPE", "bfloat16 (default) or float32"},
        {"--device", OPTION_TEXT, &bench.device, "NAME", "auto (default), cpu or cuda"},
        {"--budgets", OPTION_TEXT, &bench.budgets, "N,...", "budgets of ddtree (default 8,16,32,64)"},
        {"--context", OPTION_COUNT, &bench.context, "N", "tokens of the prompt (default 128)"},
        {"--rounds", OPTION_COUNT, &bench.rounds, "N", "rounds that are timed (default 24)"},
        {0},
    };
    const struct option_command command = {"collect bench --target DIR [options]",
                                           "Times the engine's rounds, each beside its matrix products alone.", entries,
                                           0, 0};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    if (strcmp(bench.dtype, "bfloat16") != 0 && strcmp(bench.dtype, "float32") != 0) {
        fprintf(stderr, "--dtype %s: give bfloat16 or float32\n", bench.dtype);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(bench.device, "auto") != 0 && strcmp(bench.device, "cpu") != 0 && strcmp(bench.device, "cuda") != 0) {
        fprintf(stderr, "--device %s: give auto, cpu or cuda\n", bench.device);
        return EXIT_CODE_USAGE;
    }
    struct engine *engine = engine_open(bench.target, bench.drafter, bench.dtype, bench.device, &error);
    if (engine)
        measure_arms(engine, &bench, &error);
    engine_close(engine);
    if (!error.message[0])
        return EXIT_CODE_OK;
    fprintf(stderr, "%s\n", error.message);
    return EXIT_CODE_FAILURE;
}
