/* The plan's "source": the built-in engine, or a server and how it is started. */
#include "collect/plan_parts.h"

#include "collect/base/json.h"
#include "collect/server/dialect.h"
#include "collect/server/launch.h"

#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

enum { ENGINE_CONCURRENCY_MAXIMUM = 64, STOP_S_DEFAULT = 30 };

int plan_read_engine(struct plan *plan, const json_t *source, const char *where, struct error *error)
{
    static const char *const devices[] = {"auto", "cpu", "cuda"};
    static const char *const dtypes[] = {"float32", "bfloat16"};
    struct plan_engine *engine = &plan->engine;
    const char *kind;
    const struct json_field fields[] = {
        {"kind", JSON_FIELD_STRING, &kind, true, 0, 0},
        {"target", JSON_FIELD_STRING, &engine->target, true, 0, 0},
        {"drafter", JSON_FIELD_STRING, &engine->drafter, false, 0, 0},
        {"device", JSON_FIELD_STRING, &engine->device, false, 0, 0},
        {"dtype", JSON_FIELD_STRING, &engine->dtype, false, 0, 0},
        {0},
    };
    engine->device = "auto";
    engine->dtype = "bfloat16";
    if (json_read_fields(source, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (plan_find_word(engine->device, devices, LENGTH(devices)) < 0 && strncmp(engine->device, "cuda:", 5) != 0)
        return plan_refuse_word(engine->device, devices, LENGTH(devices), where, "device", error);
    if (plan_find_word(engine->dtype, dtypes, LENGTH(dtypes)) < 0)
        return plan_refuse_word(engine->dtype, dtypes, LENGTH(dtypes), where, "dtype", error);
    return 0;
}

/* --- a server ----------------------------------------------------------------------------------------------------- */

static int check_url(const char *url, const char *where, struct error *error)
{
    const char *host = strstr(url, "://"), *path = host ? strchr(host + 3, '/') : NULL, *at = strchr(url, '@');
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return fail(error, "%s: \"url\" is \"%s\"; it must begin with http:// or https://", where, url);
    if (at && (!path || at < path))
        return fail(error,
                    "%s: \"url\" holds a user or password; a plan is kept and hashed, so name the environment "
                    "variable of a key by \"api_key_env\"",
                    where);
    return 0;
}

/* One URL, or one for each method. */
static int read_urls(struct plan_server *server, const json_t *url, const char *where, struct error *error)
{
    struct json_field fields[METHOD_COUNT + 1] = {0};
    for (int i = 0; i < METHOD_COUNT; i++) {
        fields[i] = (struct json_field){method_names[i], JSON_FIELD_STRING, &server->url[i], false, 0, 0};
        server->url[i] = json_string_value(url);
    }
    if (json_is_object(url) && json_read_fields(url, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (!json_is_object(url) && !json_is_string(url))
        return fail(error, "%s: \"url\" must be a string, or an object with one for each method", where);
    for (int i = 0; i < METHOD_COUNT; i++)
        if (server->url[i] && check_url(server->url[i], where, error))
            return -1;
    return 0;
}

/* Strings only, one at least. */
static int check_strings(const json_t *array, const char *where, const char *key, struct error *error)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_string(json_array_get(array, i)))
            return fail(error, "%s: \"%s\"[%zu] must be a string", where, key, i);
    return 0;
}

static int check_env(const json_t *env, const char *where, struct error *error)
{
    static const char *const secrets[] = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)env, key, value)
    {
        if (!json_is_string(value))
            return fail(error, "%s: env: \"%s\" must be a string", where, key);
        for (int i = 0; i < LENGTH(secrets); i++)
            if (strcasestr(key, secrets[i]))
                return fail(error,
                            "%s: env: \"%s\" looks like a secret; a plan is kept and hashed, so set it where "
                            "collect is started: what it starts inherits it",
                            where, key);
    }
    return 0;
}

