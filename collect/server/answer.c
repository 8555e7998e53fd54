#include "collect/server/answer.h"

#include "collect/base/json.h"
#include "collect/record/sample.h"
#include "collect/server/dialect.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ROUNDS_MAXIMUM = 1 << 24 };

void answer_init(struct answer *answer, const struct dialect *dialect)
{
    *answer = (struct answer){.dialect = dialect,
                              .first_ns = ATTEMPT_ABSENT,
                              .last_ns = ATTEMPT_ABSENT,
                              .first_tokens = ATTEMPT_ABSENT,
                              .prompt_tokens = ATTEMPT_ABSENT,
                              .cached_tokens = ATTEMPT_ABSENT,
                              .tokens = ATTEMPT_ABSENT,
                              .rounds = ATTEMPT_ABSENT,
                              .accepted_so_far = ATTEMPT_ABSENT,
                              .predicted_so_far = 1};
}

void answer_free(struct answer *answer)
{
    event_stream_free(&answer->stream);
    free(answer->delivery_ns);
    free(answer->ids);
    free(answer->accepted);
    free(answer->error_code);
    free(answer->error_message);
    *answer = (struct answer){0};
}

/* --- for dialects ------------------------------------------------------------------------------------------------- */

void answer_set_count(int *count, const json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && number <= SAMPLE_TOKENS_MAXIMUM)
        *count = (int)number;
}

void answer_deliver(struct answer *answer, int tokens)
{
    if (answer->deliveries == answer->delivery_capacity) {
        answer->delivery_capacity = answer->delivery_capacity ? 2 * answer->delivery_capacity : 64;
        answer->delivery_ns =
            xrealloc(answer->delivery_ns, (size_t)answer->delivery_capacity, sizeof *answer->delivery_ns);
    }
    answer->delivery_ns[answer->deliveries++] = answer->now_ns;
    if (answer->deliveries == 1) {
        answer->first_ns = answer->now_ns;
        answer->first_tokens = tokens;
    }
    answer->last_ns = answer->now_ns;
}

static const struct {
    const char *word;
    enum finish finish;
} finish_words[] = {
    {"length", FINISH_LENGTH}, {"limit", FINISH_LENGTH},    {"max_tokens", FINISH_LENGTH},
    {"abort", FINISH_ABORT},   {"cancelled", FINISH_ABORT}, {"error", FINISH_ABORT},
};

void answer_finish(struct answer *answer, const char *word)
{
    answer->finish = FINISH_STOP;
    for (size_t i = 0; i < sizeof finish_words / sizeof *finish_words; i++)
        if (strcmp(word, finish_words[i].word) == 0)
            answer->finish = finish_words[i].finish;
    if (answer->deliveries)
        answer->last_ns = answer->now_ns;
}

void answer_add_ids(struct answer *answer, const json_t *ids)
{
    size_t count = json_array_size(ids);
    if (answer->id_count + count > SAMPLE_TOKENS_MAXIMUM)
        return;
    if (answer->id_count + (int)count > answer->id_capacity) {
        answer->id_capacity = 2 * (answer->id_count + (int)count);
        answer->ids = xrealloc(answer->ids, (size_t)answer->id_capacity, sizeof *answer->ids);
    }
    for (size_t i = 0; i < count; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        answer->ids[answer->id_count++] = id >= 0 && id <= INT32_MAX ? (int)id : 0;
    }
}

