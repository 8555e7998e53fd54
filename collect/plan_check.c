#include "collect/plan_check.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/plan_store.h"

#include <stdlib.h>
#include <string.h>

int plan_check_note(const char *folder, const char *name, json_t *details, struct error *error)
{
    char hash[FILE_HASH_SIZE], *path = file_join(folder, name);
    int result = file_hash(path, hash, error);
    if (!result) {
        json_set(details, "plan", json_text(name));
        json_set(details, "plan_sha256", json_text(hash));
    }
    free(path);
    return result;
}

struct check {
    const char *folder;
    plan_on_problem *tell;
    void *context;
    /* By plan: the different hashes under which attempts were begun, and the last that an amendment noted (before that
     * the program ended, and wrote no plan). */
    json_t *begun, *amended;
    int files;
};

static void read_notes(struct check *check, const struct ledger *ledger)
{
    size_t index;
    json_t *line;
    check->begun = json_object();
    check->amended = json_object();
    json_array_foreach(ledger->lines, index, line)
    {
        const char *action = json_string_value(json_object_get(line, "action"));
        const char *plan = json_string_value(json_object_get(line, "plan"));
        bool begins = action && strcmp(action, "begin") == 0;
        json_t *hash = json_object_get(line, begins ? "plan_sha256" : "sha256");
        if (!plan || !json_is_string(hash) || (!begins && (!action || strcmp(action, "amend") != 0)))
            continue;
        if (!begins) {
            json_set(check->amended, plan, json_incref(hash));
            continue;
        }
        if (!json_object_get(check->begun, plan))
            json_set(check->begun, plan, json_object());
        json_set(json_object_get(check->begun, plan), json_string_value(hash), json_true());
    }
}

/* A plan whose file is there. */
static void check_file(struct check *check, const char *plan, const char *path)
{
    char hash[FILE_HASH_SIZE];
    struct error error = {0};
    const json_t *begun = json_object_get(check->begun, plan), *amended = json_object_get(check->amended, plan);
    if (!begun && !amended) {
        if (strcmp(plan, "plan.json") != 0)
            check->tell(
                check->context,
                xformat("%s: is a plan that the ledger never noted; move it away, and give it to `collect run`", path));
        return;
    }
    check->files++;
    if (file_hash(path, hash, &error))
        check->tell(check->context, xstrdup(error.message));
    else if ((amended && strcmp(hash, json_string_value(amended)) != 0) ||
             (begun && (json_object_size(begun) != 1 || !json_object_get(begun, hash))))
        check->tell(check->context, xformat("%s: is not the plan that the ledger noted; restore it from a copy", path));
}

/* Plans that are kept one behind the other; answers how many. */
static int check_stored(struct check *check)
{
    for (int number = 1;; number++) {
        char *name = plan_store_name(number), *path = file_join(check->folder, name);
        bool there = file_exists(path);
        if (there)
            check_file(check, name, path);
        free(path);
        free(name);
        if (!there)
            return number - 1;
    }
}

/* Plans that the ledger noted, and that are not among those: never written, gone, or behind one that is gone. */
static void check_others(struct check *check, json_t *noted, int stored)
{
    const char *plan;
    json_t *note;
    json_object_foreach(noted, plan, note)
    {
        bool is_stored = false;
        for (int number = 1; number <= stored && !is_stored; number++) {
            char *name = plan_store_name(number);
            is_stored = strcmp(name, plan) == 0;
            free(name);
        }
        char *path = file_join(check->folder, plan), *missing = plan_store_name(stored + 1);
        if (!is_stored && file_exists(path))
            check->tell(check->context, xformat("%s/%s: is gone, but not %s, which amends it; restore it from a copy",
                                                check->folder, missing, plan));
        else if (!is_stored && noted == check->begun)
            check->tell(check->context,
                        xformat("%s: is gone, and attempts were begun under it; restore it from a copy", path));
        free(path);
        free(missing);
    }
}

int plan_check_each(const char *folder, const struct ledger *ledger, plan_on_problem *tell, void *context)
{
    struct check check = {.folder = folder, .tell = tell, .context = context};
    read_notes(&check, ledger);
    int stored = check_stored(&check);
    check_others(&check, check.begun, stored);
    check_others(&check, check.amended, stored);
    json_decref(check.begun);
    json_decref(check.amended);
    return check.files;
}

static void keep_first(void *context, char *problem)
{
    fail(context, "%s", problem);
    free(problem);
}

int plan_check(const char *folder, const struct ledger *ledger, struct error *error)
{
    struct error problem = {0};
    plan_check_each(folder, ledger, keep_first, &problem);
    return problem.message[0] ? fail(error, "%s", problem.message) : 0;
}
