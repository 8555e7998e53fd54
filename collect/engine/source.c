#include "collect/engine/source.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/engine/engine.h"

#include <stdlib.h>
#include <string.h>

struct engine_source {
    struct source base;
    struct engine *engine;
    int longest;       /* positions of the longest request that was checked */
    int64_t origin_ns; /* when the arm was loaded: the zero of its samples' times */
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
    if (positions > limit)
        return fail(error,
                    "workload \"%s\", prompt \"%s\": CONTEXT_OVERFLOW: %d prompt tokens and %d of output are %d, the "
                    "model's context is %d; shorten the prompt or lower max_new_tokens to %d",
                    request->workload, request->prompt_id, count, request->max_new_tokens, positions, limit,
                    limit > count ? limit - count : 0);
    self->longest = positions > self->longest ? positions : self->longest;
    return count;
}

static char *fill(struct source *source, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error)
{
    return engine_fill(((struct engine_source *)source)->engine, text, at, corpus, tokens, error);
}

static json_t *describe(struct source *source, const struct arm *arm)
{
    struct error error = {0};
    json_t *description = engine_describe(((struct engine_source *)source)->engine, arm, &error);
    if (!description)
        die("%s", error.message);
    return description;
}

static int load(struct source *source, const struct arm *arm, json_t **memory, struct error *error)
{
    struct engine_source *self = (struct engine_source *)source;
    int result = engine_load(self->engine, arm, self->longest, memory, error);
    self->origin_ns = clock_now_ns();
    return result;
}

static void run_one(struct engine_source *self, const struct request *request, struct sample *sample)
{
    struct error error = {0};
    int *ids = NULL, count = engine_encode(self->engine, request->text, &ids, &error);
    sample->workload = xstrdup(request->workload);
    sample->prompt = xstrdup(request->prompt_id);
    sample->warmup = request->warmup;
    sample->asked_tokens = request->max_new_tokens;
    sample->asked_ignore_eos = request->ignore_eos;
    if (count > 0 && count + request->max_new_tokens <= self->longest) {
        engine_run(self->engine, ids, count, sample);
        sample->start_ns -= self->origin_ns;
        sample->end_ns -= self->origin_ns;
        sample->cached_tokens = 0;
    } else {
        sample->error_code = xstrdup(count > 0 ? "CONTEXT_OVERFLOW" : "FAILED_REQUEST");
        sample->error_message =
            count > 0 ? xformat("%d prompt tokens: more than was planned for", count) : xstrdup(error.message);
    }
    free(ids);
}

static int run(struct source *source, const struct request *requests, int count, int in_flight,
               source_on_sample *on_sample, void *context, struct error *error)
{
    (void)in_flight;
    (void)error;
    for (int i = 0; i < count; i++) {
        struct sample sample;
        sample_init(&sample);
        run_one((struct engine_source *)source, &requests[i], &sample);
        if (on_sample(context, &sample))
            break;
    }
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
        double worst = engine_audit(engine, ids, length, sample);
        free(ids);
        audit->regret_max = worst > audit->regret_max ? worst : audit->regret_max;
        audit->tokens += sample->tokens;
    }
    return 0;
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
    .describe = describe,
    .load = load,
    .run = run,
    .audit = audit,
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
    return &self->base;
}
