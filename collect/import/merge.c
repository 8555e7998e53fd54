#include "collect/import/merge.h"

#include "collect/base/json.h"
#include "collect/import/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- times -------------------------------------------------------------------------------------------------------- */

#define TOLERANCE_NS 2 /* of a mean that was rounded twice */
enum { TIMES_MINIMUM = 3 };

/* Means over the answered requests, as the tools make them: a request's time a token weighs like any other's. */
static struct timing measure(const struct sample *samples, int count)
{
    struct timing sum = {0, 0, NAN, 0};
    int answered = 0;
    for (int i = 0; i < count; i++) {
        const struct sample *sample = &samples[i];
        if (!sample->ok || sample->warmup)
            continue;
        const double ttft_ns = sample->ttft_ns >= 0 ? (double)sample->ttft_ns : NAN;
        const double decode_ns = sample->decode_ns >= 0 ? (double)sample->decode_ns : NAN;
        sum.ttft_ns += ttft_ns;
        sum.e2e_ns += ttft_ns + decode_ns;
        sum.tpot_ns +=
            sample->tokens > sample->first_tokens ? decode_ns / (sample->tokens - sample->first_tokens) : NAN;
        answered++;
    }
    return (struct timing){sum.ttft_ns / answered, sum.tpot_ns / answered, NAN, sum.e2e_ns / answered};
}

struct timing timing_of(const struct observed *observed, const struct sample *samples, int count)
{
    struct timing timing = {observed->ttft_ns, observed->tpot_ns, observed->itl_ns, observed->e2e_ns};
    if (count && isnan(timing.e2e_ns))
        timing = measure(samples, count);
    return timing;
}

bool timing_is_same(const struct timing *a, const struct timing *b)
{
    const double pairs[][2] = {
        {a->ttft_ns, b->ttft_ns}, {a->tpot_ns, b->tpot_ns}, {a->itl_ns, b->itl_ns}, {a->e2e_ns, b->e2e_ns}};
    int known = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!(pairs[i][0] > 0 && pairs[i][1] > 0))
            continue;
        if (fabs(pairs[i][0] - pairs[i][1]) > TOLERANCE_NS)
            return false;
        known++;
    }
    return known >= TIMES_MINIMUM;
}

/* --- what is of one run ------------------------------------------------------------------------------------------- */

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

static bool share_folder(const struct imported *a, const struct imported *b)
{
    const char *of_a = a->document->path, *of_b = b->document->path;
    const size_t length = folder_length(of_a);
    return length == folder_length(of_b) && strncmp(of_a, of_b, length) == 0;
}

static int count_answered(const struct imported *imported)
{
    int count = 0;
    for (int i = 0; i < imported->sample_count; i++)
        count += imported->samples[i].ok && !imported->samples[i].warmup;
    return count;
}

/* One has the requests, of which the other has the sums; or one the times, and the other the acceptance. */
static bool complete_each_other(const struct imported *a, const struct imported *b)
{
    const struct imported *with = a->sample_count ? a : b, *without = a->sample_count ? b : a;
    if (a->sample_count && b->sample_count)
        return false;
    if (with->sample_count)
        return without->observed.completed == count_answered(with);
    return isnan(a->observed.ttft_ns) != isnan(b->observed.ttft_ns) &&
           isnan(a->observed.accept_length) != isnan(b->observed.accept_length);
}

static bool are_one_run(const struct imported *a, const struct imported *b)
{
    const struct timing of_a = timing_of(&a->observed, a->samples, a->sample_count);
    const struct timing of_b = timing_of(&b->observed, b->samples, b->sample_count);
    if (a->document == b->document || (a->sample_count && b->sample_count))
        return false;
    const bool one_tool = a->format->of_run && b->format->of_run && strcmp(a->format->of_run, b->format->of_run) == 0;
    return timing_is_same(&of_a, &of_b) || (one_tool && share_folder(a, b) && complete_each_other(a, b));
}

/* --- putting together --------------------------------------------------------------------------------------------- */

