#include "collect/prompt_formats.h"

#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_text(const json_t *value, const char *key, const char *where, char **text, struct error *error)
{
    if (!json_is_string(value))
        return fail(error, "%s: \"%s\" must be a string", where, key);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return fail(error, "%s: \"%s\" has a NUL character in it", where, key);
    *text = xstrdup(json_string_value(value));
    return 0;
}

/* --- readers ---------------------------------------------------------------------------------------------------- */

static int read_text(const struct prompt_format *format, const json_t *object, const char *where, struct prompt *prompt,
                     struct error *error)
{
    return copy_text(json_object_get(object, format->text), format->text, where, &prompt->text, error);
}

/* The project's own format is strict: what it does not know is a mistake. */
static int read_own(const struct prompt_format *format, const json_t *object, const char *where, struct prompt *prompt,
                    struct error *error)
{
    const char *id, *text;
    const struct json_field fields[] = {{.key = "id", .type = JSON_FIELD_STRING, .to = &id, .required = true},
                                        {.key = "text", .type = JSON_FIELD_STRING, .to = &text, .required = true},
                                        {0}};
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error)
               ? -1
               : read_text(format, object, where, prompt, error);
}

static int read_first_turn(const struct prompt_format *format, const json_t *object, const char *where,
                           struct prompt *prompt, struct error *error)
{
    const json_t *turns = json_object_get(object, format->text);
    if (!json_is_array(turns) || json_array_size(turns) == 0)
        return fail(error, "%s: \"%s\" must be a list of at least one text", where, format->text);
    return copy_text(json_array_get(turns, 0), "turns[0]", where, &prompt->text, error);
}

/* The input, where there is one, stands behind the instruction as the papers have it. */
static int read_instruction(const struct prompt_format *format, const json_t *object, const char *where,
                            struct prompt *prompt, struct error *error)
{
    char *instruction = NULL, *input = NULL;
    const json_t *given = json_object_get(object, "input");
    int result = copy_text(json_object_get(object, format->text), format->text, where, &instruction, error);
    if (!result && given && !json_is_null(given))
        result = copy_text(given, "input", where, &input, error);
    if (!result)
        prompt->text = input && input[0] ? xformat("%s\n\nInput:\n%s", instruction, input) : xstrdup(instruction);
    free(instruction);
    free(input);
    return result;
}

/* What the answer is to look like stands behind the question as the papers have it. */
static int read_question(const struct prompt_format *format, const json_t *object, const char *where,
                         struct prompt *prompt, struct error *error)
{
    char *question = NULL, *starter = NULL;
    const json_t *given = json_object_get(object, "starter_code");
    int result = copy_text(json_object_get(object, format->text), format->text, where, &question, error);
    if (!result && given && !json_is_null(given))
        result = copy_text(given, "starter_code", where, &starter, error);
    bool starts = starter && starter[0];
    if (!result)
        prompt->text = xformat("%s\n\n### Format: %s:\n```python\n%s\n```", question,
                               starts ? "Use the following code structure" : "Write your code in the following format",
                               starts ? starter : "# YOUR CODE HERE");
    free(question);
    free(starter);
    return result;
}

/* A system's message first, if any; then the user's, in the end too. */
static int check_message(const json_t *message, size_t index, size_t count, bool opened, const char *where,
                         struct error *error)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    if (!role || (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return fail(error, "%s: messages[%zu]: \"role\" must be \"system\", \"user\" or \"assistant\"", where, index);
    if (!json_is_string(content) || strlen(json_string_value(content)) != json_string_length(content))
        return fail(error, "%s: messages[%zu]: \"content\" must be a text", where, index);
    if (strcmp(role, "system") == 0 && index > 0)
        return fail(error, "%s: messages[%zu]: a system's message must be the first", where, index);
    if (!opened && strcmp(role, "assistant") == 0)
        return fail(error, "%s: messages[%zu]: the user must speak first", where, index);
    if (index + 1 == count && strcmp(role, "user") != 0)
        return fail(error, "%s: messages[%zu]: the last message must be the user's, for the model to answer", where,
                    index);
    return 0;
}

static int read_messages(const struct prompt_format *format, const json_t *object, const char *where,
                         struct prompt *prompt, struct error *error)
{
    json_t *messages = json_object_get(object, format->text), *message;
    size_t index, count = json_array_size(messages);
    bool opened = false;
    if (!json_is_array(messages) || count == 0)
        return fail(error, "%s: \"%s\" must be a list of at least one message", where, format->text);
    json_array_foreach(messages, index, message)
    {
        if (check_message(message, index, count, opened, where, error))
            return -1;
        opened = opened || strcmp(json_string_value(json_object_get(message, "role")), "user") == 0;
    }
    prompt->messages = json_incref(messages);
    prompt->text = xstrdup(json_string_value(json_object_get(json_array_get(messages, count - 1), "content")));
    return 0;
}

/* --- the table -------------------------------------------------------------------------------------------------- */

static const struct prompt_format formats[] = {
    {"plain", {"id", "text"}, {"id"}, "text", read_own},
    {"chat", {"messages"}, {"id"}, "messages", read_messages},
    {"MT-Bench or Spec-Bench", {"question_id", "turns"}, {"question_id"}, "turns", read_first_turn},
    {"HumanEval or MBPP", {"task_id", "prompt"}, {"task_id"}, "prompt", read_text},
    {"MBPP", {"task_id", "text"}, {"task_id"}, "text", read_text},
    {"GSM8K", {"question", "answer"}, {"id"}, "question", read_text},
    {"MATH", {"problem"}, {"unique_id", "id"}, "problem", read_text},
    {"MATH", {"prompt", "answer"}, {"unique_id", "id"}, "prompt", read_text},
    {"Alpaca", {"instruction"}, {"id"}, "instruction", read_instruction},
    {"SWE-bench", {"instance_id", "problem_statement"}, {"instance_id"}, "problem_statement", read_text},
    {"LiveCodeBench", {"question_id", "question_content"}, {"question_id"}, "question_content", read_question},
};

enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

const struct prompt_format *prompt_format_find(const json_t *object)
{
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const char *const *key = formats[i].keys;
        while (*key && json_object_get(object, *key))
            key++;
        if (!*key)
            return &formats[i];
    }
    return NULL;
}

/* Numbers are ids too. */
static int read_id(const struct prompt_format *format, const json_t *object, const char *where, int line, char **id,
                   struct error *error)
{
    const json_t *value = NULL;
    const char *const *key = format->ids;
    while (*key && !(value = json_object_get(object, *key)))
        key++;
    if (json_is_string(value))
        return copy_text(value, *key, where, id, error);
    if (value && !json_is_integer(value))
        return fail(error, "%s: \"%s\" must be a string or a whole number", where, *key);
    *id = value ? xformat("%lld", (long long)json_integer_value(value)) : xformat("line-%d", line);
    return 0;
}

int prompt_format_read(const struct prompt_format *format, const json_t *object, const char *where, int line,
                       struct prompt *prompt, struct error *error)
{
    *prompt = (struct prompt){0};
    return format->read(format, object, where, prompt, error) ||
                   read_id(format, object, where, line, &prompt->id, error)
               ? -1
               : 0;
}

char *prompt_format_list(void)
{
    char *list = xstrdup("");
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const char *const *keys = formats[i].keys;
        char *longer = xformat("%s%s%s (\"%s\"%s%s%s)", list, i ? ", " : "", formats[i].name, keys[0],
                               keys[1] ? ", \"" : "", keys[1] ? keys[1] : "", keys[1] ? "\"" : "");
        free(list);
        list = longer;
    }
    return list;
}
