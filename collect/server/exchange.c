#include "collect/server/exchange.h"

#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/interrupt.h"
#include "collect/server/answer.h"
#include "collect/server/secret.h"

#include <stdlib.h>
#include <string.h>

/* A request on its way. */
struct flight {
    struct answer answer;
    struct sample sample;
    char *body;
};

struct exchange {
    struct server *server;
    const struct request *requests;
    struct http_call *calls;
    struct flight *flights;
    int64_t origin_ns;
    int failure; /* a source_failure, or 0 */
    struct error *error;
};

static void prepare(struct exchange *exchange, int index)
{
    const struct server *server = exchange->server;
    const struct plan *plan = server->plan;
    const struct request *request = &exchange->requests[index];
    struct flight *flight = &exchange->flights[index];
    struct sample *sample = &flight->sample;
    answer_init(&flight->answer, server->dialect);
    sample_init(sample);
    sample->workload = name_keep(request->workload);
    sample->prompt = name_keep(request->prompt_id);
    sample->warmup = request->warmup;
    sample->asked_tokens = request->max_new_tokens;
    sample->asked_ignore_eos = request->ignore_eos;
    flight->body = dialect_body(server->dialect, server->model, request, &plan->sampling, plan->server.request);
    exchange->calls[index] = (struct http_call){.path = server->dialect->path,
                                                .body = flight->body,
                                                .limit_ms = request->limit_s * (int64_t)1000,
                                                .silence_ms = plan->silence_limit_s * (int64_t)1000,
                                                .on_bytes = answer_take,
                                                .context = &flight->answer};
}

static void set_code(struct sample *sample, const char *code, const char *message)
{
    free(sample->error_code);
    free(sample->error_message);
    sample->error_code = xstrdup(code);
    sample->error_message = xstrdup(message);
}

static bool has_code(const struct sample *sample, const char *code)
{
    return !sample->ok && strcmp(sample->error_code, code) == 0;
}

/* What a failed request says of all that would follow it. */
static void judge(struct exchange *exchange, const struct http_call *call, struct sample *sample)
{
    static const struct {
        const char *code;
        int failure;
    } failures[] = {{"SILENT", SOURCE_SILENT}, {"OUT_OF_MEMORY", SOURCE_OUT_OF_MEMORY}};
    struct error gone = {0};
    bool cut = call->outcome == HTTP_BROKEN || call->outcome == HTTP_REFUSED;
    if (!sample->ok && !exchange->failure && cut && server_is_gone(exchange->server, &gone)) {
        exchange->failure = SOURCE_SERVER_DIED;
        fail(exchange->error, "%s", gone.message);
        set_code(sample, "SERVER_DIED", gone.message);
    }
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (has_code(sample, failures[i].code) && !exchange->failure) {
            exchange->failure = failures[i].failure;
            fail(exchange->error, "%s: %s", sample->prompt, sample->error_message);
        }
}

/* Whether it has to be looked into before anything else is sent. */
static bool may_end_all(const struct http_call *call, const struct sample *sample)
{
    return call->outcome == HTTP_BROKEN || call->outcome == HTTP_REFUSED || call->outcome == HTTP_SILENT ||
           has_code(sample, "OUT_OF_MEMORY");
}

static int on_done(void *context, struct http_call *call)
{
    struct exchange *exchange = context;
    struct flight *flight = &exchange->flights[call - exchange->calls];
    answer_to_sample(&flight->answer, call, exchange->origin_ns, &flight->sample);
    if (flight->sample.error_message)
        secret_hide(flight->sample.error_message, strlen(flight->sample.error_message), exchange->server->api_key);
    return may_end_all(call, &flight->sample) || interrupt_seen();
}

static void release(struct exchange *exchange, int count)
{
    for (int i = 0; i < count; i++) {
        answer_free(&exchange->flights[i].answer);
        free(exchange->flights[i].body);
    }
    free(exchange->flights);
    free(exchange->calls);
}

int exchange_run(struct server *server, const struct request *requests, int count, int in_flight, int64_t origin_ns,
                 source_on_sample *on_sample, void *context, bool *stop, struct error *error)
{
    struct exchange exchange = {.server = server,
                                .requests = requests,
                                .calls = xcalloc((size_t)count, sizeof(struct http_call)),
                                .flights = xcalloc((size_t)count, sizeof(struct flight)),
                                .origin_ns = origin_ns,
                                .error = error};
    int begun = 0;
    for (int i = 0; i < count; i++)
        prepare(&exchange, i);
    while (begun < count && !exchange.failure && !interrupt_seen()) {
        int first = begun;
        begun += http_run(server->http, exchange.calls + begun, count - begun, in_flight, on_done, &exchange);
        for (int i = first; i < begun; i++)
            judge(&exchange, &exchange.calls[i], &exchange.flights[i].sample);
    }
    for (int i = 0; i < count; i++) {
        struct sample *sample = &exchange.flights[i].sample;
        if (i < begun && !*stop)
            *stop = on_sample(context, sample) != 0;
        else
            sample_free(sample);
    }
    release(&exchange, count);
    return exchange.failure;
}
