#include "collect/subject.h"

#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

static const char *const cell_keys[] = {"arm", "workload", "sampling", "source", "machine", "build"};
enum { CELL_KEY_COUNT = sizeof cell_keys / sizeof *cell_keys };

/* --- prompts ---------------------------------------------------------------------------------------------------- */

static int fill_prompts(const struct plan_workload *workload, struct source *source, struct prompts *prompts, int used,
                        struct error *error)
{
    if (!source->class->fill)
        return fail(error, "workload \"%s\": a source of kind \"%s\" cannot fill prompts up; remove \"context\"",
                    workload->name, source->class->kind);
    char *corpus = prompt_read_corpus(workload->corpus, error);
    int result = corpus ? 0 : -1;
    for (int i = 0; !result && i < used; i++) {
        struct prompt *prompt = &prompts->items[i];
        struct error reason = {0};
        char *text =
            source->class->fill(source, prompt->text, prompt->fill_at, corpus, workload->context_tokens, &reason);
        if (!text) {
            result = fail(error, "%s: prompt \"%s\": %s", workload->prompts, prompt->id, reason.message);
            break;
        }
        free(prompt->text);
        prompt->text = text;
    }
    free(corpus);
    return result;
}

/* Moves the part's half of the first `used` prompts to the front, both halves in the file's order; answers how many
 * they are. The halves are drawn by the plan's seed. */
static int halve(const struct subject *subject, const struct plan_workload *workload, struct prompts *prompts, int used)
{
    int *order = xcalloc((size_t)used, sizeof *order), kept = 0, others = 0;
    bool *tuning = xcalloc((size_t)used, sizeof *tuning);
    struct prompt *rest = xcalloc((size_t)used, sizeof *rest);
    plan_prompt_order(subject->plan, 0, workload->name, used, order);
    for (int i = 0; i < used / 2; i++)
        tuning[order[i]] = true;
    for (int i = 0; i < used; i++)
        if (tuning[i] == (subject->part == SUBJECT_TUNING))
            prompts->items[kept++] = prompts->items[i];
        else
            rest[others++] = prompts->items[i];
    memcpy(prompts->items + kept, rest, (size_t)others * sizeof *rest);
    free(order);
    free(tuning);
    free(rest);
    return kept;
}

/* Reads the workload's prompts and makes of them what the model is given; answers how many are measured, or -1. */
static int select_prompts(const struct subject *subject, const struct plan_workload *workload, struct prompts *prompts,
                          struct error *error)
{
    if (prompt_read_file(workload->prompts, prompts, error))
        return -1;
    if (workload->count > prompts->count)
        return fail(error, "%s: %d prompts, but workload \"%s\" asks for %d; lower its \"count\" or add prompts",
                    workload->prompts, prompts->count, workload->name, workload->count);
    int used = workload->count ? workload->count : prompts->count;
    if (subject->plan->tuning_blocks && used < 2)
        return fail(error, "%s: one prompt, which \"tuning\" cannot halve; add prompts", workload->prompts);
    if (subject->plan->tuning_blocks)
        used = halve(subject, workload, prompts, used);
    struct chat_style style = {0};
    if (workload->chat != PROMPT_CHAT_NONE && subject->source->class->chat_style &&
        subject->source->class->chat_style(subject->source, &style, error))
        return -1;
    if (prompt_apply(prompts, workload->template, workload->chat, &style, workload->prompts, error) ||
        (workload->context_tokens && fill_prompts(workload, subject->source, prompts, used, error)))
        return -1;
    return used;
}

int subject_prompt_count(const struct subject *subject, int workload)
{
    return subject->prompt_counts[workload];
}

static void hash_prompts(const struct subject *subject, int workload, char *hex)
{
    json_t *texts = json_array();
    for (int i = 0; i < subject_prompt_count(subject, workload); i++) {
        const struct prompt *prompt = &subject->prompts[workload].items[i];
        json_append(texts, json_text(prompt->id));
        json_append(texts, json_text(prompt->text));
    }
    json_hash(texts, hex);
    json_decref(texts);
}

int subject_check_prompts(const struct subject *subject, struct error *error)
{
    for (int w = 0; w < subject->plan->workload_count; w++)
        for (int i = 0; i < subject_prompt_count(subject, w); i++) {
            struct request request = subject_request(subject, w, i);
            struct error reason = {0};
            if (subject->source->class->check_request(subject->source, &request, &reason) < 0)
                return fail(error, "%s: %s", subject->plan->workloads[w].prompts, reason.message);
        }
    return 0;
}

