/* JetSpec: a prompt a line, one at a time, with token ids, the time of decoding in seconds, and where it drafted the
 * tokens of each round. */
#include "collect/import/format.h"

#include "collect/base/json.h"
#include "collect/record/sample.h"

#include <stdlib.h>
#include <string.h>

/* The list's whole numbers up to `most`, *count of them; NULL where it has others, or none. */
static int *read_ints(const json_t *list, int most, int *count)
{
    const size_t size = json_array_size(list);
    int *values = size && size <= SAMPLE_TOKENS_MAXIMUM ? xcalloc(size, sizeof *values) : NULL;
    for (size_t i = 0; values && i < size; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value > most) {
            free(values);
            values = NULL;
        } else {
            values[i] = (int)value;
        }
    }
    *count = values ? (int)size : ATTEMPT_ABSENT;
    return values;
}

/* Called by its text, so that other prompts of the same numbers are not taken for it. */
static char *name_prompt(const json_t *record)
{
    char hash[FILE_HASH_SIZE];
    const json_t *prompt = json_object_get(record, "prompt");
    char *number = json_dumps(json_object_get(record, "sample"), JSON_ENCODE_ANY | JSON_COMPACT);
    if (json_is_string(prompt))
        file_hash_bytes(json_string_value(prompt), json_string_length(prompt), hash);
    char *name = json_is_string(prompt) ? xformat("%.20s-%.8s", number ? number : "?", hash)
                                        : xformat("%.20s", number ? number : "?");
    free(number);
    return name;
}

static void add(struct imported *imported, const json_t *record)
{
    char *prompt = name_prompt(record);
    struct sample *sample = imported_add_sample(imported, IMPORTED_WORKLOAD, prompt);
    const double seconds = document_number(json_object_get(record, "decode_time_s"));
    const double tokens = document_number(json_object_get(record, "num_tokens"));
    int ids;
    sample->tokens = tokens >= 0 && tokens <= SAMPLE_TOKENS_MAXIMUM ? (int)tokens : ATTEMPT_ABSENT;
    sample->token_ids = read_ints(json_object_get(record, "token_ids"), INT32_MAX, &ids);
    if (sample->token_ids && ids != sample->tokens) {
        free(sample->token_ids);
        sample->token_ids = NULL;
    }
    sample->accepted =
        read_ints(json_object_get(record, "acceptance_lengths"), SAMPLE_ACCEPTED_MAXIMUM, &sample->rounds);
    static const char *const known[] = {"sample",        "num_tokens", "token_ids", "acceptance_lengths",
                                        "decode_time_s", NULL};
    imported_keep(imported, record, known);
    sample->first_tokens = 1;
    sample->decode_ns = unit_ns(seconds, NS_OF_S);
    free(prompt);
}

void jetspec_read(const struct document *document, const json_t *records, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, NULL);
    bool drafted = false;
    for (size_t i = 0; i < json_array_size(records); i++) {
        add(imported, json_array_get(records, i));
        drafted |= json_object_get(json_array_get(records, i), "acceptance_lengths") != NULL;
    }
    imported->concurrency = 1;
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
    if (drafted)
        imported_set_linear(imported, 0);
    else
        imported_set_auto(imported);
}
