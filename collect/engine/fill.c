#include "collect/engine/fill.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATOR "\n\n"

enum {
    BYTES_A_TOKEN = 8, /* a first guess, generous */
    BACK_TOKENS = 32,  /* how much earlier the filler may end */
    SPARE_TOKENS = 64, /* room to move both cuts in */
    STEPS = 6          /* of the front towards the length, each by what is missing */
};

struct filling {
    const struct tokenizer *tokenizer;
    const char *text;
    size_t at;
    int *filler, filler_count; /* tokens of the corpus's end */
};

static int count_tokens(const struct tokenizer *tokenizer, const char *text, struct error *error)
{
    int *ids = NULL, count = tokenizer_encode(tokenizer, text, strlen(text), true, &ids, error);
    free(ids);
    return count;
}

/* --- the corpus's end ------------------------------------------------------------------------------------------- */

static bool within_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* About the last `bytes` bytes of the endless corpus, from a character's start on. */
static char *take_end(const char *corpus, size_t bytes)
{
    size_t length = strlen(corpus) + strlen(SEPARATOR), copies = bytes / length + 1;
    char *whole = xmalloc(copies * length + 1), *at = whole;
    for (size_t i = 0; i < copies; i++)
        at = stpcpy(i ? stpcpy(at, SEPARATOR) : at, corpus);
    const char *start = (size_t)(at - whole) > bytes ? at - bytes : whole;
    while (within_character(*start))
        start++;
    char *end = xstrdup(start);
    free(whole);
    return end;
}

/* Encodes so much of the corpus that it has `least` tokens. */
static int encode_end(struct filling *filling, const char *corpus, int least, struct error *error)
{
    for (size_t bytes = (size_t)least * BYTES_A_TOKEN;; bytes *= 2) {
        char *end = take_end(corpus, bytes);
        filling->filler_count = tokenizer_encode(filling->tokenizer, end, strlen(end), false, &filling->filler, error);
        free(end);
        if (filling->filler_count < 0 || filling->filler_count >= least)
            return filling->filler_count < 0 ? -1 : 0;
        free(filling->filler);
        filling->filler = NULL;
        if (bytes > (size_t)1 << 32)
            return fail(error, "the corpus has too few tokens for its size");
    }
}

/* --- the cut ---------------------------------------------------------------------------------------------------- */

/* The text behind `count` tokens of filler that end `back` tokens before the corpus does; *tokens: how many the whole
 * has, -1 where a cut lies within a character. */
static char *compose(const struct filling *filling, int count, int back, int *tokens)
{
    const int *first = filling->filler + filling->filler_count - back - count;
    char *filler = tokenizer_decode(filling->tokenizer, first, count, false, NULL);
    char *whole =
        xformat("%.*s%s" SEPARATOR "%s", (int)filling->at, filling->text, filler, filling->text + filling->at);
    struct error ignored = {0};
    *tokens = within_character(filler[0]) ? -1 : count_tokens(filling->tokenizer, whole, &ignored);
    free(filler);
    return whole;
}

/* A cut within a word may cost a token more than it should, so that one length or another is never met; then the filler
 * ends a little earlier. */
static char *find_cut(const struct filling *filling, int tokens, int wanted)
{
    for (int back = 0; back < BACK_TOKENS; back++) {
        int count = wanted, have = 0;
        for (int step = 0; step < STEPS && count >= 1 && count + back <= filling->filler_count; step++) {
            char *whole = compose(filling, count, back, &have);
            if (have == tokens)
                return whole;
            free(whole);
            count += have < 0 ? 1 : tokens - have;
        }
    }
    return NULL;
}

char *fill_text(const struct tokenizer *tokenizer, const char *text, size_t at, const char *corpus, int tokens,
                struct error *error)
{
    struct filling filling = {.tokenizer = tokenizer, .text = text, .at = at};
    int alone = count_tokens(tokenizer, text, error);
    if (alone < 0)
        return NULL;
    if (alone > tokens) {
        fail(error, "%d tokens alone, more than the context of %d that it is to be filled up to", alone, tokens);
        return NULL;
    }
    if (alone == tokens)
        return xstrdup(text);
    char *whole = NULL;
    if (!encode_end(&filling, corpus, tokens - alone + SPARE_TOKENS, error) &&
        !(whole = find_cut(&filling, tokens, tokens - alone)))
        fail(error, "%d tokens alone, and no cut of the corpus makes them %d; choose another length", alone, tokens);
    free(filling.filler);
    return whole;
}
