#include "collect/server/launch.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/server/http.h"
#include "collect/server/secret.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { COMMAND_LIMIT_S = 900, PORT_SIZE = 8 };
enum { PORT_FIRST = 20000, PORT_COUNT = 10000 }; /* what is free is looked for here */
#define LOG_TAIL_BYTES ((off_t)64 << 10)
#define LOG_LIMIT ((size_t)1 << 30)

/* --- placeholders ------------------------------------------------------------------------------------------------- */

/* What placeholders stand for; NULL: nothing, and the placeholder stays. */
struct values {
    char tp[16], budget[16], arm[ARM_NAME_SIZE];
    const char *method, *port, *log;
};

static struct values make_values(const struct arm *arm, const char *port, const char *log)
{
    struct values values = {.method = method_names[arm->method], .port = port, .log = log};
    snprintf(values.tp, sizeof values.tp, "%d", arm->tensor_parallel);
    snprintf(values.budget, sizeof values.budget, "%d", arm->budget);
    arm_name(arm, values.arm);
    return values;
}

/* `text` with placeholders filled. free() it. */
static char *fill(const char *text, const struct values *values)
{
    const struct {
        const char *name, *value;
    } all[] = {{"{tp}", values->tp},   {"{method}", values->method}, {"{budget}", values->budget},
               {"{arm}", values->arm}, {"{port}", values->port},     {"{log}", values->log}};
    char *filled = xstrdup("");
    for (const char *at = text; *at;) {
        const char *value = NULL;
        size_t length = 1;
        for (size_t i = 0; !value && i < sizeof all / sizeof *all; i++)
            if (all[i].value && strncmp(at, all[i].name, strlen(all[i].name)) == 0) {
                value = all[i].value;
                length = strlen(all[i].name);
            }
        char *longer = value ? xformat("%s%s", filled, value) : xformat("%s%c", filled, *at);
        free(filled);
        filled = longer;
        at += length;
    }
    return filled;
}

/* A list of strings, and what follows it for the arm. */
static void append_filled(json_t *to, const json_t *strings, const struct values *values)
{
    for (size_t i = 0; i < json_array_size(strings); i++) {
        char *text = fill(json_string_value(json_array_get(strings, i)), values);
        json_append(to, json_text(text));
        free(text);
    }
}

static json_t *make_argv(const struct plan_server *server, const struct arm *arm, const struct values *values)
{
    const struct plan_launch *launch = &server->launch;
    json_t *argv = json_array();
    append_filled(argv, launch->argv ? launch->argv : launch->start, values);
    append_filled(argv, launch->methods[arm->method], values);
    return argv;
}

json_t *launch_describe(const struct plan_server *server, const struct arm *arm)
{
    const struct plan_launch *launch = &server->launch;
    if (!arm)
        return json_deep_copy(launch->argv ? launch->argv : launch->start);
    const struct values values = make_values(arm, NULL, NULL);
    return make_argv(server, arm, &values);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* Where the port stands in a URL: behind the colon; NULL where there is none. */
static char *find_port(char *url)
{
    char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "/"), *colon = NULL;
    for (char *at = host; at < end; at++)
        if (*at == ':' && at[1] >= '0' && at[1] <= '9')
            colon = at;
        else if (*at == ']')
            colon = NULL;
    return colon ? colon + 1 : NULL;
}

static bool has_budget(const json_t *strings)
{
    for (size_t i = 0; i < json_array_size(strings); i++)
        if (strstr(json_string_value(json_array_get(strings, i)), "{budget}"))
            return true;
    return false;
}

/* What would only be told by a server that never answers. */
static int check_url(const struct plan_server *server, const struct arm *arm, const char *where, struct error *error)
{
    const struct values values = make_values(arm, NULL, NULL);
    char *url = fill(server->url[arm->method], &values), *port = find_port(url);
    int result = 0;
    if (port && strtol(port, NULL, 10) == 0) {
        if (!server->launch.argv && !server->launch.start)
            result = fail(error,
                          "%s: source: port 0 of \"url\" is a free one for a server that is launched, and none is; "
                          "write the port of the one that is running",
                          where);
        *port = '1';
    }
    if (!result && !http_is_url(url))
        result = fail(error,
                      "%s: source: \"url\" is \"%s\", which is no address of a server; write one such as "
                      "http://127.0.0.1:8000",
                      where, server->url[arm->method]);
    free(url);
    return result;
}

