#include "collect/record/run.h"

#include "collect/base/json.h"
#include "collect/base/parallel.h"
#include "collect/record/record.h"
#include "collect/record/rule_run.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- finding attempts --------------------------------------------------------------------------------------------- */

struct places {
    struct attempt_place *items;
    int count, capacity;
};

static void add_place(struct places *places, const struct attempt_place *place)
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

/* What is no attempt's name is a file that is being written, or somebody else's. */
static int visit_file(const char *folder, const char *name, struct places *places, struct error *error)
{
    (void)error;
    struct attempt_place place;
    size_t length = strlen(name), ending = strlen(".jsonl");
    if (length <= ending || strcmp(name + length - ending, ".jsonl") != 0)
        return 0;
    char *text = xformat("%s/%.*s", strrchr(folder, '/') + 1, (int)(length - ending), name);
    if (place_parse(text, &place))
        add_place(places, &place);
    free(text);
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

/* Those that were begun, and what became of them. */
static void add_places_of_ledger(const struct history *history, struct places *places)
{
    for (int i = 0; i < history->count; i++)
        if (history->entries[i].begin || history->entries[i].end || history->entries[i].purge)
            add_place(places, &history->entries[i].place);
}

/* With its arm's name, which is written once and not for every comparison. */
struct named_place {
    char arm[ARM_NAME_SIZE];
    struct attempt_place place;
};

static int compare_places(const void *a, const void *b)
{
    const struct named_place *first = a, *second = b;
    int order = strcmp(first->arm, second->arm);
    order = order ? order : first->place.block - second->place.block;
    return order ? order : first->place.try_number - second->place.try_number;
}

/* Sorted, each once. */
static void sort_places(struct places *places)
{
    const size_t count = (size_t)places->count;
    struct named_place *named = xcalloc(count + 1, sizeof *named);
    int kept = 0;
    for (size_t i = 0; i < count; i++) {
        named[i].place = places->items[i];
        arm_name(&named[i].place.arm, named[i].arm);
    }
    qsort(named, count, sizeof *named, compare_places);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_places(&named[i - 1], &named[i]))
            places->items[kept++] = named[i].place;
    places->count = kept;
    free(named);
}

/* --- reading and judging ------------------------------------------------------------------------------------------ */

static int check_place(const struct attempt *attempt, const struct attempt_place *place, struct error *error)
{
    if (arm_equal(&attempt->arm, &place->arm) && attempt->block == place->block &&
        attempt->try_number == place->try_number)
        return 0;
    return fail(error, "%s: its first line says \"%s\"; the file was moved or copied", attempt->path, attempt->id);
}

/* What cannot be read is known by its path alone. */
static void init_unreadable(const struct run *run, const struct attempt_place *place, char *path,
                            struct attempt *attempt)
{
    char name[PLACE_NAME_SIZE];
    *attempt = (struct attempt){
        .arm = place->arm, .block = place->block, .try_number = place->try_number, .position = ATTEMPT_ABSENT};
    attempt->path = path;
    attempt->id = xformat("%s/%s", run->name, place_name(place, name));
    attempt->audit.tokens = ATTEMPT_ABSENT;
    observed_init(&attempt->observed);
}

static void read_file(const struct run *run, const struct attempt_place *place, char *path,
                      const struct rule_settings *settings, struct judged *judged)
{
    struct error reason = {0}, ignored = {0};
    int result = attempt_read(path, &judged->attempt, &reason);
    if (!result && check_place(&judged->attempt, place, &reason)) {
        attempt_free(&judged->attempt);
        result = -1;
    }
    if (!result) {
        free(path);
        rule_judge_attempt(&judged->attempt, settings, &judged->verdicts);
        return;
    }
    init_unreadable(run, place, path, &judged->attempt);
    file_hash(path, judged->attempt.sha256, &ignored);
    verdicts_add(&judged->verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "%s", reason.message);
}

static struct judged read_attempt(const struct run *run, const struct attempt_place *place,
                                  const struct rule_settings *settings)
{
    const struct history_entry *entry = history_find(&run->history, place);
    struct judged judged = {.purged = entry && entry->purge};
    char *path = place_path(run->folder, place);
    arm_name(&place->arm, judged.arm);
    if (judged.purged || !file_exists(path))
        init_unreadable(run, place, path, &judged.attempt);
    else
        read_file(run, place, path, settings, &judged);
    record_judge(entry, &judged);
    return judged;
}

/* What the threads that read attempts share. */
struct reading {
    struct run *run;
    const struct places *places;
    const struct rule_settings *settings;
};

static void read_place(void *context, int index)
{
    struct reading *reading = context;
    reading->run->attempts[index] = read_attempt(reading->run, &reading->places->items[index], reading->settings);
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
    history_update(&run->history, &run->ledger);
    add_places_of_ledger(&run->history, &places);
    sort_places(&places);
    run->attempts = xcalloc((size_t)places.count, sizeof *run->attempts);
    parallel_for(places.count, read_place, &(struct reading){run, &places, settings});
    run->attempt_count = places.count;
    rule_run_judge(run, settings);
    record_supersede(run);
    result = 0;
out:
    free(places.items);
    free(attempts);
    if (result)
        run_free(run);
    return result;
}

static void free_judged(struct judged *judged)
{
    attempt_free(&judged->attempt);
    verdicts_free(&judged->verdicts);
}

void run_free(struct run *run)
{
    for (int i = 0; i < run->attempt_count; i++)
        free_judged(&run->attempts[i]);
    free(run->attempts);
    free(run->folder);
    free(run->name);
    history_free(&run->history);
    ledger_close(&run->ledger);
    *run = (struct run){.ledger = {.descriptor = -1}};
}

/* --- reading on --------------------------------------------------------------------------------------------------- */

static int compare_judged(const void *a, const void *b)
{
    const struct judged *first = a, *second = b;
    int order = strcmp(first->arm, second->arm);
    order = order ? order : first->attempt.block - second->attempt.block;
    return order ? order : first->attempt.try_number - second->attempt.try_number;
}

/* Attempts that the run has are replaced, the others added. */
static void read_since(struct run *run, size_t line, const struct rule_settings *settings)
{
    const struct history *history = &run->history;
    run->attempts = xrealloc(run->attempts, (size_t)(run->attempt_count + history->count), sizeof *run->attempts);
    const struct run former = *run;
    for (int i = 0; i < history->count; i++) {
        const struct attempt_place *place = &history->entries[i].place;
        if (history->entries[i].last < line)
            continue;
        struct judged *judged = (struct judged *)run_find(&former, place);
        if (judged)
            free_judged(judged);
        else
            judged = &run->attempts[run->attempt_count++];
        *judged = read_attempt(run, place, settings);
    }
    if (run->attempt_count)
        qsort(run->attempts, (size_t)run->attempt_count, sizeof *run->attempts, compare_judged);
}

void run_update(struct run *run, const struct ledger *ledger, const struct rule_settings *settings)
{
    size_t known = json_array_size(run->ledger.lines);
    for (size_t i = known; i < json_array_size(ledger->lines); i++)
        json_append(run->ledger.lines, json_incref(json_array_get(ledger->lines, i)));
    memcpy(run->ledger.head, ledger->head, sizeof run->ledger.head);
    history_update(&run->history, ledger);
    read_since(run, known, settings);
    rule_run_judge(run, settings);
    record_supersede(run);
}
