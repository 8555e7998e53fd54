#include "collect/revision.h"

#include "collect/base/json.h"
#include "collect/plan_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_run(struct revision *revision)
{
    run_free(&revision->run);
    ledger_close(&revision->ledger);
    plan_free(&revision->plan);
    free(revision->folder);
}

static int open_run(const char *runs, const char *name, struct revision *revision, struct error *error)
{
    *revision = (struct revision){
        .folder = plan_store_folder(runs, name), .ledger = {.descriptor = -1}, .run = {.ledger = {.descriptor = -1}}};
    int result = -1;
    char *plan_path = plan_store_find(revision->folder);
    if (!plan_path)
        fail(error, "%s: no run is here (no plan.json); `collect run` makes one", revision->folder);
    else if (plan_read(plan_path, &revision->plan, error) == 0 &&
             ledger_open(revision->folder, &revision->ledger, error) == 0)
        result = run_read(revision->folder, &revision->plan.rules, &revision->run, error);
    free(plan_path);
    return result;
}

int revision_make(const char *runs, char **arguments, int count, revise *what, const void *context)
{
    struct revision revision;
    struct error error = {0};
    int result = open_run(runs, arguments[0], &revision, &error);
    if (!result)
        result = what(&revision, arguments + 1, count - 1, context, &error);
    close_run(&revision);
    fflush(stdout);
    if (result)
        fprintf(stderr, "%s\n", error.message);
    return result ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* Whether a run's name stands before the place, and it is another's. */
static bool names_other_run(const char *text, const char *run)
{
    const char *first = strchr(text, '/'), *last = strrchr(text, '/');
    size_t length = first ? (size_t)(first - text) : 0;
    return first != last && (strlen(run) != length || strncmp(text, run, length) != 0);
}

static const struct judged *find_one(const struct revision *revision, const char *text, struct error *error)
{
    const struct run *run = &revision->run;
    struct attempt_place place;
    const struct judged *judged = NULL;
    if (!place_parse(text, &place) || names_other_run(text, run->name))
        fail(error, "\"%s\" is no attempt of %s; attempts are called tp1-auto/1-1: arm, block, try", text, run->name);
    else if (!(judged = run_find(run, &place)))
        fail(error, "%s: has no attempt %s", revision->folder, text);
    return judged;
}

int revision_find(const struct revision *revision, char **names, int count, const struct judged **found,
                  struct error *error)
{
    for (int i = 0; i < count; i++) {
        found[i] = find_one(revision, names[i], error);
        if (!found[i])
            return -1;
        for (int j = 0; j < i; j++)
            if (found[j] == found[i])
                return fail(error, "attempt %s is named twice", names[i]);
    }
    return 0;
}

/* Not as the file calls itself, which may be anything where it was tampered with. */
int revision_note(struct revision *revision, const char *action, const struct judged *judged, json_t *details,
                  struct error *error)
{
    const struct attempt *attempt = &judged->attempt;
    const struct attempt_place place = {attempt->arm, attempt->block, attempt->try_number};
    char name[PLACE_NAME_SIZE], *id = xformat("%s/%s", revision->run.name, place_name(&place, name));
    json_set(details, "attempt", json_text(id));
    free(id);
    return ledger_append(&revision->ledger, LEDGER_USER, action, details, error);
}
