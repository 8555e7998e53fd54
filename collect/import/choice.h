/* Which arm an imported run is: what its file says, and what a person adds. */
#ifndef COLLECT_IMPORT_CHOICE_H
#define COLLECT_IMPORT_CHOICE_H

#include "collect/import/imported.h"

/* What --as says: "tp4" (ranks alone), or an arm's name. Zeroes: nothing. */
struct choice {
    int tensor_parallel, concurrency;
    bool method_known;
    enum method method;
    int budget;
};

bool choice_parse(const char *text, struct choice *choice);

/* Completes what the file says by the choice. -1 where they contradict each other, or leave something open: then the
 * message says what. The number of requests at a time is the file's where it says one. */
int choice_apply(const struct choice *choice, struct imported *imported, struct arm *arm, struct error *error);

#endif