static int read_launch(struct plan_server *server, const char *above, struct error *error)
{
    struct plan_launch *launch = &server->launch;
    char where[PLAN_WHERE_SIZE + 16];
    snprintf(where, sizeof where, "%s: launch", above);
    struct json_field fields[METHOD_COUNT + 6] = {
        {"argv", JSON_FIELD_ARRAY, &launch->argv, false, 0, 0},
        {"start", JSON_FIELD_ARRAY, &launch->start, false, 0, 0},
        {"stop", JSON_FIELD_ARRAY, &launch->stop, false, 0, 0},
    };
    for (int i = 0; i < METHOD_COUNT; i++)
        fields[3 + i] = (struct json_field){method_names[i], JSON_FIELD_ARRAY, &launch->methods[i], false, 0, 0};
    fields[3 + METHOD_COUNT] = (struct json_field){"env", JSON_FIELD_OBJECT, &launch->env, false, 0, 0};
    fields[4 + METHOD_COUNT] = (struct json_field){"stop_s", JSON_FIELD_INT, &launch->stop_s, false, 1, 3600};
    launch->stop_s = STOP_S_DEFAULT;
    if (json_read_fields(server->launch_as_written, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (!json_array_size(launch->argv) == !json_array_size(launch->start))
        return fail(error,
                    "%s: give either \"argv\", what is run as long as the arm is measured, or \"start\", a "
                    "command that starts a server and ends",
                    where);
    for (int i = 0; fields[i].type == JSON_FIELD_ARRAY; i++)
        if (check_strings(*(const json_t **)fields[i].to, where, fields[i].key, error))
            return -1;
    return check_env(launch->env, where, error);
}

int plan_read_server(struct plan *plan, const json_t *source, const char *where, struct error *error)
{
    struct plan_server *server = &plan->server;
    const char *kind;
    const json_t *url = NULL;
    const struct json_field fields[] = {
        {"kind", JSON_FIELD_STRING, &kind, true, 0, 0},
        {"dialect", JSON_FIELD_STRING, &server->dialect, true, 0, 0},
        {"route", JSON_FIELD_STRING, &server->route, false, 0, 0},
        {"url", JSON_FIELD_ANY, &url, true, 0, 0},
        {"model", JSON_FIELD_STRING, &server->model, false, 0, 0},
        {"api_key_env", JSON_FIELD_STRING, &server->api_key_env, false, 0, 0},
        {"request", JSON_FIELD_OBJECT, &server->request, false, 0, 0},
        {"launch", JSON_FIELD_OBJECT, &server->launch_as_written, false, 0, 0},
        {0},
    };
    if (json_read_fields(source, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (!dialect_find(server->dialect, NULL))
        return plan_refuse_word(server->dialect, dialect_names, dialect_name_count, where, "dialect", error);
    if (!dialect_find(server->dialect, server->route))
        return fail(error,
                    "%s: \"route\" is \"%s\", which dialect \"%s\" does not have; use \"completions\", \"chat\", "
                    "or for sglang and llama \"native\"",
                    where, server->route, server->dialect);
    if (read_urls(server, url, where, error))
        return -1;
    return server->launch_as_written ? read_launch(server, where, error) : 0;
}

/* The option whose value is a secret, where the argument holds or is followed by it; NULL: none. */
static const char *find_secret_option(const char *argument, const char *next)
{
    static const char *const options[] = {"--api-key", "--admin-api-key", "--hf-token"};
    for (int i = 0; i < LENGTH(options); i++) {
        const size_t length = strlen(options[i]);
        if (strncmp(argument, options[i], length) == 0 &&
            (argument[length] == '=' || (!argument[length] && next && next[0] != '-')))
            return options[i];
    }
    return NULL;
}

int plan_check_secrets(const struct plan *plan, struct error *error)
{
    const struct plan_launch *launch = &plan->server.launch;
    const json_t *lists[METHOD_COUNT + 3] = {launch->argv, launch->start, launch->stop};
    memcpy(lists + 3, launch->methods, sizeof launch->methods);
    for (int list = 0; list < LENGTH(lists); list++)
        for (size_t i = 0; i < json_array_size(lists[list]); i++) {
            const char *argument = json_string_value(json_array_get(lists[list], i));
            const char *option = find_secret_option(argument, json_string_value(json_array_get(lists[list], i + 1)));
            if (option)
                return fail(error,
                            "%s: source: launch: an argument is the value of \"%s\", and a plan is kept and hashed; "
                            "set a variable where collect is started, and let \"sh\", \"-c\" put it there",
                            plan->path, option);
        }
    return 0;
}

/* --- arms --------------------------------------------------------------------------------------------------------- */

int plan_check_arm(const struct plan *plan, const struct arm *arm, struct error *error)
{
    char name[ARM_NAME_SIZE];
    if (plan->source == PLAN_SOURCE_SERVER)
        return launch_check(&plan->server, arm, plan->path, error);
    if (arm->concurrency > ENGINE_CONCURRENCY_MAXIMUM)
        return fail(error, "%s: \"concurrency\": the engine runs up to %d requests at a time, %s asks for more",
                    plan->path, ENGINE_CONCURRENCY_MAXIMUM, arm_name(arm, name));
    return 0;
}