int launch_check(const struct plan_server *server, const struct arm *arm, const char *where, struct error *error)
{
    const struct plan_launch *launch = &server->launch;
    char name[ARM_NAME_SIZE];
    arm_name(arm, name);
    if (!server->url[arm->method])
        return fail(error, "%s: source: \"url\" has none for method \"%s\"", where, method_names[arm->method]);
    bool asks = strstr(server->url[arm->method], "{budget}") || has_budget(launch->argv) || has_budget(launch->start) ||
                has_budget(launch->methods[arm->method]);
    if (asks && !method_has_budget(arm->method))
        return fail(error, "%s: source: {budget} stands where %s has none; move it to \"ddtree\", or write {arm}",
                    where, name);
    return check_url(server, arm, where, error);
}

static bool is_free(int port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool result = descriptor >= 0 && bind(descriptor, (const struct sockaddr *)&address, sizeof address) == 0;
    if (descriptor >= 0)
        close(descriptor);
    return result;
}

/* Until its server takes the port, a collector has it by a socket of its name, which goes when another is chosen (a
 * collector has one server at a time) or the collector ends. */
static bool reserve(int port)
{
    static int reserved = -1;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "cleanslate-port-%d", port);
    const size_t size = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && bind(descriptor, (const struct sockaddr *)&name, (socklen_t)size)) {
        close(descriptor);
        return false;
    }
    if (reserved >= 0)
        close(reserved);
    reserved = descriptor;
    return descriptor >= 0;
}

/* None of those that the system gives away, nor one that another collector has chosen. */
static int find_free_port(void)
{
    static int next;
    for (int i = 0; i < PORT_COUNT; i++) {
        const int port = PORT_FIRST + next++ % PORT_COUNT;
        if (reserve(port) && is_free(port))
            return port;
    }
    die("no free port from %d to %d", PORT_FIRST, PORT_FIRST + PORT_COUNT - 1);
}

char *launch_url(const struct plan_server *server, const struct arm *arm)
{
    const struct values values = make_values(arm, NULL, NULL);
    char *url = fill(server->url[arm->method], &values), *port = find_port(url);
    if (!port || strtol(port, NULL, 10) != 0)
        return url;
    char *free_one = xformat("%.*s%d%s", (int)(port - url), url, find_free_port(), port + strspn(port, "0123456789"));
    free(url);
    return free_one;
}

static void read_port(char *url, char port[PORT_SIZE])
{
    const char *at = find_port(url);
    snprintf(port, PORT_SIZE, "%ld", at ? strtol(at, NULL, 10) : strncmp(url, "https", 5) == 0 ? 443 : 80);
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* A JSON array of strings for execvp(); the strings are borrowed. free() it. */
static char **to_argv(const json_t *array)
{
    size_t count = json_array_size(array);
    char **argv = xcalloc(count + 1, sizeof *argv);
    for (size_t i = 0; i < count; i++)
        argv[i] = (char *)json_string_value(json_array_get(array, i));
    return argv;
}

/* "NAME=value" with placeholders filled, ended by NULL; free_env() it. */
static char **make_env(const json_t *env, const struct values *values)
{
    char **all = xcalloc(json_object_size(env) + 1, sizeof *all);
    int count = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)env, key, value)
    {
        char *filled = fill(json_string_value(value), values);
        all[count++] = xformat("%s=%s", key, filled);
        free(filled);
    }
    return all;
}

static void free_env(char **env)
{
    for (int i = 0; env[i]; i++)
        free(env[i]);
    free(env);
}

static int start_process(struct launch *launch, const json_t *argv, struct process *process, struct error *error)
{
    char port[PORT_SIZE];
    read_port(launch->url, port);
    const struct values values = make_values(&launch->arm, port, launch->log);
    char **list = to_argv(argv), **env = make_env(launch->server->launch.env, &values);
    int result = process_start(process, list, env, launch->log, error);
    free(list);
    free_env(env);
    return result;
}

/* A command that is to end well. */
static int run_command(struct launch *launch, const json_t *argv, struct error *error)
{
    struct process process;
    char how[PROCESS_HOW_SIZE];
    if (start_process(launch, argv, &process, error))
        return -1;
    bool ended = process_wait(&process, COMMAND_LIMIT_S, how), well = ended && process_succeeded(&process);
    process_stop(&process, launch->server->launch.stop_s);
    if (well)
        return 0;
    char *words = launch_last_words(launch);
    fail(error, "%s: %s; its last words: %s", json_string_value(json_array_get(argv, 0)),
         ended ? how : "did not end within 900 s", words);
    free(words);
    return -1;
}

static int make_log(const char *log, struct error *error)
{
    char *folder = xstrdup(log), *slash = strrchr(folder, '/');
    int result = 0;
    if (slash) {
        *slash = '\0';
        result = file_make_folder(folder, error);
    }
    free(folder);
    return result || file_remove(log, error) ? -1 : 0;
}

