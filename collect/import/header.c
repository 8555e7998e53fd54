#include "collect/import/header.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/import/format.h"
#include "collect/record/sample.h"
#include "collect/subject.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LENGTH_MAXIMUM = 64 };

/* --- preparing ---------------------------------------------------------------------------------------------------- */

/* As plans may call workloads; other characters become dashes. */
static char *make_name(const char *text)
{
    char *made = xformat("%.*s", NAME_LENGTH_MAXIMUM, text);
    for (char *at = made; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
            *at = '-';
    if (made[0] == '.')
        made[0] = '-';
    return made;
}

/* What no record may hold is no figure. */
static void clean(struct observed *observed)
{
    double *const times[] = {&observed->itl_ns, &observed->tpot_ns, &observed->e2e_ns, &observed->ttft_ns};
    double *const rates[] = {&observed->requests_per_s, &observed->tokens_per_s, &observed->peak_tokens_per_s};
    int64_t *const counts[] = {&observed->prompt_tokens, &observed->tokens, &observed->duration_ns};
    int *const requests[] = {&observed->completed, &observed->requests, &observed->cancelled};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (*requests[i] < 0 || *requests[i] > SAMPLE_TOKENS_MAXIMUM)
            *requests[i] = ATTEMPT_ABSENT;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!(*times[i] >= 0 && *times[i] <= (double)SAMPLE_TIME_MAXIMUM_NS))
            *times[i] = NAN;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!(*rates[i] >= 0 && *rates[i] <= 1e12))
            *rates[i] = NAN;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (*counts[i] > SAMPLE_TIME_MAXIMUM_NS)
            *counts[i] = ATTEMPT_ABSENT;
    if (!(observed->accept_length > 0 && observed->accept_length <= SAMPLE_ACCEPTED_MAXIMUM))
        observed->accept_length = NAN;
}

static bool is_secret(const char *key)
{
    static const char *const words[] = {"api_key", "api-key", "apikey", "password", "secret", "authorization"};
    const size_t length = strlen(key), ending = strlen("_token");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(key, words[i]))
            return true;
    return strcasecmp(key, "token") == 0 || (length > ending && strcasecmp(key + length - ending, "_token") == 0);
}

/* Servers write their whole command line into what they answer. */
static void take_secrets(json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;
    json_object_foreach(value, key, inner)
    {
        const char *text = json_string_value(inner);
        if (text && (is_secret(key) || strcasestr(text, "api-key") || strcasestr(text, "api_key")))
            json_string_set(inner, "removed");
        else
            take_secrets(inner);
    }
    json_array_foreach(value, i, inner)
    {
        const char *text = json_string_value(inner);
        if (text && (strcasestr(text, "api-key") || strcasestr(text, "bearer ")))
            json_string_set(inner, "removed");
        else
            take_secrets(inner);
    }
}

void header_prepare(struct imported *imported, const char *workload)
{
    const char *given = imported->workload ? imported->workload : IMPORTED_WORKLOAD;
    char *named = make_name(workload ? workload : given);
    free(imported->workload);
    imported->workload = named;
    for (int i = 0; i < imported->sample_count; i++) {
        char *name = make_name(workload ? workload : imported->samples[i].workload);
        imported->samples[i].workload = name_keep(name);
        free(name);
        take_secrets(imported->extras[i]);
    }
    clean(&imported->observed);
    take_secrets(imported->rest);
    take_secrets(imported->source);
}

/* --- hashes ------------------------------------------------------------------------------------------------------- */

/* What belongs to the arm within the source. */
static const char *const arm_keys[] = {"drafter",  "speculation", "acceptance",           "draft",
                                       "run_name", "answers",     "synthetic_acceptance", "acceptance_by_position"};

static json_t *describe_cell(const json_t *header, const char *workload)
{
    json_t *cell = json_object();
    json_set(cell, "workload", json_string(workload));
    json_set(cell, "settings", json_incref(json_object_get(header, "settings")));
    json_set(cell, "source", json_deep_copy(json_object_get(header, "source")));
    json_set(cell, "machine", json_incref(json_object_get(header, "machine")));
    return cell;
}

