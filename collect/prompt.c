#include "collect/prompt.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_FILE_LIMIT ((size_t)1 << 28)

/* A format of prompt files. */
struct prompt_format {
    const char *keys[4]; /* the first line has one of these */
    int (*read)(const json_t *object, const char *where, struct prompt *prompt, struct error *error);
};

struct reading {
    const char *path;
    const struct prompt_format *format; /* NULL until the first prompt */
    json_t *lines;                      /* line numbers by id */
    struct prompts *prompts;
    struct error *error;
};

static int read_own(const json_t *object, const char *where, struct prompt *prompt, struct error *error)
{
    const char *id = NULL, *text = NULL;
    const struct json_field fields[] = {{.key = "id", .type = JSON_FIELD_STRING, .to = &id, .required = true},
                                        {.key = "text", .type = JSON_FIELD_STRING, .to = &text, .required = true},
                                        {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    *prompt = (struct prompt){xstrdup(id), xstrdup(text)};
    return 0;
}

static const struct prompt_format formats[] = {{{"id", "text"}, read_own}};

static const struct prompt_format *recognise_format(const json_t *object)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (const char *const *key = formats[i].keys; *key; key++)
            if (json_object_get(object, *key))
                return &formats[i];
    return NULL;
}

static int check_prompt(const struct reading *reading, const struct prompt *prompt, const char *where)
{
    if (!prompt->id[0] || !prompt->text[0])
        return fail(reading->error, "%s: the %s is empty", where, prompt->id[0] ? "text" : "id");
    for (const char *at = prompt->id; *at; at++)
        if (iscntrl((unsigned char)*at))
            return fail(reading->error, "%s: the id has a control character in it; ids are printed on one line", where);
    const json_t *earlier = json_object_get(reading->lines, prompt->id);
    if (earlier)
        return fail(reading->error, "%s: the id \"%s\" is that of line %d already; ids must differ", where, prompt->id,
                    (int)json_integer_value(earlier));
    return 0;
}

static int read_object(struct reading *reading, const json_t *object, const char *where, int line)
{
    if (!reading->format)
        reading->format = recognise_format(object);
    if (!reading->format)
        return fail(reading->error, "%s: no known prompt format; a line is {\"id\": \"...\", \"text\": \"...\"}",
                    where);
    struct prompts *prompts = reading->prompts;
    prompts->items = xrealloc(prompts->items, (size_t)prompts->count + 1, sizeof *prompts->items);
    struct prompt *prompt = &prompts->items[prompts->count];
    if (reading->format->read(object, where, prompt, reading->error))
        return -1;
    prompts->count++;
    if (check_prompt(reading, prompt, where))
        return -1;
    json_set(reading->lines, prompt->id, json_integer(line));
    return 0;
}

static int read_line(struct reading *reading, const char *text, size_t size, int line)
{
    size_t blank = 0;
    while (blank < size && isspace((unsigned char)text[blank]))
        blank++;
    if (blank == size)
        return 0;
    char where[512];
    snprintf(where, sizeof where, "%s:%d", reading->path, line);
    json_t *object = json_read_text(text, size, where, reading->error);
    if (!object)
        return -1;
    int result = read_object(reading, object, where, line);
    json_decref(object);
    return result;
}

static int read_lines(struct reading *reading, const char *bytes, size_t size)
{
    int line = 1;
    for (size_t start = 0; start < size; line++) {
        const char *end = memchr(bytes + start, '\n', size - start);
        size_t length = end ? (size_t)(end - (bytes + start)) : size - start;
        if (read_line(reading, bytes + start, length, line))
            return -1;
        start += length + 1;
    }
    if (reading->prompts->count == 0)
        return fail(reading->error, "%s: no prompts in it; write one {\"id\": \"...\", \"text\": \"...\"} a line",
                    reading->path);
    return 0;
}

int prompt_read_file(const char *path, struct prompts *prompts, struct error *error)
{
    *prompts = (struct prompts){0};
    size_t size;
    char *bytes = file_read(path, PROMPT_FILE_LIMIT, &size, error);
    if (!bytes)
        return -1;
    struct reading reading = {.path = path, .lines = json_object(), .prompts = prompts, .error = error};
    int result = read_lines(&reading, bytes, size);
    if (result)
        prompt_free(prompts);
    json_decref(reading.lines);
    free(bytes);
    return result;
}

void prompt_free(struct prompts *prompts)
{
    for (int i = 0; i < prompts->count; i++) {
        free(prompts->items[i].id);
        free(prompts->items[i].text);
    }
    free(prompts->items);
    *prompts = (struct prompts){0};
}
