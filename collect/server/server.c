#include "collect/server/server.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/interrupt.h"
#include "collect/server/answer.h"
#include "collect/server/secret.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HEALTH_LIMIT_MS = 5000,
    HEALTH_STEP_MS = 100,
    FLUSH_LIMIT_MS = 30000,
    FLUSH_TRIES = 10,
    TOKENIZE_LIMIT_MS = 30000,
    FIRST_TOKENS = 4,
    GONE_LIMIT_S = 2, /* a process that dropped a connection has so long to be seen dead */
    STATUS_UNAVAILABLE = 503,
    GPUS_LIMIT_S = 120,
};

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* --- whether it lives --------------------------------------------------------------------------------------------- */

static const char *health_path(const struct server *server)
{
    return server->dialect->health ? server->dialect->health : server->dialect->models;
}

/* "oom" are Slurm's: "Detected 1 oom_kill event in StepId=…". */
static const char *const memory_words[] = {"out of memory", "bad_alloc", "out-of-memory", "oom_kill", "oom-kill"};

/* The failure that the last words speak of. */
static int died(struct server *server, const char *how, struct error *error)
{
    char *words = launch_last_words(&server->launch);
    secret_hide(words, strlen(words), server->api_key);
    bool memory = false;
    for (size_t i = 0; i < sizeof memory_words / sizeof *memory_words; i++)
        memory |= strcasestr(words, memory_words[i]) != NULL;
    fail(error, "%s%s%s", how, words[0] ? "; last words: " : "", words);
    free(words);
    return memory ? SOURCE_OUT_OF_MEMORY : SOURCE_SERVER_DIED;
}

bool server_is_gone(struct server *server, struct error *error)
{
    char how[PROCESS_HOW_SIZE];
    struct http_reply reply;
    if (server->launch.process.group && process_wait(&server->launch.process, GONE_LIMIT_S, how)) {
        died(server, how, error);
        return true;
    }
    http_fetch(server->http, health_path(server), NULL, HEALTH_LIMIT_MS, &reply);
    bool gone = reply.outcome == HTTP_REFUSED;
    if (gone)
        died(server, reply.message, error);
    http_reply_free(&reply);
    return gone;
}

/* --- getting ready ------------------------------------------------------------------------------------------------ */

enum readiness { NOT_YET, READY, SILENT };

/* A short answer: some servers are healthy before they can give one. What else is wrong with it the requests will say.
 */
static enum readiness ask_first(struct server *server)
{
    const struct plan *plan = server->plan;
    const struct request request = {.text = "Once upon a time", .max_new_tokens = FIRST_TOKENS};
    char *body = dialect_body(server->dialect, server->model, &request, &(struct plan_sampling){.top_p = 1},
                              plan->server.request);
    struct http_reply reply;
    http_fetch(server->http, server->dialect->path, body, plan->silence_limit_s * (int64_t)1000, &reply);
    enum readiness result = reply.outcome == HTTP_LATE                                         ? SILENT
                            : reply.outcome == HTTP_DONE && reply.status != STATUS_UNAVAILABLE ? READY
                                                                                               : NOT_YET;
    http_reply_free(&reply);
    free(body);
    return result;
}

static bool is_healthy(struct server *server, struct http_reply *reply)
{
    bool good = http_fetch(server->http, health_path(server), NULL, HEALTH_LIMIT_MS, reply);
    return good || (!server->dialect->health && reply->outcome == HTTP_DONE && reply->status / 100 == 4);
}

static const char *choose_model(struct server *server)
{
    return server->plan->server.model ? server->plan->server.model : server->info.model;
}

/* Nothing answered in time: with a server that others run, nothing more can be measured. */
static int never_ready(struct server *server, const struct http_reply *reply, struct error *error)
{
    char *said = reply->message[0] ? xstrdup(reply->message) : xformat("status %d", reply->status);
    char *how =
        xformat("%s: not ready within limits.start_s, %d s: %s", server->launch.url, server->plan->start_limit_s, said);
    int result = server->plan->server.launch_as_written ? died(server, how, error) : fail(error, "%s", how);
    free(said);
    free(how);
    return result;
}

