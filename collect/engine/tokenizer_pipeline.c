#include "collect/engine/tokenizer_reader.h"

#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- normalizer, pre-tokenizer, decoder
 * ---------------------------------------------------------------------------------- */

static int read_compose(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    (void)object, (void)where;
    reader->tokenizer->compose = true;
    return 0;
}

const struct tokenizer_part tokenizer_normalizers[] = {{"NFC", read_compose, {"type"}}, {0}};

/* What PCRE2 and the regular expressions of Hugging Face (Oniguruma, Ruby's syntax) both take, and understand
 * differently. */
static const char *const ambiguous[] = {"&&", "\\h", "\\H", "(?m", "(?i)"};

/* Whether there is an interval with a plus behind it, as in a{1,3}+: possessive in PCRE2, a repetition of the interval
 * there. */
static bool repeats_interval(const char *pattern)
{
    for (const char *at = pattern; (at = strchr(at, '{')); at++) {
        size_t digits = strspn(at + 1, "0123456789,");
        if (digits > 0 && strncmp(at + 1 + digits, "}+", 2) == 0)
            return true;
    }
    return false;
}

/* \s is the White_Space property there; PCRE2's own \s has U+180E besides. */
static char *translate_pattern(const char *pattern)
{
    char *result = xmalloc(strlen(pattern) * 8 + 1), *to = result;
    for (const char *from = pattern; *from; from++) {
        if (from[0] != '\\' || !from[1]) {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == 's' || *from == 'S')
            to += sprintf(to, "\\%c{White_Space}", *from == 's' ? 'p' : 'P');
        else
            to += sprintf(to, "\\%c", *from);
    }
    *to = '\0';
    return result;
}

static int compile_pattern(struct tokenizer_reader *reader, const char *pattern, const char *where)
{
    for (size_t i = 0; i < sizeof ambiguous / sizeof *ambiguous; i++)
        if (strstr(pattern, ambiguous[i]))
            return fail(reader->error, "%s: the pattern has \"%s\" in it, which is not supported", where, ambiguous[i]);
    if (repeats_interval(pattern))
        return fail(reader->error, "%s: the pattern has a \"+\" behind an interval in it, which is not supported",
                    where);
    struct tokenizer *tokenizer = reader->tokenizer;
    if (tokenizer->pattern_count == TOKENIZER_PATTERNS_MAXIMUM)
        return fail(reader->error, "%s: more than %d patterns are not supported", where, TOKENIZER_PATTERNS_MAXIMUM);
    char *translated = translate_pattern(pattern);
    int number;
    PCRE2_SIZE offset;
    /* ^ and $ stand for lines there: PCRE2_MULTILINE. \C would cut a character into bytes. */
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &number, &offset, NULL);
    free(translated);
    if (!code) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(number, reason, sizeof reason);
        return fail(reader->error, "%s: the pattern cannot be used: %s", where, (const char *)reason);
    }
    /* Without the just-in-time compiler the pattern is interpreted: slower, the same result. */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    tokenizer->patterns =
        xrealloc(tokenizer->patterns, (size_t)tokenizer->pattern_count + 1, sizeof(*tokenizer->patterns));
    tokenizer->patterns[tokenizer->pattern_count++] = code;
    return 0;
}

static int read_split(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    static const char *const keys[] = {"Regex", NULL};
    const json_t *pattern = NULL;
    const char *behavior = NULL, *regex = NULL;
    const struct json_field fields[] = {
        {.key = "pattern", .type = JSON_FIELD_OBJECT, .to = &pattern, .required = true},
        {.key = "behavior", .type = JSON_FIELD_STRING, .to = &behavior, .required = true},
        {0}};
    const struct json_field inner[] = {{.key = "Regex", .type = JSON_FIELD_STRING, .to = &regex, .required = true},
                                       {0}};
    char there[TOKENIZER_WHERE_SIZE];
    snprintf(there, sizeof there, "%s.pattern", where);
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error) ||
        tokenizer_refuse_others(pattern, there, keys, reader->error) ||
        json_read_fields(pattern, there, inner, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    char quoted[TOKENIZER_VALUE_SIZE];
    if (strcmp(behavior, "Isolated") != 0)
        return fail(reader->error, "%s: \"behavior\" is %s, which is not supported; \"Isolated\" is", where,
                    tokenizer_quote(json_object_get(object, "behavior"), quoted));
    if (reader->byte_level)
        return fail(reader->error, "%s: a Split behind ByteLevel is not supported", where);
    return compile_pattern(reader, regex, there);
}

static int read_byte_level(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    /* use_regex must be given, as false: the format takes its absence for true. */
    bool use_regex;
    const struct json_field fields[] = {
        {.key = "use_regex", .type = JSON_FIELD_BOOL, .to = &use_regex, .required = true}, {0}};
    reader->byte_level = true;
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error);
}

