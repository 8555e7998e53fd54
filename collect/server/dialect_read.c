/* Events of answers. What is absent is passed over: servers of many versions are read by what they say. */
#include "collect/server/dialect_parts.h"

#include "collect/base/json.h"

#include <string.h>

static bool has_text(const json_t *value)
{
    return json_string_length(value) > 0;
}

/* --- acceptance --------------------------------------------------------------------------------------------------- */

/* The first of the keys that the object has. */
static const json_t *get_any(const json_t *object, const char *const *keys)
{
    const json_t *value = NULL;
    for (int i = 0; keys[i] && !value; i++)
        value = json_object_get(object, keys[i]);
    return value;
}

/* SGLang's numbers of one request: its meta_info, or what its OpenAI route puts into sglext. */
static void read_sglang_acceptance(const json_t *object, struct answer *answer)
{
    static const char *const histograms[] = {"spec_correct_drafts_histogram", "spec_accept_histogram", NULL};
    answer_set_count(&answer->rounds, json_object_get(object, "spec_verify_ct"));
    answer_set_histogram(answer, get_any(object, histograms));
}

/* vLLM's, with --per-request-spec-decode-metrics. */
static void read_vllm_acceptance(const json_t *object, struct answer *answer)
{
    answer_set_count(&answer->rounds, json_object_get(object, "num_spec_steps"));
    answer_set_histogram(answer, json_object_get(object, "acceptance_histogram"));
}

/* llama-server counts drafted and accepted tokens and no rounds. A round commits what it accepted and one token more;
 * the first token is in none. Without a drafter nothing is said, nor where nothing was drafted. Accepted tokens behind
 * an end token are counted, but no part of the output: how many they are follows from where the last round began, for
 * which each delivery must say its timings. Older servers count all of a round as predicted with its first delivery. At
 * its limit an output ends with a round. */
static void read_llama_timings(const json_t *timings, struct answer *answer)
{
    int accepted = ATTEMPT_ABSENT, predicted = ATTEMPT_ABSENT;
    answer_set_count(&accepted, json_object_get(timings, "draft_n_accepted"));
    answer_set_count(&predicted, json_object_get(timings, "predicted_n"));
    answer_set_count(&answer->cached_tokens, json_object_get(timings, "cache_n"));
    if (predicted < 0)
        return;
    const int before = answer->accepted_so_far > 0 ? answer->accepted_so_far : 0;
    if (accepted > before)
        answer->round_end = answer->predicted_so_far + accepted - before + 1;
    if (answer->finish == FINISH_ABSENT) {
        answer->accepted_so_far = accepted > 0 ? accepted : 0;
        answer->predicted_so_far = predicted;
        return;
    }
    const bool at_limit = answer->finish == FINISH_LENGTH;
    const int cut = at_limit || answer->round_end < predicted ? 0 : answer->round_end - predicted;
    if (accepted >= 0 && (at_limit || answer->accepted_so_far >= 0) && predicted - 1 - accepted + cut > 0)
        answer->rounds = predicted - 1 - accepted + cut;
}

/* --- SGLang's /generate ------------------------------------------------------------------------------------------- */

static void read_sglang_finish(const json_t *reason, struct answer *answer)
{
    const char *type = json_string_value(json_object_get(reason, "type"));
    if (!type)
        return;
    answer_finish(answer, type);
    if (answer->finish == FINISH_ABORT)
        answer_fail(answer, "INBAND_ERROR", reason);
}

/* Text is the whole so far, or what is new since, as the server was started; ids likewise. */
void dialect_read_sglang(const json_t *event, struct answer *answer)
{
    const json_t *meta = json_object_get(event, "meta_info"), *text = json_object_get(event, "text");
    const json_t *ids = json_object_get(event, "output_ids");
    const int before = answer->tokens;
    answer_set_count(&answer->tokens, json_object_get(meta, "completion_tokens"));
    answer_set_count(&answer->prompt_tokens, json_object_get(meta, "prompt_tokens"));
    answer_set_count(&answer->cached_tokens, json_object_get(meta, "cached_tokens"));
    if (json_array_size(ids) == (size_t)answer->tokens)
        answer->id_count = 0;
    answer_add_ids(answer, ids);
    bool counted = answer->tokens > 0 && answer->tokens != before;
    if ((has_text(text) && (counted || json_string_length(text) != answer->text_size)) ||
        (json_array_size(ids) && counted))
        answer_deliver(answer, answer->tokens);
    answer->text_size = json_string_length(text);
    read_sglang_acceptance(meta, answer);
    read_sglang_finish(json_object_get(meta, "finish_reason"), answer);
}

/* --- llama-server's /completion ----------------------------------------------------------------------------------- */

void dialect_read_llama(const json_t *event, struct answer *answer)
{
    const json_t *ids = json_object_get(event, "tokens");
    const char *stop = json_string_value(json_object_get(event, "stop_type"));
    answer_set_count(&answer->tokens, json_object_get(event, "tokens_predicted"));
    answer_set_count(&answer->prompt_tokens, json_object_get(event, "tokens_evaluated"));
    answer_add_ids(answer, ids);
    if (has_text(json_object_get(event, "content")) || json_array_size(ids))
        answer_deliver(answer, answer->tokens);
    if (json_is_true(json_object_get(event, "truncated"))) {
        json_t *message = json_string("the server cut the prompt or the output at its context");
        answer_fail(answer, "CONTEXT_OVERFLOW", message);
        json_decref(message);
    }
    if (json_is_true(json_object_get(event, "stop"))) {
        answer->ended = true;
        answer_finish(answer, stop ? stop : "stop");
    }
    read_llama_timings(json_object_get(event, "timings"), answer);
}

/* --- OpenAI's routes ---------------------------------------------------------------------------------------------- */

/* Any kind of text: what reasons delivers as well as what answers. */
static bool brings_text(const json_t *choice)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning", "refusal"};
    const json_t *delta = json_object_get(choice, "delta");
    bool found = has_text(json_object_get(choice, "text")) || json_array_size(json_object_get(delta, "tool_calls"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        found |= has_text(json_object_get(delta, keys[i]));
    return found;
}

/* The last that is said counts: some servers put nulls or zeros into the earlier chunks. */
static void read_usage(const json_t *usage, struct answer *answer)
{
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    answer_set_count(&answer->tokens, json_object_get(usage, "completion_tokens"));
    answer_set_count(&answer->prompt_tokens, json_object_get(usage, "prompt_tokens"));
    answer_set_count(&answer->cached_tokens, json_object_get(details, "cached_tokens"));
}

static void read_extensions(const json_t *event, struct answer *answer)
{
    const json_t *details = json_object_get(json_object_get(event, "sglext"), "spec_tokens_details");
    read_sglang_acceptance(json_is_array(details) ? json_array_get(details, 0) : details, answer);
    read_vllm_acceptance(json_object_get(json_object_get(event, "metrics"), "speculative_decoding"), answer);
    read_llama_timings(json_object_get(event, "timings"), answer);
}

void dialect_read_openai(const json_t *event, struct answer *answer)
{
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *ids = json_object_get(choice, "token_ids"), *usage = json_object_get(event, "usage");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    int so_far = ATTEMPT_ABSENT;
    answer_set_count(&so_far, json_object_get(usage, "completion_tokens"));
    read_usage(usage, answer);
    answer_add_ids(answer, ids);
    if (brings_text(choice) || json_array_size(ids))
        answer_deliver(answer, answer->id_count ? answer->id_count : so_far);
    if (finish)
        answer_finish(answer, finish);
    read_extensions(event, answer);
}
