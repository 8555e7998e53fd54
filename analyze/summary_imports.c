#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

/* The entry of the file; made where it is new. */
static json_t *find_entry(json_t *files, const json_t *source)
{
    const json_t *hash = json_object_get(source, "sha256");
    size_t i;
    json_t *entry;
    json_array_foreach(files, i, entry) if (json_equal(json_object_get(entry, "sha256"), hash)) return entry;
    entry = json_object();
    json_set(entry, "file", json_deep_copy(json_object_get(source, "file")));
    json_set(entry, "sha256", json_deep_copy(hash));
    json_set(entry, "attempts", json_array());
    json_append(files, entry);
    return entry;
}

static void add(json_t *files, const json_t *source, const char *attempt)
{
    if (json_is_string(json_object_get(source, "file")) && json_is_string(json_object_get(source, "sha256")))
        json_append(json_object_get(find_entry(files, source), "attempts"), json_text(attempt));
}

static void append_text_once(json_t *array, const json_t *text)
{
    size_t i;
    json_t *known;
    json_array_foreach(array, i, known) if (json_equal(known, text)) return;
    if (json_is_string(text))
        json_append(array, json_deep_copy(text));
}

static void keep_common(json_t *source, const json_t *other)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(source, next, key, value) if (!json_equal(value, json_object_get(other, key)))
        json_object_del(source, key);
}

/* "JetSpec, llama-bench". */
static json_t *join(const json_t *texts)
{
    char *joined = xstrdup("");
    size_t i;
    json_t *text;
    json_array_foreach(texts, i, text)
    {
        char *longer = xformat("%s%s%s", joined, i ? ", " : "", json_string_value(text));
        free(joined);
        joined = longer;
    }
    json_t *value = json_text(joined);
    free(joined);
    return value;
}

void summary_keep_common_source(const struct cells *cells, json_t *source)
{
    json_t *tools = json_array();
    for (int i = 0; i < cells->count; i++)
        for (int block = 0; block < cells->blocks; block++) {
            const struct judged *counted = cells->items[i].blocks[block].counted;
            if (!counted || !counted->attempt.header || !attempt_is_imported(&counted->attempt))
                continue;
            const json_t *other = json_object_get(counted->attempt.header, "source");
            append_text_once(tools, json_object_get(other, "tool"));
            keep_common(source, other);
        }
    if (json_array_size(tools) > 1)
        json_set(source, "tool", join(tools));
    json_decref(tools);
}

json_t *summary_make_imports(const struct run *run)
{
    json_t *files = json_array();
    for (int i = 0; i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        const json_t *import = json_object_get(attempt->header, "import"), *also = json_object_get(import, "also");
        if (!attempt->header || !attempt_is_imported(attempt))
            continue;
        add(files, import, attempt->id);
        for (size_t j = 0; j < json_array_size(also); j++)
            add(files, json_array_get(also, j), attempt->id);
    }
    return files;
}
