#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/plan.h"
#include "collect/plan_store.h"
#include "collect/record/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of gravity: the worst of an arm's workloads is shown. */
enum mark { MARK_VALID, MARK_SUSPECT, MARK_MISSING, MARK_INVALID, MARK_COUNT };

static const struct {
    char sign;
    const char *meaning;
} marks[MARK_COUNT] = {{'+', "valid"}, {'~', "suspect"}, {'.', "missing"}, {'x', "invalid"}};

/* --- the table -------------------------------------------------------------------------------------------------- */

static bool is_doubtful(const struct judged *judged, const char *workload)
{
    for (int i = 0; i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (verdict->level >= RULE_SUSPECT && (!verdict->workload || strcmp(verdict->workload, workload) == 0))
            return true;
    }
    return false;
}

static enum mark find_mark(const struct plan *plan, const struct run *run, const struct arm *arm, int block)
{
    enum mark worst = MARK_VALID;
    for (int w = 0; w < plan->workload_count; w++) {
        const char *workload = plan->workloads[w].name;
        const struct judged *counted = run_counted(run, arm, block, workload, NULL);
        enum mark mark = MARK_VALID;
        if (!counted)
            mark = run_last_try(run, arm, block, workload) ? MARK_INVALID : MARK_MISSING;
        else if (is_doubtful(counted, workload))
            mark = MARK_SUSPECT;
        worst = mark > worst ? mark : worst;
    }
    return worst;
}

static void print_table(const struct plan *plan, const struct run *run)
{
    char name[ARM_NAME_SIZE];
    printf("%-16s", "block");
    for (int block = 1; block <= plan->blocks; block++)
        printf(" %3d", block);
    putchar('\n');
    for (int a = 0; a < plan->arm_count; a++) {
        printf("%-16s", arm_name(&plan->arms[a], name));
        for (int block = 1; block <= plan->blocks; block++)
            printf(" %3c", marks[find_mark(plan, run, &plan->arms[a], block)].sign);
        putchar('\n');
    }
    for (int i = 0; i < MARK_COUNT; i++)
        printf("%s%c %s", i ? "   " : "", marks[i].sign, marks[i].meaning);
    putchar('\n');
}

/* --- the reasons ------------------------------------------------------------------------------------------------ */

static void print_verdicts(const struct run *run)
{
    bool first = true;
    for (int i = 0; i < run->attempt_count; i++)
        for (int v = 0; v < run->attempts[i].verdicts.count; v++) {
            const struct verdict *verdict = &run->attempts[i].verdicts.items[v];
            if (verdict->level < RULE_SUSPECT)
                continue;
            printf("%s%s  %s  %s%s%s: %s\n", first ? "\n" : "", run->attempts[i].attempt.id,
                   rule_level_names[verdict->level], rule_table[verdict->rule].id, verdict->workload ? ", " : "",
                   verdict->workload ? verdict->workload : "", verdict->detail);
            first = false;
        }
}

static void print_ledger(const struct ledger *ledger)
{
    printf("\nledger: %zu lines, head %s\n", json_array_size(ledger->lines), ledger->head);
    if (ledger->broken_at)
        printf("ledger: the chain does not hold at line %d: it was changed after it was written\n", ledger->broken_at);
    if (ledger->torn_bytes)
        printf("ledger: %ld bytes of a line that was not finished\n", ledger->torn_bytes);
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static int show_run(const char *folder, const char *plan_path, struct error *error)
{
    struct plan plan;
    struct run run;
    if (plan_read(plan_path, &plan, error))
        return -1;
    int result = run_read(folder, &plan.rules, &run, error);
    if (!result) {
        printf("%s: %s; %d attempts\n\n", plan.name, plan.title, run.attempt_count);
        print_table(&plan, &run);
        print_verdicts(&run);
        print_ledger(&run.ledger);
        run_free(&run);
    }
    plan_free(&plan);
    return result;
}

static int show_folder(const char *folder, struct error *error)
{
    char *plan_path = plan_store_find(folder);
    int result = plan_path ? show_run(folder, plan_path, error)
                           : fail(error, "%s: no run is here (no plan.json); `collect run` makes one", folder);
    free(plan_path);
    return result;
}

int command_status(int argc, char **argv)
{
    const char *runs = COMMAND_RUNS_DEFAULT;
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {0},
    };
    const struct option_command command = {
        "collect status [--runs DIR] NAME",
        "Shows the arms by blocks of the run folder DIR/NAME, what does not count and why, and the ledger. Reads only.",
        entries, 1, 1};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    char *folder = xformat("%s/%s", runs, argv[0]);
    int result = show_folder(folder, &error);
    if (result)
        fprintf(stderr, "%s\n", error.message);
    free(folder);
    return result ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}
