/* Machine, plan and workloads. */
#include "render/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "a, b": what the object has of these scalars, NULL where it has none. free() it. */
static char *join_known(const json_t *object, const char *const keys[3])
{
    char *joined = NULL;
    for (int i = 0; i < 3 && keys[i]; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        if (!value || json_is_null(value) || json_is_object(value) || json_is_array(value))
            continue;
        char *text = tables_value_text(value),
             *longer = xformat("%s%s%s", joined ? joined : "", joined ? ", " : "", text);
        free(joined);
        free(text);
        joined = longer;
    }
    return joined;
}

static void add_known(struct table *table, const char *label, const json_t *object, const char *const keys[3])
{
    char *text = join_known(object, keys);
    if (text)
        tables_add_fact(table, label, text);
    free(text);
}

static void add_cpu(struct table *table, const json_t *machine)
{
    const json_t *cores = json_object_get(machine, "cores"), *bytes = json_object_get(machine, "memory_bytes");
    const char *name = json_string_value(json_object_get(machine, "cpu"));
    if (!name)
        return;
    char *count = json_is_integer(cores) ? xformat(", %lld cores", (long long)json_integer_value(cores)) : xstrdup("");
    char *size =
        json_is_number(bytes) ? xformat(", %.1f GiB of memory", json_number_value(bytes) / 1073741824.0) : xstrdup("");
    char *text = xformat("%s%s%s", name, count, size);
    tables_add_fact(table, "CPU", text);
    free(text);
    free(size);
    free(count);
}

static const char *device_name(const json_t *device)
{
    const char *name = json_string_value(device);
    return name ? name : json_string_value(json_object_get(device, "name"));
}

static void add_devices(struct table *table, const json_t *devices)
{
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const char *name = device_name(json_array_get(devices, i));
        size_t alike = 1;
        for (; name && i + alike < json_array_size(devices); alike++) {
            const char *other = device_name(json_array_get(devices, i + alike));
            if (!other || strcmp(other, name) != 0)
                break;
        }
        char *text = xformat("%zu × %s", alike, name ? name : "device");
        tables_add_fact(table, "Devices", text);
        free(text);
        i += alike - 1;
    }
}

static void add_gpu(struct table *table, const json_t *source)
{
    const char *gpu = json_string_value(json_object_get(source, "gpu"));
    const char *driver = json_string_value(json_object_get(source, "driver"));
    char *text = xformat("%s%s%s", gpu ? gpu : "", driver ? ", driver " : "", driver ? driver : "");
    if (gpu)
        tables_add_fact(table, "GPU", text);
    free(text);
}

/* A model is a folder's name, or an object that has one. */
static void add_model(struct table *table, const char *label, const json_t *source, const char *key)
{
    const json_t *model = json_object_get(source, key);
    if (json_is_object(model))
        add_known(table, label, model, (const char *const[]){"path", "name", "architecture"});
    else
        add_known(table, label, source, (const char *const[]){key, NULL, NULL});
}

/* How other tools came to their results, nobody can say. */
static void add_plan(struct table *table, const struct summary *summary)
{
    if (summary_is_imported(summary)) {
        tables_add_fact(table, "Plan",
                        "none: results of other tools, unpaired, imported; when, in which order and how warm they were "
                        "measured is theirs to say");
        return;
    }
    char *plan = xformat("%d block%s, arms shuffled in each from seed %lld; temperature %.4g; %d warm-up request%s an "
                         "attempt",
                         summary->blocks, summary->blocks == 1 ? "" : "s", (long long)summary->seed,
                         summary->temperature, summary->warmup, summary->warmup == 1 ? "" : "s");
    tables_add_fact(table, "Plan", plan);
    free(plan);
}

void tables_fill_setting(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "what", "");
    table_add_column(table, COLUMN_TEXT, "value", "");
    add_cpu(table, summary->machine);
    add_devices(table, json_object_get(summary->machine, "gpus"));
    add_known(table, "System", summary->machine, (const char *const[]){"os", "kernel", NULL});
    add_model(table, "Target", summary->source, "target");
    add_model(table, "Drafter", summary->source, "drafter");
    add_gpu(table, summary->source);
    add_known(table, "Runs on", summary->source, (const char *const[]){"kind", "device", "dtype"});
    add_known(table, "Imported from", summary->source, (const char *const[]){"tool", "model_id", "version"});
    add_known(table, "Server", summary->source, (const char *const[]){"dialect", "route", NULL});
    add_known(table, "Serves", json_object_get(summary->source, "server"),
              (const char *const[]){"model", "version", NULL});
    add_plan(table, summary);
}

void tables_fill_workloads(struct table *table, const struct summary *summary)
{
    table_add_column(table, COLUMN_TEXT, "workload", "workload");
    table_add_column(table, COLUMN_TEXT, "prompts", "prompts from");
    table_add_column(table, COLUMN_TEXT, "count", "prompts");
    table_add_column(table, COLUMN_TEXT, "context_tokens", "context / tokens");
    table_add_column(table, COLUMN_COUNT, "max_new_tokens", "new tokens");
    table_add_column(table, COLUMN_TEXT, "ends", "ends");
    table_add_column(table, COLUMN_TEXT, "template", "template");
    const bool imported = summary_is_imported(summary); /* then all that is unknown */
    for (int i = 0; i < summary->workload_count; i++) {
        const struct summary_workload *workload = &summary->workloads[i];
        table_add_row(table, NULL);
        table_put_text(table, workload->name);
        table_put_text(table, workload->prompts);
        if (workload->count > 0)
            table_put_format(table, "%d", workload->count);
        else
            table_put_text(table, workload->prompts && !imported ? "all" : NULL);
        if (workload->context_tokens > 0)
            table_put_format(table, "filled to %d", workload->context_tokens);
        else
            table_put_text(table, imported ? NULL : "as they are");
        table_put_number(table, workload->max_new_tokens > 0 ? workload->max_new_tokens : NAN);
        table_put_text(table, imported ? NULL : workload->ignore_eos ? "at this length" : "at its end token");
        if (imported) {
            table_put_text(table, NULL);
            continue;
        }
        bool chat = workload->chat && strcmp(workload->chat, "none") != 0;
        table_put_format(table, "%s%s%s", workload->template ? workload->template : "plain", chat ? ", chat " : "",
                         chat ? workload->chat : "");
    }
}
