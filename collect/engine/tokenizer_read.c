#include "collect/engine/tokenizer_reader.h"

#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values and parts
 * ---------------------------------------------------------------------------------------------------- */

const char *tokenizer_quote(const json_t *value, char *quoted)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) : xstrdup("missing");
    if (!text)
        die("cannot write JSON");
    int written = snprintf(quoted, TOKENIZER_VALUE_SIZE, "%s", text);
    if (written >= TOKENIZER_VALUE_SIZE)
        memcpy(quoted + TOKENIZER_VALUE_SIZE - 4, "...", 4);
    free(text);
    return quoted;
}

static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

int tokenizer_refuse_others(const json_t *object, const char *where, const char *const *keys, struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        int i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        char name[TOKENIZER_VALUE_SIZE], quoted[TOKENIZER_VALUE_SIZE];
        if (keys[i] || is_off(value))
            continue;
        json_t *key_text = json_string(key);
        fail(error, "%s: %s is %s, which is not supported", where, tokenizer_quote(key_text, name),
             tokenizer_quote(value, quoted));
        json_decref(key_text);
        return -1;
    }
    return 0;
}

int tokenizer_read_part(struct tokenizer_reader *reader, const json_t *object, const char *where,
                        const struct tokenizer_part *parts)
{
    const json_t *type = NULL;
    const struct json_field fields[] = {{.key = "type", .type = JSON_FIELD_ANY, .to = &type, .required = true}, {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    const char *name = json_string_value(type);
    for (const struct tokenizer_part *part = parts; name && part->type; part++) {
        if (strcmp(part->type, name) != 0)
            continue;
        if (tokenizer_refuse_others(object, where, part->keys, reader->error))
            return -1;
        return part->read ? part->read(reader, object, where) : 0;
    }
    char quoted[TOKENIZER_VALUE_SIZE];
    return fail(reader->error, "%s: \"type\" is %s, which is not supported", where, tokenizer_quote(type, quoted));
}

int tokenizer_read_parts(struct tokenizer_reader *reader, const json_t *object, const char *where, const char *key,
                         const struct tokenizer_part *parts)
{
    const json_t *list = NULL, *item;
    const struct json_field fields[] = {{.key = key, .type = JSON_FIELD_ARRAY, .to = &list, .required = true}, {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    size_t i;
    json_array_foreach((json_t *)list, i, item)
    {
        char there[TOKENIZER_WHERE_SIZE];
        snprintf(there, sizeof there, "%s.%s[%zu]", where, key, i);
        if (tokenizer_read_part(reader, item, there, parts))
            return -1;
    }
    return 0;
}

int tokenizer_read_id(const json_t *value, const char *where, int *id, struct error *error)
{
    char quoted[TOKENIZER_VALUE_SIZE];
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= TOKENIZER_ID_LIMIT)
        return fail(error, "%s: the id is %s; it must be a whole number from 0 to %d", where,
                    tokenizer_quote(value, quoted), TOKENIZER_ID_LIMIT - 1);
    *id = (int)json_integer_value(value);
    return 0;
}

/* --- tokens
 * -------------------------------------------------------------------------------------------------------------- */

/* Checks all ids and answers one more than the largest. */
static int read_size(struct tokenizer_reader *reader)
{
    int size = 0, id;
    const char *key;
    json_t *value;
    char where[TOKENIZER_WHERE_SIZE], quoted[TOKENIZER_VALUE_SIZE];
    json_object_foreach((json_t *)reader->vocab, key, value)
    {
        snprintf(where, sizeof where, "%s: model.vocab", reader->path);
        if (!key[0])
            return fail(reader->error, "%s: an empty token is not supported", where);
        if (tokenizer_read_id(value, where, &id, reader->error))
            return -1;
        if (id >= size)
            size = id + 1;
    }
    size_t i;
    json_array_foreach((json_t *)reader->added, i, value)
    {
        snprintf(where, sizeof where, "%s: added_tokens[%zu]", reader->path, i);
        if (!json_is_object(value))
            return fail(reader->error, "%s: is %s; it must be an object", where, tokenizer_quote(value, quoted));
        if (tokenizer_read_id(json_object_get(value, "id"), where, &id, reader->error))
            return -1;
        if (id >= size)
            size = id + 1;
    }
    return size;
}

static int add_added_token(struct tokenizer_reader *reader, const char *content, int id, bool normalized)
{
    struct tokenizer *tokenizer = reader->tokenizer;
    size_t length = strlen(content);
    char *composed = NULL;
    if (normalized && tokenizer_compose(tokenizer, content, &length, &composed, reader->error))
        return -1;
    added_tokens_add(normalized ? &tokenizer->normalized : &tokenizer->raw, composed ? composed : content, length, id);
    free(composed);
    return 0;
}

static int read_added_token(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    static const char *const keys[] = {"id", "content", "special", "normalized", NULL};
    struct vocabulary *vocabulary = &reader->tokenizer->vocabulary;
    int id = 0;
    const char *content = NULL;
    bool special = false, normalized = false;
    const struct json_field fields[] = {
        {.key = "id", .type = JSON_FIELD_INT, .to = &id, .required = true},
        {.key = "content", .type = JSON_FIELD_STRING, .to = &content, .required = true},
        {.key = "special", .type = JSON_FIELD_BOOL, .to = &special, .required = true},
        {.key = "normalized", .type = JSON_FIELD_BOOL, .to = &normalized, .required = true},
        {0}};
    if (tokenizer_refuse_others(object, where, keys, reader->error) ||
        json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    char quoted[TOKENIZER_VALUE_SIZE];
    tokenizer_quote(json_object_get(object, "content"), quoted);
    if (!content[0])
        return fail(reader->error, "%s: an empty token is not supported", where);
    if (vocabulary_find(vocabulary, content, strlen(content)) >= 0)
        return fail(reader->error, "%s: the token %s is added twice", where, quoted);
    if (vocabulary->tokens[id].known)
        return fail(reader->error, "%s: the id %d of %s is another token's", where, id, quoted);
    const json_t *known = json_object_get(reader->vocab, content);
    if (known && json_integer_value(known) != id)
        return fail(reader->error, "%s: the token %s has the id %d, but %d in model.vocab", where, quoted, id,
                    (int)json_integer_value(known));
    vocabulary_add(vocabulary, id, content, strlen(content), special);
    return add_added_token(reader, content, id, normalized);
}

static int read_added_tokens(struct tokenizer_reader *reader)
{
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)reader->added, i, item)
    {
        char where[TOKENIZER_WHERE_SIZE];
        snprintf(where, sizeof where, "%s: added_tokens[%zu]", reader->path, i);
        if (read_added_token(reader, item, where))
            return -1;
    }
    added_tokens_sort(&reader->tokenizer->raw);
    added_tokens_sort(&reader->tokenizer->normalized);
    return 0;
}

/* Tokens that are spelled outside the byte-level alphabet stand for themselves. */
static void add_token(struct vocabulary *vocabulary, int id, const char *spelled)
{
    size_t length = strlen(spelled);
    char *bytes = xmalloc(length);
    int count = vocabulary_unspell(spelled, length, bytes);
    if (count >= 0)
        vocabulary_add(vocabulary, id, bytes, (size_t)count, false);
    else
        vocabulary_add(vocabulary, id, spelled, length, false);
    free(bytes);
}

/* The byte that is spelled so, or -1. */
static int spelled_byte(const char *spelled)
{
    char bytes[2];
    size_t length = strlen(spelled);
    return length <= sizeof bytes && vocabulary_unspell(spelled, length, bytes) == 1 ? (unsigned char)bytes[0] : -1;
}

static int read_vocab(struct tokenizer_reader *reader)
{
    struct vocabulary *vocabulary = &reader->tokenizer->vocabulary;
    int *byte_ids = reader->tokenizer->byte_ids;
    const char *key;
    json_t *value;
    for (int byte = 0; byte < 256; byte++)
        byte_ids[byte] = -1;
    json_object_foreach((json_t *)reader->vocab, key, value)
    {
        int id = (int)json_integer_value(value);
        size_t length;
        const char *known = vocabulary_bytes(vocabulary, id, &length);
        if (!known)
            add_token(vocabulary, id, key);
        else if (strlen(key) != length || memcmp(key, known, length) != 0)
            return fail(reader->error, "%s: model.vocab: two tokens have the id %d", reader->path, id);
        int byte = spelled_byte(key);
        if (byte >= 0)
            byte_ids[byte] = id;
    }
    for (int byte = 0; byte < 256; byte++)
        if (byte_ids[byte] < 0)
            return fail(reader->error, "%s: model.vocab: no token for the byte 0x%02X; all 256 must be there",
                        reader->path, byte);
    return 0;
}

/* --- merges
 * -------------------------------------------------------------------------------------------------------------- */

/* A merge's two tokens as the file spells them. */
struct halves {
    const char *left, *right;
    size_t left_length, right_length;
};

/* "left right", or ["left", "right"]. */
static bool read_halves(const json_t *merge, struct halves *halves)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(left) && json_is_string(right) && json_array_size(merge) == 2) {
        *halves = (struct halves){json_string_value(left), json_string_value(right), json_string_length(left),
                                  json_string_length(right)};
        return true;
    }
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return false;
    *halves = (struct halves){text, space + 1, (size_t)(space - text), strlen(space + 1)};
    return true;
}

