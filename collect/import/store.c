#include "collect/import/store.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/import/header.h"
#include "collect/import/merge.h"
#include "collect/plan_check.h"
#include "collect/plan_parts.h"
#include "collect/plan_store.h"
#include "collect/schedule.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

/* --- the run folder ----------------------------------------------------------------------------------------------- */

/* A plan that says nothing but that there are imports: so status, analyze and the rest know the folder for a run. */
static int write_plan(const struct store *store, const char *name, struct error *error)
{
    json_t *plan = json_object(), *source = json_object();
    json_set(source, "kind", json_string(ATTEMPT_IMPORT_KIND));
    json_set(plan, "schema", json_string(PLAN_SCHEMA));
    json_set(plan, "name", json_text(name));
    json_set(plan, "title", json_text(name));
    json_set(plan, "source", source);
    char *json = json_dumps(plan, JSON_INDENT(2)), *text = xformat("%s\n", json);
    char *path = file_join(store->folder, "plan.json");
    int result = file_write_whole(path, text, strlen(text), error);
    free(path);
    free(json);
    free(text);
    json_decref(plan);
    return result;
}

static int read_folder(struct store *store, const char *name, struct error *error)
{
    store->plan_path = plan_store_find(store->folder);
    if (!store->plan_path) {
        if (write_plan(store, name, error))
            return -1;
        store->plan_path = plan_store_find(store->folder);
    }
    return plan_read(store->plan_path, &store->plan, error) ||
                   run_read(store->folder, &store->plan.rules, &store->run, error)
               ? -1
               : 0;
}

int store_open(const char *runs, const char *name, struct store *store, struct error *error)
{
    *store = (struct store){
        .folder = file_join(runs, name), .ledger = {.descriptor = -1}, .run = {.ledger = {.descriptor = -1}}};
    int result = -1;
    if (plan_check_name(name, "--run", error) == 0 && file_make_folder(store->folder, error) == 0 &&
        file_hash("/proc/self/exe", store->build, error) == 0 && ledger_open(store->folder, &store->ledger, error) == 0)
        result = read_folder(store, name, error);
    if (result)
        store_close(store);
    return result;
}

void store_close(struct store *store)
{
    run_free(&store->run);
    ledger_close(&store->ledger);
    plan_free(&store->plan);
    free(store->plan_path);
    free(store->folder);
    *store = (struct store){.ledger = {.descriptor = -1}};
}

/* --- where it goes ------------------------------------------------------------------------------------------------ */

static bool holds_any(const struct attempt *attempt, const json_t *workloads)
{
    for (int i = 0; i < attempt->workload_count; i++)
        if (json_object_get(workloads, attempt->workloads[i].name))
            return true;
    return false;
}

/* A cell that is measured here has its own settings, beside which results from elsewhere would displace each other. */
static int check_measured(const struct store *store, const struct arm *arm, const json_t *workloads, const char *path,
                          struct error *error)
{
    char name[ARM_NAME_SIZE];
    for (int i = 0; i < store->run.attempt_count; i++) {
        const struct attempt *attempt = &store->run.attempts[i].attempt;
        if (attempt->header && !attempt_is_imported(attempt) && arm_equal(&attempt->arm, arm) &&
            holds_any(attempt, workloads))
            return fail(error, "%s: %s is measured in %s on a workload of that name; give it another by --workload",
                        path, arm_name(arm, name), store->folder);
    }
    return 0;
}

/* Whether it holds one of them under the same settings. */
static bool holds_cell(const struct attempt *attempt, const json_t *workloads)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const json_t *entry = json_object_get(workloads, attempt->workloads[i].name);
        const char *hash = json_string_value(json_object_get(entry, "cell_hash"));
        if (hash && strcmp(hash, attempt->workloads[i].cell_hash) == 0)
            return true;
    }
    return false;
}

/* The first block in which no try of the arm has any of the cells; -1 where all have. */
static int find_block(const struct run *run, const struct arm *arm, const json_t *workloads)
{
    for (int block = 1; block <= ATTEMPT_BLOCK_MAXIMUM; block++) {
        int first, count = run_find_tries(run, arm, block, &first);
        bool taken = false;
        for (int i = first; i < first + count && !taken; i++)
            taken = !run->attempts[i].attempt.header || holds_cell(&run->attempts[i].attempt, workloads);
        if (!taken)
            return block;
    }
    return -1;
}

/* --- what is there already ---------------------------------------------------------------------------------------- */

static bool is_same_file(const struct attempt *attempt, const struct imported *imported)
{
    const json_t *import = json_object_get(attempt->header, "import");
    const char *hash = json_string_value(json_object_get(import, "sha256"));
    return hash && strcmp(hash, imported->document->sha256) == 0 &&
           json_integer_value(json_object_get(import, "value")) == (json_int_t)imported->value;
}

static const struct attempt *find_repeated(const struct store *store, const struct imported *imported)
{
    const struct timing times = timing_of(&imported->observed, imported->samples, imported->sample_count);
    for (int i = 0; i < store->run.attempt_count; i++) {
        const struct attempt *attempt = &store->run.attempts[i].attempt;
        if (!attempt->header || !attempt_is_imported(attempt))
            continue;
        const struct timing others = timing_of(&attempt->observed, attempt->samples, attempt->sample_count);
        if (is_same_file(attempt, imported) || timing_is_same(&times, &others))
            return attempt;
    }
    return NULL;
}

/* --- the ledger --------------------------------------------------------------------------------------------------- */

static json_t *describe_source(const struct imported *imported)
{
    json_t *details = json_object();
    header_describe_file(imported, details);
    return details;
}

