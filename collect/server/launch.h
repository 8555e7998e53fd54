/* The server of an arm: started for it and stopped after it, by a command of the plan's; or running all along.
 *
 * Command lines, values of the environment and URLs may hold placeholders: {tp} ranks, {method} "auto", "linear" or
 * "ddtree", {budget} nodes of the tree (arms without one may not use it), {port} of the URL, {arm} "tp4-b16",
 * {log} the file that keeps what it writes, for those that write elsewhere unless told. What else
 * stands in braces stays as it is. */
#ifndef COLLECT_SERVER_LAUNCH_H
#define COLLECT_SERVER_LAUNCH_H

#include "collect/plan.h"
#include "collect/server/process.h"

/* Whether all placeholders can be filled for the arm. */
int launch_check(const struct plan_server *server, const struct arm *arm, const char *where, struct error *error);

/* The arm's URL with its placeholders filled; a port 0 is replaced by one that is free. free() it. */
char *launch_url(const struct plan_server *server, const struct arm *arm);

/* What the plan, which starts a server, runs for the arm, as a JSON array of strings: for records and hashes, {port}
 * and {log} left as they are. arm NULL: what it runs for every arm, with all placeholders. A new reference. */
json_t *launch_describe(const struct plan_server *server, const struct arm *arm);

struct launch {
    const struct plan_server *server; /* borrowed */
    struct arm arm;
    char *url;
    char *log;              /* what it writes; NULL: nobody keeps it */
    struct process process; /* of "argv" */
    bool started;
};

/* Chooses the arm's URL; starts nothing. */
void launch_init(struct launch *launch, const struct plan_server *server, const struct arm *arm, const char *log);

/* Starts the arm's server, where the plan starts one: -1 where its command cannot be run or (start) fails. The log is
 * made anew, with its folder. */
int launch_start(struct launch *launch, struct error *error);

/* Whether it runs, as far as can be known. Where not, `how` says what became of it: "exit status 1". */
bool launch_is_alive(struct launch *launch, char how[PROCESS_HOW_SIZE]);

/* Stops what was started, and waits for its end. Takes `secret` (NULL: none) out of its log. */
void launch_stop(struct launch *launch, const char *secret);

/* Stops it, and takes all back. */
void launch_free(struct launch *launch, const char *secret);

/* The last line of the log that speaks of an error, else the last line; "" where there is none. free() it. */
char *launch_last_words(const struct launch *launch);

#endif
