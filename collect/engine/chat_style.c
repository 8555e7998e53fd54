#include "collect/engine/chat.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

#define TEMPLATE_LIMIT ((size_t)1 << 20)

/* A template, or the default one of several. NULL: none. */
static const char *find_template(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *named = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(named, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(named, "template"));
    }
    return json_string_value(value);
}

/* Of tokenizer_config.json, in *text (free() it); NULL where there is none. */
static int read_config(const char *path, char **text, struct error *error)
{
    json_t *config = json_read_file(path, error);
    if (!config)
        return -1;
    const char *template = find_template(json_object_get(config, "chat_template"));
    *text = template ? xstrdup(template) : NULL;
    json_decref(config);
    return 0;
}

static int read_template(const char *folder, char **text, struct error *error)
{
    char *file = file_join(folder, "chat_template.jinja"), *config = file_join(folder, "tokenizer_config.json");
    size_t size;
    int result = 0;
    *text = NULL;
    if (file_exists(file))
        result = (*text = file_read(file, TEMPLATE_LIMIT, &size, error)) ? 0 : -1;
    else if (file_exists(config))
        result = read_config(config, text, error);
    free(file);
    free(config);
    return result;
}

/* What the template puts behind the messages is a string that ends with an open thought, beside the empty one that all
 * have. */
static bool opens_thoughts(const char *template)
{
    const char *opening = template;
    for (const char *found; (found = strstr(opening, "add_generation_prompt"));)
        opening = found + 1;
    return opening != template && (strstr(opening, "<think>\\n'") || strstr(opening, "<think>\\n\""));
}

int chat_read_style(const char *folder, bool recurrent, struct chat_style *style, struct error *error)
{
    char *template;
    *style = (struct chat_style){recurrent, recurrent};
    if (read_template(folder, &template, error))
        return -1;
    if (template)
        *style = (struct chat_style){opens_thoughts(template), strstr(template, "|trim") || strstr(template, "| trim")};
    free(template);
    return 0;
}
