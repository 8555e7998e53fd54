/* The lists of numbers of a line, read before the JSON parser comes to it: an attempt consists of them, and a value
 * made of each would be most of the work. */
#ifndef COLLECT_RECORD_NUMBERS_H
#define COLLECT_RECORD_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* "key": [1, 2.5, null] */
struct numbers {
    const char *key; /* key_length bytes, borrowed from the line */
    size_t key_length;
    const double *values; /* count; NaN: null */
    int count;
    bool whole; /* all are integers */
};

struct numbers_taken {
    char *text; /* the line with those lists empty, for the parser: size bytes */
    size_t size;
    struct numbers *lists;
    int count;
    double *values;
};

/* Takes the lists of numbers out of the members of an object in compact JSON. False, and nothing to free, where the
 * line is anything else, or has an integer that a double does not hold: then all of it is the parser's. What is left is
 * not checked. A byte that belongs to no number must follow the line. */
bool numbers_take(const char *line, size_t size, struct numbers_taken *taken);
void numbers_free(struct numbers_taken *taken);

/* The list of that key; NULL: it was not taken. */
const struct numbers *numbers_find(const struct numbers_taken *taken, const char *key);

#endif
