/* What a server says in answer to one request, as it comes in: the dialect reads its events into this, and when the
 * connection has ended it becomes a sample. Tokens are counted as the server counts them, never by events. */
#ifndef COLLECT_SERVER_ANSWER_H
#define COLLECT_SERVER_ANSWER_H

#include "collect/record/attempt.h"
#include "collect/server/event_stream.h"
#include "collect/server/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct dialect;

#define ANSWER_HEAD_SIZE 4096 /* of a body that is no event stream: enough for what it has to say */

struct answer {
    const struct dialect *dialect; /* borrowed */
    struct event_stream stream;
    int64_t now_ns; /* when the bytes at hand came */

    int64_t first_ns, last_ns; /* of the deliveries; -1: none */
    int deliveries;            /* events that brought text or tokens */
    int64_t *delivery_ns;      /* when each came */
    int delivery_capacity;
    int first_tokens; /* the count as it stood at the first; -1: not said */

    int prompt_tokens, cached_tokens, tokens; /* as last said; -1: never */
    int *ids, id_count, id_capacity;
    size_t text_size; /* of text that comes as the whole so far */
    enum finish finish;
    bool ended; /* the server said that this is all */

    int rounds;                                       /* -1: not said */
    int accepted_so_far, predicted_so_far, round_end; /* llama-server: drafted tokens that were accepted (-1: never
                                                         said), and all tokens, as said with the last delivery, and all
                                                         with those of the round that last accepted any */
    int *accepted, accepted_count; /* tokens committed in each round, in no order that is known; NULL: not said */

    char *error_code, *error_message;
    char head[ANSWER_HEAD_SIZE];
    size_t head_size;
};

void answer_init(struct answer *answer, const struct dialect *dialect);
void answer_free(struct answer *answer);

/* Takes in bytes of the body; the http_on_bytes of a call whose context is the answer. */
bool answer_take(struct http_call *call, const char *bytes, size_t size, int64_t now_ns);

/* The call has ended: sets outcome, counts and times of `sample`, whose zero is origin_ns. */
void answer_to_sample(struct answer *answer, const struct http_call *call, int64_t origin_ns, struct sample *sample);

/* --- for dialects ------------------------------------------------------------------------------------------------- */

/* A count that must be a whole number from 0; anything else is passed over. */
void answer_set_count(int *count, const json_t *value);

/* Text or tokens came with this event, and in all `tokens` by now (-1: not said). */
void answer_deliver(struct answer *answer, int tokens);

/* The server said why this is all, in its own word: "stop", "length", "eos", "abort" and so on. */
void answer_finish(struct answer *answer, const char *word);

void answer_add_ids(struct answer *answer, const json_t *ids);

/* histogram[n]: rounds that accepted n drafted tokens, and so committed n + 1. */
void answer_set_histogram(struct answer *answer, const json_t *histogram);

/* The first error counts. `message` may be an object that has one. */
void answer_fail(struct answer *answer, const char *code, const json_t *message);

#endif
