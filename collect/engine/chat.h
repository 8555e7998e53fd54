/* The chat template of the Qwen3 family: messages to the text that an instruct model was trained to answer. */
#ifndef COLLECT_ENGINE_CHAT_H
#define COLLECT_ENGINE_CHAT_H

#include <stdbool.h>
#include <stddef.h>

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

/* Borrowed content. */
struct chat_message {
    enum chat_role role;
    const char *content;
};

/* The messages in order, then the opening of the assistant's answer; no system message is invented. Thoughts in the
 * assistant's answers (all up to "</think>") that stand before the last user message are left out. thinking false: the
 * answer opens with an empty think block, so that the model answers at once. user_at (may be NULL): where in the text
 * the content of the first user message begins; left alone where there is none. free() the text. */
char *chat_format(const struct chat_message *messages, int count, bool thinking, size_t *user_at);

#endif
