#include "collect/engine/tokenizer.h"

#include "collect/engine/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* One call of tokenizer_encode(). */
struct encoding {
    const struct tokenizer *tokenizer;
    pcre2_match_data *match;
    struct id_list *out;
    struct error *error;
};

typedef int encode_step(struct encoding *encoding, const char *text, size_t size);

void id_list_reserve(struct id_list *list, int more)
{
    if (list->capacity - list->count >= more)
        return;
    list->capacity = 2 * list->count + more + 16;
    list->ids = xrealloc(list->ids, (size_t)list->capacity, sizeof *list->ids);
}

struct tokenizer *tokenizer_open(const char *path, struct error *error)
{
    struct tokenizer *tokenizer = xcalloc(1, sizeof *tokenizer);
    if (tokenizer_read(path, tokenizer, error) == 0)
        return tokenizer;
    tokenizer_close(tokenizer);
    return NULL;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    vocabulary_free(&tokenizer->vocabulary);
    bpe_free(&tokenizer->bpe);
    added_tokens_free(&tokenizer->raw);
    added_tokens_free(&tokenizer->normalized);
    for (int i = 0; i < tokenizer->pattern_count; i++)
        pcre2_code_free(tokenizer->patterns[i]);
    free(tokenizer->patterns);
    free(tokenizer->before.ids);
    free(tokenizer->after.ids);
    free(tokenizer);
}

int tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.size;
}

int tokenizer_find(const struct tokenizer *tokenizer, const char *content)
{
    return vocabulary_find(&tokenizer->vocabulary, content, strlen(content));
}

/* --- encoding
 * ------------------------------------------------------------------------------------------------------------ */

static void append_ids(struct id_list *out, const struct id_list *more)
{
    id_list_reserve(out, more->count);
    if (more->count > 0)
        memcpy(out->ids + out->count, more->ids, (size_t)more->count * sizeof *out->ids);
    out->count += more->count;
}

static int encode_word(struct encoding *encoding, const char *text, size_t size)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    struct id_list *out = encoding->out;
    id_list_reserve(out, (int)size);
    int *ids = out->ids + out->count;
    int whole = tokenizer->ignore_merges ? vocabulary_find(&tokenizer->vocabulary, text, size) : -1;
    if (whole >= 0) {
        ids[0] = whole;
        out->count++;
        return 0;
    }
    for (size_t i = 0; i < size; i++)
        ids[i] = tokenizer->byte_ids[(unsigned char)text[i]];
    out->count += bpe_apply(&tokenizer->bpe, ids, (int)size);
    return 0;
}

static int encode_pieces(struct encoding *encoding, const char *text, size_t size, int pattern);

static int encode_piece(struct encoding *encoding, const char *text, size_t size, int pattern)
{
    if (size == 0)
        return 0;
    if (pattern == encoding->tokenizer->pattern_count)
        return encode_word(encoding, text, size);
    return encode_pieces(encoding, text, size, pattern);
}

/* Matches of the pattern, and what stands between them, are pieces of their own. */
static int encode_pieces(struct encoding *encoding, const char *text, size_t size, int pattern)
{
    const size_t *span = pcre2_get_ovector_pointer(encoding->match);
    size_t done = 0;
    while (done < size) {
        int found = pcre2_match(encoding->tokenizer->patterns[pattern], (PCRE2_SPTR)text, size, done,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, encoding->match, NULL);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0) {
            PCRE2_UCHAR reason[128];
            pcre2_get_error_message(found, reason, sizeof reason);
            return fail(encoding->error, "cannot split the text by the tokenizer's pattern: %s", (const char *)reason);
        }
        size_t start = span[0], end = span[1];
        if (start < done || end <= start)
            return fail(encoding->error, "the tokenizer's pattern matches backwards, which is not supported");
        if (encode_piece(encoding, text + done, start - done, pattern + 1) ||
            encode_piece(encoding, text + start, end - start, pattern + 1))
            return -1;
        done = end;
    }
    return encode_piece(encoding, text + done, size - done, pattern + 1);
}

static int encode_plain(struct encoding *encoding, const char *text, size_t size)
{
    return encode_piece(encoding, text, size, 0);
}

