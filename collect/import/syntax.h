/* The parsers behind document.c: each appends what it can read of bytes[size] to the document's values. */
#ifndef COLLECT_IMPORT_SYNTAX_H
#define COLLECT_IMPORT_SYNTAX_H

#include "collect/import/document.h"

/* Any number of JSON values. Where one breaks off it goes on at the next line that begins with one; if no other value
 * is there, the part before the break is kept. `offset`: of bytes[0] in the file. */
void syntax_read_json(struct document *document, const char *bytes, size_t size, size_t offset);

/* Lines of "| a | b |" with a rule below the first, whatever stands around them; else CSV with a first line of names.
 */
bool syntax_is_markdown(const char *bytes, size_t size);
void syntax_read_markdown(struct document *document, const char *bytes, size_t size);
void syntax_read_csv(struct document *document, const char *bytes, size_t size);

/* MLPerf: lines ":::MLLOG {...}", and "key : value". */
void syntax_read_mlperf_log(struct document *document, const char *bytes, size_t size);
void syntax_read_mlperf_summary(struct document *document, const char *bytes, size_t size);

/* The number that text[length] spells, NaN and infinity in any of their spellings included. False where it is none. */
bool syntax_number(const char *text, size_t length, double *value);

/* text[length] as a string, with what is not UTF-8 replaced. A new reference. */
json_t *syntax_text(struct document *document, const char *text, size_t length, size_t offset);

/* Sets object[key], or "key#2" and so on where it is taken, which is noted. Takes the value over. */
void syntax_set(struct document *document, json_t *object, const char *key, json_t *value, size_t offset);

/* The next line from *at on, without its end; false behind the last. */
bool syntax_next_line(const char *bytes, size_t size, size_t *at, const char **line, size_t *length);

#endif
