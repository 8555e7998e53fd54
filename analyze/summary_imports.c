#include "analyze/summary_parts.h"

#include "collect/base/json.h"

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
