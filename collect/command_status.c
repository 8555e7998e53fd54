#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/plan.h"
#include "collect/plan_store.h"
#include "collect/record/run.h"
#include "collect/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_SCHEMA "cleanslate.status/1"

/* A run as it stands. */
struct status {
    struct plan plan;
    struct run run;
    struct verification *verification; /* NULL: not asked for */
};

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

/* Of imports nobody asked for more than there is. */
static bool is_asked(const struct plan *plan, const struct run *run, const struct arm *arm, int block,
                     const char *workload)
{
    return plan->source != PLAN_SOURCE_IMPORT || run_last_try(run, arm, block, workload);
}

static enum mark find_mark(const struct plan *plan, const struct run *run, const struct arm *arm, int block)
{
    enum mark worst = MARK_VALID;
    bool asked = false;
    for (int w = 0; w < plan->workload_count; w++) {
        const char *workload = plan->workloads[w].name;
        if (!is_asked(plan, run, arm, block, workload))
            continue;
        asked = true;
        const struct judged *counted = run_counted(run, arm, block, workload, NULL);
        enum mark mark = MARK_VALID;
        if (!counted)
            mark = run_last_try(run, arm, block, workload) ? MARK_INVALID : MARK_MISSING;
        else if (is_doubtful(counted, workload))
            mark = MARK_SUSPECT;
        worst = mark > worst ? mark : worst;
    }
    return asked ? worst : MARK_MISSING;
}

