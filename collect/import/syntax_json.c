/* JSON as programs really write it: NaN, infinity, numbers of any size, keys twice, values one behind the other, ends
 * that are cut. */
#include "collect/import/syntax.h"

#include "collect/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAXIMUM = 200 };

struct parser {
    struct document *document;
    const char *bytes;
    size_t size, at;
    size_t offset; /* of bytes[0] in the file */
    int depth;
    bool broken; /* nothing behind `at` belongs to the value any more */
    char *text;  /* of the string at hand */
    size_t text_size, text_capacity;
};

static int peek(const struct parser *parser)
{
    return parser->at < parser->size ? (unsigned char)parser->bytes[parser->at] : -1;
}

static void skip_blanks(struct parser *parser)
{
    while (parser->at < parser->size && memchr(" \t\r\n", parser->bytes[parser->at], 4))
        parser->at++;
}

/* Passes over the character after blanks; false, and broken, where another stands there. */
static bool expect(struct parser *parser, char character)
{
    skip_blanks(parser);
    if (peek(parser) != character) {
        parser->broken = true;
        return false;
    }
    parser->at++;
    return true;
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static void add_byte(struct parser *parser, unsigned byte)
{
    if (parser->text_size == parser->text_capacity) {
        parser->text_capacity = 2 * parser->text_capacity + 256;
        parser->text = xrealloc(parser->text, parser->text_capacity, 1);
    }
    parser->text[parser->text_size++] = (char)byte;
}

/* As UTF-8; halves of pairs and 0 become what syntax_text() replaces. */
static void add_point(struct parser *parser, unsigned point)
{
    if (point < 0x80) {
        add_byte(parser, point);
    } else if (point < 0x800) {
        add_byte(parser, 0xC0 | point >> 6);
        add_byte(parser, 0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        add_byte(parser, 0xE0 | point >> 12);
        add_byte(parser, 0x80 | (point >> 6 & 0x3F));
        add_byte(parser, 0x80 | (point & 0x3F));
    } else {
        add_byte(parser, 0xF0 | point >> 18);
        add_byte(parser, 0x80 | (point >> 12 & 0x3F));
        add_byte(parser, 0x80 | (point >> 6 & 0x3F));
        add_byte(parser, 0x80 | (point & 0x3F));
    }
}

/* The four digits behind "\u" at that place; -1 where they are none. */
static long read_hex(const struct parser *parser, size_t at)
{
    long value = 0;
    for (size_t i = at; i < at + 4; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = i < parser->size ? memchr(digits, parser->bytes[i] | 0x20, 16) : NULL;
        if (!digit)
            return -1;
        value = value * 16 + (digit - digits);
    }
    return value;
}

static bool read_unicode(struct parser *parser)
{
    long point = read_hex(parser, parser->at);
    if (point < 0)
        return false;
    parser->at += 4;
    const bool pair = point >= 0xD800 && point < 0xDC00 && parser->at + 1 < parser->size &&
                      memcmp(parser->bytes + parser->at, "\\u", 2) == 0;
    const long low = pair ? read_hex(parser, parser->at + 2) : -1;
    if (low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        parser->at += 6;
    }
    add_point(parser, (unsigned)point);
    return true;
}

/* What stands behind a backslash. */
static bool read_escape(struct parser *parser)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const int name = peek(parser);
    const char *known = name > 0 ? strchr(names, name) : NULL;
    if (!known && name != 'u')
        return false;
    parser->at++;
    if (!known)
        return read_unicode(parser);
    add_byte(parser, (unsigned char)values[known - names]);
    return true;
}

/* The string that begins at the quote, into parser->text. A bare line end is no part of one: there it broke off. */
static bool scan_string(struct parser *parser)
{
    parser->text_size = 0;
    parser->at++;
    for (int byte; (byte = peek(parser)) >= 0 && byte != '\n';) {
        if (byte == '"') {
            parser->at++;
            return true;
        }
        parser->at++;
        if (byte != '\\')
            add_byte(parser, (unsigned)byte);
        else if (!read_escape(parser))
            break;
    }
    parser->broken = true;
    return false;
}

static json_t *take_text(struct parser *parser, size_t start)
{
    return syntax_text(parser->document, parser->text ? parser->text : "", parser->text_size, parser->offset + start);
}

/* --- words and numbers -------------------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

static bool is_integer(const char *text, size_t length)
{
    return !memchr(text, '.', length) && !memchr(text, 'e', length) && !memchr(text, 'E', length);
}

/* NULL where it is no number. What 64 bits or a double cannot hold stays a text. */
static json_t *read_number(struct parser *parser, const char *text, size_t length)
{
    const size_t offset = parser->offset + parser->at;
    double value;
    if (!syntax_number(text, length, &value))
        return NULL;
    if (!isfinite(value)) {
        const bool word = !memchr("0123456789", text[length - 1], 10);
        document_note(parser->document, word ? DOCUMENT_NOT_FINITE : DOCUMENT_LARGE_NUMBER, offset, text, length);
        return json_stringn(text, length);
    }
    if (!is_integer(text, length))
        return json_real(value);
    errno = 0;
    const long long whole = strtoll(text, NULL, 10);
    if (!errno)
        return json_integer(whole);
    document_note(parser->document, DOCUMENT_LARGE_NUMBER, offset, text, length);
    return json_stringn(text, length);
}

/* Whether more of the word may have stood behind the end of the file. */
static bool may_be_cut(const struct parser *parser, size_t end)
{
    return end == parser->size && parser->depth > 0;
}

static json_t *read_word(struct parser *parser)
{
    const char *text = parser->bytes + parser->at;
    size_t end = parser->at;
    while (end < parser->size && !memchr(" \t\r\n,:[]{}\"", parser->bytes[end], 11))
        end++;
    const size_t length = end - parser->at;
    json_t *value = NULL;
    if (may_be_cut(parser, end))
        value = NULL;
    else if (is_word(text, length, "true") || is_word(text, length, "false"))
        value = json_boolean(text[0] == 't');
    else if (is_word(text, length, "null"))
        value = json_null();
    else
        value = read_number(parser, text, length);
    parser->broken = !value;
    parser->at = value ? end : parser->at;
    return value;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static json_t *read_value(struct parser *parser);

/* A member more; what is whole of a value that breaks off is kept. */
static void read_member(struct parser *parser, json_t *object)
{
    skip_blanks(parser);
    const size_t start = parser->at;
    if (peek(parser) != '"') {
        parser->broken = true;
        return;
    }
    if (!scan_string(parser))
        return;
    json_t *key = take_text(parser, start);
    if (expect(parser, ':')) {
        json_t *value = read_value(parser);
        if (value)
            syntax_set(parser->document, object, json_string_value(key), value, parser->offset + start);
    }
    json_decref(key);
}

static void read_item(struct parser *parser, json_t *array)
{
    json_t *value = read_value(parser);
    if (value)
        json_append(array, value);
}

/* Object or array, from the bracket on. */
static json_t *read_container(struct parser *parser, bool is_object)
{
    const char end = is_object ? '}' : ']';
    json_t *container = is_object ? json_object() : json_array();
    parser->at++;
    skip_blanks(parser);
    bool more = peek(parser) != end;
    while (more) {
        if (is_object)
            read_member(parser, container);
        else
            read_item(parser, container);
        if (parser->broken)
            return container;
        skip_blanks(parser);
        more = peek(parser) == ',';
        parser->at += more;
    }
    expect(parser, end);
    return container;
}

/* NULL where nothing of it can be kept. */
static json_t *read_value(struct parser *parser)
{
    skip_blanks(parser);
    const int first = peek(parser);
    const size_t start = parser->at;
    if (first == '"')
        return scan_string(parser) ? take_text(parser, start) : NULL;
    if (first != '{' && first != '[')
        return read_word(parser);
    if (parser->depth == DEPTH_MAXIMUM) {
        parser->broken = true;
        return NULL;
    }
    parser->depth++;
    json_t *value = read_container(parser, first == '{');
    parser->depth--;
    return value;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* To the next line after `start` that begins with a value. */
static void resume(struct parser *parser, size_t start)
{
    const char *newline = parser->bytes + start, *end = parser->bytes + parser->size;
    while ((newline = memchr(newline, '\n', (size_t)(end - newline))))
        if (++newline < end && (*newline == '{' || *newline == '['))
            break;
    parser->at = newline ? (size_t)(newline - parser->bytes) : parser->size;
}

/* Notes where the value that begins at `start` broke off, and goes on behind it. */
static void note_break(struct parser *parser, size_t start)
{
    const size_t at = parser->at < parser->size ? parser->at : parser->size;
    const char *text = parser->bytes + start;
    resume(parser, start);
    const bool last = parser->at == parser->size;
    document_note(parser->document, last ? DOCUMENT_CUT : DOCUMENT_DAMAGED, parser->offset + at, text,
                  parser->size - start < 32 ? parser->size - start : 32);
}

void syntax_read_json(struct document *document, const char *bytes, size_t size, size_t offset)
{
    struct parser parser = {.document = document, .bytes = bytes, .size = size, .offset = offset};
    json_t *part = NULL; /* the first value that broke off */
    for (skip_blanks(&parser); parser.at < size; skip_blanks(&parser)) {
        const size_t start = parser.at;
        parser.broken = false;
        json_t *value = read_value(&parser);
        if (!parser.broken) {
            json_append(document->values, value);
            continue;
        }
        note_break(&parser, start);
        if (part || json_array_size(document->values))
            json_decref(value);
        else
            part = value;
    }
    if (part && !json_array_size(document->values))
        json_append(document->values, json_incref(part));
    json_decref(part);
    free(parser.text);
}