/* The id of a token as the file spells it, or -1. */
static int find_spelled(const struct tokenizer_reader *reader, const char *text, size_t length)
{
    const json_t *id = json_object_getn(reader->vocab, text, length);
    return id ? (int)json_integer_value(id) : -1;
}

static int read_merge(struct tokenizer_reader *reader, const json_t *merge, int rank)
{
    struct halves halves;
    char quoted[TOKENIZER_VALUE_SIZE];
    if (!read_halves(merge, &halves))
        return fail(reader->error, "%s: model.merges[%d]: %s is not a pair of tokens", reader->path, rank,
                    tokenizer_quote(merge, quoted));
    size_t length = halves.left_length + halves.right_length;
    char *whole = xmalloc(length);
    memcpy(whole, halves.left, halves.left_length);
    memcpy(whole + halves.left_length, halves.right, halves.right_length);
    int left = find_spelled(reader, halves.left, halves.left_length);
    int right = find_spelled(reader, halves.right, halves.right_length);
    int merged = find_spelled(reader, whole, length);
    free(whole);
    if (left < 0 || right < 0 || merged < 0)
        return fail(reader->error, "%s: model.merges[%d]: %s: %s is not in model.vocab", reader->path, rank,
                    tokenizer_quote(merge, quoted),
                    left < 0    ? "the first token"
                    : right < 0 ? "the second token"
                                : "what they become");
    if (bpe_add(&reader->tokenizer->bpe, left, right, rank, merged))
        return fail(reader->error, "%s: model.merges[%d]: %s is there twice", reader->path, rank,
                    tokenizer_quote(merge, quoted));
    return 0;
}

