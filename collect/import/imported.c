#include "collect/import/imported.h"

#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/record/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- lists -------------------------------------------------------------------------------------------------------- */

struct imported *imports_add(struct imports *imports, const struct document *document, const json_t *record)
{
    imports->items = xrealloc(imports->items, (size_t)imports->count + 1, sizeof *imports->items);
    struct imported *imported = &imports->items[imports->count++];
    *imported = (struct imported){
        .document = document,
        .started_s = ATTEMPT_ABSENT,
        .source = json_object(),
        .machine = json_object(),
        .settings = json_object(),
        .also = json_array(),
        .rest = json_is_object(record) ? json_deep_copy(record) : json_object(),
    };
    observed_init(&imported->observed);
    return imported;
}

void imported_free(struct imported *imported)
{
    for (int i = 0; i < imported->sample_count; i++) {
        sample_free(&imported->samples[i]);
        json_decref(imported->extras[i]);
    }
    free(imported->samples);
    free(imported->extras);
    free(imported->workload);
    free(imported->invalid);
    observed_free(&imported->observed);
    json_decref(imported->source);
    json_decref(imported->machine);
    json_decref(imported->settings);
    json_decref(imported->rest);
    json_decref(imported->also);
    *imported = (struct imported){0};
}

void imports_free(struct imports *imports)
{
    for (int i = 0; i < imports->count; i++)
        imported_free(&imports->items[i]);
    free(imports->items);
    *imports = (struct imports){0};
}

struct sample *imported_add_sample(struct imported *imported, const char *workload, const char *prompt)
{
    if (imported->sample_count == imported->capacity) {
        imported->capacity = imported->capacity ? 2 * imported->capacity : 64;
        imported->samples = xrealloc(imported->samples, (size_t)imported->capacity, sizeof *imported->samples);
        imported->extras = xrealloc(imported->extras, (size_t)imported->capacity, sizeof(json_t *));
    }
    imported->extras[imported->sample_count] = NULL;
    struct sample *sample = &imported->samples[imported->sample_count++];
    sample_init(sample);
    sample->workload = name_keep(workload);
    sample->prompt = name_keep(prompt);
    sample->ok = true;
    return sample;
}

void imported_keep(struct imported *imported, const json_t *record, const char *const *known)
{
    json_t *extra = json_deep_copy(record);
    for (; *known; known++)
        json_object_del(extra, *known);
    imported->extras[imported->sample_count - 1] = extra;
}

void sample_set_chunks(struct sample *sample, double first_ns, const json_t *gaps, double factor)
{
    const size_t count = json_array_size(gaps);
    double at_ns = first_ns;
    if (!(first_ns > 0) || !count || count >= SAMPLE_TOKENS_MAXIMUM)
        return;
    sample->chunk_ns = xcalloc(count + 1, sizeof *sample->chunk_ns);
    sample->chunks = (int)count + 1;
    for (size_t i = 0; i <= count; i++) {
        sample->chunk_ns[i] = unit_ns(at_ns, 1);
        at_ns += i < count ? document_number(json_array_get(gaps, i)) * factor : 0;
        if (sample->chunk_ns[i] >= (i ? sample->chunk_ns[i - 1] : 0))
            continue;
        free(sample->chunk_ns);
        sample->chunk_ns = NULL;
        sample->chunks = ATTEMPT_ABSENT;
        return;
    }
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

double take_number(json_t *rest, const char *key)
{
    const json_t *value = json_object_get(rest, key);
    const double number = document_number(value);
    if (value && !isnan(number))
        json_object_del(rest, key);
    return number;
}

int64_t take_count(json_t *rest, const char *key)
{
    const double number = document_number(json_object_get(rest, key));
    if (!(number >= 0 && number <= (double)SAMPLE_TIME_MAXIMUM_NS && number == floor(number)))
        return ATTEMPT_ABSENT;
    json_object_del(rest, key);
    return (int64_t)number;
}

char *take_text(json_t *rest, const char *key)
{
    const char *value = json_string_value(json_object_get(rest, key));
    char *text = value && value[0] ? xstrdup(value) : NULL;
    if (text)
        json_object_del(rest, key);
    return text;
}

json_t *take_node(json_t *rest, const char *key)
{
    json_t *value = json_incref(json_object_get(rest, key));
    json_object_del(rest, key);
    return value;
}

void take_into(json_t *rest, const char *key, json_t *to, const char *name)
{
    json_t *value = json_object_get(rest, key);
    if (!value || json_is_null(value))
        return;
    json_set(to, name, json_incref(value));
    json_object_del(rest, key);
}

void take_figures(struct imported *imported, const struct take_figure *figures)
{
    for (; figures->key; figures++) {
        void *to = (char *)&imported->observed + figures->offset;
        const double value = document_number(json_object_get(imported->rest, figures->key)) * figures->factor;
        if (!(value >= 0 && value <= (double)SAMPLE_TIME_MAXIMUM_NS) ||
            (figures->type == JSON_FIELD_INT && value > SAMPLE_TOKENS_MAXIMUM))
            continue;
        if (figures->type == JSON_FIELD_INT)
            *(int *)to = (int)llround(value);
        else if (figures->type == JSON_FIELD_INT64)
            *(int64_t *)to = llround(value);
        else
            *(double *)to = value;
        json_object_del(imported->rest, figures->key);
    }
}

/* --- units -------------------------------------------------------------------------------------------------------- */

int64_t unit_ns(double value, double factor)
{
    const double ns = round(value * factor);
    return ns >= 0 && ns <= (double)SAMPLE_TIME_MAXIMUM_NS ? (int64_t)ns : ATTEMPT_ABSENT;
}

double unit_factor(const char *unit)
{
    static const struct {
        const char *word;
        double factor;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", NS_OF_MS}, {"s", NS_OF_S}, {"sec", NS_OF_S}, {"seconds", NS_OF_S}};
    for (size_t i = 0; unit && i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].word) == 0)
            return units[i].factor;
    return NAN;
}

/* --- arms --------------------------------------------------------------------------------------------------------- */

/* What a round commits at most: the drafts of a path and the bonus token. */
static void set_block_size(struct imported *imported, int64_t steps)
{
    if (steps < 1 || steps > SAMPLE_ACCEPTED_MAXIMUM)
        return;
    json_t *drafter = json_object();
    json_set(drafter, "block_size", json_integer(steps + 1));
    json_set(imported->source, "drafter", drafter);
}

static void set_method(struct imported *imported, enum method method)
{
    imported->method = method;
    imported->method_known = true;
}

void imported_set_auto(struct imported *imported)
{
    set_method(imported, METHOD_AUTO);
}

void imported_set_linear(struct imported *imported, int64_t steps)
{
    set_method(imported, METHOD_LINEAR);
    set_block_size(imported, steps);
}

void imported_set_tree(struct imported *imported, int64_t nodes, int64_t steps)
{
    if (nodes < 1 || nodes > ARM_BUDGET_MAXIMUM)
        return;
    set_method(imported, METHOD_DDTREE);
    imported->budget = (int)nodes;
    set_block_size(imported, steps);
}
