/* How servers are spoken to: one table. A row has the routes of a server and what it calls things; two functions write
 * the body of a request and read the events of its answer. */
#ifndef COLLECT_SERVER_DIALECT_H
#define COLLECT_SERVER_DIALECT_H

#include "collect/server/answer.h"
#include "collect/source.h"

/* Every server known samples one token behind its prefill; where none says what its first delivery held. */
#define DIALECT_FIRST_TOKENS_ASSUMED 1

#define DIALECT_INFO_MAXIMUM 4
#define DIALECT_PLACES 3

/* Where a number stands: "data.0.max_model_len" in the answer of a route; "states.*.slots": summed over all. */
struct dialect_number {
    const char *route, *path;
};

/* Counters of /metrics, without "_total"; NULL where there is none. */
struct dialect_counters {
    const char *rounds, *drafted, *accepted; /* accepted: drafted tokens that were */
    const char *generated;                   /* tokens, first ones included */
    const char *cached;                      /* of prompts, tokens that came from the prefix cache */
    const char *running, *waiting;           /* requests, now */
};

struct dialect {
    const char *name;  /* "sglang" */
    const char *route; /* "native", "completions", "chat" */
    const char *path;  /* of the requests */
    void (*write_body)(const struct dialect *dialect, const struct request *request,
                       const struct plan_sampling *sampling, json_t *body);
    void (*read_event)(const json_t *event, struct answer *answer);
    const char *also; /* JSON that is merged into the body; NULL: nothing */

    const char *health, *models;
    const char *info[DIALECT_INFO_MAXIMUM]; /* routes that say what the server is, for the record */
    const char *formerly;                   /* what the first of them was called; NULL: nothing else */
    const char *tokenize, *tokenize_text;   /* where prompts are counted, and the key of the text; NULL: nowhere */
    const char *flush;                      /* POST: empties the prefix cache; NULL: there is none */
    const char *metrics;

    /* In the order of preference; route NULL ends them. */
    struct dialect_number context[DIALECT_PLACES]; /* positions of a request */
    struct dialect_number slots[DIALECT_PLACES];   /* requests at once */
    struct dialect_number cache[DIALECT_PLACES];   /* positions of the whole cache */
    struct dialect_number slots_a_rank;            /* the same of each of these: */
    struct dialect_number ranks; /* that serve requests by themselves, each with a log line of its own */
    struct dialect_number version[DIALECT_PLACES];
    const char *cache_metric; /* whose labels are num_gpu_blocks and block_size; NULL: there is none */
    /* What stands before the number in the server's log; NULL: it is not said there. States: of recurrent layers. */
    const char *log_slots, *log_cache, *log_states;
    struct dialect_counters counters;
    const char *acceptance; /* what `rounds` and `accepted` are made of, for the record */
};

/* The row of that name and route; NULL where there is none. route NULL: the first of the name. */
const struct dialect *dialect_find(const char *name, const char *route);

/* The names, and how many. */
extern const char *const dialect_names[];
extern const int dialect_name_count;

/* The body of the request: the dialect's own, then `extra` of the plan (may be NULL), where null takes a key away.
 * free() it. */
char *dialect_body(const struct dialect *dialect, const char *model, const struct request *request,
                   const struct plan_sampling *sampling, const json_t *extra);

#endif