static int read_merges(struct tokenizer_reader *reader, const json_t *merges)
{
    if (json_array_size(merges) > TOKENIZER_MERGES_MAXIMUM)
        return fail(reader->error, "%s: model.merges: %zu merges; %d are the most", reader->path,
                    json_array_size(merges), TOKENIZER_MERGES_MAXIMUM);
    bpe_init(&reader->tokenizer->bpe, (int)json_array_size(merges));
    const json_t *merge;
    size_t rank;
    json_array_foreach((json_t *)merges, rank, merge)
    {
        if (read_merge(reader, merge, (int)rank))
            return -1;
    }
    return 0;
}

/* --- the file
 * ------------------------------------------------------------------------------------------------------------ */

static int read_bpe(struct tokenizer_reader *reader, const json_t *model, const char *where)
{
    const json_t *merges = NULL;
    const struct json_field fields[] = {
        {.key = "vocab", .type = JSON_FIELD_OBJECT, .to = &reader->vocab, .required = true},
        {.key = "merges", .type = JSON_FIELD_ARRAY, .to = &merges, .required = true},
        {.key = "ignore_merges", .type = JSON_FIELD_BOOL, .to = &reader->tokenizer->ignore_merges},
        {0}};
    if (json_read_fields(model, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    int size = read_size(reader);
    if (size < 0)
        return -1;
    vocabulary_init(&reader->tokenizer->vocabulary, size);
    if (read_added_tokens(reader) || read_vocab(reader))
        return -1;
    return read_merges(reader, merges);
}

static const struct tokenizer_part models[] = {{"BPE", read_bpe, {"type", "vocab", "merges", "ignore_merges"}}, {0}};

/* An absent or null part does nothing. */
static int read_optional(struct tokenizer_reader *reader, const json_t *file, const char *key,
                         const struct tokenizer_part *parts)
{
    char where[TOKENIZER_WHERE_SIZE];
    const json_t *object = json_object_get(file, key);
    snprintf(where, sizeof where, "%s: %s", reader->path, key);
    return !object || json_is_null(object) ? 0 : tokenizer_read_part(reader, object, where, parts);
}

/* The parts in the order in which they need each other: added tokens are normalised, the post-processor names tokens.
 */
static const struct {
    const char *key;
    const struct tokenizer_part *parts;
} file_parts[] = {{"normalizer", tokenizer_normalizers},
                  {"pre_tokenizer", tokenizer_pre_tokenizers},
                  {"decoder", tokenizer_decoders},
                  {"model", models},
                  {"post_processor", tokenizer_post_processors}};

static int read_file(struct tokenizer_reader *reader, const json_t *file)
{
    static const char *const keys[] = {"version",        "added_tokens", "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder",      "model",      NULL};
    const json_t *required = NULL;
    const struct json_field fields[] = {
        {.key = "model", .type = JSON_FIELD_OBJECT, .to = &required, .required = true},
        {.key = "decoder", .type = JSON_FIELD_OBJECT, .to = &required, .required = true},
        {.key = "added_tokens", .type = JSON_FIELD_ARRAY, .to = &reader->added},
        {0}};
    if (json_read_fields(file, reader->path, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error) ||
        tokenizer_refuse_others(file, reader->path, keys, reader->error))
        return -1;
    for (size_t i = 0; i < sizeof file_parts / sizeof *file_parts; i++)
        if (read_optional(reader, file, file_parts[i].key, file_parts[i].parts))
            return -1;
    if (!reader->byte_level)
        return fail(reader->error, "%s: pre_tokenizer: lacks ByteLevel; only byte-level tokenizers are supported",
                    reader->path);
    return 0;
}

int tokenizer_read(const char *path, struct tokenizer *tokenizer, struct error *error)
{
    json_t *file = json_read_file(path, error);
    if (!file)
        return -1;
    struct tokenizer_reader reader = {.path = path, .tokenizer = tokenizer, .error = error};
    int result = read_file(&reader, file);
    json_decref(file);
    return result;
}
