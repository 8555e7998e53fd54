/* What render makes of a summary, without its figures. Apart from the targets because analyze's cells and render's have
 * one name. */
#ifndef TESTS_FUZZ_RENDER_H
#define TESTS_FUZZ_RENDER_H

#include "collect/base/error.h"

#include <stdbool.h>

/* Reads the file, and puts all tables and macros into memory. False and a message where it cannot be read. */
bool fuzz_render(const char *path, struct error *error);

#endif