struct request subject_request(const struct subject *subject, int workload, int index)
{
    const struct plan_workload *settings = &subject->plan->workloads[workload];
    const struct prompt *prompt = &subject->prompts[workload].items[index];
    return (struct request){.workload = settings->name,
                            .prompt_id = prompt->id,
                            .text = prompt->text,
                            .max_new_tokens = settings->max_new_tokens,
                            .ignore_eos = settings->ignore_eos,
                            .limit_s = subject->plan->request_limit_s};
}

/* --- headers and hashes ----------------------------------------------------------------------------------------- */

json_t *subject_describe_arm(const struct arm *arm)
{
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "name", json_text(arm_name(arm, name)));
    json_set(object, "tensor_parallel", json_integer(arm->tensor_parallel));
    json_set(object, "method", json_text(method_names[arm->method]));
    if (method_has_budget(arm->method))
        json_set(object, "budget", json_integer(arm->budget));
    json_set(object, "concurrency", json_integer(arm->concurrency));
    return object;
}

/* Bytes with which all prompts of the workload begin alike; 0 where there is only one. */
static size_t count_common_bytes(const struct subject *subject, int workload)
{
    const struct prompt *prompts = subject->prompts[workload].items;
    const int count = subject_prompt_count(subject, workload);
    size_t common = count > 1 ? strlen(prompts[0].text) : 0;
    for (int i = 1; i < count; i++) {
        size_t same = 0;
        while (same < common && prompts[i].text[same] == prompts[0].text[same])
            same++;
        common = same;
    }
    while (common && ((unsigned char)prompts[0].text[common] & 0xC0) == 0x80)
        common--; /* no piece of a character */
    return common;
}

/* Tokens of that; -1 where the source cannot say. */
static int count_common_tokens(const struct subject *subject, int workload)
{
    struct request request = subject_request(subject, workload, 0);
    struct error ignored = {0};
    size_t bytes = count_common_bytes(subject, workload);
    if (!bytes)
        return 0;
    char *text = xformat("%.*s", (int)bytes, request.text);
    request.text = text;
    int tokens = subject->source->class->check_request(subject->source, &request, &ignored);
    free(text);
    return tokens;
}

static json_t *describe_workload(const struct subject *subject, int workload)
{
    const struct plan_workload *settings = &subject->plan->workloads[workload];
    char hash[FILE_HASH_SIZE];
    const int common_tokens = count_common_tokens(subject, workload);
    json_t *object = json_object();
    hash_prompts(subject, workload, hash);
    json_set(object, "prompts_sha256", json_text(hash));
    json_set(object, "prompts", json_integer(subject_prompt_count(subject, workload)));
    if (settings->template != PROMPT_TEMPLATE_PLAIN)
        json_set(object, "template", json_text(prompt_template_names[settings->template]));
    if (settings->chat != PROMPT_CHAT_NONE)
        json_set(object, "chat", json_text(prompt_chat_names[settings->chat]));
    if (settings->context_tokens)
        json_set(object, "context_tokens", json_integer(settings->context_tokens));
    if (common_tokens >= 0)
        json_set(object, "common_tokens", json_integer(common_tokens));
    json_set(object, "max_new_tokens", json_integer(settings->max_new_tokens));
    json_set(object, "ignore_eos", json_boolean(settings->ignore_eos));
    return object;
}

/* The same without what belongs to the arm, for the second hash. */
static json_t *strip_arm(const struct subject *subject, const json_t *cell)
{
    json_t *shared = json_copy((json_t *)cell), *source = subject->source->class->describe(subject->source, NULL);
    json_object_del(shared, "arm");
    json_set(shared, "source", source);
    return shared;
}

static void set_hashes(const struct subject *subject, json_t *header, const char *workload)
{
    char cell_hash[FILE_HASH_SIZE], compare_hash[FILE_HASH_SIZE];
    json_t *cell = subject_cell(header, workload), *shared = strip_arm(subject, cell);
    json_hash(cell, cell_hash);
    json_hash(shared, compare_hash);
    json_t *entry = json_object_get(json_object_get(header, "workloads"), workload);
    json_set(entry, "cell_hash", json_text(cell_hash));
    json_set(entry, "compare_hash", json_text(compare_hash));
    json_decref(cell);
    json_decref(shared);
}

