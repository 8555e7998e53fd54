/* Spec-Bench: a question a line, a turn a request, one at a time. Wall time, in seconds, is that of the whole answer,
 * and the accept lengths of a question's turns stand one behind the other. */
#include "collect/import/format.h"

#include "collect/base/json.h"
#include "collect/record/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int count_at(const json_t *list, size_t index)
{
    const json_int_t value = json_integer_value(json_array_get(list, index));
    return json_is_integer(json_array_get(list, index)) && value >= 0 && value <= SAMPLE_TOKENS_MAXIMUM
               ? (int)value
               : ATTEMPT_ABSENT;
}

/* How many rounds the turn took. Some of the methods say the number of its last step, from 0 on: then each is one short
 * of what the accept lengths are in all. */
static int count_rounds(const json_t *choice, size_t turn)
{
    const json_t *steps = json_object_get(choice, "decoding_steps");
    const size_t turns = json_array_size(steps);
    const int own = count_at(steps, turn);
    size_t sum = 0;
    for (size_t i = 0; i < turns; i++)
        sum += count_at(steps, i) > 0 ? (size_t)count_at(steps, i) : 0;
    const bool from_0 = own >= 0 && sum + turns == json_array_size(json_object_get(choice, "accept_lengths"));
    return own + (from_0 ? 1 : 0);
}

/* The rounds from *at on; none where the list is too short for them. */
static void set_accepted(struct sample *sample, const json_t *lengths, size_t *at)
{
    const size_t first = *at;
    if (sample->rounds < 1 || first + (size_t)sample->rounds > json_array_size(lengths))
        return;
    sample->accepted = xcalloc((size_t)sample->rounds, sizeof *sample->accepted);
    *at += (size_t)sample->rounds;
    for (int i = 0; i < sample->rounds; i++) {
        sample->accepted[i] = count_at(lengths, first + (size_t)i);
        if (sample->accepted[i] >= 0 && sample->accepted[i] <= SAMPLE_ACCEPTED_MAXIMUM)
            continue;
        free(sample->accepted);
        sample->accepted = NULL;
        return;
    }
}

/* A turn that failed says "ERROR", and the figures beside it are those of the request before. */
static void set_turn(struct sample *sample, const json_t *choice, size_t turn, size_t *at)
{
    const char *text = json_string_value(json_array_get(json_object_get(choice, "turns"), turn));
    sample->rounds = count_rounds(choice, turn);
    set_accepted(sample, json_object_get(choice, "accept_lengths"), at);
    if (text && strcmp(text, "ERROR") == 0) {
        sample->ok = false;
        sample->error_message = xstrdup("ERROR");
        return;
    }
    sample->tokens = count_at(json_object_get(choice, "new_tokens"), turn);
    sample->first_tokens = 0; /* the first is among those that the time is of */
    sample->decode_ns = unit_ns(document_number(json_array_get(json_object_get(choice, "wall_time"), turn)), NS_OF_S);
}

static void add_question(struct imported *imported, const json_t *question)
{
    const json_t *choice = json_array_get(json_object_get(question, "choices"), 0);
    const char *category = json_string_value(json_object_get(question, "category"));
    char *id = json_dumps(json_object_get(question, "question_id"), JSON_ENCODE_ANY | JSON_COMPACT);
    static const char *const known[] = {"question_id", "category", "choices", NULL};
    size_t at = 0;
    for (size_t turn = 0; turn < json_array_size(json_object_get(choice, "new_tokens")); turn++) {
        char *prompt = xformat("%.100s-%zu", id ? id : "?", turn + 1);
        set_turn(imported_add_sample(imported, category && category[0] ? category : IMPORTED_WORKLOAD, prompt), choice,
                 turn, &at);
        if (turn == 0)
            imported_keep(imported, question, known);
        free(prompt);
    }
    free(id);
}

/* Plain decoding commits one token a round, in each of them. */
static bool is_plain(const struct imported *imported)
{
    bool known = false;
    for (int i = 0; i < imported->sample_count; i++) {
        const struct sample *sample = &imported->samples[i];
        for (int round = 0; sample->accepted && round < sample->rounds; round++)
            if (sample->accepted[round] != 1)
                return false;
        known |= sample->accepted && sample->rounds > 0;
    }
    return known;
}

static void set_start(struct imported *imported, const json_t *records)
{
    const double time = document_number(json_object_get(json_array_get(records, 0), "tstamp"));
    imported->started_s = time > 0 && time < 1e11 ? (int64_t)time : ATTEMPT_ABSENT;
}

void spec_bench_read(const struct document *document, const json_t *records, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, NULL);
    const json_t *model = json_object_get(json_array_get(records, 0), "model_id");
    for (size_t i = 0; i < json_array_size(records); i++)
        add_question(imported, json_array_get(records, i));
    set_start(imported, records);
    imported->concurrency = 1;
    if (is_plain(imported))
        imported_set_auto(imported);
    else
        imported_set_linear(imported, 0);
    if (model)
        json_set(imported->source, "answers", json_incref((json_t *)model));
}
