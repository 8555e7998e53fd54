/* analyze RUN --out FILE: from a run folder to its summary. */
#include "analyze/summary.h"
#include "collect/base/option.h"
#include "collect/plan_store.h"

#include <stdio.h>
#include <stdlib.h>

static int analyze(const char *folder, const char *out, struct error *error)
{
    struct plan plan = {0};
    struct run run = {0};
    json_t *summary = NULL;
    int result = -1;
    char *path = plan_store_find(folder);
    if (!path) {
        fail(error, "%s: has no plan.json, so it is no run folder; name one such as data/runs/demo", folder);
        goto out;
    }
    if (plan_read(path, &plan, error) || run_read(folder, &plan.rules, &run, error))
        goto out;
    plan_add_imported(&plan, &run);
    summary = summary_build(&run, &plan, error);
    if (summary)
        result = summary_write(summary, out, error);
out:
    json_decref(summary);
    run_free(&run);
    plan_free(&plan);
    free(path);
    return result;
}

int main(int argc, char **argv)
{
    const char *out = NULL;
    const struct option_entry options[] = {
        {"--out", OPTION_TEXT, &out, "FILE", "the summary to write, such as out/reports/demo/summary.json", true},
        {0},
    };
    const struct option_command command = {
        .usage = "analyze RUN --out FILE",
        .purpose = "Computes speedups, acceptance and times with their intervals from a run folder (data/runs/NAME),\n"
                   "leaves out what is invalid, and writes the summary that render makes a report of.",
        .options = options,
        .minimum_arguments = 1,
        .maximum_arguments = -1,
    };
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_HELP_SHOWN ? EXIT_CODE_OK : EXIT_CODE_USAGE;
    if (count > 1) {
        fprintf(stderr, "analyze: %d runs given; each has a plan of its own, so analyze them one by one\n", count);
        return EXIT_CODE_USAGE;
    }
    struct error error = {0};
    if (analyze(argv[0], out, &error)) {
        fprintf(stderr, "analyze: %s\n", error.message);
        return EXIT_CODE_FAILURE;
    }
    return EXIT_CODE_OK;
}
