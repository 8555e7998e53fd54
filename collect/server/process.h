/* A program in a process group of its own, which is ended with all that it started. */
#ifndef COLLECT_SERVER_PROCESS_H
#define COLLECT_SERVER_PROCESS_H

#include "collect/base/error.h"

#include <stdbool.h>
#include <sys/types.h>

#define PROCESS_HOW_SIZE 64

/* Zero-initialised: none. */
struct process {
    pid_t group; /* and leader; 0: none */
    bool leader_ended;
    int status; /* waitpid()'s, of the leader */
};

/* Starts argv (ends with NULL) with these "NAME=value" (ends with NULL) added to the environment, nothing to read, and
 * what it writes appended to the file `log` (NULL: thrown away). It is ended by the kernel where collect dies. -1 where
 * it cannot be run. */
int process_start(struct process *process, char *const *argv, char *const *env, const char *log, struct error *error);

/* Whether the leader runs; where not, `how` says how it ended. */
bool process_is_alive(struct process *process, char how[PROCESS_HOW_SIZE]);

/* Waits for the leader's end up to limit_s; false where it still runs. */
bool process_wait(struct process *process, int limit_s, char how[PROCESS_HOW_SIZE]);

/* SIGTERM to the group, SIGKILL to what is left of it after grace_s; waits for the end of all. */
void process_stop(struct process *process, int grace_s);

/* Whether it ended by itself with status 0. */
bool process_succeeded(const struct process *process);

#endif
