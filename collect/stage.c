#include "collect/stage.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/machine.h"
#include "collect/progress.h"
#include "collect/record/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GIGABYTE 1e9

/* A folder while it is staged. */
struct staging {
    const struct plan_stage *stage;
    json_t *known; /* files as the ledger's last line on the folder has them; NULL: none. Borrowed */
    json_t *files; /* {name: {"bytes", "modified_ns", "sha256"}} of the original */
    struct progress *progress;
    const char *copying;
    double copied_bytes, said_bytes; /* of the file at hand */
    int copied;
};

/* --- what is there ------------------------------------------------------------------------------------------------ */

typedef int on_file(struct staging *staging, const char *name, struct error *error);

/* Calls `visit` for each file of the folder; folders in it, and what begins with a dot, are passed over. */
static int visit_files(struct staging *staging, const char *folder, on_file *visit, struct error *error)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return fail_errno(error, "%s: cannot read the folder", folder);
    int result = 0;
    for (struct dirent *entry; !result && (errno = 0, entry = readdir(stream));) {
        struct stat status;
        char *path = file_join(folder, entry->d_name);
        if (entry->d_name[0] != '.' && (stat(path, &status) || S_ISREG(status.st_mode)))
            result = visit(staging, entry->d_name, error);
        free(path);
    }
    if (!result && errno)
        result = fail_errno(error, "%s: cannot read the folder", folder);
    closedir(stream);
    return result;
}

