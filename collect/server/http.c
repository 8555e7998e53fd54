#include "collect/server/http.h"

#include "collect/base/clock.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 50, CONNECT_MS = 10000, RECEIVE_BYTES = 512 * 1024, NS_A_MS = 1000000 };
#define REPLY_SIZE_MAXIMUM ((size_t)64 << 20)

struct http {
    char *url;
    struct curl_slist *headers;
    CURLM *multi;
    struct slot *slots;
    int slot_count;
};

/* A connection's handle, and the call that it carries; NULL: none. */
struct slot {
    CURL *easy;
    struct http_call *call;
    char *url;
    char error[CURL_ERROR_SIZE];
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

static struct curl_slist *make_headers(const char *api_key)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Accept: text/event-stream, application/json, */*");
    headers = curl_slist_append(headers, "Expect:");
    if (api_key) {
        char *line = xformat("Authorization: Bearer %s", api_key);
        headers = curl_slist_append(headers, line);
        explicit_bzero(line, strlen(line));
        free(line);
    }
    return headers;
}

bool http_is_url(const char *url)
{
    CURLU *parts = curl_url();
    bool result = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK;
    curl_url_cleanup(parts);
    return result;
}

struct http *http_open(const char *url, const char *api_key, struct error *error)
{
    size_t length = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        fail(error, "\"%s\" is no URL of a server; it must begin with http:// or https://", url);
        return NULL;
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        die("libcurl does not start");
    signal(SIGPIPE, SIG_IGN);
    struct http *http = xcalloc(1, sizeof *http);
    http->url = xformat("%.*s", (int)(length - (url[length - 1] == '/')), url);
    http->headers = make_headers(api_key);
    http->multi = curl_multi_init();
    if (!http->multi)
        die("libcurl does not start");
    return http;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    for (int i = 0; i < http->slot_count; i++)
        curl_easy_cleanup(http->slots[i].easy);
    curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers);
    curl_global_cleanup();
    free(http->slots);
    free(http->url);
    free(http);
}

/* --- one call ----------------------------------------------------------------------------------------------------- */

static void note_answer(struct slot *slot)
{
    long status = 0;
    const char *type = NULL;
    curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(slot->easy, CURLINFO_CONTENT_TYPE, &type);
    slot->call->status = (int)status;
    snprintf(slot->call->content_type, sizeof slot->call->content_type, "%s", type ? type : "");
}

static size_t on_header(char *bytes, size_t size, size_t count, void *context)
{
    (void)bytes;
    struct slot *slot = context;
    slot->call->last_byte_ns = clock_now_ns();
    return size * count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct slot *slot = context;
    struct http_call *call = slot->call;
    call->last_byte_ns = clock_now_ns();
    if (!call->status)
        note_answer(slot);
    if (call->on_bytes(call, bytes, size * count, call->last_byte_ns))
        return size * count;
    call->outcome = HTTP_STOPPED;
    return CURL_WRITEFUNC_ERROR;
}

static void set_options(struct http *http, struct slot *slot)
{
    CURL *easy = slot->easy;
    struct http_call *call = slot->call;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, slot->url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, slot->error);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, slot);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, slot);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, slot);
    if (call->body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    }
}

static void begin(struct http *http, struct slot *slot, struct http_call *call)
{
    slot->call = call;
    slot->url = xformat("%s%s", http->url, call->path);
    slot->error[0] = '\0';
    call->outcome = HTTP_DONE;
    call->status = 0;
    call->content_type[0] = call->message[0] = '\0';
    set_options(http, slot);
    call->start_ns = call->last_byte_ns = clock_now_ns();
    curl_multi_add_handle(http->multi, slot->easy);
}

static void finish(struct http *http, struct slot *slot, enum http_outcome outcome, const char *message)
{
    struct http_call *call = slot->call;
    call->end_ns = clock_now_ns();
    note_answer(slot);
    if (call->outcome == HTTP_DONE)
        call->outcome = outcome;
    if (call->outcome != HTTP_DONE)
        snprintf(call->message, sizeof call->message, "%s", message);
    curl_multi_remove_handle(http->multi, slot->easy);
    free(slot->url);
    slot->url = NULL;
    slot->call = NULL;
}

/* --- many calls --------------------------------------------------------------------------------------------------- */

