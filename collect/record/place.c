#include "collect/record/place.h"

#include "collect/base/error.h"
#include "collect/record/attempt.h"

#include <stdio.h>
#include <string.h>

/* What stands before the last slash but one is the run's name. */
static const char *skip_run(const char *text)
{
    const char *first = strchr(text, '/'), *last = strrchr(text, '/');
    return first && first != last && !memchr(first + 1, '/', (size_t)(last - first - 1)) ? first + 1 : text;
}

/* Reads what it can, then asks whether that is written so: no other spelling is taken for the same place. */
bool place_parse(const char *text, struct attempt_place *place)
{
    char arm[ARM_NAME_SIZE], name[PLACE_NAME_SIZE];
    const char *at = skip_run(text), *slash = strchr(at, '/');
    if (!slash || slash - at >= ARM_NAME_SIZE)
        return false;
    snprintf(arm, sizeof arm, "%.*s", (int)(slash - at), at);
    *place = (struct attempt_place){0};
    return arm_parse(arm, &place->arm) && sscanf(slash + 1, "%9d-%9d", &place->block, &place->try_number) == 2 &&
           place->block >= 1 && place->block <= ATTEMPT_BLOCK_MAXIMUM && place->try_number >= 1 &&
           place->try_number <= ATTEMPT_TRY_MAXIMUM && strcmp(place_name(place, name), at) == 0;
}

const char *place_name(const struct attempt_place *place, char *name)
{
    char arm[ARM_NAME_SIZE];
    snprintf(name, PLACE_NAME_SIZE, "%s/%d-%d", arm_name(&place->arm, arm), place->block, place->try_number);
    return name;
}

char *place_path(const char *folder, const struct attempt_place *place)
{
    char name[PLACE_NAME_SIZE];
    return xformat("%s/attempts/%s.jsonl", folder, place_name(place, name));
}
