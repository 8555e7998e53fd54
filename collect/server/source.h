/* A server over HTTP as something that a campaign measures. */
#ifndef COLLECT_SERVER_SOURCE_H
#define COLLECT_SERVER_SOURCE_H

#include "collect/source.h"

/* Checks what can be checked without a server, and starts none: that the environment holds the plan's API key. */
struct source *server_source_open(const struct plan *plan, struct error *error);

#endif
