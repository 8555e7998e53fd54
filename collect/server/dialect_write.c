/* Bodies of requests. Above temperature 0 all of sampling is said, so that no server's default joins in. */
#include "collect/server/dialect_parts.h"

#include "collect/base/json.h"

#include <string.h>

#define SEED_MASK 0x7fffffff

static json_int_t seed_of(const struct request *request)
{
    return (json_int_t)(request->stream & SEED_MASK);
}

/* all_tokens: how a server is told not to cut to the likeliest. */
static void set_sampling(json_t *object, const struct request *request, const struct plan_sampling *sampling,
                         const char *seed_key, int all_tokens)
{
    json_set(object, "temperature", json_number(sampling->temperature));
    if (sampling->temperature == 0)
        return;
    json_set(object, "top_p", json_number(sampling->top_p));
    json_set(object, seed_key, json_integer(seed_of(request)));
    if (sampling->top_k || all_tokens)
        json_set(object, "top_k", json_integer(sampling->top_k ? sampling->top_k : all_tokens));
}

void dialect_write_sglang(const struct dialect *dialect, const struct request *request,
                          const struct plan_sampling *sampling, json_t *body)
{
    (void)dialect;
    json_t *parameters = json_object();
    json_set(parameters, "max_new_tokens", json_integer(request->max_new_tokens));
    json_set(parameters, "ignore_eos", json_boolean(request->ignore_eos));
    set_sampling(parameters, request, sampling, "sampling_seed", -1);
    json_set(body, "text", json_text(request->text));
    json_set(body, "sampling_params", parameters);
}

/* Where an output may stop within a round, each delivery has to say its timings; elsewhere they would only cost time.
 */
static void set_timings(json_t *body, const struct request *request)
{
    if (!request->ignore_eos)
        json_set(body, "timings_per_token", json_true());
}

/* The prompt cache is left alone: what is measured is a prompt that the server has not seen. */
void dialect_write_llama(const struct dialect *dialect, const struct request *request,
                         const struct plan_sampling *sampling, json_t *body)
{
    (void)dialect;
    json_set(body, "prompt", json_text(request->text));
    json_set(body, "n_predict", json_integer(request->max_new_tokens));
    json_set(body, "ignore_eos", json_boolean(request->ignore_eos));
    set_timings(body, request);
    set_sampling(body, request, sampling, "seed", 0);
    if (sampling->temperature > 0)
        json_set(body, "samplers", json_pack("[sss]", "top_k", "top_p", "temperature"));
}

static void write_openai(const struct dialect *dialect, const struct request *request,
                         const struct plan_sampling *sampling, json_t *body)
{
    json_set(body, "max_tokens", json_integer(request->max_new_tokens));
    if (request->ignore_eos)
        json_set(body, "ignore_eos", json_true());
    if (strcmp(dialect->name, "llama") == 0)
        set_timings(body, request);
    set_sampling(body, request, sampling, "seed", strcmp(dialect->name, "openai") == 0 ? 0 : -1);
}

void dialect_write_completions(const struct dialect *dialect, const struct request *request,
                               const struct plan_sampling *sampling, json_t *body)
{
    json_set(body, "prompt", json_text(request->text));
    write_openai(dialect, request, sampling, body);
}

void dialect_write_chat(const struct dialect *dialect, const struct request *request,
                        const struct plan_sampling *sampling, json_t *body)
{
    json_t *message = json_object(), *messages = json_array();
    json_set(message, "role", json_text("user"));
    json_set(message, "content", json_text(request->text));
    json_append(messages, message);
    json_set(body, "messages", messages);
    write_openai(dialect, request, sampling, body);
}
