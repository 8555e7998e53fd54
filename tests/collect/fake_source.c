#include "tests/collect/fake_source.h"

#include "collect/base/json.h"
#include "collect/base/name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NS_A_TOKEN = 1000000 };

static struct fake_source *fake(struct source *source)
{
    return (struct fake_source *)source;
}

static int check_request(struct source *source, const struct request *request, struct error *error)
{
    int tokens = (int)strlen(request->text);
    if (tokens + request->max_new_tokens > fake(source)->context)
        return fail(error, "prompt \"%s\": %d prompt tokens and %d new ones are more than %d", request->prompt_id,
                    tokens, request->max_new_tokens, fake(source)->context);
    return tokens;
}

/* A byte is a token here too. */
static char *fill(struct source *source, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error)
{
    (void)source;
    size_t length = strlen(text), room = (size_t)tokens - length;
    if (length > (size_t)tokens || room > strlen(corpus)) {
        fail(error, "%zu tokens and %zu of filler do not make %d", length, strlen(corpus), tokens);
        return NULL;
    }
    return xformat("%.*s%s%s", (int)at, text, corpus + strlen(corpus) - room, text + at);
}

static json_t *describe(struct source *source, const struct arm *arm)
{
    json_t *description = json_object();
    json_set(description, "kind", json_string("engine"));
    json_set(description, "dtype", json_string("float32"));
    json_set(description, "target", json_pack("{s:s}", "sha256", fake(source)->weights));
    if (arm && fake(source)->on_arm)
        json_set(description, "launch", json_string(fake(source)->on_arm(fake(source), arm)));
    if (arm && arm->method != METHOD_AUTO)
        json_set(description, "drafter", json_pack("{s:i}", "block_size", 16));
    return description;
}

static int load(struct source *source, const struct arm *arm, const char *log, json_t **memory, struct error *error)
{
    (void)log;
    (void)error;
    struct fake_source *self = fake(source);
    self->loads++;
    if (self->on_arm)
        self->on_arm(self, arm);
    self->bad = arm->method == METHOD_DDTREE && arm->budget == self->bad_budget && self->bad_attempts > 0;
    self->bad_attempts -= self->bad;
    *memory = json_pack("{s:i}", "weights_bytes", 1);
    return 0;
}

static void answer(struct fake_source *self, const struct request *request, struct sample *sample)
{
    int tokens = self->bad ? request->max_new_tokens / 2 : request->max_new_tokens;
    sample_init(sample);
    sample->workload = name_keep(request->workload);
    sample->prompt = name_keep(request->prompt_id);
    sample->warmup = request->warmup;
    sample->asked_tokens = request->max_new_tokens;
    sample->asked_ignore_eos = request->ignore_eos;
    static int64_t answers; /* of any fake in the process: equal times would make attempts copies */
    sample->start_ns = ++answers * NS_A_TOKEN * 100 + getpid();
    const bool overflows = self->overflowing && strcmp(self->overflowing, request->workload) == 0;
    if (overflows || (self->bad && self->bad_error_code)) {
        sample->error_code = xstrdup(overflows ? "CONTEXT_OVERFLOW" : self->bad_error_code);
        sample->error_message = xstrdup("as asked");
        return;
    }
    sample->ok = true;
    sample->prompt_tokens = (int)strlen(request->text);
    sample->tokens = tokens;
    sample->first_tokens = 1;
    sample->finish = FINISH_LENGTH;
    sample->rounds = tokens - 1;
    sample->ttft_ns = NS_A_TOKEN;
    sample->decode_ns = (int64_t)(tokens - 1) * NS_A_TOKEN;
    sample->end_ns = sample->start_ns + (int64_t)tokens * NS_A_TOKEN;
    sample->token_ids = xcalloc((size_t)tokens, sizeof(int));
    sample->margins = xcalloc((size_t)tokens, sizeof(float));
    sample->accepted = xcalloc((size_t)tokens, sizeof(int));
    for (int i = 0; i < tokens; i++) {
        sample->token_ids[i] = i * i + i;
        sample->margins[i] = 1;
        sample->accepted[i] = 1;
    }
}

static int run(struct source *source, const struct request *requests, int count, int in_flight,
               source_on_sample *on_sample, void *context, struct error *error)
{
    (void)in_flight;
    struct fake_source *self = fake(source);
    if (self->dies) {
        fail(error, "exit by signal 4; its log ends: CUDA error: an illegal instruction was encountered");
        return SOURCE_SERVER_DIED;
    }
    for (int i = 0; i < count; i++) {
        struct sample sample;
        self->requests++;
        if (self->on_request)
            self->on_request(self);
        answer(self, &requests[i], &sample);
        if (on_sample(context, &sample))
            break;
    }
    return 0;
}

static int audit(struct source *source, const struct request *requests, const struct sample *samples, int count,
                 struct audit *result, struct error *error)
{
    (void)source, (void)error;
    *result = (struct audit){.done = true};
    for (int i = 0; i < count; i++) {
        if (!samples[i].ok || samples[i].warmup || strcmp(samples[i].prompt, requests[i].prompt_id) != 0)
            die("the audit is about other requests");
        result->tokens += samples[i].tokens;
    }
    return 0;
}

static int list_gpus(struct source *source, char (*ids)[TELEMETRY_ID_SIZE])
{
    const char *gpu = fake(source)->gpu;
    snprintf(ids[0], sizeof ids[0], "%s", gpu ? gpu : "");
    return gpu ? 1 : 0;
}

static int observe(struct source *source, struct observed *observed, struct error *error)
{
    (void)error;
    if (fake(source)->cache_slots_needed) {
        observed->cache_slots = fake(source)->cache_slots;
        observed->cache_slots_needed = fake(source)->cache_slots_needed;
    }
    return 0;
}

static void do_close(struct source *source)
{
    (void)source;
}

void fake_source_init(struct fake_source *source)
{
    static const struct source_class class = {.kind = "fake",
                                              .check_request = check_request,
                                              .fill = fill,
                                              .describe = describe,
                                              .load = load,
                                              .run = run,
                                              .audit = audit,
                                              .observe = observe,
                                              .list_gpus = list_gpus,
                                              .close = do_close};
    *source = (struct fake_source){.base = {&class}, .context = 1000, .weights = "0123"};
}