static int await_ready(struct server *server, struct error *error)
{
    int64_t until_ns = clock_now_ns() + server->plan->start_limit_s * (int64_t)1000000000;
    for (;;) {
        char how[PROCESS_HOW_SIZE];
        struct http_reply reply;
        enum readiness readiness = NOT_YET;
        if (!launch_is_alive(&server->launch, how))
            return died(server, how, error);
        if (is_healthy(server, &reply)) {
            server_info_free(&server->info);
            server_info_ask(server->http, server->dialect, NULL, server->api_key, &server->info);
            server->model = choose_model(server);
            readiness = ask_first(server);
        }
        bool over = clock_now_ns() > until_ns;
        int result = over && readiness == NOT_YET ? never_ready(server, &reply, error) : 0;
        http_reply_free(&reply);
        if (readiness == SILENT) {
            fail(error, "healthy, but no answer to a first request within %d s", server->plan->silence_limit_s);
            return SOURCE_SILENT;
        }
        if (readiness == READY || over || interrupt_seen())
            return result;
        nap_ms(HEALTH_STEP_MS);
    }
}

/* What answers already would be measured in the place of what is started. */
static int check_nobody_answers(const struct server *server, struct error *error)
{
    if (!server->plan->server.launch.argv)
        return 0;
    struct http *http = http_open(server->launch.url, NULL, error);
    struct http_reply reply;
    if (!http)
        return -1;
    http_fetch(http, health_path(server), NULL, HEALTH_LIMIT_MS, &reply);
    int result = reply.outcome == HTTP_REFUSED
                     ? 0
                     : fail(error, "%s: something is there already; stop it, or let \"url\" end in :0 for a free port",
                            server->launch.url);
    http_reply_free(&reply);
    http_close(http);
    return result;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

/* A command that fails may fail for this arm alone; a program that cannot be run is the plan's mistake. */
static int start(struct server *server, struct error *error)
{
    if (check_nobody_answers(server, error))
        return -1;
    if (server->gpus && gpus_await(server->gpus, GPUS_LIMIT_S, error))
        return SOURCE_OUT_OF_MEMORY;
    int result = launch_start(&server->launch, error);
    return result && server->plan->server.launch.start ? SOURCE_SERVER_DIED : result;
}

int server_begin(struct server *server, const struct arm *arm, const char *log, struct error *error)
{
    server_end(server);
    server->arm = *arm;
    launch_init(&server->launch, &server->plan->server, arm, log);
    int result = start(server, error);
    if (result)
        return result;
    server->http = http_open(server->launch.url, server->api_key, error);
    if (!server->http)
        return -1;
    result = await_ready(server, error);
    if (!result) {
        server_info_free(&server->info);
        server_info_ask(server->http, server->dialect, server->launch.log, server->api_key, &server->info);
        server->model = choose_model(server);
    }
    return result;
}

void server_end(struct server *server)
{
    launch_free(&server->launch, server->api_key);
    http_close(server->http);
    server_info_free(&server->info);
    server->http = NULL;
    server->model = NULL;
}

/* --- what is asked of it ------------------------------------------------------------------------------------------ */

/* Refused while anything still runs; so it is asked again. */
int server_flush(struct server *server)
{
    bool done = false;
    if (!server->dialect->flush)
        return ATTEMPT_ABSENT;
    for (int i = 0; i < FLUSH_TRIES && !done; i++) {
        struct http_reply reply;
        done = http_fetch(server->http, server->dialect->flush, "", FLUSH_LIMIT_MS, &reply);
        bool again = reply.outcome == HTTP_DONE && reply.status == 400;
        http_reply_free(&reply);
        if (!again)
            break;
        nap_ms(HEALTH_STEP_MS);
    }
    return done;
}

int server_count_tokens(struct server *server, const char *text)
{
    int count = ATTEMPT_ABSENT;
    struct http_reply reply;
    if (!server->dialect->tokenize)
        return count;
    json_t *body = json_object();
    if (server->model)
        json_set(body, "model", json_text(server->model));
    json_set(body, server->dialect->tokenize_text, json_text(text));
    char *dump = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (http_fetch(server->http, server->dialect->tokenize, dump, TOKENIZE_LIMIT_MS, &reply)) {
        json_t *value = json_loadb(reply.body, reply.size, 0, NULL);
        const json_t *tokens = json_object_get(value, "tokens");
        answer_set_count(&count, json_object_get(value, "count"));
        if (count < 0 && json_is_array(tokens))
            count = (int)json_array_size(tokens);
        json_decref(value);
    }
    http_reply_free(&reply);
    free(dump);
    return count;
}
