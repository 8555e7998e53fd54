/* Prompt files: what is asked of a model, each prompt with an id that is unique in its file.
 *
 * JSON Lines; which format it is shows in the keys of the first line. Known: {"id": "...", "text": "..."}. */
#ifndef COLLECT_PROMPT_H
#define COLLECT_PROMPT_H

#include "collect/base/error.h"

struct prompt {
    char *id;
    char *text; /* UTF-8, neither empty */
};

struct prompts {
    struct prompt *items;
    int count;
};

/* Reads the file; blank lines do not count. Answers -1 and one line that names file, line and remedy where a line is
 * broken, lacks a key or has one too many, repeats an id, or where there is no prompt at all; then `prompts` is empty.
 */
int prompt_read_file(const char *path, struct prompts *prompts, struct error *error);
void prompt_free(struct prompts *prompts);

#endif
