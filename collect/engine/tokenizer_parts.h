/* What a tokenizer is made of: filled from tokenizer.json by tokenizer_read.c, used by tokenizer.c. Nobody else
 * includes this. */
#ifndef COLLECT_ENGINE_TOKENIZER_PARTS_H
#define COLLECT_ENGINE_TOKENIZER_PARTS_H

#define PCRE2_CODE_UNIT_WIDTH 8

#include "collect/base/error.h"
#include "collect/engine/added_tokens.h"
#include "collect/engine/bpe.h"
#include "collect/engine/vocabulary.h"

#include <pcre2.h>
#include <stdbool.h>

/* The longest text for one call, in bytes. */
#define TOKENIZER_TEXT_MAXIMUM ((size_t)1 << 26)

struct id_list {
    int *ids;
    int count, capacity;
};

struct tokenizer {
    struct vocabulary vocabulary;
    struct bpe bpe;
    int byte_ids[256];
    bool compose; /* Unicode normalisation form C */
    bool ignore_merges;
    struct added_tokens raw;        /* looked for in the text as it is */
    struct added_tokens normalized; /* looked for in what is left, after normalisation */
    pcre2_code **patterns;          /* each splits every piece that the one before left */
    int pattern_count;
    struct id_list before, after; /* the post-processor's */
};

/* Fills a zeroed tokenizer. What was filled is given back by tokenizer_close() in any case. */
int tokenizer_read(const char *path, struct tokenizer *tokenizer, struct error *error);

/* Room for `more` ids behind the list's last. */
void id_list_reserve(struct id_list *list, int more);

/* `text` in normalisation form C where the tokenizer wants it: *composed is NULL (the text is as it should be) or the
 * new text, to be free()d, and *size its length. */
int tokenizer_compose(const struct tokenizer *tokenizer, const char *text, size_t *size, char **composed,
                      struct error *error);

#endif