static int note_original(struct staging *staging, const char *name, struct error *error)
{
    struct stat status;
    char *path = file_join(staging->stage->original, name);
    int result = stat(path, &status) ? fail_errno(error, "%s: cannot read", path) : 0;
    free(path);
    if (result)
        return -1;
    json_t *file = json_object();
    json_set(file, "bytes", json_integer(status.st_size));
    json_set(file, "modified_ns",
             json_integer((json_int_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec));
    json_set(staging->files, name, file);
    return 0;
}

static bool is_part(const char *name)
{
    const size_t length = strlen(name), ending = strlen(FILE_COPY_ENDING);
    return length > ending && strcmp(name + length - ending, FILE_COPY_ENDING) == 0;
}

/* Half a copy goes; anything else may be taken for a part of the model. */
static int check_staged(struct staging *staging, const char *name, struct error *error)
{
    if (json_object_get(staging->files, name))
        return 0;
    char *path = file_join(staging->stage->folder, name);
    int result = is_part(name) ? file_remove(path, error)
                               : fail(error, "%s: is not in the original, %s; remove it, or stage to another folder",
                                      path, staging->stage->original);
    free(path);
    return result;
}

/* --- copying ------------------------------------------------------------------------------------------------------ */

static void tell(void *context, size_t bytes)
{
    struct staging *staging = context;
    staging->copied_bytes += (double)bytes;
    if (staging->copied_bytes - staging->said_bytes < GIGABYTE)
        return;
    staging->said_bytes = staging->copied_bytes;
    progress_say(staging->progress, "%s: %.0f GB of %s", staging->stage->folder, staging->copied_bytes / GIGABYTE,
                 staging->copying);
}

static int copy(struct staging *staging, const char *name, json_t *file, const char *from, const char *to,
                struct error *error)
{
    char hash[FILE_HASH_SIZE];
    progress_say(staging->progress, "%s: copying %s, %.1f MB, from %s", staging->stage->folder, name,
                 json_number_value(json_object_get(file, "bytes")) / 1e6, staging->stage->original);
    staging->copying = name;
    staging->copied_bytes = staging->said_bytes = 0;
    if (file_copy(from, to, hash, tell, staging, error))
        return -1;
    staging->copied++;
    json_set(file, "sha256", json_string(hash));
    return 0;
}

/* What the ledger knows of the original as it is now; NULL: nothing. */
static const char *known_hash(const struct staging *staging, const char *name, const json_t *file)
{
    const json_t *known = json_object_get(staging->known, name);
    const bool same = json_equal(json_object_get(known, "bytes"), json_object_get(file, "bytes")) &&
                      json_equal(json_object_get(known, "modified_ns"), json_object_get(file, "modified_ns"));
    return same ? json_string_value(json_object_get(known, "sha256")) : NULL;
}

static bool has_size(const char *path, const json_t *file)
{
    struct stat status;
    return stat(path, &status) == 0 && status.st_size == json_integer_value(json_object_get(file, "bytes"));
}

static int stage_file(struct staging *staging, const char *name, json_t *file, struct error *error)
{
    char *from = file_join(staging->stage->original, name), *to = file_join(staging->stage->folder, name);
    char expected[FILE_HASH_SIZE] = "", staged[FILE_HASH_SIZE];
    const char *known = known_hash(staging, name, file);
    int result = 0;
    if (!has_size(to, file)) {
        result = copy(staging, name, file, from, to, error);
        goto out;
    }
    if (known)
        snprintf(expected, sizeof expected, "%s", known);
    if ((!known && file_hash(from, expected, error)) || file_hash(to, staged, error))
        result = -1;
    else if (strcmp(expected, staged) != 0)
        result = copy(staging, name, file, from, to, error);
    else
        json_set(file, "sha256", json_string(expected));
out:
    free(from);
    free(to);
    return result;
}

/* --- the ledger --------------------------------------------------------------------------------------------------- */

static json_t *find_known(const struct ledger *ledger, const struct plan_stage *stage)
{
    for (size_t i = json_array_size(ledger->lines); i-- > 0;) {
        const json_t *line = json_array_get(ledger->lines, i);
        const char *action = json_string_value(json_object_get(line, "action"));
        const char *original = json_string_value(json_object_get(line, "original"));
        const char *folder = json_string_value(json_object_get(line, "folder"));
        if (action && original && folder && strcmp(action, "stage") == 0 && strcmp(original, stage->original) == 0 &&
            strcmp(folder, stage->folder) == 0)
            return json_object_get(line, "files");
    }
    return NULL;
}

/* Nothing where it is as the ledger's last line says. */
static int note(const struct staging *staging, struct ledger *ledger, struct error *error)
{
    char boot_id[MACHINE_BOOT_ID_SIZE];
    if (!staging->copied && staging->known && json_equal(staging->known, staging->files))
        return 0;
    json_t *details = json_object();
    json_set(details, "original", json_text(staging->stage->original));
    json_set(details, "folder", json_text(staging->stage->folder));
    machine_boot_id(boot_id);
    json_set(details, "boot_id", json_text(boot_id));
    json_set(details, "copied", json_integer(staging->copied));
    json_set(details, "files", json_incref(staging->files));
    return ledger_append(ledger, LEDGER_COLLECT, "stage", details, error);
}

static int stage_folder(const struct plan_stage *stage, struct ledger *ledger, struct progress *progress,
                        struct error *error)
{
    struct staging staging = {
        .stage = stage, .known = find_known(ledger, stage), .files = json_object(), .progress = progress};
    int result = -1;
    const char *name;
    json_t *file;
    if (visit_files(&staging, stage->original, note_original, error) || file_make_folder(stage->folder, error) ||
        visit_files(&staging, stage->folder, check_staged, error))
        goto out;
    if (!json_object_size(staging.files)) {
        fail(error, "%s: holds no files to stage", stage->original);
        goto out;
    }
    json_object_foreach(staging.files, name, file) if (stage_file(&staging, name, file, error)) goto out;
    result = note(&staging, ledger, error);
out:
    json_decref(staging.files);
    return result;
}

int stage_prepare(const struct plan *plan, const char *runs, struct error *error)
{
    struct ledger ledger;
    struct progress progress;
    char *run = file_join(runs, plan->name);
    int result = 0;
    if (!plan->stage_count)
        goto out;
    progress_init(&progress);
    result = file_make_folder(run, error) || ledger_open(run, &ledger, error) ? -1 : 0;
    if (result)
        goto out;
    for (int i = 0; !result && i < plan->stage_count; i++)
        result = stage_folder(&plan->stages[i], &ledger, &progress, error);
    ledger_close(&ledger);
out:
    free(run);
    return result;
}
