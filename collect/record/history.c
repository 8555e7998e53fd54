#include "collect/record/history.h"

#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *action;
    size_t offset;
} kinds[] = {
    {"begin", offsetof(struct history_entry, begin)},
    {"end", offsetof(struct history_entry, end)},
    {"invalidate", offsetof(struct history_entry, invalidate)},
    {"reinstate", offsetof(struct history_entry, reinstate)},
    {"purge", offsetof(struct history_entry, purge)},
};

static struct history_entry *find(const struct history *history, const struct attempt_place *place)
{
    char name[PLACE_NAME_SIZE];
    const json_t *position = json_object_get(history->index, place_name(place, name));
    return position ? &history->entries[json_integer_value(position)] : NULL;
}

static struct history_entry *add(struct history *history, const struct attempt_place *place, const char *id)
{
    char name[PLACE_NAME_SIZE];
    if (history->count == history->capacity) {
        history->capacity = history->capacity ? 2 * history->capacity : 64;
        history->entries = xrealloc(history->entries, (size_t)history->capacity, sizeof *history->entries);
    }
    if (!history->index)
        history->index = json_object();
    json_set(history->index, place_name(place, name), json_integer(history->count));
    history->entries[history->count] = (struct history_entry){.place = *place, .id = id};
    return &history->entries[history->count++];
}

static void take_line(struct history *history, size_t index, const json_t *line)
{
    const char *action = json_string_value(json_object_get(line, "action"));
    const char *id = json_string_value(json_object_get(line, "attempt"));
    struct attempt_place place;
    if (!action || !id || !place_parse(id, &place))
        return;
    struct history_entry *entry = find(history, &place);
    entry = entry ? entry : add(history, &place, id);
    entry->last = index;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(action, kinds[i].action) == 0)
            *(const json_t **)((char *)entry + kinds[i].offset) = line;
    if (strcmp(action, "begin") == 0)
        entry->begun = (int)index + 1;
    if (strcmp(action, "invalidate") == 0)
        entry->reinstate = NULL;
}

void history_update(struct history *history, const struct ledger *ledger)
{
    for (; history->lines < json_array_size(ledger->lines); history->lines++)
        take_line(history, history->lines, json_array_get(ledger->lines, history->lines));
}

void history_free(struct history *history)
{
    free(history->entries);
    json_decref(history->index);
    *history = (struct history){0};
}

const struct history_entry *history_find(const struct history *history, const struct attempt_place *place)
{
    return find(history, place);
}

bool history_is_withdrawn(const struct history_entry *entry)
{
    return entry && entry->invalidate && !entry->reinstate;
}

const char *history_cell_hash(const struct history_entry *entry, const char *workload)
{
    const json_t *begin = entry ? entry->begin : NULL;
    return json_string_value(json_object_get(json_object_get(begin, "workloads"), workload));
}

bool history_is_over(const struct history_entry *entry)
{
    const char *status = json_string_value(json_object_get(entry ? entry->end : NULL, "status"));
    return status && (strcmp(status, "complete") == 0 || strcmp(status, "failed") == 0);
}