static void need_slots(struct http *http, int count)
{
    if (count <= http->slot_count)
        return;
    http->slots = xrealloc(http->slots, (size_t)count, sizeof *http->slots);
    for (; http->slot_count < count; http->slot_count++) {
        http->slots[http->slot_count] = (struct slot){.easy = curl_easy_init()};
        if (!http->slots[http->slot_count].easy)
            die("libcurl does not start");
    }
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)count);
}

/* One run of calls. */
struct round {
    struct http *http;
    int flying, stop;
    http_on_done *on_done;
    void *context;
};

static void end_call(struct round *round, struct slot *slot, enum http_outcome outcome, const char *message)
{
    struct http_call *call = slot->call;
    finish(round->http, slot, outcome, message);
    round->flying--;
    round->stop |= round->on_done(round->context, call) != 0;
}

static void end_those_done(struct round *round)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(round->http->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        struct slot *slot = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
        enum http_outcome outcome = code == CURLE_OK                ? HTTP_DONE
                                    : code == CURLE_COULDNT_CONNECT ? HTTP_REFUSED
                                                                    : HTTP_BROKEN;
        end_call(round, slot, outcome, slot->error[0] ? slot->error : curl_easy_strerror(code));
    }
}

static void end_those_over_limits(struct round *round)
{
    int64_t now_ns = clock_now_ns();
    char message[128];
    for (int i = 0; i < round->http->slot_count; i++) {
        struct slot *slot = &round->http->slots[i];
        struct http_call *call = slot->call;
        if (!call)
            continue;
        bool late = now_ns - call->start_ns > call->limit_ms * NS_A_MS;
        bool silent = call->silence_ms && now_ns - call->last_byte_ns > call->silence_ms * NS_A_MS;
        if (!late && !silent)
            continue;
        snprintf(message, sizeof message, late ? "no end of the answer within %.3g s" : "no byte for %.3g s",
                 (double)(late ? call->limit_ms : call->silence_ms) / 1e3);
        end_call(round, slot, late ? HTTP_LATE : HTTP_SILENT, message);
    }
}

static struct slot *find_free(struct http *http, int in_flight)
{
    for (int i = 0; i < in_flight; i++)
        if (!http->slots[i].call)
            return &http->slots[i];
    return NULL;
}

int http_run(struct http *http, struct http_call *calls, int count, int in_flight, http_on_done *on_done, void *context)
{
    struct round round = {.http = http, .on_done = on_done, .context = context};
    struct slot *slot;
    int begun = 0, running;
    need_slots(http, in_flight);
    while (round.flying || (begun < count && !round.stop)) {
        while (begun < count && !round.stop && (slot = find_free(http, in_flight))) {
            begin(http, slot, &calls[begun++]);
            round.flying++;
        }
        CURLMcode code = curl_multi_perform(http->multi, &running);
        if (code == CURLM_OK && running == round.flying)
            code = curl_multi_poll(http->multi, NULL, 0, POLL_MS, NULL);
        if (code != CURLM_OK)
            die("libcurl: %s", curl_multi_strerror(code));
        end_those_done(&round);
        end_those_over_limits(&round);
    }
    return begun;
}

/* --- one short call ----------------------------------------------------------------------------------------------- */

static bool keep_bytes(struct http_call *call, const char *bytes, size_t size, int64_t now_ns)
{
    (void)now_ns;
    struct http_reply *reply = call->context;
    if (size > REPLY_SIZE_MAXIMUM - reply->size)
        return false;
    reply->body = xrealloc(reply->body, reply->size + size + 1, 1);
    memcpy(reply->body + reply->size, bytes, size);
    reply->size += size;
    reply->body[reply->size] = '\0';
    return true;
}

static int go_on(void *context, struct http_call *call)
{
    (void)context, (void)call;
    return 0;
}

bool http_fetch(struct http *http, const char *path, const char *body, int64_t limit_ms, struct http_reply *reply)
{
    *reply = (struct http_reply){.body = xstrdup("")};
    struct http_call call = {
        .path = path, .body = body, .limit_ms = limit_ms, .on_bytes = keep_bytes, .context = reply};
    http_run(http, &call, 1, 1, go_on, NULL);
    reply->outcome = call.outcome;
    reply->status = call.status;
    memcpy(reply->content_type, call.content_type, sizeof reply->content_type);
    memcpy(reply->message, call.message, sizeof reply->message);
    return call.outcome == HTTP_DONE && call.status / 100 == 2;
}

void http_reply_free(struct http_reply *reply)
{
    free(reply->body);
    *reply = (struct http_reply){0};
}
