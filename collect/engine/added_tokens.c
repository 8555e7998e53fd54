#include "collect/engine/added_tokens.h"

#include "collect/base/error.h"

#include <stdlib.h>
#include <string.h>

void added_tokens_add(struct added_tokens *added, const char *text, size_t length, int id)
{
    added->items = xrealloc(added->items, (size_t)added->count + 1, sizeof *added->items);
    struct added_token *token = &added->items[added->count++];
    *token = (struct added_token){.text = xmalloc(length), .length = length, .id = id};
    memcpy(token->text, text, length);
}

static int first_byte(const struct added_token *token)
{
    return (unsigned char)token->text[0];
}

static int compare_tokens(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    if (first_byte(a) != first_byte(b))
        return first_byte(a) - first_byte(b);
    return (a->length < b->length) - (a->length > b->length);
}

void added_tokens_sort(struct added_tokens *added)
{
    if (added->count > 0)
        qsort(added->items, (size_t)added->count, sizeof *added->items, compare_tokens);
    for (int byte = 0, i = 0; byte <= 256; byte++) {
        while (i < added->count && first_byte(&added->items[i]) < byte)
            i++;
        added->first[byte] = i;
    }
}

void added_tokens_free(struct added_tokens *added)
{
    for (int i = 0; i < added->count; i++)
        free(added->items[i].text);
    free(added->items);
    *added = (struct added_tokens){0};
}

const struct added_token *added_tokens_find(const struct added_tokens *added, const char *text, size_t size,
                                            size_t *start)
{
    for (size_t at = 0; at < size; at++) {
        int byte = (unsigned char)text[at];
        for (int i = added->first[byte]; i < added->first[byte + 1]; i++) {
            const struct added_token *token = &added->items[i];
            if (token->length <= size - at && memcmp(token->text, text + at, token->length) == 0) {
                *start = at;
                return token;
            }
        }
    }
    return NULL;
}
