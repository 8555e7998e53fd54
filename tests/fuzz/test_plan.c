/* plan.json */
#include "collect/plan.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/plan";
const int fuzz_mutations = 10000;

static void check_order(const int *order, int count)
{
    bool *seen = xcalloc((size_t)count, sizeof *seen);
    for (int i = 0; i < count; i++) {
        fuzz_require(order[i] >= 0 && order[i] < count && !seen[order[i]], "an order has each index once");
        seen[order[i]] = true;
    }
    free(seen);
}

static void check_arms(const struct plan *plan)
{
    int *order = xcalloc((size_t)plan->arm_count, sizeof *order);
    plan_arm_order(plan, plan->blocks, order);
    check_order(order, plan->arm_count);
    free(order);
    for (int i = 0; i < plan->arm_count; i++) {
        struct arm arm;
        char name[ARM_NAME_SIZE];
        fuzz_require(arm_parse(arm_name(&plan->arms[i], name), &arm) && arm_equal(&arm, &plan->arms[i]),
                     "an arm's name reads back as the arm");
    }
}

static void check_workloads(const struct plan *plan)
{
    fuzz_require(plan->arm_count > 0 && plan->workload_count > 0 && plan->blocks > 0, "there is something to measure");
    for (int i = 0; i < plan->workload_count; i++) {
        int order[7];
        plan_prompt_order(plan, plan->blocks, plan->workloads[i].name, 7, order);
        check_order(order, 7);
        fuzz_require(plan_find_workload(plan, plan->workloads[i].name) == &plan->workloads[i], "names are unique");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct plan plan;
    struct error error = {0};
    bool read = plan_read(fuzz_write("plan.json", bytes, size), &plan, &error) == 0;
    fuzz_check_answer(read, &error);
    if (!read)
        return 0;
    if (plan.source == PLAN_SOURCE_IMPORT) {
        fuzz_require(plan.arm_count == 0 && plan.workload_count == 0, "what is imported no plan says beforehand");
    } else {
        check_arms(&plan);
        check_workloads(&plan);
    }
    plan_free(&plan);
    return 0;
}
