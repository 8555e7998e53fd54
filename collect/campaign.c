#include "collect/campaign.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/interrupt.h"
#include "collect/measure.h"
#include "collect/plan_check.h"
#include "collect/plan_store.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

struct campaign {
    const struct plan *plan;
    const bool *only;
    char *folder;
    struct subject subject, tuning; /* of the blocks that are reported, and of those before them */
    struct ledger ledger;
    struct run run; /* as the folder stands */
    struct sessions sessions;
    struct progress progress;
    struct task *tasks; /* arm_count */
    int attempts;       /* measured by this run of the program */
};

static void find_sessions(struct campaign *campaign)
{
    sessions_free(&campaign->sessions);
    sessions_init(&campaign->run, campaign->subject.boot_id, clock_wall_s(), &campaign->sessions);
}

static int read_run(struct campaign *campaign, struct error *error)
{
    int result = run_read(campaign->folder, &campaign->plan->rules, &campaign->run, error);
    if (!result)
        find_sessions(campaign);
    return result;
}

/* Nobody else writes while the ledger is open: what is new is what it has got. */
static void read_on(struct campaign *campaign)
{
    run_update(&campaign->run, &campaign->ledger, &campaign->plan->rules);
    find_sessions(campaign);
}

static const struct subject *subject_of(const struct campaign *campaign, int block)
{
    return block <= campaign->plan->tuning_blocks ? &campaign->tuning : &campaign->subject;
}

static int schedule(struct campaign *campaign, int block)
{
    return schedule_block(subject_of(campaign, block), &campaign->run, &campaign->sessions, block, campaign->only,
                          campaign->tasks);
}

static long count_requests(const struct campaign *campaign, int block, int tasks)
{
    long count = 0;
    for (int i = 0; i < tasks; i++)
        count += measure_request_count(subject_of(campaign, block), &campaign->tasks[i]);
    return count;
}

/* --- what is said before and after ------------------------------------------------------------------------------ */

/* The newest attempt of a reported block that holds the arm's workload under another hash than today's; NULL where
 * there is one with today's. */
static const struct attempt *find_outdated(const struct campaign *campaign, int arm, int workload)
{
    const struct attempt *newest = NULL;
    for (int i = 0; i < campaign->run.attempt_count; i++) {
        const struct attempt *attempt = &campaign->run.attempts[i].attempt;
        if (attempt->block <= campaign->plan->tuning_blocks || !arm_equal(&attempt->arm, &campaign->plan->arms[arm]))
            continue;
        const struct attempt_workload *entry = attempt_find_workload(attempt, campaign->plan->workloads[workload].name);
        if (!entry)
            continue;
        if (strcmp(entry->cell_hash, subject_cell_hash(&campaign->subject, arm, workload)) == 0)
            return NULL;
        if (!newest || (newest->started && attempt->started && strcmp(newest->started, attempt->started) < 0))
            newest = attempt;
    }
    return newest;
}

static void say_new_cells(struct campaign *campaign)
{
    json_t *changed = json_object();
    int count = 0;
    for (int a = 0; a < campaign->plan->arm_count; a++)
        for (int w = 0; w < campaign->plan->workload_count; w++) {
            const struct attempt *outdated = find_outdated(campaign, a, w);
            if (outdated)
                subject_note_changes(&campaign->subject, a, w, outdated->header, changed);
            count += outdated != NULL;
        }
    char list[128] = "";
    const char *key;
    json_t *value;
    json_object_foreach(changed, key, value)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "", key);
    if (count)
        progress_say(&campaign->progress,
                     "%s: %d of %d cells begin anew, since these changed: %s; what was measured before stays",
                     campaign->plan->name, count, campaign->plan->arm_count * campaign->plan->workload_count, list);
    json_decref(changed);
}

static const struct verdict *find_invalid_verdict(const struct verdicts *verdicts)
{
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].level == RULE_INVALID)
            return &verdicts->items[i];
    return NULL;
}

/* Why the arm is measured again; nothing at its first try. */
static void say_repeated(struct campaign *campaign, int block, const struct task *task)
{
    char name[ARM_NAME_SIZE];
    const struct arm *arm = &campaign->plan->arms[task->arm];
    int first, count = run_find_tries(&campaign->run, arm, block, &first);
    if (!count)
        return;
    const struct judged *former = task->invalid ? task->invalid : &campaign->run.attempts[first + count - 1];
    const struct verdict *verdict = find_invalid_verdict(&former->verdicts);
    if (verdict)
        progress_say(&campaign->progress, "block %d, %s: again, since %s was invalid (%s: %s)", block,
                     arm_name(arm, name), former->attempt.id, rule_table[verdict->rule].id, verdict->detail);
    else
        progress_say(&campaign->progress, "block %d, %s: again, to stand beside the other arms in one session", block,
                     arm_name(arm, name));
}

