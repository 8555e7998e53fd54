/* A foreign result file as it could be read: its values as Jansson's, and what was odd about it.
 *
 * One reader for all formats. JSON may hold several values, a byte order mark, keys twice, numbers that JSON has not,
 * and an end that is cut; tables (CSV, Markdown) become objects by row, the text of a table's cells strings; MLPerf's
 * log becomes an object a line, its summary one object. Numbers that double or 64 bits cannot hold, NaN and infinity
 * are strings of what stood there: document_number() reads them. What cannot be read is left out, and noted with its
 * offset. */
#ifndef COLLECT_IMPORT_DOCUMENT_H
#define COLLECT_IMPORT_DOCUMENT_H

#include "collect/base/error.h"
#include "collect/base/file.h"

#include <jansson.h>
#include <stdbool.h>

enum document_syntax { DOCUMENT_JSON, DOCUMENT_TABLE, DOCUMENT_MLPERF_LOG, DOCUMENT_MLPERF_SUMMARY };

enum document_oddity {
    DOCUMENT_CUT,           /* the end is missing */
    DOCUMENT_DAMAGED,       /* a value in the middle is no JSON */
    DOCUMENT_DUPLICATE_KEY, /* the later value is kept as "key#2" */
    DOCUMENT_NOT_FINITE,    /* NaN or infinity */
    DOCUMENT_LARGE_NUMBER,  /* kept as text */
    DOCUMENT_NOT_UTF8,      /* replaced by U+FFFD */
    DOCUMENT_ODDITY_COUNT
};

extern const char *const document_oddity_names[DOCUMENT_ODDITY_COUNT]; /* "cut", "duplicate key", ... */

struct document_note {
    int count;        /* how often; 0: never */
    size_t offset;    /* of the first, in the unpacked bytes */
    char example[64]; /* the first: its key, or what stood there */
};

struct document {
    char *path;
    char sha256[FILE_HASH_SIZE]; /* of the file as it lies there */
    enum document_syntax syntax;
    json_t *values; /* array: each whole value, in the order of the file */
    struct document_note notes[DOCUMENT_ODDITY_COUNT];
};

/* -1 where the file cannot be read, or no value in it can. */
int document_read(const char *path, struct document *document, struct error *error);
void document_free(struct document *document);

/* The same of bytes in memory; `path` is for messages. */
int document_parse(const char *path, const char *bytes, size_t size, struct document *document, struct error *error);

/* A number, or a string that is one ("12.5", "inf", "-nan", "18209322760996052031"). NaN where it is neither. */
double document_number(const json_t *value);

/* For the parsers alone: counts the oddity; the first says where and what. */
void document_note(struct document *document, enum document_oddity oddity, size_t offset, const char *example,
                   size_t length);

#endif
