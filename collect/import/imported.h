/* What a foreign result file says of one run of its tool: what becomes an attempt. All that it does not say is absent,
 * as in an attempt. Readers of formats fill it; store.c makes attempts of it. */
#ifndef COLLECT_IMPORT_IMPORTED_H
#define COLLECT_IMPORT_IMPORTED_H

#include "collect/import/document.h"
#include "collect/record/attempt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct format; /* format.h */

struct imported {
    const struct format *format;     /* a row of the table in formats.c */
    const struct document *document; /* borrowed */
    int value;                       /* which of the runs that the document holds, from 0 */

    int tensor_parallel, concurrency; /* 0: unknown */
    bool method_known;
    enum method method;
    int budget;        /* of ddtree */
    char *workload;    /* of what is said of all requests together; NULL: unknown */
    int64_t started_s; /* since 1970, UTC; -1: unknown */
    bool synthetic;    /* acceptance was made up */
    bool is_note;      /* no run, but something that holds of the speculative ones it was given with */
    bool is_repeated;  /* the same file has it before, under the same keys */
    char *invalid;     /* why the tool itself calls the run invalid; NULL: it does not */
    struct sample *samples;
    json_t **extras; /* sample_count: object of what the file says of each beside; NULL: nothing */
    int sample_count, capacity;
    struct observed observed;
    json_t *source;   /* object: model, engine, version, ...: what the report shows */
    json_t *machine;  /* object: "gpu" and what else is known; empty: nothing */
    json_t *settings; /* object: what else must agree for runs to be compared, such as lengths of prompts */
    json_t *rest;     /* object: what the file says beside all that, under its own keys */
    json_t *also;     /* array of "file" and "sha256": others that speak of the same run */
};

#define IMPORTED_WORKLOAD "imported" /* where a file does not name it */

struct imports {
    struct imported *items;
    int count;
};

/* A further one, with everything absent; the pointer holds until the next is added. `record` is copied into `rest`,
 * from which the readers take what they know. */
struct imported *imports_add(struct imports *imports, const struct document *document, const json_t *record);
void imports_free(struct imports *imports);
void imported_free(struct imported *imported);

/* A sample more, with everything absent but workload and prompt, answered; the pointer holds until the next. */
struct sample *imported_add_sample(struct imported *imported, const char *workload, const char *prompt);

/* What the file says of the last sample beside what it was taken from: `record` without the keys, which NULL ends. */
void imported_keep(struct imported *imported, const json_t *record, const char *const *known);

/* When each delivery of the sample came: the first token after first_ns, then the gaps, of that unit, one behind the
 * other. Nothing where one of them is no time. */
void sample_set_chunks(struct sample *sample, double first_ns, const json_t *gaps, double factor);

/* --- taking from `rest` ------------------------------------------------------------------------------------------- */

/* Each takes rest[key] away, where it is of that kind, and answers it: NaN, -1 or NULL where it is not there. Counts
 * are whole numbers from 0 on; texts are to be free()d; a node is a new reference. */
double take_number(json_t *rest, const char *key);
int64_t take_count(json_t *rest, const char *key);
char *take_text(json_t *rest, const char *key);
json_t *take_node(json_t *rest, const char *key);

/* Moves rest[key] to `to` under the name, unless it is null. */
void take_into(json_t *rest, const char *key, json_t *to, const char *name);

/* Places of numbers, for tables: observed[offset] = rest[key] * factor, where it is there. An int, int64_t or double
 * by `type`, which is one of JSON_FIELD_INT, JSON_FIELD_INT64 and JSON_FIELD_DOUBLE. */
struct take_figure {
    const char *key; /* NULL ends a table */
    int type;
    size_t offset;
    double factor; /* the unit's */
};

void take_figures(struct imported *imported, const struct take_figure *figures);

/* --- units: nanoseconds from what a key is in; -1 where it is unknown, negative or beyond a record's times -------- */

#define NS_OF_S 1e9
#define NS_OF_MS 1e6

int64_t unit_ns(double value, double factor);

/* A factor for "ns", "us", "ms", "s" or "sec"; NaN for other words. */
double unit_factor(const char *unit);

/* --- arms --------------------------------------------------------------------------------------------------------- */

/* Drafts as a path of `steps` tokens (0: unknown), or as a tree of `nodes` that deep. */
void imported_set_auto(struct imported *imported);
void imported_set_linear(struct imported *imported, int64_t steps);
void imported_set_tree(struct imported *imported, int64_t nodes, int64_t steps);

#endif
