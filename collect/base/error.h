/* Errors and memory, for every module.
 *
 * What the world can get wrong (files, JSON, the network, arguments) is returned: the function answers -1 and has
 * filled the caller's `struct error` by `return fail(error, "%s: ...", path)`. The first message wins, names the file
 * and place, and says what to do. What only a broken machine or a broken program can get wrong ends in die(). */
#ifndef COLLECT_BASE_ERROR_H
#define COLLECT_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define ERROR_MESSAGE_SIZE 1024

enum exit_code { EXIT_CODE_OK = 0, EXIT_CODE_FAILURE = 1, EXIT_CODE_USAGE = 2 };

/* Zero-initialised: no error. Owned by the caller. */
struct error {
    char message[ERROR_MESSAGE_SIZE];
};

/* Fills `error` unless it already holds a message. Always answers -1. The message is one line of UTF-8, whatever it
 * quotes: control characters become spaces, other bytes '?', and what is too long is cut. */
int fail(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes of any text, in its place, such a line: what files hold is printed by this alone, since control characters
 * would break the line or steer a terminal. */
void make_printable(char *text);

/* Whether it is one already. */
bool is_printable(const char *text);

/* Like fail(), with ": " and errno's text added. */
int fail_errno(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints one line to stderr and ends the program with status 1. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The same where what runs at exit could wait for ever: nothing does, but that streams are flushed. */
void die_at_once(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* What is called with the message before either of these ends the program, on the thread that they are called on; once,
 * so that it may fail in the same way. NULL: nothing. */
void die_set_last_act(void (*act)(void *context, const char *message), void *context);

/* Never answer NULL: running out of memory ends in die(). Memory is given back by free(). */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *pointer, size_t count, size_t size);
char *xstrdup(const char *text);
char *xformat(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* 64-byte aligned, zeroed; given back by free(). */
void *xaligned(size_t count, size_t size);

/* Nothing is allocated inside a timed region: between these two, on the calling thread, the functions above end a debug
 * build in die(). In a release build they do nothing. */
void memory_freeze(void);
void memory_thaw(void);

#endif
