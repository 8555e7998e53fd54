/* Tokens: from id to bytes and back, and the byte-level alphabet in which tokenizer.json writes bytes.
 *
 * A token's bytes are what it stands for in a text, not how the file spells them. */
#ifndef COLLECT_ENGINE_VOCABULARY_H
#define COLLECT_ENGINE_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>

struct vocabulary_token {
    size_t start, length; /* within vocabulary->bytes */
    bool known, special;
};

struct vocabulary {
    struct vocabulary_token *tokens; /* tokens[size], by id */
    int size;
    char *bytes;
    size_t bytes_used, bytes_capacity;
    int *slots; /* hash table of ids by bytes, at most half full; -1: empty */
    size_t mask;
};

/* Makes room for the ids below `size`, none of them known. */
void vocabulary_init(struct vocabulary *vocabulary, int size);
void vocabulary_free(struct vocabulary *vocabulary);

/* The id must be below the size and not known yet. Where two ids have the same bytes, the first one added is found. */
void vocabulary_add(struct vocabulary *vocabulary, int id, const char *bytes, size_t length, bool special);

/* The id of a token with these bytes, or -1. */
int vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length);

/* The token's bytes, borrowed; NULL where the id is not known. */
const char *vocabulary_bytes(const struct vocabulary *vocabulary, int id, size_t *length);

/* Translates text in the byte-level alphabet (one character a byte) into the bytes, in bytes[length] at most. Answers
 * their number, or -1 where a character is not of that alphabet. */
int vocabulary_unspell(const char *text, size_t length, char *bytes);

#endif
