/* HTTP to one server, by libcurl's multi interface: a few calls, so many at a time, each under limits of its own, with
 * the times at which its bytes came. Redirects are not followed, proxies not used, certificates checked. */
#ifndef COLLECT_SERVER_HTTP_H
#define COLLECT_SERVER_HTTP_H

#include "collect/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;

/* Whether there can be anything at that address. */
bool http_is_url(const char *url);

/* `url`: "http://127.0.0.1:30000", with a path before all paths where it has one. `api_key` (NULL: none) is sent as a
 * bearer token, and kept in memory only. */
struct http *http_open(const char *url, const char *api_key, struct error *error);
void http_close(struct http *http);

enum http_outcome {
    HTTP_DONE,    /* an answer came, whole, whatever its status */
    HTTP_STOPPED, /* by on_bytes */
    HTTP_SILENT,  /* no byte for silence_ms */
    HTTP_LATE,    /* longer than limit_ms */
    HTTP_REFUSED, /* nothing accepts connections there */
    HTTP_BROKEN,  /* anything else: cut off, TLS, no HTTP */
};

struct http_call;

/* Bytes of the body, and when they came. Answers false to end the call. */
typedef bool http_on_bytes(struct http_call *call, const char *bytes, size_t size, int64_t now_ns);

struct http_call {
    /* the caller's, borrowed */
    const char *path;
    const char *body;   /* JSON to POST; NULL: GET */
    int64_t limit_ms;   /* from start to end */
    int64_t silence_ms; /* without a byte; 0: no limit */
    http_on_bytes *on_bytes;
    void *context;

    /* answered */
    enum http_outcome outcome;
    int status;            /* 0: none came */
    char content_type[96]; /* "" where there is none */
    char message[256];     /* what went wrong, where outcome is not HTTP_DONE */
    int64_t start_ns, end_ns;
    int64_t last_byte_ns; /* http.c's own */
};

/* Called as each call ends. Answers non-zero to begin no more: those under way are finished. */
typedef int http_on_done(void *context, struct http_call *call);

/* Runs the calls in their order, `in_flight` at a time. Answers how many were begun. */
int http_run(struct http *http, struct http_call *calls, int count, int in_flight, http_on_done *on_done,
             void *context);

/* One short call with its whole body. */
struct http_reply {
    enum http_outcome outcome;
    int status;
    char content_type[96];
    char message[256];
    char *body; /* "" where there is none; free it by http_reply_free() */
    size_t size;
};

/* `body` as in http_call. Answers true where a status of 200 to 299 came. */
bool http_fetch(struct http *http, const char *path, const char *body, int64_t limit_ms, struct http_reply *reply);
void http_reply_free(struct http_reply *reply);

#endif
