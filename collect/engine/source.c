#include "collect/engine/source.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/engine/engine.h"

#include <stdlib.h>
#include <string.h>

struct engine_source {
    struct source base;
    struct engine *engine;
    struct sampling sampling; /* the plan's */
    int longest;              /* positions of the longest request that was checked */
    int64_t origin_ns;        /* when the arm was loaded: the zero of its samples' times */
};

static int check_request(struct source *source, const struct request *request, struct error *error)
{
    struct engine_source *self = (struct engine_source *)source;
    int *ids = NULL, count = engine_encode(self->engine, request->text, &ids, error);
    free(ids);
    if (count < 0)
        return -1;
    if (count == 0)
        return fail(error, "workload \"%s\", prompt \"%s\": no tokens", request->workload, request->prompt_id);
    int positions = count + request->max_new_tokens, limit = engine_position_limit(self->engine);
    if (positions > limit) {
        char *lower = limit - count >= 2 ? xformat(" or lower max_new_tokens to %d", limit - count) : xstrdup("");
        fail(error,
             "workload \"%s\", prompt \"%s\": CONTEXT_OVERFLOW: %d prompt tokens and %d of output are %d, the model's "
             "context is %d; shorten the prompt%s",
             request->workload, request->prompt_id, count, request->max_new_tokens, positions, limit, lower);
        free(lower);
        return -1;
    }
    self->longest = positions > self->longest ? positions : self->longest;
    return count;
}

static char *fill(struct source *source, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error)
{
    return engine_fill(((struct engine_source *)source)->engine, text, at, corpus, tokens, error);
}

static int chat_style(struct source *source, struct chat_style *style, struct error *error)
{
    return engine_chat_style(((struct engine_source *)source)->engine, style, error);
}

static json_t *describe(struct source *source, const struct arm *arm)
{
    struct error error = {0};
    json_t *description = engine_describe(((struct engine_source *)source)->engine, arm, &error);
    if (!description)
        die("%s", error.message);
    return description;
}

static int keep(struct source *source, const char *folder, struct error *error)
{
    return engine_keep(((struct engine_source *)source)->engine, folder, error);
}

static int load(struct source *source, const struct arm *arm, const char *log, json_t **memory, struct error *error)
{
    (void)log;
    struct engine_source *self = (struct engine_source *)source;
    int result = engine_load(self->engine, arm, &self->sampling, self->longest, memory, error);
    self->origin_ns = clock_now_ns();
    return result;
}

/* A request on its way: its tokens, and its sample until that is delivered. */
struct flight {
    int *ids;
    struct sample sample;
};

/* Readies a request; false where it cannot run, and its sample says why. */
static bool prepare(struct engine_source *self, const struct request *request, struct flight *flight,
                    struct engine_request *ready)
{
    struct error error = {0};
    struct sample *sample = &flight->sample;
    int count = engine_encode(self->engine, request->text, &flight->ids, &error);
    sample_init(sample);
    sample->workload = name_keep(request->workload);
    sample->prompt = name_keep(request->prompt_id);
    sample->warmup = request->warmup;
    sample->asked_tokens = request->max_new_tokens;
    sample->asked_ignore_eos = request->ignore_eos;
    sample->cached_tokens = 0;
    *ready =
        (struct engine_request){flight->ids, count, request->stream, request->limit_s * (int64_t)1000000000, sample};
    if (count > 0 && count + request->max_new_tokens <= self->longest)
        return true;
    sample->error_code = xstrdup(count > 0 ? "CONTEXT_OVERFLOW" : "FAILED_REQUEST");
    sample->error_message =
        count > 0 ? xformat("%d prompt tokens: more than was planned for", count) : xstrdup(error.message);
    return false;
}

/* Runs a few requests together, and delivers their samples in order when none is in flight any more. */
static int run_together(struct engine_source *self, const struct request *requests, int count,
                        source_on_sample *on_sample, void *context)
{
    struct flight *flights = xcalloc((size_t)count, sizeof *flights);
    struct engine_request *ready = xcalloc((size_t)count, sizeof *ready);
    int ready_count = 0, stop = 0;
    for (int i = 0; i < count; i++)
        ready_count += prepare(self, &requests[i], &flights[i], &ready[ready_count]);
    engine_run(self->engine, ready, ready_count);
    for (int i = 0; i < count; i++) {
        struct sample *sample = &flights[i].sample;
        free(flights[i].ids);
        if (sample->start_ns >= 0) {
            sample->start_ns -= self->origin_ns;
            sample->end_ns -= self->origin_ns;
        }
        if (stop)
            sample_free(sample);
        else
            stop = on_sample(context, sample);
    }
    free(ready);
    free(flights);
    return stop;
}

/* One in flight: each sample is delivered as it ends. More: all run in one go, since writing one would hold the others
 * up. */
static int run(struct source *source, const struct request *requests, int count, int in_flight,
               source_on_sample *on_sample, void *context, struct error *error)
{
    (void)error;
    int step = in_flight == 1 ? 1 : count, stop = 0;
    for (int i = 0; i < count && !stop; i += step)
        stop = run_together((struct engine_source *)source, requests + i, step, on_sample, context);
    return 0;
}

static int audit(struct source *source, const struct request *requests, const struct sample *samples, int count,
                 struct audit *audit, struct error *error)
{
    struct engine *engine = ((struct engine_source *)source)->engine;
    *audit = (struct audit){.done = true};
    for (int i = 0; i < count; i++) {
        const struct sample *sample = &samples[i];
        if (!sample->ok || sample->tokens < 1)
            continue;
        int *ids = NULL, length = engine_encode(engine, requests[i].text, &ids, error);
        if (length < 0)
            return -1;
        struct sample copy = *sample;
        double worst = engine_audit(engine, &(struct engine_request){ids, length, requests[i].stream, 0, &copy});
        free(ids);
        audit->regret_max = engine_worse(audit->regret_max, worst);
        audit->tokens += sample->tokens;
    }
    return 0;
}

static int list_gpus(struct source *source, char (*ids)[TELEMETRY_ID_SIZE])
{
    return engine_list_gpus(((struct engine_source *)source)->engine, ids);
}

static void close_source(struct source *source)
{
    engine_close(((struct engine_source *)source)->engine);
    free(source);
}

static const struct source_class engine_source_class = {
    .kind = "engine",
    .check_request = check_request,
    .fill = fill,
    .chat_style = chat_style,
    .keep = keep,
    .describe = describe,
    .load = load,
    .run = run,
    .audit = audit,
    .list_gpus = list_gpus,
    .close = close_source,
};

struct source *engine_source_open(const struct plan *plan, const char *device, struct error *error)
{
    const struct plan_engine *from = &plan->engine;
    struct engine *engine =
        engine_open(from->target, from->drafter, from->dtype, device ? device : from->device, error);
    if (!engine)
        return NULL;
    struct engine_source *self = xcalloc(1, sizeof *self);
    self->base.class = &engine_source_class;
    self->engine = engine;
    self->sampling =
        (struct sampling){(float)plan->sampling.temperature, plan->sampling.top_k, (float)plan->sampling.top_p, 0};
    return &self->base;
}
