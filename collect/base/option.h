/* Command lines from a table: the table parses, and --help is printed from it. */
#ifndef COLLECT_BASE_OPTION_H
#define COLLECT_BASE_OPTION_H

#include "collect/base/error.h"

#include <stdbool.h>

enum option_type { OPTION_FLAG /* bool * */, OPTION_TEXT /* const char ** */, OPTION_COUNT /* int *, positive */ };

struct option_entry {
    const char *name; /* "--plan"; NULL ends a table */
    enum option_type type;
    void *to;
    const char *value; /* what the help calls the value: "FILE" */
    const char *help;
    bool required;
};

struct option_command {
    const char *usage;   /* "collect run --plan FILE [options]" */
    const char *purpose; /* one or two lines */
    const struct option_entry *options;
    int minimum_arguments, maximum_arguments; /* of those that are no options; -1: any number */
};

enum option_result { OPTION_RUN, OPTION_HELP_SHOWN, OPTION_WRONG };

/* Parses argv[1..]. Positional arguments are moved to the front: argv[0..*count-1] afterwards. Prints the help on
 * --help and one line to stderr on a wrong call (exit code 2 is the caller's). Accepts --name VALUE and --name=VALUE.
 */
enum option_result option_parse(const struct option_command *command, int argc, char **argv, int *count);

#endif
