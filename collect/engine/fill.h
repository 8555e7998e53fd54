/* Prompts of a given length: a text with filler before it, cut so that the whole has so many tokens. */
#ifndef COLLECT_ENGINE_FILL_H
#define COLLECT_ENGINE_FILL_H

#include "collect/engine/tokenizer.h"

#include <stddef.h>

/* The filler is the end of `corpus`, repeated with a blank line between where it is too short, cut in front between two
 * tokens; a blank line parts it from what follows the text's byte `at`. Where no cut in front makes the length, the
 * filler ends a few tokens before the corpus does. The answer encodes (template included) to exactly `tokens` ids;
 * free() it. NULL and the numbers where the text alone has more, or where no cut makes that number. */
char *fill_text(const struct tokenizer *tokenizer, const char *text, size_t at, const char *corpus, int tokens,
                struct error *error);

#endif
