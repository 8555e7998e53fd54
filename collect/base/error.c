#include "collect/base/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

void make_printable(char *text)
{
    size_t size = strlen(text);
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t character;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &character);
        size_t step = length > 0 ? (size_t)length : 1;
        utf8proc_category_t category = length > 0 ? utf8proc_category(character) : UTF8PROC_CATEGORY_CN;
        if (length <= 0)
            text[at] = '?';
        else if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_ZL ||
                 category == UTF8PROC_CATEGORY_ZP)
            memset(text + at, ' ', step);
        at += step;
    }
}

bool is_printable(const char *text)
{
    char *printable = xstrdup(text);
    make_printable(printable);
    bool same = strcmp(text, printable) == 0;
    free(printable);
    return same;
}

int fail(struct error *error, const char *format, ...)
{
    if (error->message[0])
        return -1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    make_printable(error->message);
    return -1;
}

int fail_errno(struct error *error, const char *format, ...)
{
    int number = errno;
    char message[ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fail(error, "%s: %s", message, strerror(number));
}

#ifdef CLEANSLATE_DEBUG
static _Thread_local int frozen;
#endif

static void (*last_act)(void *context, const char *message);
static void *last_context;

void die_set_last_act(void (*act)(void *context, const char *message), void *context)
{
    last_act = act;
    last_context = context;
}

static void say_last(const char *format, va_list arguments)
{
    struct error last = {0};
    void (*act)(void *context, const char *message) = last_act;
    vsnprintf(last.message, sizeof last.message, format, arguments);
    fprintf(stderr, "cleanslate: %s\n", last.message);
    last_act = NULL;
#ifdef CLEANSLATE_DEBUG
    frozen = 0; /* nothing is timed any more */
#endif
    if (act)
        act(last_context, last.message);
}

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    exit(EXIT_CODE_FAILURE);
}

void die_at_once(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    fflush(NULL);
    _exit(EXIT_CODE_FAILURE);
}

#ifdef CLEANSLATE_DEBUG
void memory_freeze(void)
{
    frozen++;
}

void memory_thaw(void)
{
    frozen--;
}

static void check_frozen(size_t count, size_t size)
{
    if (frozen)
        die("%zu x %zu bytes allocated inside a timed region", count, size);
}
#else
void memory_freeze(void) {}

void memory_thaw(void) {}

static void check_frozen(size_t count, size_t size)
{
    (void)count;
    (void)size;
}
#endif

static void *not_null(void *pointer, size_t count, size_t size)
{
    check_frozen(count, size);
    if (!pointer && count && size)
        die("out of memory: %zu x %zu bytes", count, size);
    return pointer;
}

void *xmalloc(size_t size)
{
    return not_null(malloc(size ? size : 1), 1, size);
}

void *xcalloc(size_t count, size_t size)
{
    return not_null(calloc(count ? count : 1, size ? size : 1), count, size);
}

void *xrealloc(void *pointer, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        die("out of memory: %zu x %zu bytes", count, size);
    return not_null(realloc(pointer, count && size ? count * size : 1), count, size);
}

char *xstrdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(xmalloc(size), text, size);
}

char *xformat(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        die("cannot format \"%s\"", format);
    char *text = xmalloc((size_t)length + 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

void *xaligned(size_t count, size_t size)
{
    if (size && count > (SIZE_MAX - 64) / size)
        die("out of memory: %zu x %zu bytes", count, size);
    size_t bytes = (count * size + 63) / 64 * 64;
    void *pointer = not_null(aligned_alloc(64, bytes ? bytes : 64), count, size);
    return memset(pointer, 0, bytes);
}
