/* analyze RUN --out FILE: from a run folder to its summary, or from two to what changed between them. */
#include "analyze/export.h"
#include "analyze/summary.h"
#include "analyze/versus.h"
#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/base/streams.h"
#include "collect/plan_check.h"
#include "collect/plan_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The summary of a run folder, or NULL. What was read for it stays: see main(). */
static json_t *summarise(const char *folder, struct error *error)
{
    struct plan plan = {0};
    struct run run = {0};
    char *path = plan_store_find(folder);
    if (!path) {
        fail(error, "%s: has no plan.json, so it is no run folder; name one such as data/runs/demo", folder);
        return NULL;
    }
    int result = plan_read(path, &plan, error);
    free(path);
    if (result || run_read(folder, &plan.rules, &run, error) ||
        (!run.ledger.broken_at && plan_check(folder, &run.ledger, error)))
        return NULL;
    plan_add_imported(&plan, &run);
    return summary_build(&run, &plan, error);
}

/* The last run's; with one before it, also what changed since. */
static json_t *summarise_all(char *const *folders, int count, struct error *error)
{
    json_t *before = count > 1 ? summarise(folders[0], error) : NULL;
    json_t *summary = count > 1 && !before ? NULL : summarise(folders[count - 1], error);
    if (before && summary) {
        json_set(summary, "versus", versus_make(before, summary));
        json_set(summary, "rules", summary_make_rules(summary));
        json_array_extend(json_object_get(summary, "runs"), json_object_get(before, "runs"));
    }
    return summary;
}

/* format: one of export_format_names; NULL: the summary itself. */
static int analyze(char *const *folders, int count, const char *format, const char *out, struct error *error)
{
    json_t *summary = summarise_all(folders, count, error);
    if (!summary)
        return -1;
    return format ? export_write(summary, strcmp(format, "json") == 0 ? EXPORT_JSON : EXPORT_CSV, out, error)
                  : summary_write(summary, out, error);
}

int main(int argc, char **argv)
{
    const char *out = NULL, *format = NULL;
    const struct option_entry options[] = {
        {"--out", OPTION_TEXT, &out, "FILE", "the summary to write, such as out/reports/demo/summary.json", true},
        {"--export", OPTION_TEXT, &format, "csv|json",
         "writes the summary's estimates as rows instead: one estimate, or one block's number, a row", false},
        {0},
    };
    const struct option_command command = {
        .usage = "analyze [BEFORE] RUN --out FILE [--export csv|json]",
        .purpose = "Computes speedups, acceptance and times with their intervals from a run folder (data/runs/NAME),\n"
                   "leaves out what is invalid, and writes the summary that render makes a report of. With a run\n"
                   "before it, the summary also says which speedups changed between the two.",
        .options = options,
        .minimum_arguments = 1,
        .maximum_arguments = 2,
    };
    int count;
    streams_open();
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return streams_close(parsed == OPTION_HELP_SHOWN ? EXIT_CODE_OK : EXIT_CODE_USAGE);
    if (format && strcmp(format, export_format_names[EXPORT_CSV]) != 0 &&
        strcmp(format, export_format_names[EXPORT_JSON]) != 0) {
        fprintf(stderr, "analyze: --export is \"%s\"; it must be csv or json\n", format);
        return EXIT_CODE_USAGE;
    }
    struct error error = {0};
    int result = analyze(argv, count, format, out, &error);
    if (result)
        fprintf(stderr, "analyze: %s\n", error.message);
    /* At once: to give millions of pieces back one by one would take a tenth of the time that all takes. */
    _exit(streams_close(result ? EXIT_CODE_FAILURE : EXIT_CODE_OK));
}
