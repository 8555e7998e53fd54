/* JSON by Jansson, with errors that name file, place and remedy.
 *
 * Objects are read by a table of fields: each key has a type, a destination and, where it matters, a range. Strings and
 * nodes that are read are borrowed from the object. null counts as absent: the destination keeps its default. */
#ifndef COLLECT_BASE_JSON_H
#define COLLECT_BASE_JSON_H

#include "collect/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum json_field_type {
    JSON_FIELD_STRING, /* const char ** */
    JSON_FIELD_INT,    /* int * */
    JSON_FIELD_INT64,  /* int64_t * */
    JSON_FIELD_DOUBLE, /* double *; takes integers too */
    JSON_FIELD_BOOL,   /* bool * */
    JSON_FIELD_OBJECT, /* const json_t ** */
    JSON_FIELD_ARRAY,  /* const json_t ** */
    JSON_FIELD_ANY,    /* const json_t ** */
};

struct json_field {
    const char *key; /* NULL ends a table */
    enum json_field_type type;
    void *to;
    bool required;
    double minimum, maximum; /* of a number, both inclusive; both 0: no limit but the type's own */
};

enum json_unknown_keys { JSON_UNKNOWN_KEYS_REFUSED, JSON_UNKNOWN_KEYS_IGNORED };

/* Reads `object` by `fields`. `where` names file and place in messages. Answers 0, or -1 for a missing required key, a
 * wrong type, a number out of range or (where refused) a key that the table lacks; the message proposes the nearest. */
int json_read_fields(const json_t *object, const char *where, const struct json_field *fields,
                     enum json_unknown_keys unknown, struct error *error);

/* The whole file as one JSON value, duplicates of keys refused. A new reference, or NULL. */
json_t *json_read_file(const char *path, struct error *error);

/* One line or buffer; a UTF-8 byte order mark before it is passed over. `where` stands before Jansson's message. A new
 * reference, or NULL. */
json_t *json_read_text(const char *text, size_t size, const char *where, struct error *error);

/* Compact, keys sorted: the canonical form that hashes are made of. free() it. */
char *json_canonical(const json_t *value);

/* SHA-256 of the canonical form, as 64 hexadecimal digits in hex[65]. */
void json_hash(const json_t *value, char *hex);

/* A finite number as a real, anything else as null: no NaN reaches a file. A new reference. */
json_t *json_number(double value);

/* Takes over both references; ends in die() where Jansson refuses (memory, invalid UTF-8 in a key). */
void json_set(json_t *object, const char *key, json_t *value);
void json_append(json_t *array, json_t *value);

/* A JSON string of text that may not be UTF-8: what is invalid becomes U+FFFD. A new reference. */
json_t *json_text(const char *text);

#endif
