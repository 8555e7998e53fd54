#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/record/sums.h"
#include "collect/revision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what goes ---------------------------------------------------------------------------------------------------- */

/* What is purged: attempts[count]. */
struct selection {
    const struct judged **attempts;
    int count;
};

static int select_named(const struct revision *revision, char **names, int count, struct selection *selection,
                        struct error *error)
{
    if (revision_find(revision, names, count, selection->attempts, error))
        return -1;
    selection->count = count;
    for (int i = 0; i < count; i++) {
        const struct judged *judged = selection->attempts[i];
        if (judged->purged)
            return fail(error, "%s: was purged already", judged->attempt.id);
        if (!run_is_all_void(judged))
            return fail(error, "%s: counts; only what is invalid in all its workloads can be purged",
                        judged->attempt.id);
    }
    return 0;
}

static void select_invalid(const struct revision *revision, struct selection *selection)
{
    for (int i = 0; i < revision->run.attempt_count; i++) {
        const struct judged *judged = &revision->run.attempts[i];
        if (!judged->purged && run_is_all_void(judged))
            selection->attempts[selection->count++] = judged;
    }
}

static void show(const struct selection *selection)
{
    for (int i = 0; i < selection->count; i++) {
        const struct verdicts *verdicts = &selection->attempts[i]->verdicts;
        for (int v = 0; v < verdicts->count; v++)
            if (verdicts->items[v].level == RULE_INVALID)
                printf("%s  %s%s%s: %s\n", selection->attempts[i]->attempt.id, rule_table[verdicts->items[v].rule].id,
                       verdicts->items[v].workload ? ", " : "",
                       verdicts->items[v].workload ? verdicts->items[v].workload : "", verdicts->items[v].detail);
    }
}

static bool ask(int count)
{
    char answer[16] = "";
    printf("Remove the files of %d attempt%s? The ledger keeps their sums and verdicts. [y/N] ", count,
           count == 1 ? "" : "s");
    fflush(stdout);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* --- removing ----------------------------------------------------------------------------------------------------- */

static json_t *make_details(const struct judged *judged)
{
    const struct attempt *attempt = &judged->attempt;
    json_t *details = json_object(), *verdicts = json_array();
    for (int i = 0; i < judged->verdicts.count; i++)
        json_append(verdicts, verdict_to_json(&judged->verdicts.items[i]));
    json_set(details, "sha256", attempt->sha256[0] ? json_string(attempt->sha256) : json_null());
    json_set(details, "started", attempt->started ? json_text(attempt->started) : json_null());
    json_set(details, "verdicts", verdicts);
    json_set(details, "workloads", sums_by_workload(attempt));
    return details;
}

/* The ledger says it first: where the program ends in between, the next purge removes what is left. */
static int purge(struct revision *revision, const struct selection *selection, struct error *error)
{
    int result = 0;
    for (int i = 0; !result && i < selection->count; i++) {
        const struct judged *judged = selection->attempts[i];
        result = revision_note(revision, "purge", judged, make_details(judged), error);
        if (!result)
            result = file_remove(judged->attempt.path, error);
        if (!result)
            printf("%s: purged\n", judged->attempt.id);
    }
    return result;
}

/* Files that the ledger has as purged. */
static int finish_former(const struct run *run, struct error *error)
{
    int result = 0;
    for (int i = 0; !result && i < run->attempt_count; i++) {
        const struct judged *judged = &run->attempts[i];
        if (!judged->purged || !file_exists(judged->attempt.path))
            continue;
        result = file_remove(judged->attempt.path, error);
        if (!result)
            printf("%s: was purged before, and its file is removed now\n", judged->attempt.id);
    }
    return result;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int purge_run(struct revision *revision, char **names, int count, const void *context, struct error *error)
{
    const bool yes = *(const bool *)context;
    const struct run *run = &revision->run;
    struct selection selection = {.attempts = xcalloc((size_t)(run->attempt_count + count), sizeof(struct judged *))};
    int result = finish_former(run, error);
    if (!result && count)
        result = select_named(revision, names, count, &selection, error);
    else if (!result)
        select_invalid(revision, &selection);
    if (result)
        goto out;
    show(&selection);
    if (!selection.count)
        printf("nothing to purge: no attempt is invalid in all its workloads\n");
    else if (!yes && !isatty(STDIN_FILENO))
        result = fail(error, "this would remove the files of %d attempts; say --yes where nobody can be asked",
                      selection.count);
    else if (!yes && !ask(selection.count))
        printf("nothing was removed\n");
    else
        result = purge(revision, &selection, error);
out:
    free(selection.attempts);
    return result;
}

int command_purge(int argc, char **argv)
{
    const char *runs = COMMAND_RUNS_DEFAULT;
    bool yes = false;
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {"--yes", OPTION_FLAG, &yes, NULL, "remove without asking", false},
        {0},
    };
    const struct option_command command = {
        "collect purge [--runs DIR] [--yes] NAME [ATTEMPT...]",
        "Removes the files of invalid attempts of the run DIR/NAME, all of them unless some are named. Says what "
        "goes,\n"
        "and asks. Ledger and report keep what was invalid and why; `collect run` may measure those cells again.",
        entries, 1, -1};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    return revision_make(runs, argv, count, purge_run, &yes);
}