static void print_table(const struct plan *plan, const struct run *run)
{
    char name[ARM_NAME_SIZE];
    printf("%-16s", "block");
    for (int block = 1; block <= plan_block_count(plan); block++)
        printf(" %3d", block);
    putchar('\n');
    for (int a = 0; a < plan->arm_count; a++) {
        printf("%-16s", arm_name(&plan->arms[a], name));
        for (int block = 1; block <= plan_block_count(plan); block++)
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

static void print_verification(const struct verification *verification)
{
    for (int i = 0; i < verification->problem_count; i++)
        printf("verify: %s\n", verification->problems[i]);
    if (!verification->problem_count)
        printf("verify: %d lines and %d files hold\n", verification->lines, verification->files);
}

static void print_ledger(const struct ledger *ledger)
{
    printf("\nledger: %zu lines, head %s\n", json_array_size(ledger->lines), ledger->head);
    if (ledger->broken_at)
        printf("ledger: the chain does not hold at line %d: it was changed after it was written\n", ledger->broken_at);
    if (ledger->torn_bytes)
        printf("ledger: %ld bytes of a line that was not finished\n", ledger->torn_bytes);
}

static void print_status(const struct status *status)
{
    char *title = xstrdup(status->plan.title);
    make_printable(title);
    printf("%s: %s; %d attempts\n\n", status->plan.name, title, status->run.attempt_count);
    free(title);
    print_table(&status->plan, &status->run);
    print_verdicts(&status->run);
    print_ledger(&status->run.ledger);
    if (status->verification)
        print_verification(status->verification);
}

/* --- the same for programs -------------------------------------------------------------------------------------- */

static json_t *make_arms(const struct status *status)
{
    char name[ARM_NAME_SIZE];
    json_t *arms = json_array();
    for (int a = 0; a < status->plan.arm_count; a++) {
        const struct arm *arm = &status->plan.arms[a];
        json_t *object = json_object(), *blocks = json_array();
        for (int block = 1; block <= plan_block_count(&status->plan); block++)
            json_append(blocks, json_string(marks[find_mark(&status->plan, &status->run, arm, block)].meaning));
        json_set(object, "name", json_text(arm_name(arm, name)));
        json_set(object, "blocks", blocks);
        json_append(arms, object);
    }
    return arms;
}

static json_t *make_verdict(const struct judged *judged, const struct verdict *verdict)
{
    json_t *object = verdict_to_json(verdict);
    const char *time = verdict->time ? verdict->time : judged->attempt.started;
    json_set(object, "attempt", json_text(judged->attempt.id));
    json_set(object, "time", time ? json_text(time) : json_null());
    json_set(object, "actor", json_string(verdict->by_user ? "user" : "rule"));
    return object;
}

static json_t *make_verdicts(const struct run *run)
{
    json_t *array = json_array();
    for (int i = 0; i < run->attempt_count; i++)
        for (int v = 0; v < run->attempts[i].verdicts.count; v++)
            json_append(array, make_verdict(&run->attempts[i], &run->attempts[i].verdicts.items[v]));
    return array;
}

static json_t *make_ledger(const struct ledger *ledger)
{
    json_t *object = json_object();
    json_set(object, "lines", json_integer((json_int_t)json_array_size(ledger->lines)));
    json_set(object, "head", json_string(ledger->head));
    json_set(object, "broken_at", ledger->broken_at ? json_integer(ledger->broken_at) : json_null());
    json_set(object, "torn_bytes", json_integer(ledger->torn_bytes));
    return object;
}

static json_t *make_verification(const struct verification *verification)
{
    json_t *object = json_object(), *problems = json_array();
    for (int i = 0; i < verification->problem_count; i++)
        json_append(problems, json_text(verification->problems[i]));
    json_set(object, "lines", json_integer(verification->lines));
    json_set(object, "files", json_integer(verification->files));
    json_set(object, "problems", problems);
    return object;
}

static void print_json(const struct status *status)
{
    json_t *object = json_object();
    json_set(object, "schema", json_string(STATUS_SCHEMA));
    json_set(object, "name", json_text(status->plan.name));
    json_set(object, "title", json_text(status->plan.title));
    json_set(object, "attempts", json_integer(status->run.attempt_count));
    json_set(object, "arms", make_arms(status));
    json_set(object, "verdicts", make_verdicts(&status->run));
    json_set(object, "ledger", make_ledger(&status->run.ledger));
    if (status->verification)
        json_set(object, "verification", make_verification(status->verification));
    json_dumpf(object, stdout, JSON_INDENT(1)); /* what cannot be written, streams_close() says */
    putchar('\n');
    json_decref(object);
}

/* --- the command ------------------------------------------------------------------------------------------------ */

struct request {
    char *folder;
    bool json, verify;
};

static int show_run(const struct request *request, const char *plan_path, struct error *error)
{
    struct status status = {0};
    struct verification verification;
    if (plan_read(plan_path, &status.plan, error))
        return -1;
    int result = run_read(request->folder, &status.plan.rules, &status.run, error);
    if (result)
        goto out;
    plan_add_imported(&status.plan, &status.run);
    if (request->verify) {
        verify_run(&status.run, &verification);
        status.verification = &verification;
    }
    if (request->json)
        print_json(&status);
    else
        print_status(&status);
    if (request->verify && verification.problem_count)
        result = fail(error, "%s: %d thing%s not hold", request->folder, verification.problem_count,
                      verification.problem_count == 1 ? " does" : "s do");
    if (request->verify)
        verify_free(&verification);
    run_free(&status.run);
out:
    plan_free(&status.plan);
    return result;
}

static int show_folder(const struct request *request, struct error *error)
{
    char *plan_path = plan_store_find(request->folder);
    int result = plan_path ? show_run(request, plan_path, error)
                           : fail(error, "%s: no run is here (no plan.json); `collect run` makes one", request->folder);
    free(plan_path);
    return result;
}

int command_status(int argc, char **argv)
{
    const char *runs = COMMAND_RUNS_DEFAULT;
    struct request request = {0};
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {"--json", OPTION_FLAG, &request.json, NULL, "for programs, schema " STATUS_SCHEMA, false},
        {"--verify", OPTION_FLAG, &request.verify, NULL,
         "hold chain, counts and files against their hashes; exit code 1 where one does not hold", false},
        {0},
    };
    const struct option_command command = {
        "collect status [--runs DIR] [--json] [--verify] NAME",
        "Shows the arms by blocks of the run folder DIR/NAME, what does not count and why, and the ledger. Reads only.",
        entries, 1, 1};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    request.folder = plan_store_folder(runs, argv[0]);
    int result = show_folder(&request, &error);
    fflush(stdout);
    if (result)
        fprintf(stderr, "%s\n", error.message);
    free(request.folder);
    return result ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}