/* {log} may be given to what runs in another folder. */
static char *make_absolute(const char *path)
{
    char *here = path[0] == '/' ? NULL : get_current_dir_name();
    char *absolute = here ? xformat("%s/%s", here, path) : xstrdup(path);
    free(here);
    return absolute;
}

void launch_init(struct launch *launch, const struct plan_server *server, const struct arm *arm, const char *log)
{
    *launch = (struct launch){
        .server = server, .arm = *arm, .url = launch_url(server, arm), .log = log ? make_absolute(log) : NULL};
}

int launch_start(struct launch *launch, struct error *error)
{
    const struct plan_server *server = launch->server;
    char port[PORT_SIZE];
    if (!server->launch_as_written)
        return 0;
    if (launch->log && make_log(launch->log, error))
        return -1;
    read_port(launch->url, port);
    const struct values values = make_values(&launch->arm, port, launch->log);
    json_t *argv = make_argv(server, &launch->arm, &values);
    int result =
        server->launch.argv ? start_process(launch, argv, &launch->process, error) : run_command(launch, argv, error);
    launch->started = result == 0;
    json_decref(argv);
    return result;
}

bool launch_is_alive(struct launch *launch, char how[PROCESS_HOW_SIZE])
{
    return !launch->process.group || process_is_alive(&launch->process, how);
}

/* --- ending ------------------------------------------------------------------------------------------------------- */

/* Servers print their arguments, and with them what a shell put there. */
static void clean_log(const char *log, const char *secret)
{
    struct error ignored = {0};
    size_t size;
    char *text = file_read(log, LOG_LIMIT, &size, &ignored);
    if (text && secret_hide(text, size, secret))
        file_write_whole(log, text, size, &ignored);
    free(text);
}

/* What waits for a job or a unit ends when that has ended, which is not when the command that asked for it has. */
static void run_stop(struct launch *launch)
{
    struct error error = {0};
    char port[PORT_SIZE], how[PROCESS_HOW_SIZE];
    read_port(launch->url, port);
    const struct values values = make_values(&launch->arm, port, launch->log);
    json_t *argv = json_array();
    append_filled(argv, launch->server->launch.stop, &values);
    if (run_command(launch, argv, &error))
        fprintf(stderr, "%s\n", error.message);
    else if (launch->process.group)
        process_wait(&launch->process, launch->server->launch.stop_s, how);
    json_decref(argv);
}

void launch_stop(struct launch *launch, const char *secret)
{
    if (!launch->server)
        return;
    if (launch->started && launch->server->launch.stop)
        run_stop(launch);
    process_stop(&launch->process, launch->started ? launch->server->launch.stop_s : 0);
    launch->started = false;
    if (launch->log && secret)
        clean_log(launch->log, secret);
}

void launch_free(struct launch *launch, const char *secret)
{
    launch_stop(launch, secret);
    free(launch->url);
    free(launch->log);
    *launch = (struct launch){0};
}

/* --- last words --------------------------------------------------------------------------------------------------- */

/* The end of the file; NULL where it cannot be read. free() it. */
static char *read_tail(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return NULL;
    off_t end = lseek(descriptor, 0, SEEK_END), from = end > LOG_TAIL_BYTES ? end - LOG_TAIL_BYTES : 0;
    char *tail = xcalloc((size_t)LOG_TAIL_BYTES + 1, 1);
    ssize_t size = pread(descriptor, tail, (size_t)LOG_TAIL_BYTES, from);
    close(descriptor);
    for (ssize_t i = 0; i < size; i++)
        if (!tail[i])
            tail[i] = ' ';
    return tail;
}

static bool speaks_of_error(const char *line)
{
    static const char *const words[] = {"error",        "exception", "out of memory", "fatal",   "abort",  "illegal ",
                                        "segmentation", "killed",    "panic",         "cannot ", "failed", "assert"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(line, words[i]))
            return true;
    return false;
}

/* srun tells behind the program's own words that it has ended. */
static bool is_launchers(const char *line)
{
    return strncmp(line, "srun: ", 6) == 0;
}

char *launch_last_words(const struct launch *launch)
{
    char *tail = launch->log ? read_tail(launch->log) : NULL, *rest = NULL;
    const char *last = "", *error = NULL;
    for (char *line = tail ? strtok_r(tail, "\r\n", &rest) : NULL; line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (line[strspn(line, " \t")])
            last = line;
        if (speaks_of_error(line) && !(error && is_launchers(line)))
            error = line;
    }
    char *words = xformat("%.400s", error ? error : last);
    free(tail);
    return words;
}
