#include "tests/server/loopback.h"

#include "collect/base/error.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGES_MAXIMUM = 16, STEP_MS = 5, ENDLESS_PIECE = 1 << 16, CRASH_STATUS = 3 };

struct loopback {
    const struct loopback_page *pages;
    struct MHD_Daemon *daemon;
    char *url;
    pthread_mutex_t lock;
    bool over;
    int counts[PAGES_MAXIMUM];
    char *bodies[PAGES_MAXIMUM];
    char *authorization;
    int open, most_open;
};

/* A request while its body comes in. */
struct incoming {
    char *body;
    size_t size;
};

/* An answer while it goes out. */
struct outgoing {
    struct loopback *loopback;
    const struct loopback_page *page;
    const char *body;
    size_t size, sent;
};

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static bool is_over(struct loopback *loopback)
{
    pthread_mutex_lock(&loopback->lock);
    bool over = loopback->over;
    pthread_mutex_unlock(&loopback->lock);
    return over;
}

static bool wait_ms(struct loopback *loopback, long ms)
{
    for (long waited = 0; waited < ms && !is_over(loopback); waited += STEP_MS)
        nap_ms(STEP_MS);
    return !is_over(loopback);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static ssize_t read_more(void *context, uint64_t position, char *buffer, size_t room)
{
    (void)position;
    struct outgoing *outgoing = context;
    const struct loopback_page *page = outgoing->page;
    if (outgoing->sent == outgoing->size) {
        if (page->endless && !is_over(outgoing->loopback)) {
            size_t count = room < ENDLESS_PIECE ? room : ENDLESS_PIECE;
            memset(buffer, 'x', count);
            return (ssize_t)count;
        }
        while (page->hang && wait_ms(outgoing->loopback, STEP_MS))
            ;
        return page->cut || page->hang ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    }
    while (loopback_most_open(outgoing->loopback) < page->wait_open && wait_ms(outgoing->loopback, STEP_MS))
        ;
    if (!wait_ms(outgoing->loopback, page->delay_ms))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t count = outgoing->size - outgoing->sent;
    count = page->piece && count > page->piece ? page->piece : count;
    count = count > room ? room : count;
    memcpy(buffer, outgoing->body + outgoing->sent, count);
    outgoing->sent += count;
    return (ssize_t)count;
}

/* `request` from 1. */
static const char *choose_body(const struct loopback_page *page, int request)
{
    int last = 0;
    if (!page->bodies)
        return page->body ? page->body : "";
    while (last + 1 < request && page->bodies[last + 1])
        last++;
    return page->bodies[last];
}

static enum MHD_Result answer(struct loopback *loopback, struct MHD_Connection *connection,
                              const struct loopback_page *page, int request)
{
    static const struct loopback_page missing = {.status = 404, .body = "{\"error\": \"no such path\"}"};
    struct outgoing *outgoing = xcalloc(1, sizeof *outgoing);
    page = !page ? &missing : page->first && request == 1 ? page->first : page;
    const char *body = choose_body(page, page->by ? loopback_count(loopback, page->by) : request);
    *outgoing = (struct outgoing){loopback, page, body, strlen(body), 0};
    bool whole = !page->piece && !page->delay_ms && !page->cut && !page->hang && !page->endless;
    struct MHD_Response *response = MHD_create_response_from_callback(whole ? outgoing->size : MHD_SIZE_UNKNOWN,
                                                                      ENDLESS_PIECE, read_more, outgoing, free);
    MHD_add_response_header(response, "Content-Type", page->content_type ? page->content_type : "application/json");
    if (page->location)
        MHD_add_response_header(response, "Location", page->location);
    enum MHD_Result result = MHD_queue_response(connection, page->status ? (unsigned)page->status : 200, response);
    MHD_destroy_response(response);
    return result;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static int find_page(const struct loopback *loopback, const char *path)
{
    for (int i = 0; loopback->pages[i].path; i++)
        if (strcmp(loopback->pages[i].path, path) == 0)
            return i;
    return -1;
}

/* Answers how often the page was asked for by now. */
static int note(struct loopback *loopback, struct MHD_Connection *connection, int page, struct incoming *incoming)
{
    const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    pthread_mutex_lock(&loopback->lock);
    if (page >= 0) {
        loopback->counts[page]++;
        free(loopback->bodies[page]);
        loopback->bodies[page] = incoming->body;
        incoming->body = NULL;
    }
    free(loopback->authorization);
    loopback->authorization = xstrdup(key ? key : "");
    int count = page >= 0 ? loopback->counts[page] : 0;
    pthread_mutex_unlock(&loopback->lock);
    return count;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **request)
{
    (void)method, (void)version;
    struct loopback *loopback = context;
    struct incoming *incoming = *request;
    if (!incoming) {
        *request = xcalloc(1, sizeof *incoming);
        pthread_mutex_lock(&loopback->lock);
        loopback->open++;
        loopback->most_open = loopback->open > loopback->most_open ? loopback->open : loopback->most_open;
        pthread_mutex_unlock(&loopback->lock);
        return MHD_YES;
    }
    if (*size) {
        incoming->body = xrealloc(incoming->body, incoming->size + *size + 1, 1);
        memcpy(incoming->body + incoming->size, data, *size);
        incoming->size += *size;
        incoming->body[incoming->size] = '\0';
        *size = 0;
        return MHD_YES;
    }
    int page = find_page(loopback, path);
    int count = note(loopback, connection, page, incoming);
    if (page >= 0 && loopback->pages[page].crash && (count > 1 || !loopback->pages[page].first))
        _exit(CRASH_STATUS);
    return answer(loopback, connection, page >= 0 ? &loopback->pages[page] : NULL, count);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code)
{
    (void)connection, (void)code;
    struct loopback *loopback = context;
    struct incoming *incoming = *request;
    if (!incoming)
        return;
    free(incoming->body);
    free(incoming);
    pthread_mutex_lock(&loopback->lock);
    loopback->open--;
    pthread_mutex_unlock(&loopback->lock);
}

/* --- the server --------------------------------------------------------------------------------------------------- */

struct loopback *loopback_start(const struct loopback_page *pages, int port)
{
    struct loopback *loopback = xcalloc(1, sizeof *loopback);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    loopback->pages = pages;
    pthread_mutex_init(&loopback->lock, NULL);
    loopback->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0, NULL, NULL,
                                        on_request, loopback, MHD_OPTION_SOCK_ADDR, &address,
                                        MHD_OPTION_NOTIFY_COMPLETED, on_completed, loopback, MHD_OPTION_END);
    if (!loopback->daemon)
        die("no server on 127.0.0.1");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(loopback->daemon, MHD_DAEMON_INFO_BIND_PORT);
    loopback->url = xformat("http://127.0.0.1:%d", info->port);
    return loopback;
}

void loopback_stop(struct loopback *loopback)
{
    pthread_mutex_lock(&loopback->lock);
    loopback->over = true;
    pthread_mutex_unlock(&loopback->lock);
    MHD_stop_daemon(loopback->daemon);
    pthread_mutex_destroy(&loopback->lock);
    for (int i = 0; i < PAGES_MAXIMUM; i++)
        free(loopback->bodies[i]);
    free(loopback->authorization);
    free(loopback->url);
    free(loopback);
}

const char *loopback_url(const struct loopback *loopback)
{
    return loopback->url;
}

int loopback_count(struct loopback *loopback, const char *path)
{
    int page = find_page(loopback, path);
    pthread_mutex_lock(&loopback->lock);
    int count = page < 0 ? 0 : loopback->counts[page];
    pthread_mutex_unlock(&loopback->lock);
    return count;
}

const char *loopback_body(struct loopback *loopback, const char *path)
{
    int page = find_page(loopback, path);
    return page >= 0 && loopback->bodies[page] ? loopback->bodies[page] : "";
}

const char *loopback_authorization(struct loopback *loopback)
{
    return loopback->authorization ? loopback->authorization : "";
}

int loopback_most_open(struct loopback *loopback)
{
    pthread_mutex_lock(&loopback->lock);
    int most = loopback->most_open;
    pthread_mutex_unlock(&loopback->lock);
    return most;
}
