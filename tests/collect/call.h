/* Calls a command of `collect` as its program does, and keeps what it says. */
#ifndef TESTS_COLLECT_CALL_H
#define TESTS_COLLECT_CALL_H

typedef int command_function(int argc, char **argv);

/* The arguments end with NULL; both streams, as they were written, are in *said (free() it). Answers the exit code. */
int call_command(const char *folder, command_function *run, const char *const *arguments, char **said);

#endif
