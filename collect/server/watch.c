#include "collect/server/watch.h"

#include "collect/base/clock.h"
#include "collect/server/metrics.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { METRICS_LIMIT_MS = 5000, POLL_MS = 250, POLLS_MINIMUM = 20, DRAIN_MS = 3000, DRAIN_STEP_MS = 20 };

/* --- counters ----------------------------------------------------------------------------------------------------- */

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* The text of the metrics; "" where there is none. free() it by http_reply_free(). */
static const char *fetch(struct http *http, const struct dialect *dialect, struct http_reply *reply)
{
    *reply = (struct http_reply){0};
    return dialect->metrics && http_fetch(http, dialect->metrics, NULL, METRICS_LIMIT_MS, reply) ? reply->body : "";
}

struct watch_counters watch_read(struct http *http, const struct dialect *dialect)
{
    const struct dialect_counters *names = &dialect->counters;
    struct http_reply reply;
    const char *text = fetch(http, dialect, &reply);
    struct watch_counters counters = {metrics_sum(text, names->rounds), metrics_sum(text, names->drafted),
                                      metrics_sum(text, names->accepted), metrics_sum(text, names->generated),
                                      metrics_sum(text, names->cached)};
    http_reply_free(&reply);
    return counters;
}

/* A counter that fell was set back, and will not catch up. */
static bool is_behind(const struct watch_counters *before, const struct watch_counters *now, double tokens)
{
    double grown = now->generated - before->generated;
    return grown >= 0 && grown < tokens;
}

struct watch_counters watch_read_drained(struct http *http, const struct dialect *dialect,
                                         const struct watch_counters *before, double tokens)
{
    struct watch_counters now = watch_read(http, dialect);
    for (int waited = 0; waited < DRAIN_MS && is_behind(before, &now, tokens); waited += DRAIN_STEP_MS) {
        nap_ms(DRAIN_STEP_MS);
        now = watch_read(http, dialect);
    }
    return now;
}

double watch_cached_before(const struct watch_counters *before, const struct watch_counters *after)
{
    const bool unnamed = isnan(before->cached) && !isnan(before->generated) && !isnan(after->cached);
    return unnamed ? 0 : before->cached;
}

static void add_counters(const struct watch *watch, double tokens, struct observed *observed)
{
    const struct watch_counters *before = &watch->before;
    const struct watch_counters after = watch_read_drained(watch->http, watch->dialect, before, tokens);
    const struct {
        const char *name;
        double before, after;
    } all[] = {{"drafts", before->rounds, after.rounds},
               {"draft_tokens", before->drafted, after.drafted},
               {"accepted_tokens", before->accepted, after.accepted},
               {"generation_tokens", before->generated, after.generated},
               {"cached_tokens", watch_cached_before(before, &after), after.cached}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].before) && !isnan(all[i].after))
            observed_add_counter(observed, all[i].name, all[i].before, all[i].after);
}

/* --- requests at a time ------------------------------------------------------------------------------------------- */

struct poller {
    pthread_t thread;
    const struct dialect *dialect;
    struct http *http; /* its own */
    atomic_bool over;
    double most; /* NaN: never said */
    int polls;
};

static void *poll_running(void *context)
{
    struct poller *poller = context;
    while (!atomic_load(&poller->over)) {
        struct http_reply reply;
        poller->most = fmax(
            poller->most, metrics_sum(fetch(poller->http, poller->dialect, &reply), poller->dialect->counters.running));
        http_reply_free(&reply);
        poller->polls++;
        for (int waited = 0; waited < POLL_MS && !atomic_load(&poller->over); waited += DRAIN_STEP_MS)
            nap_ms(DRAIN_STEP_MS);
    }
    return NULL;
}

static struct poller *begin_polling(const struct dialect *dialect, const char *url, const char *api_key)
{
    struct error error = {0};
    struct poller *poller = xcalloc(1, sizeof *poller);
    *poller = (struct poller){.dialect = dialect, .http = http_open(url, api_key, &error), .most = NAN};
    if (poller->http && pthread_create(&poller->thread, NULL, poll_running, poller) == 0)
        return poller;
    http_close(poller->http);
    free(poller);
    return NULL;
}

/* The most that ran at a time; NaN where nobody said, or was asked too seldom to have seen it. */
static double end_polling(struct watch *watch)
{
    struct poller *poller = watch->poller;
    if (!poller)
        return NAN;
    atomic_store(&poller->over, true);
    pthread_join(poller->thread, NULL);
    double most = poller->polls < POLLS_MINIMUM ? NAN : poller->most;
    http_close(poller->http);
    free(poller);
    watch->poller = NULL;
    return most;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static int64_t cpu_now_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * (int64_t)1000000000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * (int64_t)1000;
}

void watch_begin(struct watch *watch, struct http *http, const struct dialect *dialect, const char *url,
                 const char *api_key, int in_flight)
{
    *watch = (struct watch){.dialect = dialect, .http = http, .before = watch_read(http, dialect)};
    if (in_flight > 1 && dialect->counters.running && !isnan(watch->before.generated))
        watch->poller = begin_polling(dialect, url, api_key);
    watch->cpu_ns = cpu_now_ns();
    watch->started_ns = clock_now_ns();
}

void watch_end(struct watch *watch, double tokens, struct observed *observed)
{
    int64_t took_ns = clock_now_ns() - watch->started_ns;
    observed->client_cpu_share = (double)(cpu_now_ns() - watch->cpu_ns) / (double)took_ns;
    double most = end_polling(watch);
    if (most > 0)
        observed->running_max = (int)most;
    add_counters(watch, tokens, observed);
}

void watch_abandon(struct watch *watch)
{
    end_polling(watch);
}
