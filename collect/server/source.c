#include "collect/server/source.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/record/sample.h"
#include "collect/server/exchange.h"
#include "collect/server/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct server_source {
    struct source base;
    struct server server;
    struct gpus *gpus; /* NULL: none */
    int64_t origin_ns; /* when the arm was ready: the zero of its samples' times */
    struct observed observed;
    struct counted *counted; /* texts whose tokens were counted */
    int counted_count;
};

struct counted {
    char hash[FILE_HASH_SIZE]; /* of the text */
    int tokens;
};

static struct server_source *self_of(struct source *source)
{
    return (struct server_source *)source;
}

/* Which tokens a text has only the server knows, and it may not run yet; none has more of them than bytes. */
static int check_request(struct source *source, const struct request *request, struct error *error)
{
    (void)source, (void)error;
    return (int)strlen(request->text);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text)
        json_set(object, key, json_text(text));
}

static void set_copy(json_t *object, const char *key, const json_t *value)
{
    if (value)
        json_set(object, key, json_deep_copy(value));
}

/* In one line, as it would be typed, but for quotes. arm NULL: what all arms have in common. */
static void set_command(json_t *description, const struct plan_server *plan, const struct arm *arm)
{
    json_t *argv = launch_describe(plan, arm);
    char *line = xstrdup("");
    for (size_t i = 0; i < json_array_size(argv); i++) {
        char *longer = xformat("%s%s%s", line, i ? " " : "", json_string_value(json_array_get(argv, i)));
        free(line);
        line = longer;
    }
    set_text(description, "command", line);
    free(line);
    json_decref(argv);
}

/* Of the plan: what the server says of itself is known only once it runs. */
static json_t *describe(struct source *source, const struct arm *arm)
{
    const struct plan_server *plan = &self_of(source)->server.plan->server;
    json_t *description = json_object();
    set_text(description, "kind", "server");
    set_text(description, "dialect", plan->dialect);
    set_text(description, "route", self_of(source)->server.dialect->route);
    set_text(description, "target", plan->model);
    set_text(description, "acceptance", self_of(source)->server.dialect->acceptance);
    set_copy(description, "request", plan->request);
    set_copy(description, "env", plan->launch.env);
    if (plan->launch_as_written)
        set_command(description, plan, arm);
    set_text(description, "url", arm ? plan->url[arm->method] : NULL);
    return description;
}

static json_t *inform(struct source *source)
{
    const struct server *server = &self_of(source)->server;
    if (!server->info.said)
        return json_null();
    json_t *info = server_info_to_json(&server->info);
    set_text(info, "url", server->launch.url);
    return info;
}

