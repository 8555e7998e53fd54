#include "collect/server/server_info.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/sample.h"
#include "collect/server/metrics.h"

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

static int64_t read_number(const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number > 0 && number <= SAMPLE_TIME_MAXIMUM_NS ? number : ABSENT;
}

/* The number there; at "states.*.slots" the sum over all states (one for each rank that serves by itself). */
static int64_t number_at(const json_t *said, const struct dialect_number *place)
{
    const json_t *answer = place->route ? json_object_get(said, place->route) : NULL;
    const char *star = place->path ? strstr(place->path, ".*.") : NULL;
    if (!star)
        return answer ? read_number(find_at(answer, place->path)) : ABSENT;
    char *path = xformat("%.*s", (int)(star - place->path), place->path);
    const json_t *all = find_at(answer, path);
    int64_t sum = 0;
    for (size_t i = 0; i < json_array_size(all) && sum >= 0; i++) {
        const int64_t number = read_number(find_at(json_array_get(all, i), star + 3));
        sum = number < 0 ? ABSENT : sum + number;
    }
    free(path);
    return sum > 0 ? sum : ABSENT;
}

static int64_t find_number(const json_t *said, const struct dialect_number *places)
{
    int64_t number = ABSENT;
    for (int i = 0; i < DIALECT_PLACES && number < 0; i++)
        number = number_at(said, &places[i]);
    return number;
}

static char *find_text(const json_t *said, const struct dialect_number *places)
{
    const char *text = NULL;
    for (int i = 0; i < DIALECT_PLACES && places[i].route && !text; i++)
        text = json_string_value(find_at(json_object_get(said, places[i].route), places[i].path));
    return text ? xstrdup(text) : NULL;
}

/* The number behind the last `mark` in the log, which may have commas; -1 where there is none. */
static int64_t read_log_number(const char *log, const char *mark)
{
    const char *last = NULL;
    if (!mark)
        return ABSENT;
    for (const char *at = log; (at = strstr(at, mark)); at += strlen(mark))
        last = at + strlen(mark);
    if (!last || *last < '0' || *last > '9')
        return ABSENT;
    int64_t number = 0;
    for (; ((*last >= '0' && *last <= '9') || *last == ',') && number < SAMPLE_TIME_MAXIMUM_NS / 100; last++)
        number = *last == ',' ? number : 10 * number + (*last - '0');
    return number;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* What the first place says, which is what the server made of it; else what the log says of each of its ranks; else
 * what the other places say, which are what it was asked for. */
static int64_t find_size(const json_t *said, const struct dialect_number *places, int64_t logged, int64_t ranks)
{
    const int64_t made = number_at(said, &places[0]);
    if (made >= 0)
        return made;
    return logged >= 0 ? logged * ranks : find_number(said, places);
}

/* Blocks of a cache as a metric's labels have them. */
static int64_t read_blocks(const char *metrics, const struct dialect *dialect)
{
    const double blocks = metrics_label(metrics, dialect->cache_metric, "num_gpu_blocks");
    const double size = metrics_label(metrics, dialect->cache_metric, "block_size");
    const double tokens = blocks * size;
    return tokens > 0 && tokens <= (double)SAMPLE_TIME_MAXIMUM_NS ? (int64_t)tokens : ABSENT;
}

static void find_sizes(const struct dialect *dialect, const char *log, const char *metrics, struct server_info *info)
{
    const int64_t said = number_at(info->said, &dialect->ranks), ranks = said > 0 && said <= 1024 ? said : 1;
    info->context = find_number(info->said, dialect->context);
    info->slots = find_size(info->said, dialect->slots, read_log_number(log, dialect->log_slots), ranks);
    if (info->slots < 0 && number_at(info->said, &dialect->slots_a_rank) > 0)
        info->slots = number_at(info->said, &dialect->slots_a_rank) * ranks;
    info->cache = find_size(info->said, dialect->cache, read_log_number(log, dialect->log_cache), ranks);
    info->states = read_log_number(log, dialect->log_states);
    info->states *= info->states > 0 ? ranks : 1;
    if (info->cache < 0)
        info->cache = read_blocks(metrics, dialect);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* Keeps what the route answers under `name`. */
static void ask(struct http *http, const char *route, const char *name, const char *secret, json_t *said)
{
    struct http_reply reply;
    json_t *value = NULL;
    if (http_fetch(http, route, NULL, ASK_LIMIT_MS, &reply))
        value = json_loadb(reply.body, reply.size, 0, NULL);
    if (value)
        json_set(said, name, server_info_redact(value, secret));
    json_decref(value);
    http_reply_free(&reply);
}

void server_info_ask(struct http *http, const struct dialect *dialect, const char *log, const char *secret,
                     struct server_info *info)
{
    static const struct dialect_number models[DIALECT_PLACES] = {{"/v1/models", "data.0.id"}};
    struct error ignored = {0};
    struct http_reply metrics = {0};
    char *text = log ? file_read(log, LOG_LIMIT, NULL, &ignored) : NULL;
    *info = (struct server_info){.said = json_object()};
    ask(http, dialect->models, dialect->models, secret, info->said);
    for (int i = 0; i < DIALECT_INFO_MAXIMUM && dialect->info[i]; i++)
        ask(http, dialect->info[i], dialect->info[i], secret, info->said);
    if (dialect->formerly && !json_object_get(info->said, dialect->info[0]))
        ask(http, dialect->formerly, dialect->info[0], secret, info->said);
    info->model = find_text(info->said, models);
    info->version = find_text(info->said, dialect->version);
    const bool has_metrics = dialect->metrics && http_fetch(http, dialect->metrics, NULL, ASK_LIMIT_MS, &metrics);
    find_sizes(dialect, text ? text : "", has_metrics ? metrics.body : "", info);
    http_reply_free(&metrics);
    free(text);
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
