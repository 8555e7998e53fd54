#include "tests/engine/kept_algorithms.h"

#include "collect/base/error.h"
#include "collect/engine/algorithms.h"
#include "tests/record/fixture.h"

#include <stdlib.h>
#include <unistd.h>

static char *own_folder; /* removed at the end; NULL: the environment's is used, which stays */
static json_t *list;
static pid_t owner; /* its children leave everything as it is */

static struct algorithms *open_folder(void)
{
    struct error error = {0};
    struct algorithms *algorithms = algorithms_open(kept_folder(), &error);
    if (!algorithms)
        die("%s", error.message);
    return algorithms;
}

static void add_list(void)
{
    struct error error = {0};
    if (getpid() != owner)
        return;
    struct algorithms *algorithms = open_folder();
    json_object_update_recursive(algorithms_list(algorithms), list);
    if (algorithms_save(algorithms, &error))
        die("%s", error.message);
    algorithms_close(algorithms);
    json_decref(list);
}

static void remove_folder(void)
{
    if (getpid() == owner)
        fixture_remove_folder(own_folder);
}

const char *kept_folder(void)
{
    const char *folder = getenv("CLEANSLATE_ALGORITHMS");
    if (folder)
        return folder;
    if (!own_folder) {
        owner = getpid();
        own_folder = fixture_make_folder();
        atexit(remove_folder);
    }
    return own_folder;
}

json_t *kept_algorithms(void)
{
    if (!list) {
        struct algorithms *algorithms = open_folder();
        owner = getpid();
        list = json_deep_copy(algorithms_list(algorithms));
        algorithms_close(algorithms);
        atexit(add_list);
    }
    return list;
}