static int load(struct source *source, const struct arm *arm, const char *log, json_t **memory, struct error *error)
{
    struct server_source *self = self_of(source);
    *memory = NULL;
    int result = server_begin(&self->server, arm, log, error);
    self->origin_ns = clock_now_ns();
    return result;
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

/* Tokens of the request's prompt; -1: unknown. Each text is counted once, where the context is known. */
static int count_tokens(struct server_source *self, const struct request *request)
{
    if (self->server.info.context <= 0)
        return ATTEMPT_ABSENT;
    char hash[FILE_HASH_SIZE];
    file_hash_bytes(request->text, strlen(request->text), hash);
    for (int i = 0; i < self->counted_count; i++)
        if (strcmp(self->counted[i].hash, hash) == 0)
            return self->counted[i].tokens;
    self->counted = xrealloc(self->counted, (size_t)self->counted_count + 1, sizeof *self->counted);
    struct counted *counted = &self->counted[self->counted_count++];
    memcpy(counted->hash, hash, sizeof hash);
    counted->tokens = server_count_tokens(&self->server, request->text);
    return counted->tokens;
}

/* Answers for a request that would not fit, instead of sending it; false where it fits, or nobody knows. */
static bool refuse(struct server_source *self, const struct request *request, struct sample *sample)
{
    const int64_t context = self->server.info.context;
    const int tokens = count_tokens(self, request);
    if (tokens < 0 || tokens + (int64_t)request->max_new_tokens <= context)
        return false;
    sample_init(sample);
    sample->workload = name_keep(request->workload);
    sample->prompt = name_keep(request->prompt_id);
    sample->warmup = request->warmup;
    sample->asked_tokens = request->max_new_tokens;
    sample->asked_ignore_eos = request->ignore_eos;
    sample->prompt_tokens = tokens;
    sample->error_code = xstrdup("CONTEXT_OVERFLOW");
    sample->error_message = xformat("%d prompt tokens and %d of output: the server's context is %lld; not sent", tokens,
                                    request->max_new_tokens, (long long)context);
    return true;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Requests that are answered one after another, and whom their samples go to. */
struct delivery {
    struct server_source *self;
    source_on_sample *on_sample;
    void *context;
    bool stop;
    double tokens;       /* emitted, of all samples */
    int64_t most_tokens; /* of a request with its output */
    /* with one request at a time, for what answers do not say */
    bool by_counters;
    struct watch_counters before;
};

/* Without a drafter a round is a token, by definition; a server that says otherwise speculates. */
static void count_plain_rounds(const struct server *server, struct sample *sample)
{
    if (server->arm.method == METHOD_AUTO && sample->rounds < 0 && sample->tokens > sample->first_tokens)
        sample->rounds = sample->tokens - sample->first_tokens;
}

/* What the counters say of one request that ran alone, and its answer does not. A round without drafts is in none of
 * them, and commits one token. */
static void read_counters(struct delivery *delivery, struct sample *sample)
{
    const struct server *server = &delivery->self->server;
    const struct watch_counters before = delivery->before;
    delivery->before = watch_read_drained(server->http, server->dialect, &before, sample->tokens);
    const double accepted = delivery->before.accepted - before.accepted;
    const double drafts = delivery->before.rounds - before.rounds;
    const bool counts = drafts >= 0 && delivery->before.rounds > 0; /* a server's front may have nothing but zeros */
    const double rounds = counts ? fmax(drafts, sample->tokens - sample->first_tokens - accepted) : NAN;
    const double cached = delivery->before.cached - watch_cached_before(&before, &delivery->before);
    if (sample->rounds < 0 && server->arm.method != METHOD_AUTO && rounds > 0 && rounds <= sample->tokens)
        sample->rounds = (int)rounds;
    if (sample->cached_tokens < 0 && cached >= 0 && cached <= sample->prompt_tokens)
        sample->cached_tokens = (int)cached;
}

/* What went wrong may still be under way: it is nobody's, and neither are the rounds of the request behind it. */
static void pass_counters(struct delivery *delivery)
{
    delivery->before = watch_read(delivery->self->server.http, delivery->self->server.dialect);
    delivery->before.rounds = NAN;
}

static int deliver(void *context, struct sample *sample)
{
    struct delivery *delivery = context;
    if (sample->ok && sample->tokens > 0) {
        const int64_t positions = sample->prompt_tokens + (int64_t)sample->asked_tokens;
        delivery->tokens += sample->tokens;
        delivery->most_tokens = positions > delivery->most_tokens ? positions : delivery->most_tokens;
        if (delivery->by_counters)
            read_counters(delivery, sample);
        count_plain_rounds(&delivery->self->server, sample);
    } else if (delivery->by_counters && sample->start_ns >= 0) {
        pass_counters(delivery);
    }
    int result = delivery->on_sample(delivery->context, sample);
    delivery->stop |= result != 0;
    return result;
}

/* Requests in their order: those that fit together as many as `in_flight` allows, the others answered for here. */
static int run_all(struct delivery *delivery, const struct request *requests, int count, int in_flight,
                   struct error *error)
{
    struct server_source *self = delivery->self;
    int failure = 0;
    for (int at = 0; at < count && !failure && !delivery->stop;) {
        struct sample refused;
        if (refuse(self, &requests[at], &refused)) {
            deliver(delivery, &refused);
            at++;
            continue;
        }
        int together = 1;
        while (in_flight > 1 && at + together < count && !refuse(self, &requests[at + together], &refused))
            together++;
        if (in_flight > 1 && at + together < count)
            sample_free(&refused);
        failure = exchange_run(&self->server, requests + at, together, in_flight, self->origin_ns, deliver, delivery,
                               &delivery->stop, error);
        at += together;
    }
    return failure;
}

/* A count that the record can hold; -1: unknown. */
static int bounded(int64_t count)
{
    return count >= 0 && count <= SAMPLE_TOKENS_MAXIMUM ? (int)count : ATTEMPT_ABSENT;
}

static void observe_room(struct server_source *self, int in_flight, int64_t most_tokens)
{
    const struct server_info *info = &self->server.info;
    struct observed *observed = &self->observed;
    observed->slots = bounded(info->slots);
    observed->cache_tokens = info->cache;
    observed->cache_tokens_needed = info->cache < 0 ? ATTEMPT_ABSENT : in_flight * most_tokens;
    observed->cache_slots = bounded(info->states);
    observed->cache_slots_needed = info->states < 0 ? ATTEMPT_ABSENT : in_flight;
}

static void add_growth(struct observed *observed, const char *workload, const char *counter, double before,
                       double after)
{
    char *name = xformat("%s/%s", workload, counter);
    if (!isnan(before) && !isnan(after))
        observed_add_counter(observed, name, before, after);
    free(name);
}

/* Workload by workload, so that counters tell them apart: where requests run together and answers may not say how many
 * rounds they took. */
static int run_by_workload(struct delivery *delivery, const struct request *requests, int count, int in_flight,
                           struct error *error)
{
    struct server_source *self = delivery->self;
    int failure = 0;
    for (int at = 0, end; at < count && !failure && !delivery->stop; at = end) {
        const char *workload = requests[at].workload;
        const struct watch_counters before = delivery->before;
        const double tokens = delivery->tokens;
        for (end = at + 1; end < count && strcmp(requests[end].workload, workload) == 0;)
            end++;
        failure = run_all(delivery, requests + at, end - at, in_flight, error);
        if (failure)
            break;
        delivery->before =
            watch_read_drained(self->server.http, self->server.dialect, &before, delivery->tokens - tokens);
        const struct watch_counters *after = &delivery->before;
        add_growth(&self->observed, workload, "drafts", before.rounds, after->rounds);
        add_growth(&self->observed, workload, "accepted_tokens", before.accepted, after->accepted);
        add_growth(&self->observed, workload, "generation_tokens", before.generated, after->generated);
    }
    return failure;
}

static int run_measured(struct delivery *delivery, const struct request *requests, int count, int in_flight,
                        struct error *error)
{
    struct server_source *self = delivery->self;
    struct server *server = &self->server;
    struct watch watch;
    for (int i = 0; i < count; i++)
        count_tokens(self, &requests[i]); /* now, and not between requests */
    observed_free(&self->observed);
    self->observed.prefix_cache_flushed = server_flush(server);
    watch_begin(&watch, server->http, server->dialect, server->launch.url, server->api_key, in_flight);
    delivery->before = watch.before;
    const bool counts = !isnan(watch.before.generated);
    const bool counts_rounds = counts && !isnan(watch.before.rounds) && server->arm.method != METHOD_AUTO;
    delivery->by_counters = counts && in_flight == 1;
    int failure = counts_rounds && in_flight > 1 ? run_by_workload(delivery, requests, count, in_flight, error)
                                                 : run_all(delivery, requests, count, in_flight, error);
    if (failure)
        watch_abandon(&watch);
    else
        watch_end(&watch, delivery->tokens, &self->observed);
    observe_room(self, in_flight, delivery->most_tokens);
    return failure;
}

static int run(struct source *source, const struct request *requests, int count, int in_flight,
               source_on_sample *on_sample, void *context, struct error *error)
{
    struct delivery delivery = {.self = self_of(source), .on_sample = on_sample, .context = context};
    if (!count)
        return 0;
    return requests[0].warmup ? run_all(&delivery, requests, count, in_flight, error)
                              : run_measured(&delivery, requests, count, in_flight, error);
}

static int observe(struct source *source, struct observed *observed, struct error *error)
{
    (void)error;
    *observed = self_of(source)->observed; /* its counters with it */
    observed_init(&self_of(source)->observed);
    return 0;
}

/* Nobody looks into a server's cache: its outputs are compared with auto's instead. */
static int audit(struct source *source, const struct request *requests, const struct sample *samples, int count,
                 struct audit *audit, struct error *error)
{
    (void)source, (void)requests, (void)samples, (void)count, (void)audit, (void)error;
    return 0;
}

static int list_gpus(struct source *source, char (*ids)[TELEMETRY_ID_SIZE])
{
    const struct gpus *gpus = self_of(source)->gpus;
    return gpus ? gpus_list_busy(gpus, ids, TELEMETRY_DEVICES_MAXIMUM) : 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void close_source(struct source *source)
{
    struct server_source *self = self_of(source);
    server_end(&self->server);
    gpus_close(self->gpus);
    observed_free(&self->observed);
    if (self->server.api_key)
        explicit_bzero(self->server.api_key, strlen(self->server.api_key));
    free(self->server.api_key);
    free(self->counted);
    free(self);
}

static const struct source_class server_source_class = {
    .kind = "server",
    .check_request = check_request,
    .describe = describe,
    .load = load,
    .inform = inform,
    .run = run,
    .audit = audit,
    .observe = observe,
    .list_gpus = list_gpus,
    .close = close_source,
};

struct source *server_source_open(const struct plan *plan, struct error *error)
{
    const char *variable = plan->server.api_key_env, *api_key = variable ? getenv(variable) : NULL;
    if (variable && (!api_key || !api_key[0])) {
        fail(error, "%s: source: the environment has no %s, which \"api_key_env\" names; set it and start again",
             plan->path, variable);
        return NULL;
    }
    struct server_source *self = xcalloc(1, sizeof *self);
    self->base.class = &server_source_class;
    self->server.plan = plan;
    self->server.dialect = dialect_find(plan->server.dialect, plan->server.route);
    self->server.api_key = api_key ? xstrdup(api_key) : NULL;
    self->server.gpus = self->gpus = plan->server.launch.argv ? gpus_open(GPUS_FOLDER) : NULL;
    observed_init(&self->observed);
    return &self->base;
}
