/* What the parsers share: numbers, texts, members, lines. */
#include "collect/import/syntax.h"

#include "collect/base/json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

enum {
    NUMBER_LENGTH_MAXIMUM = 400, /* of a double written out; more digits are damage */
    SAME_KEY_MAXIMUM = 9,        /* values of one key; of more, the last */
};

static bool is_decimal(const char *text)
{
    return strspn(text, "0123456789+-.eE") == strlen(text) && strpbrk(text, "0123456789");
}

bool syntax_number(const char *text, size_t length, double *value)
{
    static const char *const words[] = {"nan", "inf", "infinity"};
    char copy[NUMBER_LENGTH_MAXIMUM + 1], *end;
    if (!length || length > NUMBER_LENGTH_MAXIMUM || memchr(text, '\0', length))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    const char *digits = copy + (copy[0] == '+' || copy[0] == '-');
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(digits, words[i]) == 0) {
            *value = i == 0 ? NAN : copy[0] == '-' ? -INFINITY : INFINITY;
            return true;
        }
    if (!is_decimal(copy))
        return false;
    *value = strtod(copy, &end);
    return *end == '\0';
}

/* Bytes that no JSON text may have, or Jansson's keys cannot hold. */
static bool is_clean(const char *text, size_t length, size_t *step)
{
    utf8proc_int32_t point;
    utf8proc_ssize_t size = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &point);
    *step = size > 0 ? (size_t)size : 1;
    return size > 0 && point != 0;
}

json_t *syntax_text(struct document *document, const char *text, size_t length, size_t offset)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    char *clean = xmalloc(3 * length + 1);
    size_t used = 0, step;
    bool odd = false;
    for (size_t at = 0; at < length; at += step) {
        bool good = is_clean(text + at, length - at, &step);
        memcpy(clean + used, good ? text + at : replacement, good ? step : 3);
        used += good ? step : 3;
        odd |= !good;
    }
    if (odd)
        document_note(document, DOCUMENT_NOT_UTF8, offset, "", 0);
    json_t *string = json_stringn(clean, used);
    free(clean);
    if (!string)
        die("cannot hold a text of %zu bytes", used);
    return string;
}

void syntax_set(struct document *document, json_t *object, const char *key, json_t *value, size_t offset)
{
    char *name = xstrdup(key);
    for (int again = 2; json_object_get(object, name) && again <= SAME_KEY_MAXIMUM; again++) {
        if (again == 2)
            document_note(document, DOCUMENT_DUPLICATE_KEY, offset, key, strlen(key));
        free(name);
        name = xformat("%s#%d", key, again);
    }
    json_set(object, name, value);
    free(name);
}

bool syntax_next_line(const char *bytes, size_t size, size_t *at, const char **line, size_t *length)
{
    if (*at >= size)
        return false;
    const char *newline = memchr(bytes + *at, '\n', size - *at);
    const size_t end = newline ? (size_t)(newline - bytes) : size;
    *line = bytes + *at;
    *length = end - *at;
    if (*length && (*line)[*length - 1] == '\r')
        --*length;
    *at = end + (newline != NULL);
    return true;
}
