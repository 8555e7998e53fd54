#include "collect/engine/loading.h"

#include "collect/base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define TERMINAL_PAUSE_NS 200000000
#define LOG_PAUSE_NS 5000000000 /* what takes less is not spoken of */

static struct {
    pthread_mutex_t lock;
    const char *what;
    int64_t bytes, done_bytes;
    int element_bytes;
    int64_t start_ns, said_ns;
    bool terminal, drawn;
} loading = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *loading_text(const char *what, int64_t done_bytes, int64_t bytes, double seconds, char *text)
{
    double done = (double)done_bytes, all = (double)bytes, rate = done / seconds;
    snprintf(text, LOADING_TEXT_SIZE, "loading %.400s: %.0f%% of %.3g GB, %.2g GB/s, about %.0f s left", what,
             100 * done / all, all * 1e-9, rate * 1e-9, (all - done) / rate);
    return text;
}

void loading_begin(const char *what, int64_t elements, int element_bytes)
{
    loading.what = what;
    loading.bytes = elements * element_bytes;
    loading.element_bytes = element_bytes;
    loading.done_bytes = 0;
    loading.start_ns = loading.said_ns = clock_now_ns();
    loading.terminal = isatty(STDERR_FILENO);
    loading.drawn = false;
}

static void say(int64_t now_ns)
{
    char text[LOADING_TEXT_SIZE];
    loading_text(loading.what, loading.done_bytes, loading.bytes, (double)(now_ns - loading.start_ns) * 1e-9, text);
    fprintf(stderr, loading.terminal ? "\r\033[K%s" : "%s\n", text);
    fflush(stderr);
    loading.said_ns = now_ns;
    loading.drawn = loading.terminal;
}

void loading_add(int64_t elements)
{
    if (!loading.what)
        return;
    pthread_mutex_lock(&loading.lock);
    loading.done_bytes += elements * loading.element_bytes;
    if (loading.done_bytes > loading.bytes) /* some weights are kept twice */
        loading.done_bytes = loading.bytes;
    int64_t now_ns = clock_now_ns();
    if (now_ns - loading.said_ns >= (loading.terminal ? TERMINAL_PAUSE_NS : LOG_PAUSE_NS))
        say(now_ns);
    pthread_mutex_unlock(&loading.lock);
}

void loading_end(void)
{
    if (loading.drawn)
        fputs("\r\033[K", stderr);
    loading.what = NULL;
}
