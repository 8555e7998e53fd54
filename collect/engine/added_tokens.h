/* Added tokens: pieces of text that become one token each before anything else looks at the text. */
#ifndef COLLECT_ENGINE_ADDED_TOKENS_H
#define COLLECT_ENGINE_ADDED_TOKENS_H

#include <stddef.h>

struct added_token {
    char *text;
    size_t length; /* never 0 */
    int id;
};

struct added_tokens {
    struct added_token *items; /* after sorting: by first byte, then the longest first */
    int count;
    int first[257]; /* items[first[b]..first[b + 1]-1] begin with byte b */
};

/* Copies the text. */
void added_tokens_add(struct added_tokens *added, const char *text, size_t length, int id);

/* To be called after the last was added, and before any is looked for. */
void added_tokens_sort(struct added_tokens *added);
void added_tokens_free(struct added_tokens *added);

/* The leftmost added token in text[size], of several there the longest; *start says where. NULL: none. */
const struct added_token *added_tokens_find(const struct added_tokens *added, const char *text, size_t size,
                                            size_t *start);

#endif
