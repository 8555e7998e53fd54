#include "collect/prompt.h"

#include <stdlib.h>
#include <string.h>

/* `formats` are the files whose text it is made for, beside the project's own and plain text; none: any. */
static const struct {
    const char *before, *after;
    const char *formats[3];
} templates[PROMPT_TEMPLATE_COUNT] = {
    [PROMPT_TEMPLATE_PLAIN] = {"", "", {NULL}},
    [PROMPT_TEMPLATE_MATH] = {"",
                              "\nPlease reason step by step, and put your final answer within \\boxed{}.",
                              {"GSM8K", "MATH"}},
    [PROMPT_TEMPLATE_HUMANEVAL] = {"Write a solution to the following problem and make sure that it passes the tests:\n"
                                   "```python\n",
                                   "\n```",
                                   {"HumanEval or MBPP"}},
    [PROMPT_TEMPLATE_MBPP] = {"", "", {"HumanEval or MBPP", "MBPP"}},
    [PROMPT_TEMPLATE_ALPACA] = {"", "", {"Alpaca"}},
    [PROMPT_TEMPLATE_SWE_BENCH] = {"Problem Statement:\n", "\nPlease fix the issue described above.", {"SWE-bench"}},
    [PROMPT_TEMPLATE_LIVECODEBENCH] = {"You are an expert Python programmer. You will be given a question (problem "
                                       "specification) and will generate a correct Python program that matches the "
                                       "specification and passes all tests. You will NOT return anything except for "
                                       "the program\n\n### Question:\n",
                                       "\n\n### Answer: (use the provided format with backticks)",
                                       {"LiveCodeBench"}},
};

const char *const prompt_template_names[PROMPT_TEMPLATE_COUNT] = {
    [PROMPT_TEMPLATE_PLAIN] = "plain",
    [PROMPT_TEMPLATE_MATH] = "math",
    [PROMPT_TEMPLATE_HUMANEVAL] = "humaneval",
    [PROMPT_TEMPLATE_MBPP] = "mbpp",
    [PROMPT_TEMPLATE_ALPACA] = "alpaca",
    [PROMPT_TEMPLATE_SWE_BENCH] = "swe-bench",
    [PROMPT_TEMPLATE_LIVECODEBENCH] = "livecodebench",
};

const char *const prompt_chat_names[PROMPT_CHAT_COUNT] = {
    [PROMPT_CHAT_NONE] = "none", [PROMPT_CHAT_THINKING] = "thinking", [PROMPT_CHAT_NO_THINKING] = "no-thinking"};

static bool suits(enum prompt_template template, const char *format)
{
    const char *const *name = templates[template].formats;
    if (!*name || strcmp(format, "plain") == 0 || strcmp(format, "text") == 0)
        return true;
    while (*name && strcmp(*name, format) != 0)
        name++;
    return *name != NULL;
}

static enum chat_role find_role(const char *name)
{
    return strcmp(name, "system") == 0 ? CHAT_SYSTEM : strcmp(name, "user") == 0 ? CHAT_USER : CHAT_ASSISTANT;
}

static char *format_messages(const json_t *list, bool thinking, const struct chat_style *style, size_t *fill_at)
{
    size_t index, count = json_array_size(list);
    struct chat_message *messages = xcalloc(count, sizeof *messages);
    json_t *message;
    json_array_foreach((json_t *)list, index, message) messages[index] =
        (struct chat_message){find_role(json_string_value(json_object_get(message, "role"))),
                              json_string_value(json_object_get(message, "content"))};
    char *text = chat_format(messages, (int)count, thinking, style, fill_at);
    free(messages);
    return text;
}

static void apply(struct prompt *prompt, enum prompt_template template, enum prompt_chat chat,
                  const struct chat_style *style)
{
    char *body = xformat("%s%s%s", templates[template].before, prompt->text, templates[template].after), *text = body;
    bool thinking = chat == PROMPT_CHAT_THINKING;
    prompt->fill_at = 0;
    if (chat != PROMPT_CHAT_NONE)
        text = prompt->messages
                   ? format_messages(prompt->messages, thinking, style, &prompt->fill_at)
                   : chat_format(&(struct chat_message){CHAT_USER, body}, 1, thinking, style, &prompt->fill_at);
    if (text != body)
        free(body);
    free(prompt->text);
    prompt->text = text;
}

int prompt_apply(struct prompts *prompts, enum prompt_template template, enum prompt_chat chat,
                 const struct chat_style *style, const char *path, struct error *error)
{
    const char *name = prompt_template_names[template];
    if (!suits(template, prompts->format))
        return fail(error, "%s: template \"%s\" is not made for %s prompts; use \"plain\", or the template that is",
                    path, name, prompts->format);
    for (int i = 0; i < prompts->count; i++) {
        if (prompts->items[i].messages && chat == PROMPT_CHAT_NONE)
            return fail(error, "%s: these are chats; say \"chat\": \"thinking\" or \"no-thinking\"", path);
        apply(&prompts->items[i], template, chat, style);
    }
    return 0;
}