/* What there is of blocks x arms x workloads. */
struct standing {
    int all, valid, given_up;
};

static struct standing count_standing(const struct campaign *campaign)
{
    const struct plan *plan = campaign->plan;
    struct standing standing = {0};
    for (int block = 1; block <= plan_block_count(plan); block++)
        for (int a = 0; a < plan->arm_count; a++)
            for (int w = 0; w < plan->workload_count; w++) {
                const char *hash = subject_cell_hash(subject_of(campaign, block), a, w);
                bool valid = run_counted(&campaign->run, &plan->arms[a], block, plan->workloads[w].name, hash),
                     given_up;
                schedule_find_invalid(subject_of(campaign, block), &campaign->run, block, a, w, &given_up);
                standing.all++;
                standing.valid += valid;
                standing.given_up += given_up && !valid;
            }
    return standing;
}

static void say_result(struct campaign *campaign)
{
    const struct plan *plan = campaign->plan;
    struct standing standing = count_standing(campaign);
    char *done =
        campaign->attempts ? xformat("%d attempts measured", campaign->attempts) : xstrdup("nothing to measure");
    progress_say(&campaign->progress, "%s: %s; blocks %d, arms %d, workloads %d: %d of %d valid", plan->name, done,
                 plan_block_count(plan), plan->arm_count, plan->workload_count, standing.valid, standing.all);
    if (standing.given_up)
        progress_say(&campaign->progress, "%s: %d given up after invalid attempts; `collect status %s` says why",
                     plan->name, standing.given_up, plan->name);
    free(done);
}

/* --- measuring -------------------------------------------------------------------------------------------------- */

static int count_attempts(const struct run *run, int block)
{
    int count = 0;
    for (int i = 0; i < run->attempt_count; i++)
        count += run->attempts[i].attempt.block == block;
    return count;
}

/* The scheduled tasks, then what they left in the folder. */
static int measure_part(struct campaign *campaign, const struct measure *measure, int block, int tasks,
                        struct error *error)
{
    int before = count_attempts(&campaign->run, block);
    for (int i = 0; i < tasks; i++) {
        const struct task *task = &campaign->tasks[i];
        const struct arm *arm = &campaign->plan->arms[task->arm];
        struct place place = {block, schedule_next_try(&campaign->run, arm, block), before + i + 1};
        say_repeated(campaign, block, task);
        int result = measure_attempt(measure, task, place, error);
        if (result)
            return result;
        campaign->attempts++;
        if (interrupt_seen())
            return MEASURE_INTERRUPTED;
    }
    read_on(campaign);
    return 0;
}

static int measure_blocks(struct campaign *campaign, struct measure *measure, struct error *error)
{
    for (int block = 1; block <= plan_block_count(campaign->plan); block++) {
        bool repair = false;
        measure->subject = subject_of(campaign, block);
        for (int tasks; (tasks = schedule(campaign, block)); repair = true) {
            campaign->progress.requests_left += repair ? count_requests(campaign, block, tasks) : 0;
            int result = measure_part(campaign, measure, block, tasks, error);
            if (result)
                return result;
        }
    }
    return 0;
}

static int measure_missing(struct campaign *campaign, const char *plan_file, struct error *error)
{
    struct measure measure = {NULL, &campaign->ledger, &campaign->progress, campaign->folder, plan_file};
    interrupt_catch();
    int result = measure_blocks(campaign, &measure, error);
    interrupt_release();
    if (result == MEASURE_INTERRUPTED)
        progress_say(&campaign->progress, "%s: interrupted; the same command goes on from here", campaign->plan->name);
    else if (!result)
        say_result(campaign);
    return result == MEASURE_INTERRUPTED ? CAMPAIGN_INTERRUPTED : result;
}

