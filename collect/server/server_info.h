/* What a server says it is: asked before an arm is measured, and kept with the attempt, secrets taken out. */
#ifndef COLLECT_SERVER_SERVER_INFO_H
#define COLLECT_SERVER_SERVER_INFO_H

#include "collect/server/dialect.h"
#include "collect/server/http.h"

#include <jansson.h>
#include <stdint.h>

struct server_info {
    char *model, *version; /* NULL: not said */
    int64_t context;       /* positions of a request; -1: not said, as in the next */
    int64_t slots;         /* requests at a time */
    int64_t cache, states; /* positions of the whole cache; states of recurrent layers */
    json_t *said;          /* the answers by route */
};

/* Asks the routes of the dialect and its metrics, and reads the log (NULL: none). What is not there, or is not JSON, is
 * left out. `secret` (NULL: none) is taken out wherever it stands. */
void server_info_ask(struct http *http, const struct dialect *dialect, const char *log, const char *secret,
                     struct server_info *info);
void server_info_free(struct server_info *info);

/* The same object without what keys or values give away. A new reference. */
json_t *server_info_redact(const json_t *value, const char *secret);

/* As attempts keep it. A new reference. */
json_t *server_info_to_json(const struct server_info *info);

#endif