/* The seed decides on tokens only where they are drawn. */
static void describe_sampling(const struct plan *plan, json_t *sampling)
{
    json_set(sampling, "temperature", json_number(plan->sampling.temperature));
    if (plan->sampling.temperature == 0)
        return;
    json_set(sampling, "top_k", json_integer(plan->sampling.top_k));
    json_set(sampling, "top_p", json_number(plan->sampling.top_p));
    json_set(sampling, "seed", json_integer(plan->seed));
}

static json_t *make_header(const struct subject *subject, const struct arm *arm, json_t *machine, const char *build)
{
    json_t *header = json_object(), *sampling = json_object(), *workloads = json_object();
    describe_sampling(subject->plan, sampling);
    json_set(header, "arm", subject_describe_arm(arm));
    json_set(header, "sampling", sampling);
    json_set(header, "source", subject->source->class->describe(subject->source, arm));
    json_set(header, "machine", json_incref(machine));
    json_set(header, "build", json_text(build));
    json_set(header, "workloads", workloads);
    for (int w = 0; w < subject->plan->workload_count; w++) {
        const char *name = subject->plan->workloads[w].name;
        json_set(workloads, name, describe_workload(subject, w));
        set_hashes(subject, header, name);
    }
    return header;
}

json_t *subject_cell(const json_t *header, const char *workload)
{
    json_t *cell = json_object();
    json_t *entry = json_copy(json_object_get(json_object_get(header, "workloads"), workload));
    json_object_del(entry, "cell_hash");
    json_object_del(entry, "compare_hash");
    json_object_del(entry, "common_tokens");
    json_set(entry, "name", json_text(workload));
    json_set(cell, "workload", entry);
    json_set(cell, "machine", machine_identity(json_object_get(header, "machine")));
    for (int i = 0; i < CELL_KEY_COUNT; i++) {
        json_t *value = json_object_get(header, cell_keys[i]);
        if (!json_object_get(cell, cell_keys[i]))
            json_set(cell, cell_keys[i], value ? json_incref(value) : json_null());
    }
    return cell;
}

void subject_note_changes(const struct subject *subject, int arm, int workload, const json_t *header, json_t *changed)
{
    const char *name = subject->plan->workloads[workload].name;
    json_t *before = subject_cell(header, name), *today = subject_cell(subject->headers[arm], name);
    for (int i = 0; i < CELL_KEY_COUNT; i++)
        if (!json_equal(json_object_get(before, cell_keys[i]), json_object_get(today, cell_keys[i])))
            json_set(changed, cell_keys[i], json_true());
    json_decref(before);
    json_decref(today);
}

const char *subject_cell_hash(const struct subject *subject, int arm, int workload)
{
    const json_t *workloads = json_object_get(subject->headers[arm], "workloads");
    const json_t *entry = json_object_get(workloads, subject->plan->workloads[workload].name);
    return json_string_value(json_object_get(entry, "cell_hash"));
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static int read_prompts(struct subject *subject, struct error *error)
{
    const struct plan *plan = subject->plan;
    subject->prompts = xcalloc((size_t)plan->workload_count, sizeof *subject->prompts);
    subject->prompt_counts = xcalloc((size_t)plan->workload_count, sizeof *subject->prompt_counts);
    for (int w = 0; w < plan->workload_count; w++) {
        subject->prompt_counts[w] = select_prompts(subject, &plan->workloads[w], &subject->prompts[w], error);
        if (subject->prompt_counts[w] < 0)
            return -1;
    }
    return 0;
}

int subject_open(const struct plan *plan, struct source *source, enum subject_part part, struct subject *subject,
                 struct error *error)
{
    char build[FILE_HASH_SIZE];
    *subject = (struct subject){.plan = plan, .source = source, .part = part};
    machine_boot_id(subject->boot_id);
    if (read_prompts(subject, error) || file_hash("/proc/self/exe", build, error)) {
        subject_close(subject);
        return -1;
    }
    json_t *machine = machine_describe();
    subject->headers = xcalloc((size_t)plan->arm_count, sizeof *subject->headers);
    for (int a = 0; a < plan->arm_count; a++)
        subject->headers[a] = make_header(subject, &plan->arms[a], machine, build);
    json_decref(machine);
    return 0;
}

void subject_close(struct subject *subject)
{
    for (int a = 0; subject->headers && a < subject->plan->arm_count; a++)
        json_decref(subject->headers[a]);
    for (int w = 0; subject->prompts && w < subject->plan->workload_count; w++)
        prompt_free(&subject->prompts[w]);
    free(subject->headers);
    free(subject->prompts);
    free(subject->prompt_counts);
    *subject = (struct subject){0};
}
