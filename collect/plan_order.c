#include "collect/base/file.h"
#include "collect/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct keyed {
    char hash[FILE_HASH_SIZE];
    int index;
};

static int compare_keyed(const void *a, const void *b)
{
    return strcmp(((const struct keyed *)a)->hash, ((const struct keyed *)b)->hash);
}

static void set_key(struct keyed *keyed, int index, char *text)
{
    file_hash_bytes(text, strlen(text), keyed->hash);
    keyed->index = index;
    free(text);
}

static void sort_keyed(struct keyed *keyed, int count, int *order)
{
    qsort(keyed, (size_t)count, sizeof *keyed, compare_keyed);
    for (int i = 0; i < count; i++)
        order[i] = keyed[i].index;
    free(keyed);
}

void plan_arm_order(const struct plan *plan, int block, int *order)
{
    struct keyed *keyed = xcalloc((size_t)plan->arm_count, sizeof *keyed);
    char name[ARM_NAME_SIZE];
    for (int i = 0; i < plan->arm_count; i++)
        set_key(&keyed[i], i, xformat("%" PRId64 "/%d/%s", plan->seed, block, arm_name(&plan->arms[i], name)));
    sort_keyed(keyed, plan->arm_count, order);
}

void plan_prompt_order(const struct plan *plan, int block, const char *workload, int count, int *order)
{
    struct keyed *keyed = xcalloc((size_t)count, sizeof *keyed);
    for (int i = 0; i < count; i++)
        set_key(&keyed[i], i, xformat("%" PRId64 "/%d/%s/%d", plan->seed, block, workload, i));
    sort_keyed(keyed, count, order);
}

uint64_t plan_prompt_stream(const struct plan *plan, int block, const char *workload, const char *prompt_id)
{
    struct keyed keyed;
    set_key(&keyed, 0, xformat("%" PRId64 "/%d/%s/stream/%s", plan->seed, block, workload, prompt_id));
    keyed.hash[16] = '\0';
    return strtoull(keyed.hash, NULL, 16);
}
