#include "collect/engine/recorded_trees.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

#define SCHEMA "cleanslate.trees/1"
#define BUDGET (TREE_NODES_MAXIMUM - 1)

static int read_parents(const json_t *tree, const char *where, int *parents, struct error *error)
{
    const json_t *list = NULL;
    const struct json_field fields[] = {{"parents", JSON_FIELD_ARRAY, &list, .required = true}, {0}};
    if (json_read_fields(tree, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    if (json_array_size(list) != BUDGET)
        return fail(error, "%s: a tree of %zu nodes; %d are needed, so that it serves every budget", where,
                    json_array_size(list), BUDGET);
    parents[0] = -1;
    for (int node = 1; node <= BUDGET; node++) {
        const json_t *parent = json_array_get(list, (size_t)node - 1);
        json_int_t index = json_integer_value(parent);
        if (!json_is_integer(parent) || index < 0 || index >= node)
            return fail(error, "%s: the parent of node %d must be a node before it", where, node);
        parents[node] = (int)index;
    }
    return 0;
}

static int read_trees(const json_t *file, const char *path, struct recorded_trees *trees, struct error *error)
{
    const char *schema = NULL, *source = NULL;
    const json_t *list = NULL;
    const struct json_field fields[] = {{"schema", JSON_FIELD_STRING, &schema, .required = true},
                                        {"source", JSON_FIELD_STRING, &source, .required = true},
                                        {"trees", JSON_FIELD_ARRAY, &list, .required = true},
                                        {0}};
    if (json_read_fields(file, path, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    if (strcmp(schema, SCHEMA) != 0)
        return fail(error, "%s: schema \"%s\"; this version reads \"%s\"", path, schema, SCHEMA);
    if (json_array_size(list) == 0)
        return fail(error, "%s: \"trees\" is empty", path);
    trees->source = xstrdup(source);
    trees->parents = xcalloc(json_array_size(list), sizeof *trees->parents);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int *parents = trees->parents[trees->count++] = xcalloc(TREE_NODES_MAXIMUM, sizeof *parents);
        if (read_parents(json_array_get(list, i), path, parents, error))
            return -1;
    }
    return 0;
}

int recorded_trees_read(const char *path, struct recorded_trees *trees, struct error *error)
{
    *trees = (struct recorded_trees){0};
    json_t *file = json_read_file(path, error);
    int result = file ? read_trees(file, path, trees, error) : -1;
    json_decref(file);
    if (result)
        recorded_trees_free(trees);
    return result;
}

void recorded_trees_free(struct recorded_trees *trees)
{
    for (int i = 0; i < trees->count; i++)
        free(trees->parents[i]);
    free(trees->parents);
    free(trees->source);
    *trees = (struct recorded_trees){0};
}

json_t *recorded_tree_to_json(const char *prompt, const struct tree *tree)
{
    json_t *entry = json_object(), *parents = json_array();
    for (int node = 1; node < tree->count; node++)
        json_append(parents, json_integer(tree->parents[node]));
    json_set(entry, "prompt", json_text(prompt));
    json_set(entry, "parents", parents);
    return entry;
}

int recorded_trees_write(const char *path, const char *source, json_t *trees, struct error *error)
{
    json_t *file = json_object();
    json_set(file, "schema", json_string(SCHEMA));
    json_set(file, "source", json_text(source));
    json_set(file, "trees", json_incref(trees));
    char *text = json_dumps(file, JSON_COMPACT), *line = xformat("%s\n", text);
    int result = file_write_whole(path, line, strlen(line), error);
    free(line);
    free(text);
    json_decref(file);
    return result;
}
