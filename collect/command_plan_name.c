#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/plan.h"

#include <stdio.h>

int command_plan_name(int argc, char **argv)
{
    const struct option_entry entries[] = {{0}};
    const struct option_command command = {"collect plan-name FILE",
                                           "Checks the plan and prints its name, which names the run.", entries, 1, 1};
    struct plan plan;
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    if (plan_read(argv[0], &plan, &error) || plan_check_secrets(&plan, &error)) {
        fprintf(stderr, "%s\n", error.message);
        plan_free(&plan);
        return EXIT_CODE_FAILURE;
    }
    printf("%s\n", plan.name);
    plan_free(&plan);
    return EXIT_CODE_OK;
}
