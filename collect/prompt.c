#include "collect/prompt.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/prompt_formats.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_FILE_LIMIT ((size_t)1 << 28)

struct reading {
    const char *path;
    const struct prompt_format *format; /* NULL until the first prompt */
    json_t *lines;                      /* line numbers by id */
    struct prompts *prompts;
    struct error *error;
};

/* --- JSON Lines ------------------------------------------------------------------------------------------------- */

static int check_prompt(const struct reading *reading, const struct prompt *prompt, const char *where)
{
    if (!prompt->id[0] || !prompt->text[0])
        return fail(reading->error, "%s: the %s is empty", where, prompt->id[0] ? "text" : "id");
    if (!is_printable(prompt->id))
        return fail(reading->error, "%s: the id has a control character in it; ids are printed on one line", where);
    const json_t *earlier = json_object_get(reading->lines, prompt->id);
    if (earlier)
        return fail(reading->error, "%s: the id \"%s\" is that of line %d already; ids must differ", where, prompt->id,
                    (int)json_integer_value(earlier));
    return 0;
}

/* All lines are of the first one's format. */
static int recognise(struct reading *reading, const json_t *object, const char *where)
{
    const struct prompt_format *format = prompt_format_find(object);
    if (!format && !reading->format) {
        char *list = prompt_format_list();
        int result = fail(reading->error, "%s: no known prompt format; known by their keys: %s", where, list);
        free(list);
        return result;
    }
    if (reading->format && format != reading->format)
        return fail(reading->error,
                    "%s: %s%s; the file's first line is of the format %s (\"%s\"%s%s%s), as all must be", where,
                    format ? "a line of the format " : "a line of no known format", format ? format->name : "",
                    reading->format->name, reading->format->keys[0], reading->format->keys[1] ? ", \"" : "",
                    reading->format->keys[1] ? reading->format->keys[1] : "", reading->format->keys[1] ? "\"" : "");
    reading->format = format;
    reading->prompts->format = format->name;
    return 0;
}

static int read_object(struct reading *reading, const json_t *object, const char *where, int line)
{
    if (!json_is_object(object))
        return fail(reading->error, "%s: must be an object", where);
    if (recognise(reading, object, where))
        return -1;
    struct prompts *prompts = reading->prompts;
    prompts->items = xrealloc(prompts->items, (size_t)prompts->count + 1, sizeof *prompts->items);
    struct prompt *prompt = &prompts->items[prompts->count++];
    if (prompt_format_read(reading->format, object, where, line, prompt, reading->error) ||
        check_prompt(reading, prompt, where))
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
    if (!reading->format && !strchr("{[\xEF" /* of a byte order mark */, text[blank]))
        return fail(reading->error, "%s: no JSON object; a file that is one prompt as it stands must end in .txt",
                    where);
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

/* --- text ------------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), tail = strlen(suffix);
    return length > tail && strcmp(path + length - tail, suffix) == 0;
}

static int check_text(const char *bytes, size_t size, const char *path, struct error *error)
{
    json_t *text = json_stringn(bytes, size);
    int result = 0;
    if (!text || memchr(bytes, '\0', size))
        result = fail(error, "%s: not a text in UTF-8", path);
    else if (strspn(bytes, " \t\r\n") == size)
        result = fail(error, "%s: there is no text in it", path);
    json_decref(text);
    return result;
}

static int read_whole(struct reading *reading, const char *bytes, size_t size)
{
    if (check_text(bytes, size, reading->path, reading->error))
        return -1;
    const char *slash = strrchr(reading->path, '/'), *name = slash ? slash + 1 : reading->path;
    struct prompts *prompts = reading->prompts;
    prompts->format = "text";
    prompts->items = xcalloc(1, sizeof *prompts->items);
    struct prompt *prompt = &prompts->items[prompts->count++];
    prompt->id = xstrdup(name);
    prompt->id[strlen(name) - strlen(".txt")] = '\0';
    prompt->text = xstrdup(bytes);
    if (prompt->text[size - 1] == '\n')
        prompt->text[size - 1] = '\0';
    return check_prompt(reading, prompt, reading->path);
}

/* --- files ------------------------------------------------------------------------------------------------------ */

int prompt_read_file(const char *path, struct prompts *prompts, struct error *error)
{
    *prompts = (struct prompts){0};
    size_t size;
    char *bytes = file_read(path, PROMPT_FILE_LIMIT, &size, error);
    if (!bytes)
        return -1;
    struct reading reading = {.path = path, .lines = json_object(), .prompts = prompts, .error = error};
    int result = ends_in(path, ".txt") ? read_whole(&reading, bytes, size) : read_lines(&reading, bytes, size);
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
        json_decref(prompts->items[i].messages);
    }
    free(prompts->items);
    *prompts = (struct prompts){0};
}

static char *join_texts(const struct prompts *prompts)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    for (int i = 0; stream && i < prompts->count; i++)
        fprintf(stream, "%s%s", i ? "\n\n" : "", prompts->items[i].text);
    if (!stream || fclose(stream))
        die("out of memory: a corpus of %d texts", prompts->count);
    return text;
}

char *prompt_read_corpus(const char *path, struct error *error)
{
    size_t size;
    if (ends_in(path, ".jsonl")) {
        struct prompts prompts;
        if (prompt_read_file(path, &prompts, error))
            return NULL;
        char *text = join_texts(&prompts);
        prompt_free(&prompts);
        return text;
    }
    char *text = file_read(path, PROMPT_FILE_LIMIT, &size, error);
    if (text && check_text(text, size, path, error)) {
        free(text);
        text = NULL;
    }
    return text;
}
