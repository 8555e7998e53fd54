/* A summary as a table of rows, for other programs: one estimate, or one number of a block, a row. */
#ifndef ANALYZE_EXPORT_H
#define ANALYZE_EXPORT_H

#include "collect/base/error.h"

#include <jansson.h>

enum export_format { EXPORT_CSV, EXPORT_JSON, EXPORT_FORMAT_COUNT };
extern const char *const export_format_names[EXPORT_FORMAT_COUNT]; /* "csv", "json" */

/* Writes the file whole, making its folder. Missing is an empty field, or null. */
int export_write(const json_t *summary, enum export_format format, const char *path, struct error *error);

#endif
