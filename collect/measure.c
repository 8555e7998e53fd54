#include "collect/measure.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/interrupt.h"
#include "collect/plan_check.h"
#include "collect/record/energy.h"
#include "collect/telemetry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An attempt while it runs. */
struct recording {
    const struct measure *measure;
    char *id, *path;
    char arm[ARM_NAME_SIZE];
    struct attempt_writer *writer;
    struct request *requests;
    int request_count;
    struct sample *samples; /* of the first sample_count requests */
    int sample_count, failed;
    struct audit audit;
    struct observed observed;
    struct telemetry_recorder *telemetry; /* NULL: there is nothing to read */
    int64_t origin_ns;                    /* when the arm was loaded */
    int failure;                          /* 0, or a source_failure */
    struct error reason;                  /* of that */
    struct error *error;
};

/* The rule that says of an attempt how its source failed. */
static const enum rule_id failure_rules[] = {
    [SOURCE_SERVER_DIED] = RULE_SERVER_DIED,
    [SOURCE_OUT_OF_MEMORY] = RULE_OUT_OF_MEMORY,
    [SOURCE_SILENT] = RULE_SILENT,
};

static bool has_workload(const struct task *task, int workload)
{
    return task->workloads >> workload & 1;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

int measure_request_count(const struct subject *subject, const struct task *task)
{
    int count = subject->plan->warmup;
    for (int w = 0; w < subject->plan->workload_count; w++)
        if (has_workload(task, w))
            count += subject_prompt_count(subject, w);
    return count;
}

/* Warm-up repeats the first of the requests that follow, so that it has their shapes. */
static struct request make_request(const struct subject *subject, int workload, int prompt, int block)
{
    struct request request = subject_request(subject, workload, prompt);
    request.stream = plan_prompt_stream(subject->plan, block, request.workload, request.prompt_id);
    return request;
}

static void make_requests(struct recording *recording, const struct task *task, int block)
{
    const struct subject *subject = recording->measure->subject;
    int warmup = subject->plan->warmup, count = warmup;
    recording->request_count = measure_request_count(subject, task);
    recording->requests = xcalloc((size_t)recording->request_count, sizeof *recording->requests);
    recording->samples = xcalloc((size_t)recording->request_count, sizeof *recording->samples);
    for (int w = 0; w < subject->plan->workload_count; w++) {
        int prompts = subject_prompt_count(subject, w), *order = xcalloc((size_t)prompts, sizeof *order);
        plan_prompt_order(subject->plan, block, subject->plan->workloads[w].name, prompts, order);
        for (int i = 0; has_workload(task, w) && i < prompts; i++)
            recording->requests[count++] = make_request(subject, w, order[i], block);
        free(order);
    }
    for (int i = 0; i < warmup; i++) {
        recording->requests[i] = recording->requests[warmup + i % (count - warmup)];
        recording->requests[i].warmup = true;
    }
}

/* --- the attempt's file and the ledger -------------------------------------------------------------------------- */

static int note(const struct recording *recording, enum ledger_actor actor, const char *action, json_t *details)
{
    json_set(details, "attempt", json_text(recording->id));
    return ledger_append(recording->measure->ledger, actor, action, details, recording->error);
}

/* That the ledger's tail was not cut shows in these two. */
static void set_ledger(json_t *object, const struct ledger *ledger)
{
    json_set(object, "ledger_head", json_text(ledger->head));
    json_set(object, "ledger_lines", json_integer((json_int_t)json_array_size(ledger->lines)));
}

static json_t *make_header(const struct recording *recording, const struct task *task, struct place place,
                           json_t *memory)
{
    const struct subject *subject = recording->measure->subject;
    char started[CLOCK_UTC_SIZE];
    json_t *header = json_object(), *common = json_deep_copy(subject->headers[task->arm]);
    json_set(header, "id", json_text(recording->id));
    json_set(header, "block", json_integer(place.block));
    json_set(header, "try", json_integer(place.try_number));
    json_set(header, "position", json_integer(place.position));
    json_set(header, "started", json_text(clock_format_utc(clock_wall_s(), started)));
    json_set(header, "boot_id", json_text(subject->boot_id));
    json_set(header, "plan", json_text(recording->measure->plan_file));
    set_ledger(header, recording->measure->ledger);
    json_set(header, "memory", memory ? memory : json_null());
    if (recording->telemetry)
        json_set(header, "gpus", telemetry_describe(recording->telemetry));
    const struct source *source = subject->source;
    if (source->class->inform)
        json_set(header, source->class->kind, source->class->inform(subject->source));
    for (int w = 0; w < subject->plan->workload_count; w++)
        if (!has_workload(task, w))
            json_object_del(json_object_get(common, "workloads"), subject->plan->workloads[w].name);
    json_object_update(header, common);
    json_decref(common);
    return header;
}

static int make_folder(const struct recording *recording)
{
    char *folder = xformat("%s/attempts/%s", recording->measure->folder, recording->arm);
    int result = file_make_folder(folder, recording->error);
    free(folder);
    return result;
}

/* So that an attempt whose file is gone is known for a try of its cells. */
static json_t *make_cell_hashes(const struct subject *subject, const struct task *task)
{
    json_t *hashes = json_object();
    for (int w = 0; w < subject->plan->workload_count; w++)
        if (has_workload(task, w))
            json_set(hashes, subject->plan->workloads[w].name, json_text(subject_cell_hash(subject, task->arm, w)));
    return hashes;
}

static int begin(struct recording *recording, const struct task *task, struct place place, json_t *memory)
{
    json_t *details = json_object();
    json_set(details, "workloads", make_cell_hashes(recording->measure->subject, task));
    set_ledger(details, recording->measure->ledger);
    if (plan_check_note(recording->measure->folder, recording->measure->plan_file, details, recording->error)) {
        json_decref(details);
        json_decref(memory);
        return -1;
    }
    if (make_folder(recording) || note(recording, LEDGER_COLLECT, "begin", details)) {
        json_decref(memory);
        return -1;
    }
    recording->writer =
        attempt_writer_open(recording->path, make_header(recording, task, place, memory), recording->error);
    return recording->writer ? 0 : -1;
}

static json_t *make_end(const char *status, const char *hash, int samples, int failed, const struct audit *audit)
{
    json_t *details = json_object();
    json_set(details, "status", json_text(status));
    json_set(details, "sha256", json_text(hash));
    json_set(details, "samples", json_integer(samples));
    json_set(details, "failed", json_integer(failed));
    json_set(details, "audit_regret_max", audit->done ? json_number(audit->regret_max) : json_null());
    return details;
}

static int end(struct recording *recording, bool complete)
{
    char hash[FILE_HASH_SIZE];
    struct attempt_end line = {
        .status = complete ? "complete" : "aborted", .audit = &recording->audit, .observed = &recording->observed};
    if (recording->failure) {
        line.status = "failed";
        line.error_code = rule_table[failure_rules[recording->failure]].id;
        line.error_message = recording->reason.message;
    }
    int result = attempt_writer_end(recording->writer, &line, hash, recording->error);
    recording->writer = NULL;
    if (result)
        return -1;
    json_t *details = make_end(line.status, hash, recording->sample_count, recording->failed, &recording->audit);
    return note(recording, LEDGER_COLLECT, "end", details);
}

static int count_failed(const struct attempt *attempt)
{
    int failed = 0;
    for (int i = 0; i < attempt->sample_count; i++)
        failed += !attempt->samples[i].ok;
    return failed;
}

int measure_note_ends(const struct run *run, struct ledger *ledger, struct error *error)
{
    int result = 0;
    for (int i = 0; !result && i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        const struct history_entry *entry = run_history(run, attempt);
        if (!attempt->end_status || !entry || !entry->begin || entry->end)
            continue;
        json_t *details = make_end(attempt->end_status, attempt->sha256, attempt->sample_count, count_failed(attempt),
                                   &attempt->audit);
        json_set(details, "attempt", json_text(entry->id));
        result = ledger_append(ledger, LEDGER_COLLECT, "end", details, error);
    }
    return result;
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static int on_sample(void *context, struct sample *sample)
{
    struct recording *recording = context;
    if (recording->sample_count == recording->request_count)
        die("source \"%s\" answered more than it was asked", recording->measure->subject->source->class->kind);
    recording->failed += !sample->ok;
    progress_add(recording->measure->progress, sample);
    recording->samples[recording->sample_count++] = *sample;
    return attempt_writer_add(recording->writer, sample_to_json(sample), recording->error) || interrupt_seen();
}

static int audit(struct recording *recording)
{
    struct source *source = recording->measure->subject->source;
    struct request *requests = xcalloc((size_t)recording->sample_count, sizeof *requests);
    struct sample *samples = xcalloc((size_t)recording->sample_count, sizeof *samples);
    int count = 0;
    for (int i = 0; i < recording->sample_count; i++)
        if (recording->samples[i].ok && !recording->samples[i].warmup) {
            requests[count] = recording->requests[i];
            samples[count++] = recording->samples[i];
        }
    int result = source->class->audit(source, requests, samples, count, &recording->audit, recording->error);
    free(requests);
    free(samples);
    return result;
}

static void open_telemetry(struct recording *recording)
{
    struct source *source = recording->measure->subject->source;
    char ids[TELEMETRY_DEVICES_MAXIMUM][TELEMETRY_ID_SIZE];
    recording->origin_ns = clock_now_ns();
    if (source->class->list_gpus)
        recording->telemetry =
            telemetry_open((const char(*)[TELEMETRY_ID_SIZE])ids, source->class->list_gpus(source, ids));
}

static int write_telemetry(struct recording *recording)
{
    int result = 0;
    json_t *lines = telemetry_stop(recording->telemetry, recording->origin_ns);
    for (size_t i = 0; !result && i < json_array_size(lines); i++)
        result = attempt_writer_add(recording->writer, json_incref(json_array_get(lines, i)), recording->error);
    json_decref(lines);
    return result;
}

/* A failure of the arm alone is put aside: it is the attempt's, not the campaign's. Answers whether all may go on. */
static bool take_failure(struct recording *recording, int result)
{
    if (result > 0) {
        recording->failure = result;
        recording->reason = *recording->error;
        *recording->error = (struct error){0};
    }
    return result == 0;
}

/* The warm-up, then what is measured; whether all of it was answered. */
static bool answer_requests(struct recording *recording, int in_flight)
{
    struct source *source = recording->measure->subject->source;
    const int warmup = recording->measure->subject->plan->warmup, count = recording->request_count - warmup;
    return take_failure(recording, source->class->run(source, recording->requests, warmup, in_flight, on_sample,
                                                      recording, recording->error)) &&
           recording->sample_count == warmup && !interrupt_seen() &&
           take_failure(recording, source->class->run(source, recording->requests + warmup, count, in_flight, on_sample,
                                                      recording, recording->error)) &&
           !recording->error->message[0] && recording->sample_count == recording->request_count;
}

/* The same between two readings of the devices. */
static bool answer(struct recording *recording, int in_flight)
{
    if (!recording->telemetry)
        return answer_requests(recording, in_flight);
    telemetry_start(recording->telemetry);
    bool whole = answer_requests(recording, in_flight);
    return !write_telemetry(recording) && whole;
}

static int observe(struct recording *recording)
{
    struct source *source = recording->measure->subject->source;
    return source->class->observe ? source->class->observe(source, &recording->observed, recording->error) : 0;
}

/* The program ends: the attempt with it, and with the reason. */
static void end_with_program(void *context, const char *message)
{
    struct recording *recording = context;
    struct error error = {0};
    recording->error = &error;
    recording->failure = SOURCE_SERVER_DIED;
    fail(&recording->reason, "%s", message);
    if (end(recording, false))
        fprintf(stderr, "cleanslate: %s\n", error.message);
}

/* Runs, audits and closes the file. */
static int run(struct recording *recording, int in_flight)
{
    die_set_last_act(end_with_program, recording);
    bool complete = !recording->failure && answer(recording, in_flight) && !observe(recording) && !audit(recording);
    die_set_last_act(NULL, NULL);
    if (!complete && !recording->failure && !interrupt_seen())
        fail(recording->error, "%s: the source answered %d of %d requests", recording->id, recording->sample_count,
             recording->request_count);
    /* The reason goes first; the file is closed in any case, and its own error counts where there was none. */
    struct error closing = {0}, *reason = recording->error;
    if (reason->message[0])
        recording->error = &closing;
    int closed = end(recording, complete);
    recording->error = reason;
    if (closed || reason->message[0])
        return -1;
    return complete || recording->failure ? MEASURE_DONE : MEASURE_INTERRUPTED;
}

/* --- verdicts --------------------------------------------------------------------------------------------------- */

static const struct verdict *find_worst(const struct verdicts *verdicts)
{
    const struct verdict *worst = NULL;
    for (int i = 0; i < verdicts->count; i++)
        if (!worst || verdicts->items[i].level > worst->level)
            worst = &verdicts->items[i];
    return worst;
}

static void report(const struct recording *recording, const struct attempt *attempt, const struct verdicts *verdicts)
{
    const double joules = energy_joules_a_token(attempt, NULL);
    const struct verdict *worst = find_worst(verdicts);
    enum rule_level level = worst ? worst->level : RULE_VALID;
    char *outcome = worst && level > RULE_NOTE
                        ? xformat("%s (%s: %s)", rule_level_names[level], rule_table[worst->rule].id, worst->detail)
                    : isnan(joules) ? xstrdup(rule_level_names[RULE_VALID])
                                    : xformat("%s, %.3g J a token", rule_level_names[RULE_VALID], joules);
    progress_end(recording->measure->progress, level < RULE_INVALID, outcome);
    free(outcome);
}

/* Judges what the file says, as every reader after us will. */
static int judge(const struct recording *recording)
{
    struct attempt attempt;
    struct verdicts verdicts = {0};
    int result = 0;
    if (attempt_read(recording->path, &attempt, recording->error))
        return -1;
    rule_judge_attempt(&attempt, &recording->measure->subject->plan->rules, &verdicts);
    for (int i = 0; !result && i < verdicts.count; i++)
        result = note(recording, LEDGER_RULE, "verdict", verdict_to_json(&verdicts.items[i]));
    report(recording, &attempt, &verdicts);
    verdicts_free(&verdicts);
    attempt_free(&attempt);
    return result;
}

int measure_attempt(const struct measure *measure, const struct task *task, struct place place, struct error *error)
{
    const struct plan *plan = measure->subject->plan;
    const struct arm *arm = &plan->arms[task->arm];
    struct source *source = measure->subject->source;
    struct recording recording = {.measure = measure, .audit = {.tokens = ATTEMPT_ABSENT}, .error = error};
    json_t *memory = NULL;
    int result = -1;
    arm_name(arm, recording.arm);
    recording.id = xformat("%s/%s/%d-%d", plan->name, recording.arm, place.block, place.try_number);
    recording.path =
        xformat("%s/attempts/%s/%d-%d.jsonl", measure->folder, recording.arm, place.block, place.try_number);
    make_requests(&recording, task, place.block);
    progress_begin(measure->progress, place.block, plan_block_count(plan), recording.arm, recording.request_count);
    observed_init(&recording.observed);
    char *log = xformat("%s/logs/%s/%d-%d.log", measure->folder, recording.arm, place.block, place.try_number);
    int loaded = source->class->load(source, arm, log, &memory, error);
    free(log);
    if (!take_failure(&recording, loaded) && !recording.failure)
        goto out;
    if (interrupt_seen()) {
        json_decref(memory);
        result = MEASURE_INTERRUPTED;
        goto out;
    }
    open_telemetry(&recording);
    if (begin(&recording, task, place, memory))
        goto out;
    result = run(&recording, arm->concurrency);
    if (judge(&recording))
        result = -1;
out:
    for (int i = 0; i < recording.sample_count; i++)
        sample_free(&recording.samples[i]);
    observed_free(&recording.observed);
    telemetry_close(recording.telemetry);
    free(recording.samples);
    free(recording.requests);
    free(recording.id);
    free(recording.path);
    return result;
}