static int read_pre_tokenizers(struct tokenizer_reader *reader, const json_t *object, const char *where);

const struct tokenizer_part tokenizer_pre_tokenizers[] = {{"Sequence", read_pre_tokenizers, {"type", "pretokenizers"}},
                                                          {"Split", read_split, {"type", "pattern", "behavior"}},
                                                          {"ByteLevel", read_byte_level, {"type", "trim_offsets"}},
                                                          {0}};

static int read_pre_tokenizers(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    return tokenizer_read_parts(reader, object, where, "pretokenizers", tokenizer_pre_tokenizers);
}

/* ByteLevel's settings change nothing in decoding. */
const struct tokenizer_part tokenizer_decoders[] = {
    {"ByteLevel", NULL, {"type", "add_prefix_space", "trim_offsets", "use_regex"}}, {0}};

/* --- post-processor
 * ------------------------------------------------------------------------------------------------------ */

static int append_template_ids(struct tokenizer_reader *reader, const json_t *ids, const char *where,
                               struct id_list *list)
{
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)ids, i, item)
    {
        int id;
        size_t length;
        if (tokenizer_read_id(item, where, &id, reader->error))
            return -1;
        if (!vocabulary_bytes(&reader->tokenizer->vocabulary, id, &length))
            return fail(reader->error, "%s: the id %d is no token of this file", where, id);
        id_list_reserve(list, 1);
        list->ids[list->count++] = id;
    }
    return 0;
}

/* One piece of "single": the text itself ("Sequence"), or a token with its ids in `special`. */
static int read_template_piece(struct tokenizer_reader *reader, const json_t *piece, const char *where,
                               const json_t *special)
{
    struct tokenizer *tokenizer = reader->tokenizer;
    const json_t *token = NULL, *sequence = NULL, *ids = NULL;
    const char *id = NULL;
    const struct json_field kinds[] = {{.key = "SpecialToken", .type = JSON_FIELD_OBJECT, .to = &token},
                                       {.key = "Sequence", .type = JSON_FIELD_OBJECT, .to = &sequence},
                                       {0}};
    if (json_read_fields(piece, where, kinds, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    if (!token == !sequence)
        return fail(reader->error, "%s: must have either \"SpecialToken\" or \"Sequence\"", where);
    const struct json_field name[] = {{.key = "id", .type = JSON_FIELD_STRING, .to = &id, .required = true}, {0}};
    if (json_read_fields(token ? token : sequence, where, name, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    if (sequence) {
        if (strcmp(id, "A") != 0 || reader->template)
            return fail(reader->error, "%s: \"single\" must hold the Sequence \"A\" once, and no other", where);
        reader->template = true;
        return 0;
    }
    const struct json_field list[] = {{.key = "ids", .type = JSON_FIELD_ARRAY, .to = &ids, .required = true}, {0}};
    const json_t *entry = json_object_get(special, id);
    if (!entry)
        return fail(reader->error, "%s: its token is missing in \"special_tokens\"", where);
    if (json_read_fields(entry, where, list, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    return append_template_ids(reader, ids, where, reader->template ? &tokenizer->after : &tokenizer->before);
}

static int read_template(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    const json_t *single = NULL, *special = NULL, *piece;
    const struct json_field fields[] = {
        {.key = "single", .type = JSON_FIELD_ARRAY, .to = &single, .required = true},
        {.key = "special_tokens", .type = JSON_FIELD_OBJECT, .to = &special, .required = true},
        {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, reader->error))
        return -1;
    if (reader->template)
        return fail(reader->error, "%s: a second TemplateProcessing is not supported", where);
    size_t i;
    json_array_foreach((json_t *)single, i, piece)
    {
        char there[TOKENIZER_WHERE_SIZE];
        snprintf(there, sizeof there, "%s.single[%zu]", where, i);
        if (read_template_piece(reader, piece, there, special))
            return -1;
    }
    if (!reader->template)
        return fail(reader->error, "%s: \"single\" lacks the Sequence \"A\"", where);
    return 0;
}

static int read_post_processors(struct tokenizer_reader *reader, const json_t *object, const char *where);

/* A post-processor ByteLevel concerns offsets alone. */
const struct tokenizer_part tokenizer_post_processors[] = {
    {"Sequence", read_post_processors, {"type", "processors"}},
    {"ByteLevel", NULL, {"type", "add_prefix_space", "trim_offsets", "use_regex"}},
    {"TemplateProcessing", read_template, {"type", "single", "pair", "special_tokens"}},
    {0}};

static int read_post_processors(struct tokenizer_reader *reader, const json_t *object, const char *where)
{
    return tokenizer_read_parts(reader, object, where, "processors", tokenizer_post_processors);
}
