#include "collect/server/server_info.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/sample.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_LIMIT_MS = 10000 };
#define ABSENT (-1)
#define LOG_LIMIT ((size_t)256 << 20)

/* --- secrets ------------------------------------------------------------------------------------------------------ */

static bool is_secret_key(const char *key)
{
    static const char *const words[] = {"api_key",       "apikey",     "password", "secret",      "credential",
                                        "authorization", "auth_token", "hf_token", "access_token"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(key, words[i]))
            return true;
    return false;
}

json_t *server_info_redact(const json_t *value, const char *secret)
{
    const char *key;
    json_t *inner;
    size_t i;
    if (json_is_string(value) && secret && secret[0] && strstr(json_string_value(value), secret))
        return json_string("removed");
    if (json_is_object(value)) {
        json_t *object = json_object();
        json_object_foreach((json_t *)value, key, inner) json_set(
            object, key,
            is_secret_key(key) && !json_is_null(inner) ? json_string("removed") : server_info_redact(inner, secret));
        return object;
    }
    if (json_is_array(value)) {
        json_t *array = json_array();
        json_array_foreach((json_t *)value, i, inner) json_append(array, server_info_redact(inner, secret));
        return array;
    }
    return json_deep_copy(value);
}

/* --- numbers and words -------------------------------------------------------------------------------------------- */

/* The value at "data.0.max_model_len"; NULL where there is none. */
static const json_t *find_at(const json_t *value, const char *path)
{
    char *copy = xstrdup(path), *rest = NULL;
    for (char *step = strtok_r(copy, ".", &rest); step && value; step = strtok_r(NULL, ".", &rest))
        value = json_is_array(value) ? json_array_get(value, strtoul(step, NULL, 10)) : json_object_get(value, step);
    free(copy);
    return value;
}

static const json_t *find_first(const json_t *said, const struct dialect_number *places)
{
    const json_t *value = NULL;
    for (int i = 0; i < DIALECT_PLACES && places[i].route && (!value || json_is_null(value)); i++)
        value = find_at(json_object_get(said, places[i].route), places[i].path);
    return value;
}

static int64_t find_number(const json_t *said, const struct dialect_number *places)
{
    const json_t *value = find_first(said, places);
    const json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number > 0 && number <= SAMPLE_TIME_MAXIMUM_NS ? number : ABSENT;
}

static char *find_text(const json_t *said, const struct dialect_number *places)
{
    const char *text = json_string_value(find_first(said, places));
    return text ? xstrdup(text) : NULL;
}

/* The number behind the last `mark` in the log, which may have commas; `otherwise` where there is none. */
static int64_t read_log_number(const char *log, const char *mark, int64_t otherwise)
{
    const char *last = NULL;
    if (!mark)
        return otherwise;
    for (const char *at = log; (at = strstr(at, mark)); at += strlen(mark))
        last = at + strlen(mark);
    if (!last || *last < '0' || *last > '9')
        return otherwise;
    int64_t number = 0;
    for (; ((*last >= '0' && *last <= '9') || *last == ',') && number < INT64_MAX / 100; last++)
        number = *last == ',' ? number : 10 * number + (*last - '0');
    return number;
}

static void read_log(const char *path, const struct dialect *dialect, struct server_info *info)
{
    struct error ignored = {0};
    size_t size;
    char *log = path ? file_read(path, LOG_LIMIT, &size, &ignored) : NULL;
    if (!log)
        return;
    info->slots = read_log_number(log, dialect->log_slots, info->slots);
    info->cache = read_log_number(log, dialect->log_cache, info->cache);
    info->states = read_log_number(log, dialect->log_states, ABSENT);
    free(log);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void ask(struct http *http, const char *route, const char *secret, json_t *said)
{
    struct http_reply reply;
    json_t *value = NULL;
    if (http_fetch(http, route, NULL, ASK_LIMIT_MS, &reply))
        value = json_loadb(reply.body, reply.size, 0, NULL);
    if (value)
        json_set(said, route, server_info_redact(value, secret));
    json_decref(value);
    http_reply_free(&reply);
}

void server_info_ask(struct http *http, const struct dialect *dialect, const char *log, const char *secret,
                     struct server_info *info)
{
    static const struct dialect_number models[DIALECT_PLACES] = {{"/v1/models", "data.0.id"}};
    *info = (struct server_info){.states = ABSENT, .said = json_object()};
    ask(http, dialect->models, secret, info->said);
    for (int i = 0; i < DIALECT_INFO_MAXIMUM && dialect->info[i]; i++)
        ask(http, dialect->info[i], secret, info->said);
    info->model = find_text(info->said, models);
    info->version = find_text(info->said, dialect->version);
    info->context = find_number(info->said, dialect->context);
    info->slots = find_number(info->said, dialect->slots);
    info->cache = find_number(info->said, dialect->cache);
    read_log(log, dialect, info);
}

void server_info_free(struct server_info *info)
{
    free(info->model);
    free(info->version);
    json_decref(info->said);
    *info = (struct server_info){0};
}

static void set_number(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_set(object, key, json_integer(value));
}

json_t *server_info_to_json(const struct server_info *info)
{
    json_t *object = json_object();
    if (info->model)
        json_set(object, "model", json_text(info->model));
    if (info->version)
        json_set(object, "version", json_text(info->version));
    set_number(object, "context_tokens", info->context);
    set_number(object, "slots", info->slots);
    set_number(object, "cache_tokens", info->cache);
    set_number(object, "cache_states", info->states);
    json_set(object, "said", json_deep_copy(info->said));
    return object;
}
