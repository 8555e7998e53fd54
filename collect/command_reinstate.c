#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/revision.h"

#include <stdio.h>
#include <stdlib.h>

/* All are asked after before the first is reinstated. */
static int check(const struct revision *revision, const struct judged **found, int count, struct error *error)
{
    for (int i = 0; i < count; i++)
        if (found[i]->purged || !history_is_withdrawn(run_history(&revision->run, &found[i]->attempt)))
            return fail(error, "%s: was not withdrawn; what a rule or a purge took cannot be reinstated",
                        found[i]->attempt.id);
    return 0;
}

static int reinstate(struct revision *revision, char **names, int count, const void *context, struct error *error)
{
    (void)context;
    const struct judged **found = xcalloc((size_t)count, sizeof *found);
    int result = revision_find(revision, names, count, found, error);
    if (!result)
        result = check(revision, found, count, error);
    for (int i = 0; !result && i < count; i++) {
        result = revision_note(revision, "reinstate", found[i], json_object(), error);
        if (!result)
            printf("%s: reinstated\n", found[i]->attempt.id);
    }
    free(found);
    return result;
}

int command_reinstate(int argc, char **argv)
{
    const char *runs = COMMAND_RUNS_DEFAULT;
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {0},
    };
    const struct option_command command = {"collect reinstate [--runs DIR] NAME ATTEMPT...",
                                           "Takes back what `collect invalidate` did to attempts of the run DIR/NAME; "
                                           "ledger and report keep both. What a\n"
                                           "rule finds invalid stays invalid.",
                                           entries, 2, -1};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    return revision_make(runs, argv, count, reinstate, NULL);
}
