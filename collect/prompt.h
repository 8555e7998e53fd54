/* Prompt files: what is asked of a model, each prompt with an id that is unique in its file; and what is put around it.
 *
 * A file whose name ends in .txt is one prompt, without its last newline, with the file's name as its id. Any other is
 * JSON Lines, all of one format, which shows in a line's keys: cleanslate's own ("id", "text"), chats ("messages"),
 * HumanEval and MBPP, GSM8K, MATH, MT-Bench and Spec-Bench (the first turn), Alpaca, SWE-bench,
 * LiveCodeBench. A prompt whose line has no id is called after it: line-12. */
#ifndef COLLECT_PROMPT_H
#define COLLECT_PROMPT_H

#include "collect/base/error.h"
#include "collect/engine/chat.h"

#include <jansson.h>

struct prompt {
    char *id;
    char *text;       /* UTF-8, neither empty; of a chat that prompt_apply() has not seen: its last message */
    json_t *messages; /* of a chat: [{"role", "content"}, ...], from a user's to a user's but for a system's before;
                         NULL: no chat */
    size_t fill_at;   /* the byte of the text before which filler goes: where what the user says begins */
};

struct prompts {
    struct prompt *items;
    int count;
    const char *format; /* its name, for messages */
};

/* Reads the file; blank lines do not count. Answers -1 and one line that names file, line and remedy where a line is
 * broken, of an unknown format or of another than the first, or repeats an id, or where there is no prompt at all; then
 * `prompts` is empty. */
int prompt_read_file(const char *path, struct prompts *prompts, struct error *error);
void prompt_free(struct prompts *prompts);

/* What the papers put around a benchmark's text (DFlash, arXiv 2602.06036, and DDTree, arXiv 2604.12989, whose
 * evaluations share it). Plain: the text as it is. */
enum prompt_template {
    PROMPT_TEMPLATE_PLAIN,
    PROMPT_TEMPLATE_MATH,
    PROMPT_TEMPLATE_HUMANEVAL,
    PROMPT_TEMPLATE_MBPP,
    PROMPT_TEMPLATE_ALPACA,
    PROMPT_TEMPLATE_SWE_BENCH,
    PROMPT_TEMPLATE_LIVECODEBENCH,
    PROMPT_TEMPLATE_COUNT
};
extern const char *const prompt_template_names[PROMPT_TEMPLATE_COUNT];

/* The chat template of the Qwen family around that, as one user's message, or around a chat's messages. */
enum prompt_chat { PROMPT_CHAT_NONE, PROMPT_CHAT_THINKING, PROMPT_CHAT_NO_THINKING, PROMPT_CHAT_COUNT };
extern const char *const prompt_chat_names[PROMPT_CHAT_COUNT];

/* Replaces each text by what the model is given. -1 where the template is made for files of another format, or where
 * chats are to be given as plain text. `style` is the model's, `path` is for messages. */
int prompt_apply(struct prompts *prompts, enum prompt_template template, enum prompt_chat chat,
                 const struct chat_style *style, const char *path, struct error *error);

/* What prompts are filled up from: a prompt file's texts (.jsonl), or any other file whole. free() it. NULL and a
 * message where it cannot be read, is no UTF-8 or is blank. */
char *prompt_read_corpus(const char *path, struct error *error);

#endif
