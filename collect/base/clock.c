#include "collect/base/clock.h"

#include "collect/base/error.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_wall_s(void)
{
    return (int64_t)time(NULL);
}

const char *clock_format_utc(int64_t wall_s, char *text)
{
    time_t seconds = (time_t)wall_s;
    struct tm parts;
    if (!gmtime_r(&seconds, &parts))
        die("no year has second %jd of 1970", (intmax_t)wall_s);
    strftime(text, CLOCK_UTC_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

int64_t clock_parse_utc(const char *text)
{
    struct tm parts = {0};
    char again[CLOCK_UTC_SIZE];
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &parts.tm_hour,
               &parts.tm_min, &parts.tm_sec) != 6)
        return -1;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    int64_t seconds = (int64_t)timegm(&parts);
    /* Only a text that comes out again names a day and a time that exist. */
    return seconds >= 0 && strcmp(clock_format_utc(seconds, again), text) == 0 ? seconds : -1;
}
