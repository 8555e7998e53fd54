#include "collect/plan_store.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

char *plan_store_name(int number)
{
    return number == 1 ? xstrdup("plan.json") : xformat("plan-%d.json", number);
}

static char *path_of(const char *folder, int number)
{
    char *name = plan_store_name(number), *path = file_join(folder, name);
    free(name);
    return path;
}

static int count_stored(const char *folder)
{
    int count = 0;
    for (bool there = true; there; count += there) {
        char *path = path_of(folder, count + 1);
        there = file_exists(path);
        free(path);
    }
    return count;
}

char *plan_store_folder(const char *runs, const char *name)
{
    return strchr(name, '/') ? xstrdup(name) : file_join(runs, name);
}

char *plan_store_find(const char *folder)
{
    int count = count_stored(folder);
    return count ? path_of(folder, count) : NULL;
}

static json_int_t blocks_of(const json_t *plan)
{
    return json_integer_value(json_object_get(plan, "blocks"));
}

/* Before the file is written, so that no amendment can go unrecorded. That blocks were added, the report says. */
static int note_amendment(const struct plan *plan, const json_t *stored, struct ledger *ledger, const char *path,
                          const char *text, struct error *error)
{
    char hash[FILE_HASH_SIZE], *copy = xstrdup(path);
    json_t *details = json_object();
    file_hash_bytes(text, strlen(text), hash);
    json_set(details, "plan", json_text(basename(copy)));
    json_set(details, "sha256", json_text(hash));
    json_set(details, "blocks_before", json_integer(blocks_of(stored)));
    json_set(details, "blocks", json_integer(blocks_of(plan->json)));
    free(copy);
    return ledger_append(ledger, LEDGER_COLLECT, "amend", details, error);
}

/* `stored`: the plan that this one amends; NULL: none. */
static int write_plan(const struct plan *plan, const json_t *stored, const char *path, struct ledger *ledger,
                      struct error *error)
{
    char *json = json_dumps(plan->json, JSON_INDENT(2)), *text = xformat("%s\n", json);
    int result = stored ? note_amendment(plan, stored, ledger, path, text, error) : 0;
    if (!result)
        result = file_write_whole(path, text, strlen(text), error);
    free(json);
    free(text);
    return result;
}

static bool has_begun(const struct ledger *ledger)
{
    size_t index;
    json_t *line;
    json_array_foreach(ledger->lines, index, line)
    {
        const char *action = json_string_value(json_object_get(line, "action"));
        if (action && strcmp(action, "begin") == 0)
            return true;
    }
    return false;
}

/* The key that is fixed when the first attempt begins, and differs; NULL: none. */
static const char *find_changed(const json_t *stored, const json_t *plan)
{
    static const char *const fixed[] = {"headline", "tuning"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const json_t *former = json_object_get(stored, fixed[i]), *now = json_object_get(plan, fixed[i]);
        if ((former || now) && !json_equal(former, now))
            return fixed[i];
    }
    return NULL;
}

int plan_store(const struct plan *plan, const char *folder, struct ledger *ledger, char **path, struct error *error)
{
    int count = count_stored(folder), result = -1;
    *path = path_of(folder, count ? count : 1);
    if (!count)
        return write_plan(plan, NULL, *path, ledger, error) ? -1 : PLAN_STORED_FIRST;
    json_t *stored = json_read_file(*path, error);
    if (!stored)
        return -1;
    if (json_equal(stored, plan->json)) {
        result = PLAN_STORED_SAME;
    } else if (find_changed(stored, plan->json) && has_begun(ledger)) {
        fail(error,
             "%s: \"%s\" differs from the one in %s; it is fixed when the first attempt begins: restore it, or measure "
             "under another \"name\"",
             plan->path, find_changed(stored, plan->json), *path);
    } else {
        free(*path);
        *path = path_of(folder, count + 1);
        result = write_plan(plan, stored, *path, ledger, error) ? -1 : PLAN_STORED_AMENDED;
    }
    json_decref(stored);
    return result;
}