void answer_set_histogram(struct answer *answer, const json_t *histogram)
{
    json_int_t total = 0;
    size_t size = json_array_size(histogram);
    if (size > SAMPLE_ACCEPTED_MAXIMUM)
        return;
    for (size_t n = 0; n < size; n++) {
        json_int_t rounds = json_integer_value(json_array_get(histogram, n));
        if (rounds < 0 || rounds > ROUNDS_MAXIMUM || (total += rounds) > ROUNDS_MAXIMUM)
            return;
    }
    if (!total)
        return;
    free(answer->accepted);
    answer->accepted = xcalloc((size_t)total, sizeof *answer->accepted);
    answer->accepted_count = 0;
    for (size_t n = 0; n < size; n++)
        for (json_int_t i = json_integer_value(json_array_get(histogram, n)); i > 0; i--)
            answer->accepted[answer->accepted_count++] = (int)n + 1;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* What servers say, as the rule that it breaks. */
static const char *const known_messages[][2] = {
    {"context length", "CONTEXT_OVERFLOW"},
    {"context size", "CONTEXT_OVERFLOW"},
    {"maximum allowed length", "CONTEXT_OVERFLOW"},
    {"out of memory", "OUT_OF_MEMORY"},
    {"bad_alloc", "OUT_OF_MEMORY"},
};

static const char *find_code(const char *message, const char *otherwise)
{
    for (size_t i = 0; i < sizeof known_messages / sizeof *known_messages; i++)
        if (strcasestr(message, known_messages[i][0]))
            return known_messages[i][1];
    return otherwise;
}

static void set_error(struct answer *answer, const char *code, char *message)
{
    if (!answer->error_code) {
        answer->error_code = xstrdup(find_code(message, code));
        answer->error_message = xformat("%.1000s", message);
    }
    free(message);
}

/* The text within an error as servers write it: a string, {"message"}, {"error": {"message"}}, {"detail"}; else the
 * whole of it. free() it. */
static char *find_message(const json_t *value)
{
    static const char *const keys[] = {"error", "message", "detail"};
    if (json_is_string(value))
        return xstrdup(json_string_value(value));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *inner = json_object_get(value, keys[i]);
        if (json_is_string(inner) || json_is_object(inner))
            return find_message(inner);
    }
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    return dump ? dump : xstrdup("an error without a message");
}

void answer_fail(struct answer *answer, const char *code, const json_t *message)
{
    set_error(answer, code, find_message(message));
}

/* What a page says to a person: its text without tags, blanks run together. free() it. */
static char *strip_page(const char *page)
{
    char *text = xstrdup(page), *to = text;
    bool in_tag = false, blank = true;
    for (const char *at = page; *at; at++) {
        in_tag = *at == '<' || (in_tag && *at != '>');
        bool is_blank = in_tag || *at == '>' || isspace((unsigned char)*at) || iscntrl((unsigned char)*at);
        if (!is_blank)
            *to++ = *at;
        else if (!blank)
            *to++ = ' ';
        blank = is_blank;
    }
    *to = '\0';
    return text;
}

