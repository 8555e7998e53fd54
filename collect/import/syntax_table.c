/* Tables and MLPerf's texts: what stands there becomes objects of strings, or of JSON where it is JSON. */
#include "collect/import/syntax.h"

#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

/* The cells of a row, or the names of the columns: an array of strings. */
typedef json_t *split_row(struct document *document, const char *line, size_t length, size_t offset);

static void trim(const char **text, size_t *length)
{
    while (*length && strchr(" \t", **text) && **text) {
        ++*text;
        --*length;
    }
    while (*length && memchr(" \t", (*text)[*length - 1], 2))
        --*length;
}

static json_t *make_row(struct document *document, const json_t *names, const json_t *cells, size_t offset)
{
    json_t *row = json_object();
    size_t count = json_array_size(names) < json_array_size(cells) ? json_array_size(names) : json_array_size(cells);
    for (size_t i = 0; i < count; i++)
        syntax_set(document, row, json_string_value(json_array_get(names, i)), json_incref(json_array_get(cells, i)),
                   offset);
    return row;
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

/* One record from *at on, which may hold line ends in its quotes. Answers its cells, NULL where a quote is not closed.
 */
static json_t *read_record(struct document *document, const char *bytes, size_t size, size_t *at)
{
    json_t *cells = json_array();
    char *cell = xmalloc(size - *at + 1);
    size_t used = 0;
    bool quoted = false, over = false;
    while (!over) {
        const size_t offset = *at;
        const bool end = *at >= size;
        const char byte = end ? '\n' : bytes[(*at)++];
        if (end && quoted)
            break;
        if (byte == '"' && quoted && *at < size && bytes[*at] == '"')
            cell[used++] = bytes[(*at)++];
        else if (byte == '"')
            quoted = !quoted;
        else if (quoted || (byte != ',' && byte != '\n'))
            cell[used++] = byte;
        else {
            const char *text = cell;
            over = byte == '\n';
            used -= over && used && cell[used - 1] == '\r';
            trim(&text, &used);
            json_append(cells, syntax_text(document, text, used, offset));
            used = 0;
        }
    }
    free(cell);
    if (over)
        return cells;
    json_decref(cells);
    return NULL;
}

void syntax_read_csv(struct document *document, const char *bytes, size_t size)
{
    size_t at = 0;
    json_t *names = read_record(document, bytes, size, &at);
    while (names && json_array_size(names) > 1 && at < size) {
        const size_t start = at;
        json_t *cells = read_record(document, bytes, size, &at);
        const size_t count = json_array_size(cells), wanted = json_array_size(names);
        if (!cells || (count < wanted && at >= size && bytes[size - 1] != '\n'))
            document_note(document, DOCUMENT_CUT, start, "", 0);
        else if (count == wanted)
            json_append(document->values, make_row(document, names, cells, start));
        else if (count > 1)
            document_note(document, DOCUMENT_DAMAGED, start, bytes + start, at - start);
        json_decref(cells);
        at = cells ? at : size;
    }
    json_decref(names);
}

/* --- Markdown ----------------------------------------------------------------------------------------------------- */

static bool is_row(const char *line, size_t length)
{
    return length > 2 && line[0] == '|';
}

/* "| --- | ---: |" */
static bool is_rule(const char *line, size_t length)
{
    size_t at = 0;
    while (at < length && memchr("|-: \t", line[at], 5))
        at++;
    return is_row(line, length) && at == length && memchr(line, '-', length);
}

bool syntax_is_markdown(const char *bytes, size_t size)
{
    const char *line;
    size_t at = 0, length;
    bool row = false;
    while (syntax_next_line(bytes, size, &at, &line, &length)) {
        if (row && is_rule(line, length))
            return true;
        row = is_row(line, length);
    }
    return false;
}

static json_t *split_markdown(struct document *document, const char *line, size_t length, size_t offset)
{
    json_t *cells = json_array();
    for (size_t at = 1; at < length;) {
        const char *bar = memchr(line + at, '|', length - at), *text = line + at;
        size_t used = bar ? (size_t)(bar - text) : length - at;
        at += used + 1;
        trim(&text, &used);
        if (bar || used)
            json_append(cells, syntax_text(document, text, used, offset));
    }
    return cells;
}

void syntax_read_markdown(struct document *document, const char *bytes, size_t size)
{
    const char *line, *before = NULL;
    size_t at = 0, length, before_length = 0;
    json_t *names = NULL;
    while (syntax_next_line(bytes, size, &at, &line, &length)) {
        const size_t offset = (size_t)(line - bytes);
        if (is_rule(line, length) && before) {
            json_decref(names);
            names = split_markdown(document, before, before_length, offset);
        } else if (names && is_row(line, length)) {
            json_t *cells = split_markdown(document, line, length, offset);
            if (json_array_size(cells) == json_array_size(names))
                json_append(document->values, make_row(document, names, cells, offset));
            else
                document_note(document, at >= size ? DOCUMENT_CUT : DOCUMENT_DAMAGED, offset, line, length);
            json_decref(cells);
        } else if (!is_row(line, length)) {
            json_decref(names);
            names = NULL;
        }
        before = is_row(line, length) ? line : NULL;
        before_length = length;
    }
    json_decref(names);
}

/* --- MLPerf ------------------------------------------------------------------------------------------------------- */

void syntax_read_mlperf_log(struct document *document, const char *bytes, size_t size)
{
    const char *line;
    size_t at = 0, length;
    while (syntax_next_line(bytes, size, &at, &line, &length)) {
        const char *brace = length > 3 && memcmp(line, ":::", 3) == 0 ? memchr(line, '{', length) : NULL;
        if (brace)
            syntax_read_json(document, brace, length - (size_t)(brace - line), (size_t)(brace - bytes));
    }
}

void syntax_read_mlperf_summary(struct document *document, const char *bytes, size_t size)
{
    const char *line;
    size_t at = 0, length;
    json_t *summary = json_object();
    while (syntax_next_line(bytes, size, &at, &line, &length)) {
        const char *colon = memchr(line, ':', length), *text = colon ? colon + 1 : NULL;
        if (!colon)
            continue;
        size_t used = length - (size_t)(text - line), named = (size_t)(colon - line);
        trim(&line, &named);
        trim(&text, &used);
        if (!named || !used)
            continue;
        json_t *name = syntax_text(document, line, named, (size_t)(line - bytes));
        const json_t *former = json_object_get(summary, json_string_value(name));
        json_t *value = syntax_text(document, text, used, (size_t)(text - bytes));
        if (json_equal(former, value))
            json_decref(value); /* the summary says some things twice */
        else
            syntax_set(document, summary, json_string_value(name), value, (size_t)(line - bytes));
        json_decref(name);
    }
    json_append(document->values, summary);
}
