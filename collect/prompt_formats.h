/* The formats of prompt files, one table; prompt.c alone uses it. */
#ifndef COLLECT_PROMPT_FORMATS_H
#define COLLECT_PROMPT_FORMATS_H

#include "collect/prompt.h"

struct prompt_format {
    const char *name;
    const char *keys[3]; /* all of them are in a line of the format */
    const char *ids[3];  /* keys of the id, the first that is there */
    const char *text;    /* key of the text */
    int (*read)(const struct prompt_format *format, const json_t *object, const char *where, struct prompt *prompt,
                struct error *error);
};

/* NULL where the object is of no known format. */
const struct prompt_format *prompt_format_find(const json_t *object);

/* Reads one line of the format; `line` names it where it has no id. The prompt's members are set as far as reading
 * came, also after -1. */
int prompt_format_read(const struct prompt_format *format, const json_t *object, const char *where, int line,
                       struct prompt *prompt, struct error *error);

/* All formats with their keys, for messages; free() it. */
char *prompt_format_list(void);

#endif