static void add_workload(json_t *header, const char *name)
{
    json_t *workloads = json_object_get(header, "workloads"), *entry = json_object();
    const json_t *asked = json_object_get(json_object_get(header, "settings"), "random_output_len");
    char hash[FILE_HASH_SIZE];
    json_t *cell = describe_cell(header, name), *source = json_object_get(cell, "source");
    if (json_object_get(workloads, name)) {
        json_decref(cell);
        json_decref(entry);
        return;
    }
    if (json_is_integer(asked))
        json_set(entry, "max_new_tokens", json_incref((json_t *)asked));
    for (size_t i = 0; i < sizeof arm_keys / sizeof *arm_keys; i++)
        json_object_del(source, arm_keys[i]);
    json_hash(cell, hash);
    json_set(entry, "compare_hash", json_string(hash));
    json_set(cell, "source", json_incref(json_object_get(header, "source")));
    json_set(cell, "arm", json_incref(json_object_get(header, "arm")));
    json_hash(cell, hash);
    json_set(entry, "cell_hash", json_string(hash));
    json_set(workloads, name, entry);
    json_decref(cell);
}

/* --- the header --------------------------------------------------------------------------------------------------- */

void header_describe_file(const struct imported *imported, json_t *object)
{
    json_set(object, "format", json_text(imported->format->name));
    json_set(object, "file", json_text(imported->document->path));
    json_set(object, "sha256", json_text(imported->document->sha256));
    json_set(object, "value", json_integer((json_int_t)imported->value));
    if (json_array_size(imported->also))
        json_set(object, "also", json_incref(imported->also));
}

static json_t *describe_oddities(const struct imported *imported)
{
    json_t *oddities = json_object();
    for (int i = 0; i < DOCUMENT_ODDITY_COUNT; i++) {
        const struct document_note *note = &imported->document->notes[i];
        if (!note->count)
            continue;
        json_t *oddity = json_object();
        json_set(oddity, "count", json_integer(note->count));
        json_set(oddity, "offset", json_integer((json_int_t)note->offset));
        if (note->example[0])
            json_set(oddity, "example", json_text(note->example));
        json_set(oddities, document_oddity_names[i], oddity);
    }
    if (imported->is_repeated)
        json_set(oddities, "same run twice", json_pack("{s:i}", "count", 1));
    return oddities;
}

static json_t *describe_import(const struct imported *imported)
{
    json_t *import = json_object(), *oddities = describe_oddities(imported);
    header_describe_file(imported, import);
    if (json_object_size(oddities))
        json_set(import, "oddities", json_incref(oddities));
    if (imported->invalid)
        json_set(import, "invalid", json_text(imported->invalid));
    json_set(import, "rest", json_incref(imported->rest));
    json_decref(oddities);
    return import;
}

static json_t *describe_source(const struct imported *imported)
{
    json_t *source = json_object();
    json_set(source, "kind", json_string(ATTEMPT_IMPORT_KIND));
    json_set(source, "tool", json_text(imported->format->name));
    if (imported->synthetic)
        json_set(source, "synthetic_acceptance", json_true());
    json_object_update_missing(source, imported->source);
    return source;
}

json_t *header_make(const struct imported *imported, const struct arm *arm)
{
    char started[CLOCK_UTC_SIZE];
    json_t *header = json_object();
    json_set(header, "arm", subject_describe_arm(arm));
    if (imported->started_s >= 0)
        json_set(header, "started", json_text(clock_format_utc(imported->started_s, started)));
    json_set(header, "source", describe_source(imported));
    json_set(header, "machine", json_object_size(imported->machine) ? json_incref(imported->machine) : json_null());
    json_set(header, "settings", json_incref(imported->settings));
    json_set(header, "workloads", json_object());
    if (!imported->sample_count)
        add_workload(header, imported->workload);
    for (int i = 0; i < imported->sample_count; i++)
        add_workload(header, imported->samples[i].workload);
    json_set(header, "import", describe_import(imported));
    return header;
}
