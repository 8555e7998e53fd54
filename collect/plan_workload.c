#include "collect/plan_parts.h"

#include "collect/base/json.h"

/* A key whose value is one of words[count]; absent: the first. Answers its place, or -1. */
static int read_word(const char *word, const char *const *words, int count, const char *where, const char *key,
                     struct error *error)
{
    int found = word ? plan_find_word(word, words, count) : 0;
    return found < 0 ? plan_refuse_word(word, words, count, where, key, error) : found;
}

static int read_context(struct plan_workload *workload, const json_t *context, const char *where, struct error *error)
{
    char inside[PLAN_WHERE_SIZE + 16];
    snprintf(inside, sizeof inside, "%s: context", where);
    const struct json_field fields[] = {
        {"tokens", JSON_FIELD_INT, &workload->context_tokens, true, 1, 1 << 24},
        {"corpus", JSON_FIELD_STRING, &workload->corpus, true, 0, 0},
        {0},
    };
    return context ? json_read_fields(context, inside, fields, JSON_UNKNOWN_KEYS_REFUSED, error) : 0;
}

static int read_workload(struct plan *plan, const json_t *object, struct error *error)
{
    struct plan_workload *workload = &plan->workloads[plan->workload_count];
    const json_t *context = NULL;
    const char *template = NULL, *chat = NULL;
    char where[PLAN_WHERE_SIZE];
    snprintf(where, sizeof where, "%s: workloads[%d]", plan->path, plan->workload_count);
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &workload->name, true, 0, 0},
        {"prompts", JSON_FIELD_STRING, &workload->prompts, true, 0, 0},
        {"count", JSON_FIELD_INT, &workload->count, false, 0, 1000000},
        {"template", JSON_FIELD_STRING, &template, false, 0, 0},
        {"chat", JSON_FIELD_STRING, &chat, false, 0, 0},
        {"context", JSON_FIELD_OBJECT, &context, false, 0, 0},
        {"max_new_tokens", JSON_FIELD_INT, &workload->max_new_tokens, true, 2, 1 << 20},
        {"ignore_eos", JSON_FIELD_BOOL, &workload->ignore_eos, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error) ||
        plan_check_name(workload->name, where, error) || read_context(workload, context, where, error))
        return -1;
    int template_index = read_word(template, prompt_template_names, PROMPT_TEMPLATE_COUNT, where, "template", error);
    int chat_index = read_word(chat, prompt_chat_names, PROMPT_CHAT_COUNT, where, "chat", error);
    if (template_index < 0 || chat_index < 0)
        return -1;
    workload->template = (enum prompt_template)template_index;
    workload->chat = (enum prompt_chat)chat_index;
    if (plan_find_workload(plan, workload->name))
        return fail(error, "%s: the name \"%s\" is taken; give each workload its own", where, workload->name);
    plan->workload_count++;
    return 0;
}

int plan_read_workloads(struct plan *plan, const json_t *workloads, struct error *error)
{
    size_t count = json_array_size(workloads);
    if (!count)
        return fail(error, "%s: \"workloads\" is empty; describe at least one", plan->path);
    if (count > PLAN_WORKLOADS_MAXIMUM)
        return fail(error, "%s: %zu workloads; a plan may have up to %d", plan->path, count, PLAN_WORKLOADS_MAXIMUM);
    plan->workloads = xcalloc(count, sizeof *plan->workloads);
    for (size_t i = 0; i < count; i++)
        if (read_workload(plan, json_array_get(workloads, i), error))
            return -1;
    return 0;
}
