/* tokenizer.json: byte-level BPE with added tokens, a Split pattern, NFC normalisation and a template post-processor,
 * as Qwen's tokenizers use them. What the file asks for and this module does not do is refused by name.
 * Letters and spaces are what PCRE2's version of Unicode says: a character that is newer may be split in another way.
 */
#ifndef COLLECT_ENGINE_TOKENIZER_H
#define COLLECT_ENGINE_TOKENIZER_H

#include "collect/base/error.h"

#include <stddef.h>

struct tokenizer;

/* Reads the file. NULL and a message where it is damaged or asks for something unsupported. Safe to use from several
 * threads. */
struct tokenizer *tokenizer_open(const char *path, struct error *error);
void tokenizer_close(struct tokenizer *tokenizer);

/* One more than the largest token id. */
int tokenizer_size(const struct tokenizer *tokenizer);

/* Text (UTF-8; invalid bytes are refused) to ids, in *ids (free() it). Added tokens within the text are recognised.
 * with_template: the post-processor's tokens are added. Answers the number of ids, or -1. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, int with_template, int **ids,
                     struct error *error);

/* Ids to bytes, NUL-terminated, *size (may be NULL) without the NUL; free() it. skip_special: tokens marked special are
 * left out. Ids that the file lacks are left out. The bytes may end inside a character. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const int *ids, int count, int skip_special, size_t *size);

/* The id of a token by its exact content (added tokens first), or -1. */
int tokenizer_find(const struct tokenizer *tokenizer, const char *content);

#endif
