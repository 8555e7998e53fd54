#include "collect/progress.h"

#include "collect/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { DURATION_SIZE = 32 };

void progress_init(struct progress *progress)
{
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO), .started_ns = clock_now_ns()};
}

static const char *format_duration(double seconds, char *text)
{
    long minutes = (long)(seconds / 60 + 0.5);
    if (seconds < 90)
        snprintf(text, DURATION_SIZE, "%.*f s", seconds < 10, seconds);
    else if (minutes < 90)
        snprintf(text, DURATION_SIZE, "%ld min", minutes);
    else
        snprintf(text, DURATION_SIZE, "%ld h %ld min", minutes / 60, minutes % 60);
    return text;
}

/* "; about 3 min left", from what the requests took so far, loading and auditing included. */
static const char *format_left(const struct progress *progress, char *text, size_t size)
{
    char duration[DURATION_SIZE];
    double elapsed_s = (double)(clock_now_ns() - progress->started_ns) * 1e-9;
    text[0] = '\0';
    if (progress->requests_done > 0 && progress->requests_left > 0)
        snprintf(
            text, size, "; about %s left",
            format_duration(elapsed_s / (double)progress->requests_done * (double)progress->requests_left, duration));
    return text;
}

static double tokens_per_s(const struct progress *progress)
{
    return progress->decode_ns > 0 ? (double)progress->tokens * 1e9 / (double)progress->decode_ns : 0;
}

static void erase(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}

static void draw(struct progress *progress)
{
    char left[64];
    if (!progress->terminal)
        return;
    erase(progress);
    fprintf(stderr, "block %d of %d, %s, request %d of %d", progress->block, progress->blocks, progress->arm,
            progress->request, progress->requests);
    if (progress->tokens > 0)
        fprintf(stderr, ", %.1f tokens/s", tokens_per_s(progress));
    fputs(format_left(progress, left, sizeof left), stderr);
    fflush(stderr);
    progress->drawn = true;
}

void progress_say(struct progress *progress, const char *format, ...)
{
    va_list arguments;
    erase(progress);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void progress_begin(struct progress *progress, int block, int blocks, const char *arm, int requests)
{
    progress->block = block;
    progress->blocks = blocks;
    progress->arm = arm;
    progress->requests = requests;
    progress->request = 0;
    progress->tokens = progress->decode_ns = 0;
    progress->attempt_started_ns = clock_now_ns();
    draw(progress);
}

void progress_add(struct progress *progress, const struct sample *sample)
{
    progress->request++;
    progress->requests_done++;
    progress->requests_left--;
    if (sample->ok && !sample->warmup && sample->tokens > sample->first_tokens && sample->decode_ns > 0) {
        progress->tokens += sample->tokens - sample->first_tokens;
        progress->decode_ns += sample->decode_ns;
    }
    draw(progress);
}

void progress_end(struct progress *progress, bool valid, const char *outcome)
{
    char left[64], took[DURATION_SIZE], rate[32] = "";
    if (progress->tokens > 0)
        snprintf(rate, sizeof rate, "%.1f tokens/s, ", tokens_per_s(progress));
    progress->requests_left -= progress->requests - progress->request; /* of an attempt that ended early */
    if (progress->terminal && valid)
        return;
    progress_say(progress, "block %d of %d, %s: %d requests, %s%s, %s%s", progress->block, progress->blocks,
                 progress->arm, progress->request, rate,
                 format_duration((double)(clock_now_ns() - progress->attempt_started_ns) * 1e-9, took), outcome,
                 format_left(progress, left, sizeof left));
}
