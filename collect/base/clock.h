/* Time: monotonic nanoseconds for measuring, RFC 3339 UTC for records. */
#ifndef COLLECT_BASE_CLOCK_H
#define COLLECT_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_UTC_SIZE 32

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t clock_now_ns(void);

/* Seconds since 1970, from the wall clock. */
int64_t clock_wall_s(void);

/* Writes "2026-11-29T17:35:51Z" into text[CLOCK_UTC_SIZE] and answers it. */
const char *clock_format_utc(int64_t wall_s, char *text);

/* The inverse; answers -1 where `text` is not of that form, no such time exists, or it lies before 1970. */
int64_t clock_parse_utc(const char *text);

#endif
