#include "collect/base/clock.h"

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
    gmtime_r(&seconds, &parts);
    strftime(text, CLOCK_UTC_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

int64_t clock_parse_utc(const char *text)
{
    struct tm parts = {0};
    int end = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &parts.tm_hour,
               &parts.tm_min, &parts.tm_sec, &end) != 6 ||
        end != 20 || text[end] != '\0')
        return -1;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    return (int64_t)timegm(&parts);
}
