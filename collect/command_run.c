#include "collect/base/option.h"
#include "collect/campaign.h"
#include "collect/command.h"
#include "collect/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- --only ----------------------------------------------------------------------------------------------------- */

static int find_arm(const struct plan *plan, const char *name)
{
    struct arm arm;
    for (int i = 0; arm_parse(name, &arm) && i < plan->arm_count; i++)
        if (arm_equal(&plan->arms[i], &arm))
            return i;
    return -1;
}

/* "tp1-auto,tp1-b16" as marks in only[arm_count]. */
static int mark_arms(const struct plan *plan, const char *list, bool *only, struct error *error)
{
    char *names = xstrdup(list), *rest = NULL;
    int result = list[strspn(list, ",")] ? 0 : fail(error, "--only names no arm; give some, or leave it out");
    for (char *name = strtok_r(names, ",", &rest); !result && name; name = strtok_r(NULL, ",", &rest)) {
        int arm = find_arm(plan, name);
        char example[ARM_NAME_SIZE];
        if (arm < 0)
            result = fail(error, "--only: the plan has no arm \"%s\"; arms have names like %s", name,
                          arm_name(&plan->arms[plan->arm_count - 1], example));
        else
            only[arm] = true;
    }
    free(names);
    return result;
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static bool is_device(const char *device)
{
    return strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0 || strncmp(device, "cuda", 4) == 0;
}

static int measure_plan(const struct plan *plan, const char *runs, const bool *only, const char *device,
                        struct error *error)
{
    if (plan->source == PLAN_SOURCE_IMPORT)
        return fail(error, "%s: is the plan of imports, which measures nothing; `collect import` adds to its run",
                    plan->path);
    struct campaign_options options = {.runs = runs, .only = only};
    struct source *source = stage_prepare(plan, runs, error) ? NULL : source_open(plan, device, error);
    if (!source)
        return -1;
    int result = campaign_run(plan, source, &options, error);
    source_close(source);
    return result;
}

int command_run(int argc, char **argv)
{
    const char *path = NULL, *runs = COMMAND_RUNS_DEFAULT, *arms = NULL, *device = NULL;
    const struct option_entry entries[] = {
        {"--plan", OPTION_TEXT, &path, "FILE", "what to measure", true},
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {"--only", OPTION_TEXT, &arms, "ARM,...", "these arms only, and the baselines they need", false},
        {"--device", OPTION_TEXT, &device, "auto|cpu|cuda", "instead of the plan's device", false},
        {0},
    };
    const struct option_command command = {
        "collect run --plan FILE [options]",
        "Measures what the plan asks for and RUNS/NAME lacks. The same command goes on after an interruption.", entries,
        0, 0};
    struct plan plan;
    struct error error = {0};
    int count, exit_code = EXIT_CODE_FAILURE;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    if (device && !is_device(device)) {
        fprintf(stderr, "--device is \"%s\"; it must be auto, cpu or cuda\n", device);
        return EXIT_CODE_USAGE;
    }
    if (plan_read(path, &plan, &error) || plan_check_secrets(&plan, &error)) {
        fprintf(stderr, "%s\n", error.message);
        plan_free(&plan);
        return EXIT_CODE_FAILURE;
    }
    bool *only = arms ? xcalloc((size_t)plan.arm_count, sizeof *only) : NULL;
    if (arms && mark_arms(&plan, arms, only, &error))
        exit_code = EXIT_CODE_USAGE;
    else {
        int result = measure_plan(&plan, runs, only, device, &error);
        exit_code = result < 0                       ? EXIT_CODE_FAILURE
                    : result == CAMPAIGN_INTERRUPTED ? EXIT_CODE_INTERRUPTED
                                                     : EXIT_CODE_OK;
    }
    if (error.message[0])
        fprintf(stderr, "%s\n", error.message);
    free(only);
    plan_free(&plan);
    return exit_code;
}