/* Added tokens become their ids; what stands between them goes on to `next`. */
static int encode_around(struct encoding *encoding, const struct added_tokens *added, const char *text, size_t size,
                         encode_step *next)
{
    const struct added_token *token;
    size_t start = 0;
    while ((token = added_tokens_find(added, text, size, &start))) {
        if (start > 0 && next(encoding, text, start))
            return -1;
        id_list_reserve(encoding->out, 1);
        encoding->out->ids[encoding->out->count++] = token->id;
        text += start + token->length;
        size -= start + token->length;
    }
    return size > 0 ? next(encoding, text, size) : 0;
}

/* utf8proc sorts a run of combining marks in quadratic time. No language needs a run of more than a few. */
static int check_marks(const char *text, size_t size, struct error *error)
{
    enum { MARKS_MAXIMUM = 1000 };
    int marks = 0;
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t character;
        at += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &character);
        marks = utf8proc_get_property(character)->combining_class ? marks + 1 : 0;
        if (marks > MARKS_MAXIMUM)
            return fail(error, "the text has more than %d combining marks in a row", MARKS_MAXIMUM);
    }
    return 0;
}

int tokenizer_compose(const struct tokenizer *tokenizer, const char *text, size_t *size, char **composed,
                      struct error *error)
{
    *composed = NULL;
    size_t ascii = 0;
    while (ascii < *size && (unsigned char)text[ascii] < 0x80)
        ascii++;
    if (!tokenizer->compose || ascii == *size)
        return 0;
    if (check_marks(text + ascii, *size - ascii, error))
        return -1;
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)*size, &result,
                                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length < 0)
        return fail(error, "cannot bring the text into Unicode's form C: %s", utf8proc_errmsg(length));
    *composed = (char *)result;
    *size = (size_t)length;
    return 0;
}

static int encode_composed(struct encoding *encoding, const char *text, size_t size)
{
    char *composed;
    if (tokenizer_compose(encoding->tokenizer, text, &size, &composed, encoding->error))
        return -1;
    int result =
        encode_around(encoding, &encoding->tokenizer->normalized, composed ? composed : text, size, encode_plain);
    free(composed);
    return result;
}

static int check_text(const char *text, size_t size, struct error *error)
{
    if (size > TOKENIZER_TEXT_MAXIMUM)
        return fail(error, "a text of %zu bytes is too long to be tokenized; %zu is the most", size,
                    TOKENIZER_TEXT_MAXIMUM);
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t character;
        utf8proc_ssize_t step =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &character);
        if (step <= 0)
            return fail(error, "the text is not UTF-8 at byte %zu (0x%02X)", at, (unsigned char)text[at]);
        at += (size_t)step;
    }
    return 0;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, int with_template, int **ids,
                     struct error *error)
{
    if (check_text(text, size, error))
        return -1;
    struct id_list out = {0};
    struct encoding encoding = {.tokenizer = tokenizer, .out = &out, .error = error};
    encoding.match = pcre2_match_data_create(1, NULL);
    if (!encoding.match)
        die("out of memory: a match of the tokenizer's pattern");
    if (with_template)
        append_ids(&out, &tokenizer->before);
    int result = encode_around(&encoding, &tokenizer->raw, text, size, encode_composed);
    if (with_template)
        append_ids(&out, &tokenizer->after);
    pcre2_match_data_free(encoding.match);
    if (result) {
        free(out.ids);
        return -1;
    }
    *ids = out.ids ? out.ids : xmalloc(sizeof **ids);
    return out.count;
}

/* --- decoding
 * ------------------------------------------------------------------------------------------------------------ */

char *tokenizer_decode(const struct tokenizer *tokenizer, const int *ids, int count, int skip_special, size_t *size)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    size_t used = 0, capacity = 64, length;
    char *text = xmalloc(capacity);
    for (int i = 0; i < count; i++) {
        const char *bytes = vocabulary_bytes(vocabulary, ids[i], &length);
        if (!bytes || (skip_special && vocabulary->tokens[ids[i]].special))
            continue;
        while (capacity - used <= length)
            text = xrealloc(text, capacity *= 2, 1);
        memcpy(text + used, bytes, length);
        used += length;
    }
    text[used] = '\0';
    if (size)
        *size = used;
    return text;
}
