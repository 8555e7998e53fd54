#include "collect/record/run.h"

#include "collect/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- finding attempts --------------------------------------------------------------------------------------------- */

/* What a path RUN/attempts/ARM/BLOCK-TRY.jsonl says of its attempt. */
struct place {
    char *path;
    struct arm arm;
    int block, try_number;
};

struct places {
    struct place *items;
    int count, capacity;
};

/* False where it is no attempt's name: a file that is being written, or somebody else's. */
static bool parse_file_name(const char *name, struct place *place)
{
    int block, try_number;
    char canonical[64];
    if (sscanf(name, "%9d-%9d.jsonl", &block, &try_number) != 2 || block < 1 || block > ATTEMPT_BLOCK_MAXIMUM ||
        try_number < 1 || try_number > ATTEMPT_TRY_MAXIMUM)
        return false;
    snprintf(canonical, sizeof canonical, "%d-%d.jsonl", block, try_number);
    if (strcmp(canonical, name) != 0)
        return false;
    place->block = block;
    place->try_number = try_number;
    return true;
}

static void add_place(struct places *places, const struct place *place)
{
    if (places->count == places->capacity) {
        places->capacity = places->capacity ? 2 * places->capacity : 64;
        places->items = xrealloc(places->items, (size_t)places->capacity, sizeof *places->items);
    }
    places->items[places->count++] = *place;
}

typedef int on_entry(const char *folder, const char *name, struct places *places, struct error *error);

/* Calls `visit` for each name in the folder. One that is not there is empty. */
static int visit_folder(const char *folder, on_entry *visit, struct places *places, struct error *error)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return errno == ENOENT ? 0 : fail_errno(error, "%s: cannot read the folder", folder);
    int result = 0;
    for (struct dirent *entry; !result && (errno = 0, entry = readdir(stream));)
        result = visit(folder, entry->d_name, places, error);
    if (!result && errno)
        result = fail_errno(error, "%s: cannot read the folder", folder);
    closedir(stream);
    return result;
}

static int visit_file(const char *folder, const char *name, struct places *places, struct error *error)
{
    (void)error;
    struct place place = {0};
    if (!parse_file_name(name, &place) || !arm_parse(strrchr(folder, '/') + 1, &place.arm))
        return 0;
    place.path = file_join(folder, name);
    add_place(places, &place);
    return 0;
}

static int visit_arm(const char *folder, const char *name, struct places *places, struct error *error)
{
    struct arm arm;
    if (!arm_parse(name, &arm))
        return 0;
    char *path = file_join(folder, name);
    int result = visit_folder(path, visit_file, places, error);
    free(path);
    return result;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *first = a, *second = b;
    char first_name[ARM_NAME_SIZE], second_name[ARM_NAME_SIZE];
    int order = strcmp(arm_name(&first->arm, first_name), arm_name(&second->arm, second_name));
    if (order)
        return order;
    if (first->block != second->block)
        return first->block < second->block ? -1 : 1;
    return (first->try_number > second->try_number) - (first->try_number < second->try_number);
}

/* --- reading and judging ------------------------------------------------------------------------------------------ */

static int check_place(const struct attempt *attempt, const struct place *place, struct error *error)
{
    if (arm_equal(&attempt->arm, &place->arm) && attempt->block == place->block &&
        attempt->try_number == place->try_number)
        return 0;
    return fail(error, "%s: its first line says \"%s\"; the file was moved or copied", place->path, attempt->id);
}

/* What cannot be read is known by its path alone. */
static void init_unreadable(const struct place *place, const char *run_name, struct attempt *attempt)
{
    char name[ARM_NAME_SIZE];
    *attempt = (struct attempt){
        .arm = place->arm, .block = place->block, .try_number = place->try_number, .position = ATTEMPT_ABSENT};
    attempt->path = xstrdup(place->path);
    attempt->id = xformat("%s/%s/%d-%d", run_name, arm_name(&place->arm, name), place->block, place->try_number);
    attempt->audit.tokens = ATTEMPT_ABSENT;
}

