#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <string.h>

static bool is_action(const json_t *line, const char *action)
{
    const char *text = json_string_value(json_object_get(line, "action"));
    return text && strcmp(text, action) == 0;
}

/* Block of the attempt that ended there; 0 where none did. */
static int ended_block(const json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "attempt"));
    struct attempt_place place;
    return is_action(line, "end") && id && place_parse(id, &place) ? place.block : 0;
}

static bool adds_blocks(const json_t *line)
{
    return is_action(line, "amend") && json_integer_value(json_object_get(line, "blocks")) >
                                           json_integer_value(json_object_get(line, "blocks_before"));
}

json_t *summary_make_extensions(const struct plan *plan, const struct run *run)
{
    bool seen[ATTEMPT_BLOCK_MAXIMUM + 1] = {false};
    int blocks = 0;
    size_t i;
    const json_t *line;
    json_t *array = json_array();
    json_array_foreach(run->ledger.lines, i, line)
    {
        int block = ended_block(line);
        blocks += block > plan->tuning_blocks && !seen[block];
        seen[block] = true;
        /* Noted twice where the program ended before it wrote the plan: nothing was seen in between. */
        const json_t *last = json_array_get(array, json_array_size(array) - 1);
        if (blocks && adds_blocks(line) && json_integer_value(last) != blocks)
            json_append(array, json_integer(blocks));
    }
    return array;
}
