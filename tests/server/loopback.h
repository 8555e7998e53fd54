/* A real HTTP server on 127.0.0.1, by GNU libmicrohttpd, that answers as a script says: well, badly, slowly, or not at
 * all. */
#ifndef TESTS_SERVER_LOOPBACK_H
#define TESTS_SERVER_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>

/* What a path answers. */
struct loopback_page {
    const char *path;
    int status;               /* 0: 200 */
    const char *content_type; /* NULL: application/json */
    const char *body;         /* NULL: none */
    size_t piece;             /* bytes of a piece; 0: all at once */
    int delay_ms;             /* before each piece */
    const char *location;
    bool cut;                          /* the connection ends in the middle of the answer, behind the body */
    bool hang;                         /* after the body nothing comes, and the answer does not end */
    bool endless;                      /* after the body letters come for ever */
    bool crash;                        /* the process ends, when this is asked for */
    const struct loopback_page *first; /* NULL: none; else what the first request gets instead */
    const char *const *bodies;         /* NULL: `body`; else the n-th request gets the n-th, the last for ever (ended by
                                          NULL) */
    int wait_open;                     /* nothing is sent before so many requests were open at a time; 0: at once */
    const char *by;                    /* NULL: n counts requests for this page; else for that path */
};

struct loopback;

/* Serves `pages` (ended by one without a path; borrowed; what is not there is 404) at a free port, or at `port` where
 * that is not 0. */
struct loopback *loopback_start(const struct loopback_page *pages, int port);
void loopback_stop(struct loopback *loopback);

/* "http://127.0.0.1:40123", borrowed. */
const char *loopback_url(const struct loopback *loopback);

/* How often a path was asked for. */
int loopback_count(struct loopback *loopback, const char *path);

/* The last body that came with a request for the path, and its "Authorization"; borrowed until the next, "" where there
 * was none. */
const char *loopback_body(struct loopback *loopback, const char *path);
const char *loopback_authorization(struct loopback *loopback);

/* The most requests that were open at a time. */
int loopback_most_open(struct loopback *loopback);

#endif
