/* The example summary, tests/render/summary.json: eight arms on three workloads, with a cell that is missing, suspect
 * marks, and a title that is hostile to LaTeX; and what tests do with it. */
#ifndef TESTS_RENDER_EXAMPLE_H
#define TESTS_RENDER_EXAMPLE_H

#include "render/summary.h"

#include <stdio.h>

#define EXAMPLE_PATH "tests/render/summary.json"
#define EXAMPLE_HOSTILE "50% of a_b & {c} \\ ~ ^ # $ \"日本\" [x] * --- <|> `'"

void example_read(struct summary *summary);

/* The example with its title, its name, the workload "prose" and the detail of its first verdict replaced by
 * EXAMPLE_HOSTILE, written to `path`. */
void example_write_hostile(const char *path);

/* What a function of the tables or macros writes. free() it. */
char *example_put(void (*put)(FILE *out, const struct summary *summary), const struct summary *summary);

/* What a command prints; fails the test where it does not end well. free() it. */
char *example_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
