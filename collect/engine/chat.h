/* The chat template of the Qwen3 family: messages to the text that an instruct model was trained to answer. chat.c
 * writes it, chat_style.c finds out which of the family's it is. */
#ifndef COLLECT_ENGINE_CHAT_H
#define COLLECT_ENGINE_CHAT_H

#include "collect/base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

/* Borrowed content. */
struct chat_message {
    enum chat_role role;
    const char *content;
};

/* What the family's templates do not have in common. Zero-initialised: as Qwen3 has it. */
struct chat_style {
    bool opens_thoughts; /* an answer that is to think opens with "<think>\n" */
    bool trims;          /* white space around what a message says is left out */
};

/* As the template in the model's folder has it: chat_template.jinja, else "chat_template" in tokenizer_config.json.
 * Where there is none, `recurrent` (the model has recurrent layers) tells Qwen3.5 and 3.6 from Qwen3. -1 where a file
 * cannot be read. */
int chat_read_style(const char *folder, bool recurrent, struct chat_style *style, struct error *error);

/* The messages in order, then the opening of the assistant's answer; no system message is invented. Thoughts in the
 * assistant's answers (all up to "</think>") that stand before the last user message are left out. thinking false: the
 * answer opens with an empty think block, so that the model answers at once. user_at (may be NULL): where in the text
 * the content of the first user message begins; left alone where there is none. free() the text. */
char *chat_format(const struct chat_message *messages, int count, bool thinking, const struct chat_style *style,
                  size_t *user_at);

#endif