/* Says what is to come. Nothing is stored or measured where a prompt does not fit. */
static int prepare(struct campaign *campaign, struct error *error)
{
    int attempts = 0;
    for (int block = 1; block <= plan_block_count(campaign->plan); block++) {
        int tasks = schedule(campaign, block);
        attempts += tasks;
        campaign->progress.requests_left += count_requests(campaign, block, tasks);
    }
    if (attempts && (subject_check_prompts(&campaign->subject, error) ||
                     (campaign->plan->tuning_blocks && subject_check_prompts(&campaign->tuning, error))))
        return -1;
    say_new_cells(campaign);
    if (attempts)
        progress_say(&campaign->progress, "%s: %d attempts to measure, %ld requests", campaign->plan->name, attempts,
                     campaign->progress.requests_left);
    return 0;
}

/* An attempt stands in the ledger before its file is there: where nothing stands there, it was lost. */
static int check_ledger(const struct campaign *campaign, struct error *error)
{
    if (campaign->run.attempt_count == 0 || json_array_size(campaign->ledger.lines) > 0)
        return 0;
    return fail(error,
                "%s/ledger.jsonl: is empty, or was gone, but %d attempts are there; restore it from a copy, or move "
                "the folder away to measure anew",
                campaign->folder, campaign->run.attempt_count);
}

static bool has_arm(const struct plan *plan, const struct arm *arm)
{
    for (int i = 0; i < plan->arm_count; i++)
        if (arm_equal(&plan->arms[i], arm))
            return true;
    return false;
}

/* What was measured and counts stays in the plan: else the best of eight budgets would be reported as the only one, or
 * a mean over the workloads that suit it. */
static int check_kept(const struct campaign *campaign, struct error *error)
{
    const struct plan *plan = campaign->plan;
    for (int i = 0; i < campaign->run.attempt_count; i++) {
        const struct judged *judged = &campaign->run.attempts[i];
        const struct attempt *attempt = &judged->attempt;
        for (int w = 0; w < attempt->workload_count && !attempt_is_imported(attempt); w++) {
            const char *workload = attempt->workloads[w].name;
            const bool arm_is_there = has_arm(plan, &attempt->arm);
            if (run_is_void(judged, workload) || (arm_is_there && plan_find_workload(plan, workload)))
                continue;
            return fail(error,
                        "%s: leaves out %s \"%s\", of which %s counts; restore it, withdraw its attempts by `collect "
                        "invalidate`, or measure under another \"name\"",
                        plan->path, arm_is_there ? "workload" : "arm", arm_is_there ? workload : judged->arm,
                        attempt->id);
        }
    }
    return 0;
}

static int run_campaign(struct campaign *campaign, struct error *error)
{
    char *plan_path = NULL;
    int result = -1;
    if (read_run(campaign, error) || check_ledger(campaign, error) ||
        plan_check(campaign->folder, &campaign->ledger, error) || check_kept(campaign, error) ||
        measure_note_ends(&campaign->run, &campaign->ledger, error) || prepare(campaign, error))
        goto out;
    int stored = plan_store(campaign->plan, campaign->folder, &campaign->ledger, &plan_path, error);
    if (stored < 0)
        goto out;
    if (stored == PLAN_STORED_AMENDED)
        progress_say(&campaign->progress, "%s: the plan has changed; it is kept as %s", campaign->plan->name,
                     plan_path);
    result = measure_missing(campaign, basename(plan_path), error);
out:
    free(plan_path);
    return result;
}

int campaign_run(const struct plan *plan, struct source *source, const struct campaign_options *options,
                 struct error *error)
{
    struct campaign campaign = {.plan = plan,
                                .only = options->only,
                                .folder = file_join(options->runs, plan->name),
                                .run = {.ledger = {.descriptor = -1}}};
    int result = -1;
    progress_init(&campaign.progress);
    if ((source->class->keep && source->class->keep(source, campaign.folder, error)) ||
        subject_open(plan, source, SUBJECT_REPORTED, &campaign.subject, error) ||
        (plan->tuning_blocks && subject_open(plan, source, SUBJECT_TUNING, &campaign.tuning, error)))
        goto out;
    campaign.tasks = xcalloc((size_t)plan->arm_count, sizeof *campaign.tasks);
    if (file_make_folder(campaign.folder, error) == 0 && ledger_open(campaign.folder, &campaign.ledger, error) == 0) {
        result = run_campaign(&campaign, error);
        ledger_close(&campaign.ledger);
    }
    run_free(&campaign.run);
    sessions_free(&campaign.sessions);
out:
    subject_close(&campaign.subject);
    subject_close(&campaign.tuning);
    free(campaign.tasks);
    free(campaign.folder);
    return result;
}
