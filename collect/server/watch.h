/* What a server's metrics say while requests are measured: counters from before to after, and from a thread of its own
 * how many requests ran at a time. */
#ifndef COLLECT_SERVER_WATCH_H
#define COLLECT_SERVER_WATCH_H

#include "collect/record/observed.h"
#include "collect/server/dialect.h"
#include "collect/server/http.h"

#include <pthread.h>

/* NaN: not said. */
struct watch_counters {
    double rounds, drafted, accepted, generated, cached;
};

struct watch {
    const struct dialect *dialect; /* borrowed */
    struct http *http;             /* borrowed */
    struct watch_counters before;
    int64_t started_ns, cpu_ns;
    struct poller *poller; /* NULL: nobody asks while requests run */
};

struct watch_counters watch_read(struct http *http, const struct dialect *dialect);

/* Reads the counters until they have caught up with `tokens` more than `before` (servers count when a request has
 * ended, and some a moment later); the last reading where they do not. */
struct watch_counters watch_read_drained(struct http *http, const struct dialect *dialect,
                                         const struct watch_counters *before, double tokens);

/* Tokens from the prefix cache that were counted before; NaN: not said. Some servers (SGLang) name the counter from the
 * first hit on, others never: with this alone nobody knows, beside a later reading that has it, it was 0. */
double watch_cached_before(const struct watch_counters *before, const struct watch_counters *after);

/* With several requests in flight a thread asks `url` every now and then how many run. */
void watch_begin(struct watch *watch, struct http *http, const struct dialect *dialect, const char *url,
                 const char *api_key, int in_flight);

/* Ends it, and fills in what was seen; `tokens` were emitted since. */
void watch_end(struct watch *watch, double tokens, struct observed *observed);

/* Ends it, whatever was seen. */
void watch_abandon(struct watch *watch);

#endif
