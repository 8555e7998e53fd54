/* The server of an arm while it is measured: started or found, ready, known, and in the end stopped. */
#ifndef COLLECT_SERVER_SERVER_H
#define COLLECT_SERVER_SERVER_H

#include "collect/server/gpus.h"
#include "collect/server/launch.h"
#include "collect/server/server_info.h"
#include "collect/source.h"

struct server {
    const struct plan *plan;       /* borrowed */
    const struct dialect *dialect; /* the plan's */
    char *api_key;                 /* NULL: none */
    const struct gpus *gpus;       /* of this host; borrowed. NULL: none, or others start the server */
    struct arm arm;
    struct launch launch;
    struct http *http;
    struct server_info info;
    const char *model; /* what requests name; NULL: nothing */
};

/* Starts the arm's server where the plan says how, waits until it is healthy and has answered something, and asks what
 * it is. 0, -1 (nothing more can be measured) or a source_failure with the log's last words. */
int server_begin(struct server *server, const struct arm *arm, const char *log, struct error *error);

/* Whether it is gone: its process has ended, or nothing accepts connections any more. Then `error` says how, with the
 * log's last words. */
bool server_is_gone(struct server *server, struct error *error);

/* Empties the prefix cache: 1 done, 0 refused, -1 where there is none that could be. */
int server_flush(struct server *server);

/* Tokens of the text as the server counts them; -1 where it does not say. */
int server_count_tokens(struct server *server, const char *text);

/* Stops what was started. server_begin() may be called again. */
void server_end(struct server *server);

#endif