static void fill_observed(struct observed *to, const struct observed *from)
{
    json_t *known = observed_to_json(to), *more = observed_to_json(from), *all = json_object();
    struct error ignored = {0};
    json_object_update(all, more);
    json_object_update(all, known);
    observed_free(to);
    observed_from_json(all, "", to, &ignored);
    json_decref(known);
    json_decref(more);
    json_decref(all);
}

static void fill_arm(struct imported *to, const struct imported *from)
{
    to->tensor_parallel = to->tensor_parallel ? to->tensor_parallel : from->tensor_parallel;
    to->concurrency = to->concurrency ? to->concurrency : from->concurrency;
    if (to->method_known || !from->method_known)
        return;
    to->method_known = true;
    to->method = from->method;
    to->budget = from->budget;
}

static void fill(struct imported *to, struct imported *from)
{
    json_t *other = json_object();
    fill_observed(&to->observed, &from->observed);
    fill_arm(to, from);
    if (!to->sample_count) {
        to->samples = from->samples;
        to->extras = from->extras;
        to->sample_count = from->sample_count;
        from->samples = NULL;
        from->extras = NULL;
        from->sample_count = 0;
    }
    if (strcmp(to->workload, IMPORTED_WORKLOAD) == 0) {
        free(to->workload);
        to->workload = xstrdup(from->workload);
    }
    to->started_s = to->started_s >= 0 ? to->started_s : from->started_s;
    to->synthetic |= from->synthetic;
    to->invalid = to->invalid ? to->invalid : from->invalid ? xstrdup(from->invalid) : NULL;
    json_object_update_missing(to->source, from->source);
    json_object_update_missing(to->machine, from->machine);
    json_object_update_missing(to->settings, from->settings);
    json_object_update_missing(to->rest, from->rest);
    json_set(other, "file", json_text(from->document->path));
    json_set(other, "sha256", json_text(from->document->sha256));
    json_append(to->also, other);
}

static void remove_at(struct imports *imports, int index)
{
    imported_free(&imports->items[index]);
    imports->count--;
    memmove(&imports->items[index], &imports->items[index + 1],
            (size_t)(imports->count - index) * sizeof *imports->items);
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

/* InferenceX says in a file's name alone that acceptance was fixed beforehand. */
static bool is_named_synthetic(const struct imported *imported)
{
    static const char *const words[] = {"fixed_ar", "fixed-ar", "synthetic"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(imported->format->name, "InferenceX") && strstr(imported->document->path, words[i]))
            return true;
    return false;
}

static bool drafts(const struct imported *imported)
{
    return !imported->is_note && !(imported->method_known && imported->method == METHOD_AUTO);
}

/* Answers how many runs it holds of. */
static int take_note(struct imports *imports, const struct imported *note)
{
    int held = 0;
    for (int i = 0; i < imports->count; i++) {
        if (!drafts(&imports->items[i]))
            continue;
        imports->items[i].synthetic = true;
        fill_arm(&imports->items[i], note);
        held++;
    }
    return held;
}

static int take_notes(struct imports *imports, struct error *error)
{
    for (int i = imports->count - 1; i >= 0; i--) {
        if (!imports->items[i].is_note) {
            imports->items[i].synthetic |= is_named_synthetic(&imports->items[i]);
            continue;
        }
        if (!take_note(imports, &imports->items[i]))
            return fail(error, "%s: says of other files that their acceptance was made up; name them in one call",
                        imports->items[i].document->path);
        remove_at(imports, i);
    }
    return 0;
}

int merge_imports(struct imports *imports, struct error *error)
{
    for (int i = 0; i < imports->count; i++)
        for (int j = imports->count - 1; j > i; j--) {
            if (imports->items[i].is_note || imports->items[j].is_note ||
                !are_one_run(&imports->items[i], &imports->items[j]))
                continue;
            fill(&imports->items[i], &imports->items[j]);
            remove_at(imports, j);
        }
    return take_notes(imports, error);
}
