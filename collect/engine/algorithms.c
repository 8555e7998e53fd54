#include "collect/engine/algorithms.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SCHEMA "cleanslate.algorithms/1"

struct algorithms {
    char *path;
    json_t *file, *saved; /* as it is, and as it stands in the folder */
};

static void start_anew(struct algorithms *algorithms)
{
    unsigned char bytes[8];
    char id[2 * sizeof bytes + 1];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        die("the system gives no random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    algorithms->file = json_object();
    json_set(algorithms->file, "schema", json_string(SCHEMA));
    json_set(algorithms->file, "id", json_string(id));
    json_set(algorithms->file, "algorithms", json_object());
}

static int read_file(struct algorithms *algorithms, struct error *error)
{
    algorithms->file = json_read_file(algorithms->path, error);
    if (!algorithms->file)
        return -1;
    const char *schema = json_string_value(json_object_get(algorithms->file, "schema"));
    if (!schema || strcmp(schema, SCHEMA) != 0 || !json_is_string(json_object_get(algorithms->file, "id")) ||
        !json_is_object(json_object_get(algorithms->file, "algorithms")))
        return fail(error, "%s: not a file of schema " SCHEMA "; remove it, and all is chosen and measured anew",
                    algorithms->path);
    algorithms->saved = json_deep_copy(algorithms->file);
    return 0;
}

struct algorithms *algorithms_open(const char *folder, struct error *error)
{
    struct algorithms *algorithms = xcalloc(1, sizeof *algorithms);
    algorithms->path = file_join(folder, "algorithms.json");
    if (access(algorithms->path, F_OK) != 0) {
        start_anew(algorithms);
    } else if (read_file(algorithms, error)) {
        algorithms_close(algorithms);
        return NULL;
    }
    return algorithms;
}

void algorithms_close(struct algorithms *algorithms)
{
    if (!algorithms)
        return;
    json_decref(algorithms->file);
    json_decref(algorithms->saved);
    free(algorithms->path);
    free(algorithms);
}

const char *algorithms_id(const struct algorithms *algorithms)
{
    return json_string_value(json_object_get(algorithms->file, "id"));
}

json_t *algorithms_list(struct algorithms *algorithms)
{
    return json_object_get(algorithms->file, "algorithms");
}

int algorithms_save(struct algorithms *algorithms, struct error *error)
{
    if (algorithms->saved && json_equal(algorithms->file, algorithms->saved))
        return 0;
    char *text = json_dumps(algorithms->file, JSON_INDENT(2)), *whole = xformat("%s\n", text);
    int result = file_write_whole(algorithms->path, whole, strlen(whole), error);
    free(whole);
    free(text);
    json_decref(algorithms->saved);
    algorithms->saved = result ? NULL : json_deep_copy(algorithms->file);
    return result;
}
