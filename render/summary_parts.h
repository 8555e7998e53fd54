/* What the readers of a summary's sections share. `where` names file and place in messages; what is absent or null
 * keeps its "missing". */
#ifndef RENDER_SUMMARY_PARTS_H
#define RENDER_SUMMARY_PARTS_H

#include "collect/base/json.h"
#include "render/summary.h"

#define SUMMARY_COUNT_LIMIT 1e15
#define SUMMARY_NUMBER_LIMIT 1e150 /* of any number: products and ratios of two must stay finite */

/* Reads one element of an array into the element at `to`. */
typedef int summary_read_element(const json_t *object, const char *where, struct summary *summary, void *to,
                                 struct error *error);

/* An array of objects, which may be NULL, into a new array whose address is stored at `items`. */
int summary_read_array(const json_t *array, const char *where, const char *key, size_t size, summary_read_element *read,
                       struct summary *summary, void *items, int *count, struct error *error);

/* An object under a key: read by `fields`, untouched where it is null or absent. */
int summary_read_inner(const json_t *object, const char *where, const char *key, const struct json_field *fields,
                       struct error *error);

struct interval_field {
    const char *key; /* NULL ends a table */
    struct interval *to;
    bool positive; /* a ratio, a time or a rate, which logarithmic axes show: above 0, limits too */
};

int summary_read_intervals(const json_t *object, const char *where, const struct interval_field *fields,
                           struct error *error);
int summary_read_limits(const json_t *object, const char *where, const char *key, bool positive, struct limits *limits,
                        struct error *error);
int summary_read_missing(const json_t *object, const char *where, const char *key, struct missing *missing,
                         struct error *error);
/* The object under "without_suspect", NULL where there is none, for its intervals. */
int summary_read_without(const json_t *object, const char *where, struct without *without, const json_t **inner,
                         struct error *error);

/* Names to indices. */
int summary_read_arm_name(const struct summary *summary, const char *where, const char *name, int *arm,
                          struct error *error);
int summary_read_workload_name(const struct summary *summary, const char *where, const char *name, int *workload,
                               struct error *error);

/* An array of strings, of whole numbers from 1 to `most`; NULL passes. */
int summary_check_strings(const json_t *array, const char *where, const char *key, struct error *error);
int summary_check_counts(const json_t *array, const char *where, const char *key, int most, struct error *error);

summary_read_element summary_read_cell, summary_read_comparison;

/* "scaling", "best_budgets", "round_models", "drift" and "telemetry" of the document. */
int summary_read_whole(const json_t *json, const char *path, struct summary *summary, struct error *error);

#endif
