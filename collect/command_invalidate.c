#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/revision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All are asked after before the first is withdrawn. */
static int check(const struct revision *revision, const struct judged **found, int count, struct error *error)
{
    for (int i = 0; i < count; i++) {
        const struct history_entry *entry = run_history(&revision->run, &found[i]->attempt);
        if (found[i]->purged)
            return fail(error, "%s: was purged, so nothing is left to withdraw", found[i]->attempt.id);
        if (history_is_withdrawn(entry))
            return fail(error, "%s: is withdrawn already (%s)", found[i]->attempt.id,
                        json_string_value(json_object_get(entry->invalidate, "reason")));
    }
    return 0;
}

static int withdraw(struct revision *revision, char **names, int count, const void *context, struct error *error)
{
    const char *reason = context;
    const struct judged **found = xcalloc((size_t)count, sizeof *found);
    int result = revision_find(revision, names, count, found, error);
    if (!result)
        result = check(revision, found, count, error);
    for (int i = 0; !result && i < count; i++) {
        json_t *details = json_object();
        json_set(details, "reason", json_text(reason));
        result = revision_note(revision, "invalidate", found[i], details, error);
        if (!result)
            printf("%s: withdrawn\n", found[i]->attempt.id);
    }
    free(found);
    return result;
}

int command_invalidate(int argc, char **argv)
{
    const char *runs = COMMAND_RUNS_DEFAULT, *reason = NULL;
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {"--reason", OPTION_TEXT, &reason, "TEXT", "why; ledger and report repeat it", true},
        {0},
    };
    const struct option_command command = {
        "collect invalidate [--runs DIR] NAME ATTEMPT... --reason TEXT",
        "Withdraws attempts such as tp1-b8/3-1 (arm, block, try) of the run DIR/NAME: no number is made of them, the\n"
        "report lists them, and `collect run` measures them again. `collect reinstate` undoes it.",
        entries, 2, -1};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    if (strspn(reason, " \t\n") == strlen(reason)) {
        fprintf(stderr, "--reason is empty; say why the attempts are withdrawn\n");
        return EXIT_CODE_USAGE;
    }
    return revision_make(runs, argv, count, withdraw, reason);
}
