/* Requests sent to a server, and their answers as samples. */
#ifndef COLLECT_SERVER_EXCHANGE_H
#define COLLECT_SERVER_EXCHANGE_H

#include "collect/server/server.h"

/* Sends the requests, `in_flight` at a time, and delivers their samples in order when none is under way any more. After
 * an answer that shows the server's end, or that nothing will come of the rest, no other request is sent: then the
 * source_failure, with the reason in `error`. *stop: on_sample wants no more. */
int exchange_run(struct server *server, const struct request *requests, int count, int in_flight, int64_t origin_ns,
                 source_on_sample *on_sample, void *context, bool *stop, struct error *error);

#endif
