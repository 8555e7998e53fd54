/* The built programs, called by a shell as a person calls them. */
#ifndef TESTS_PROGRAMS_H
#define TESTS_PROGRAMS_H

#include <stdbool.h>

extern char *programs_folder; /* a fresh one for what they write */

int programs_set_up(void **state);
int programs_tear_down(void **state);

/* Runs a command line in the shell with $bin (the folder of the programs) and $out (the fresh folder) set; answers its
 * exit status, and in *said what it printed, to be free()d. */
int programs_shell(const char *command, char **said);

/* Fails, with all that a command said, where its status is not as expected. */
void programs_check(bool expected, int status, const char *said);

/* As programs_shell(), for what must end with the expected status. */
void programs_expect(int expected, const char *command, char **said);

/* The same for what must end with 0. */
void programs_must(const char *command);

#endif
