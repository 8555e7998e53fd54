#include "collect/engine/vocabulary.h"

#include "collect/base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void vocabulary_init(struct vocabulary *vocabulary, int size)
{
    size_t slots = 2;
    while (slots < 2 * (size_t)size)
        slots *= 2;
    *vocabulary = (struct vocabulary){.size = size, .mask = slots - 1};
    vocabulary->tokens = xcalloc((size_t)size, sizeof *vocabulary->tokens);
    vocabulary->slots = xmalloc(slots * sizeof *vocabulary->slots);
    memset(vocabulary->slots, -1, slots * sizeof *vocabulary->slots);
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->bytes);
    free(vocabulary->slots);
    *vocabulary = (struct vocabulary){0};
}

/* FNV-1a. */
static uint64_t hash_bytes(const char *bytes, size_t length)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return hash ^ hash >> 32;
}

/* The slot of the id with these bytes, or the empty one where it belongs. */
static int *find_slot(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    size_t at = (size_t)hash_bytes(bytes, length) & vocabulary->mask;
    for (;; at = (at + 1) & vocabulary->mask) {
        int *slot = &vocabulary->slots[at];
        if (*slot < 0)
            return slot;
        const struct vocabulary_token *token = &vocabulary->tokens[*slot];
        if (token->length == length && memcmp(vocabulary->bytes + token->start, bytes, length) == 0)
            return slot;
    }
}

void vocabulary_add(struct vocabulary *vocabulary, int id, const char *bytes, size_t length, bool special)
{
    while (vocabulary->bytes_capacity - vocabulary->bytes_used < length) {
        vocabulary->bytes_capacity = 2 * vocabulary->bytes_capacity + 4096;
        vocabulary->bytes = xrealloc(vocabulary->bytes, vocabulary->bytes_capacity, 1);
    }
    memcpy(vocabulary->bytes + vocabulary->bytes_used, bytes, length);
    vocabulary->tokens[id] =
        (struct vocabulary_token){.start = vocabulary->bytes_used, .length = length, .known = true, .special = special};
    vocabulary->bytes_used += length;
    int *slot = find_slot(vocabulary, bytes, length);
    if (*slot < 0)
        *slot = id;
}

int vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    return *find_slot(vocabulary, bytes, length);
}

const char *vocabulary_bytes(const struct vocabulary *vocabulary, int id, size_t *length)
{
    if (id < 0 || id >= vocabulary->size || !vocabulary->tokens[id].known)
        return NULL;
    *length = vocabulary->tokens[id].length;
    return vocabulary->bytes + vocabulary->tokens[id].start;
}

/* The byte that a character of the alphabet stands for, or -1. Bytes that print in Latin-1 are written as themselves;
 * the other 68 (0 to 32, 127 to 160, 173), in order, as U+0100 to U+0143. */
static int byte_of_character(int32_t character)
{
    if ((character >= '!' && character <= '~') || (character >= 161 && character <= 255 && character != 173))
        return character;
    int32_t other = character - 0x100;
    if (other < 0 || other > 67)
        return -1;
    return other <= 32 ? other : other <= 66 ? other - 33 + 127 : 173;
}

int vocabulary_unspell(const char *text, size_t length, char *bytes)
{
    int count = 0;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t character;
        utf8proc_ssize_t step =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &character);
        int byte = step > 0 ? byte_of_character(character) : -1;
        if (byte < 0)
            return -1;
        bytes[count++] = (char)byte;
        at += (size_t)step;
    }
    return count;
}
