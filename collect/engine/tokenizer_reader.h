/* Reading tokenizer.json: what tokenizer_read.c (the file, its tokens and merges) and tokenizer_pipeline.c (what is
 * done to a text before and after) share. Nobody else includes this. */
#ifndef COLLECT_ENGINE_TOKENIZER_READER_H
#define COLLECT_ENGINE_TOKENIZER_READER_H

#include "collect/engine/tokenizer_parts.h"

#include <jansson.h>

/* Sizes of texts in messages: a place in the file, a value. */
enum { TOKENIZER_WHERE_SIZE = 512, TOKENIZER_VALUE_SIZE = 96, TOKENIZER_KEYS_MAXIMUM = 8 };

/* Ids are below the first; there are no more merges and patterns than the others. */
enum { TOKENIZER_ID_LIMIT = 1 << 22, TOKENIZER_MERGES_MAXIMUM = 1 << 23, TOKENIZER_PATTERNS_MAXIMUM = 16 };

struct tokenizer_reader {
    const char *path;
    struct tokenizer *tokenizer;
    const json_t *vocab;       /* ids by token, as the file spells them; borrowed */
    const json_t *added;       /* the array of added tokens, or NULL; borrowed */
    bool byte_level, template; /* whether a ByteLevel and a TemplateProcessing were read already */
    struct error *error;
};

/* A kind of normalizer, pre-tokenizer, ... that is supported. */
struct tokenizer_part {
    const char *type;                                                                      /* NULL ends a table */
    int (*read)(struct tokenizer_reader *reader, const json_t *object, const char *where); /* NULL: nothing to read */
    const char *keys[TOKENIZER_KEYS_MAXIMUM]; /* any other key must be absent or switched off */
};

extern const struct tokenizer_part tokenizer_normalizers[], tokenizer_pre_tokenizers[], tokenizer_decoders[],
    tokenizer_post_processors[];

/* Reads the object by the part of its "type". */
int tokenizer_read_part(struct tokenizer_reader *reader, const json_t *object, const char *where,
                        const struct tokenizer_part *parts);

/* Reads the objects of the array `key`, in order. */
int tokenizer_read_parts(struct tokenizer_reader *reader, const json_t *object, const char *where, const char *key,
                         const struct tokenizer_part *parts);

/* Refuses each key that is not in the list (NULL ends it), unless its value is null, false, 0 or empty. */
int tokenizer_refuse_others(const json_t *object, const char *where, const char *const *keys, struct error *error);

int tokenizer_read_id(const json_t *value, const char *where, int *id, struct error *error);

/* The value as JSON on one line, cut where it is long, in quoted[TOKENIZER_VALUE_SIZE]; "missing" for NULL. Answers
 * `quoted`. */
const char *tokenizer_quote(const json_t *value, char *quoted);

#endif