static int note(struct store *store, enum ledger_actor actor, const char *action, const char *id, json_t *details,
                struct error *error)
{
    json_set(details, "attempt", json_text(id));
    return ledger_append(&store->ledger, actor, action, details, error);
}

static int note_repeated(struct store *store, const struct imported *imported, const char *id, struct error *error)
{
    json_t *details = describe_source(imported);
    json_set(details, "repeats", json_text(id));
    return ledger_append(&store->ledger, LEDGER_COLLECT, "import", details, error);
}

static void set_ledger(json_t *object, const struct ledger *ledger)
{
    json_set(object, "ledger_head", json_text(ledger->head));
    json_set(object, "ledger_lines", json_integer((json_int_t)json_array_size(ledger->lines)));
}

static int begin(struct store *store, const char *id, const json_t *workloads, struct error *error)
{
    json_t *details = json_object(), *hashes = json_object(), *entry;
    const char *name;
    json_object_foreach((json_t *)workloads, name, entry)
        json_set(hashes, name, json_incref(json_object_get(entry, "cell_hash")));
    json_set(details, "workloads", hashes);
    set_ledger(details, &store->ledger);
    char *plan = xstrdup(store->plan_path);
    int result = plan_check_note(store->folder, basename(plan), details, error);
    free(plan);
    if (result) {
        json_decref(details);
        return -1;
    }
    return note(store, LEDGER_COLLECT, "begin", id, details, error);
}

static int end(struct store *store, const struct imported *imported, const char *id, const char *hash,
               struct error *error)
{
    json_t *details = json_object();
    int failed = 0;
    for (int i = 0; i < imported->sample_count; i++)
        failed += !imported->samples[i].ok;
    json_set(details, "status", json_string("complete"));
    json_set(details, "sha256", json_text(hash));
    json_set(details, "samples", json_integer(imported->sample_count));
    json_set(details, "failed", json_integer(failed));
    json_set(details, "audit_regret_max", json_null());
    return note(store, LEDGER_COLLECT, "end", id, details, error);
}

static int note_verdicts(struct store *store, const struct attempt_place *place, const char *id, struct error *error)
{
    const struct judged *judged = run_find(&store->run, place);
    int result = 0;
    for (int i = 0; judged && !result && i < judged->verdicts.count; i++)
        result = note(store, LEDGER_RULE, "verdict", id, verdict_to_json(&judged->verdicts.items[i]), error);
    return result;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static json_t *describe_sample(const struct imported *imported, int index)
{
    json_t *line = sample_to_json(&imported->samples[index]);
    if (json_object_size(imported->extras[index]))
        json_set(line, "rest", json_incref(imported->extras[index]));
    return line;
}

static int write_attempt(const char *path, const struct imported *imported, json_t *header, char *hash,
                         struct error *error)
{
    char *copy = xstrdup(path);
    int result = file_make_folder(dirname(copy), error);
    struct attempt_writer *writer = result ? NULL : attempt_writer_open(path, json_incref(header), error);
    free(copy);
    if (!writer)
        return -1;
    json_t *lines = json_array();
    for (int i = 0; i < imported->sample_count; i++)
        json_append(lines, describe_sample(imported, i));
    result = imported->sample_count ? attempt_writer_add_all(writer, json_incref(lines), error) : 0;
    json_decref(lines);
    if (result) {
        attempt_writer_abandon(writer);
        return -1;
    }
    const struct attempt_end line = {.status = "complete", .observed = &imported->observed};
    return attempt_writer_end(writer, &line, hash, error);
}

static int add_at(struct store *store, struct imported *imported, const struct attempt_place *place, json_t *header,
                  struct error *error)
{
    char name[PLACE_NAME_SIZE], hash[FILE_HASH_SIZE];
    char *id = xformat("%s/%s", store->run.name, place_name(place, name));
    char *path = place_path(store->folder, place);
    json_t *details = describe_source(imported);
    json_set(header, "id", json_text(id));
    json_set(header, "block", json_integer(place->block));
    json_set(header, "try", json_integer(place->try_number));
    json_set(header, "plan", json_text(basename(store->plan_path)));
    json_set(header, "build", json_text(store->build));
    int result = begin(store, id, json_object_get(header, "workloads"), error);
    set_ledger(header, &store->ledger);
    if (result || note(store, LEDGER_COLLECT, "import", id, json_incref(details), error) ||
        write_attempt(path, imported, header, hash, error) || end(store, imported, id, hash, error)) {
        result = -1;
    } else {
        run_update(&store->run, &store->ledger, &store->plan.rules);
        result = note_verdicts(store, place, id, error);
    }
    json_decref(details);
    free(path);
    free(id);
    return result;
}

int store_add(struct store *store, struct imported *imported, const struct arm *arm, struct attempt_place *place,
              struct error *error)
{
    const struct attempt *repeated = find_repeated(store, imported);
    if (repeated) {
        *place = (struct attempt_place){repeated->arm, repeated->block, repeated->try_number};
        return note_repeated(store, imported, repeated->id, error) ? -1 : STORE_REPEATED;
    }
    json_t *header = header_make(imported, arm);
    const json_t *workloads = json_object_get(header, "workloads");
    int result = check_measured(store, arm, workloads, imported->document->path, error);
    const int block = find_block(&store->run, arm, workloads);
    if (!result && block < 0)
        result = fail(error, "%s: %s has %d blocks of that arm, which is the most", imported->document->path,
                      store->folder, ATTEMPT_BLOCK_MAXIMUM);
    if (!result) {
        *place = (struct attempt_place){*arm, block, schedule_next_try(&store->run, arm, block)};
        result = add_at(store, imported, place, header, error);
    }
    json_decref(header);
    return result ? -1 : STORE_ADDED;
}