/* What stood in a body that is no event stream. free() it. */
static char *read_head(const struct answer *answer)
{
    json_t *value = json_loadb(answer->head, answer->head_size, 0, NULL);
    char *message = value ? find_message(value) : strip_page(answer->head);
    json_decref(value);
    if (message[0])
        return message;
    free(message);
    return xstrdup("no body");
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static int on_event(void *context, const char *name, const char *data, size_t size)
{
    struct answer *answer = context;
    if (strcmp(data, "[DONE]") == 0) {
        answer->ended = true;
        return 0;
    }
    json_error_t why;
    json_t *event = json_loadb(data, size, JSON_ALLOW_NUL, &why);
    const json_t *error = json_object_get(event, "error");
    if (!event)
        set_error(answer, "FAILED_REQUEST", xformat("an event is not JSON: %s: %.200s", why.text, data));
    else if (strcmp(name, "error") == 0)
        answer_fail(answer, "INBAND_ERROR", event);
    else if (error && !json_is_null(error))
        answer_fail(answer, "INBAND_ERROR", error);
    else if (json_is_object(event))
        answer->dialect->read_event(event, answer);
    json_decref(event);
    return answer->error_code != NULL;
}

static bool is_event_stream(const struct http_call *call)
{
    return call->status == 200 && strncasecmp(call->content_type, "text/event-stream", 17) == 0;
}

bool answer_take(struct http_call *call, const char *bytes, size_t size, int64_t now_ns)
{
    struct answer *answer = call->context;
    answer->now_ns = now_ns;
    if (!is_event_stream(call)) {
        size_t room = ANSWER_HEAD_SIZE - 1 - answer->head_size, taken = size < room ? size : room;
        memcpy(answer->head + answer->head_size, bytes, taken);
        answer->head_size += taken;
        return taken == size;
    }
    enum event_stream_result result = event_stream_feed(&answer->stream, bytes, size, on_event, answer);
    if (result == EVENT_STREAM_TOO_LONG)
        set_error(answer, "FAILED_REQUEST",
                  xformat("a line of more than %zu bytes in the answer", EVENT_STREAM_SIZE_MAXIMUM));
    return result == EVENT_STREAM_OK;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static const char *const outcome_codes[] = {
    [HTTP_DONE] = "FAILED_REQUEST", [HTTP_STOPPED] = "FAILED_REQUEST", [HTTP_SILENT] = "SILENT",
    [HTTP_LATE] = "FAILED_REQUEST", [HTTP_REFUSED] = "SERVER_DIED",    [HTTP_BROKEN] = "FAILED_REQUEST",
};

/* Finds what is wrong where no event said so. */
static void judge(struct answer *answer, const struct http_call *call)
{
    if (call->status && call->status / 100 != 2) {
        char *said = read_head(answer);
        set_error(answer, "FAILED_REQUEST",
                  call->status / 100 == 3 ? xformat("status %d: redirects are not followed; write the server's own "
                                                    "URL into the plan",
                                                    call->status)
                                          : xformat("status %d: %s", call->status, said));
        free(said);
    } else if (call->outcome != HTTP_DONE && call->outcome != HTTP_STOPPED)
        set_error(answer, outcome_codes[call->outcome],
                  xformat("%s%s", call->message, answer->deliveries ? ", after a part of the answer" : ""));
    else if (!is_event_stream(call)) {
        char *said = read_head(answer);
        json_t *value = json_loadb(answer->head, answer->head_size, 0, NULL);
        set_error(answer, json_object_get(value, "error") ? "INBAND_ERROR" : "FAILED_REQUEST",
                  xformat("no event stream, but \"%s\": %.300s", call->content_type, said));
        json_decref(value);
        free(said);
    } else if (answer->finish == FINISH_ABORT)
        set_error(answer, "INBAND_ERROR", xstrdup("the server aborted the request"));
    else if (!answer->ended && answer->finish == FINISH_ABSENT && answer->deliveries)
        set_error(answer, "FAILED_REQUEST", xstrdup("the stream ended before the answer did"));
}

/* Counts of one request that can stand beside each other. */
static void set_counts(struct answer *answer, struct sample *sample)
{
    sample->prompt_tokens = answer->prompt_tokens;
    sample->cached_tokens = answer->cached_tokens;
    sample->tokens = answer->tokens;
    sample->finish = answer->finish;
    sample->rounds = answer->accepted ? answer->accepted_count : answer->rounds;
    sample->accepted = answer->accepted;
    answer->accepted = NULL;
    if (answer->ids && answer->id_count == answer->tokens) {
        sample->token_ids = answer->ids;
        answer->ids = NULL;
    }
}

/* When each delivery came, from the request's start. */
static void set_deliveries(struct answer *answer, int64_t start_ns, struct sample *sample)
{
    for (int i = 0; i < answer->deliveries; i++)
        answer->delivery_ns[i] -= start_ns;
    sample->chunks = answer->deliveries;
    sample->chunk_ns = answer->delivery_ns;
    answer->delivery_ns = NULL;
}

void answer_to_sample(struct answer *answer, const struct http_call *call, int64_t origin_ns, struct sample *sample)
{
    if (is_event_stream(call) && call->outcome == HTTP_DONE && !answer->error_code)
        event_stream_finish(&answer->stream, on_event, answer);
    judge(answer, call);
    sample->start_ns = call->start_ns - origin_ns;
    sample->end_ns = call->end_ns - origin_ns;
    sample->ok = !answer->error_code;
    if (!sample->ok) {
        sample->error_code = answer->error_code;
        sample->error_message = answer->error_message;
        sample->error_http_status = call->status ? call->status : ATTEMPT_ABSENT;
        answer->error_code = answer->error_message = NULL;
        return;
    }
    set_counts(answer, sample);
    sample->first_tokens = !answer->deliveries        ? 0
                           : answer->first_tokens > 0 ? answer->first_tokens
                                                      : DIALECT_FIRST_TOKENS_ASSUMED;
    if (answer->deliveries) {
        sample->ttft_ns = answer->first_ns - call->start_ns;
        sample->decode_ns = answer->last_ns - answer->first_ns;
        set_deliveries(answer, call->start_ns, sample);
    }
}
