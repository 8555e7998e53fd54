/* What a person changes in a run's record: attempts are withdrawn, reinstated, purged. Never the numbers, and nothing
 * that the ledger does not say. */
#ifndef COLLECT_REVISION_H
#define COLLECT_REVISION_H

#include "collect/plan.h"
#include "collect/record/run.h"

/* A run, read while its ledger is open for writing, so that nobody else changes it. */
struct revision {
    char *folder;
    struct plan plan;
    struct ledger ledger;
    struct run run;
};

/* What is done to the attempts called names[count]. */
typedef int revise(struct revision *revision, char **names, int count, const void *context, struct error *error);

/* Opens the run RUNS/NAME, whose name is arguments[0], for `what` with the other arguments[count - 1]. Prints what went
 * wrong; answers the exit code. */
int revision_make(const char *runs, char **arguments, int count, revise *what, const void *context);

/* The attempts that are meant by `names` ("demo/tp1-b8/3-1" or "tp1-b8/3-1"), in found[count]. -1 where the run has no
 * such attempt, or one is named twice. */
int revision_find(const struct revision *revision, char **names, int count, const struct judged **found,
                  struct error *error);

/* Appends a line of a person's on the attempt. `details` is taken over. */
int revision_note(struct revision *revision, const char *action, const struct judged *judged, json_t *details,
                  struct error *error);

#endif