static void read_attempt(const struct place *place, const char *run_name, const struct rule_settings *settings,
                         struct judged *judged)
{
    struct error reason = {0};
    int result = attempt_read(place->path, &judged->attempt, &reason);
    if (!result && check_place(&judged->attempt, place, &reason)) {
        attempt_free(&judged->attempt);
        result = -1;
    }
    if (!result) {
        rule_judge_attempt(&judged->attempt, settings, &judged->verdicts);
        return;
    }
    init_unreadable(place, run_name, &judged->attempt);
    verdicts_add(&judged->verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "%s", reason.message);
}

/* The last part of a path, without slashes behind it. free() it. */
static char *last_part(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return xformat("%.*s", (int)(end - start), path + start);
}

int run_read(const char *folder, const struct rule_settings *settings, struct run *run, struct error *error)
{
    struct places places = {0};
    char *attempts = file_join(folder, "attempts");
    *run = (struct run){.folder = xstrdup(folder), .name = last_part(folder), .ledger = {.descriptor = -1}};
    int result = -1;
    if (!file_exists(folder)) {
        fail(error, "%s: no such run folder; `collect run` makes it", folder);
        goto out;
    }
    if (ledger_read(folder, &run->ledger, error) || visit_folder(attempts, visit_arm, &places, error))
        goto out;
    if (places.count)
        qsort(places.items, (size_t)places.count, sizeof *places.items, compare_places);
    run->attempts = xcalloc((size_t)places.count, sizeof *run->attempts);
    for (int i = 0; i < places.count; i++)
        read_attempt(&places.items[i], run->name, settings, &run->attempts[run->attempt_count++]);
    result = 0;
out:
    for (int i = 0; i < places.count; i++)
        free(places.items[i].path);
    free(places.items);
    free(attempts);
    if (result)
        run_free(run);
    return result;
}

void run_free(struct run *run)
{
    for (int i = 0; i < run->attempt_count; i++) {
        attempt_free(&run->attempts[i].attempt);
        verdicts_free(&run->attempts[i].verdicts);
    }
    free(run->attempts);
    free(run->folder);
    free(run->name);
    ledger_close(&run->ledger);
    *run = (struct run){.ledger = {.descriptor = -1}};
}

/* --- which of them count ------------------------------------------------------------------------------------------ */

/* Every metric is void: nothing of the workload is left to report. */
static bool is_void(const struct judged *judged, const char *workload)
{
    for (unsigned metric = 1; metric & RULE_VOIDS_ALL; metric <<= 1)
        if (rule_worst(&judged->verdicts, workload, metric) != RULE_INVALID)
            return false;
    return true;
}

static bool is_try_of(const struct judged *judged, const struct arm *arm, int block)
{
    return arm_equal(&judged->attempt.arm, arm) && judged->attempt.block == block;
}

const struct judged *run_counted(const struct run *run, const struct arm *arm, int block, const char *workload,
                                 const char *cell_hash)
{
    for (int i = run->attempt_count - 1; i >= 0; i--) {
        const struct judged *judged = &run->attempts[i];
        const struct attempt_workload *held =
            is_try_of(judged, arm, block) ? attempt_find_workload(&judged->attempt, workload) : NULL;
        if (held && (!cell_hash || strcmp(held->cell_hash, cell_hash) == 0) && !is_void(judged, workload))
            return judged;
    }
    return NULL;
}

const struct judged *run_last_try(const struct run *run, const struct arm *arm, int block, const char *workload)
{
    for (int i = run->attempt_count - 1; i >= 0; i--) {
        const struct judged *judged = &run->attempts[i];
        bool unreadable = !judged->attempt.header;
        if (is_try_of(judged, arm, block) && (unreadable || attempt_find_workload(&judged->attempt, workload)))
            return judged;
    }
    return NULL;
}
