#include "collect/plan_parts.h"

#include "collect/base/json.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

enum { WHERE_SIZE = PLAN_WHERE_SIZE, NAME_LENGTH_MAXIMUM = 64, MIN_BLOCKS_DEFAULT = 3 };

/* The parts of the file that are read after the top level. */
struct sections {
    const json_t *source, *tensor_parallel, *methods, *budgets, *concurrency, *sampling, *workloads, *headline, *tuning,
        *limits, *rules, *stage;
};

struct numbers {
    int *items;
    int count;
};

/* --- small checks ----------------------------------------------------------------------------------------------- */

int plan_check_name(const char *name, const char *where, struct error *error)
{
    size_t length = strlen(name);
    bool good = length > 0 && length <= NAME_LENGTH_MAXIMUM && name[0] != '.';
    for (size_t i = 0; good && i < length; i++)
        good = isalnum((unsigned char)name[i]) || strchr("._-", name[i]);
    if (good)
        return 0;
    return fail(error, "%s: \"name\" is \"%s\"; use 1 to %d of the characters A-Z a-z 0-9 . _ - without a leading dot",
                where, name, NAME_LENGTH_MAXIMUM);
}

int plan_find_word(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

int plan_refuse_word(const char *word, const char *const *words, int count, const char *where, const char *key,
                     struct error *error)
{
    char list[256] = "";
    for (int i = 0; i < count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"", i ? ", " : "", words[i]);
    return fail(error, "%s: \"%s\" is \"%s\"; it must be one of %s", where, key, word, list);
}

/* A list of different whole numbers from 1 to `maximum`. An absent list is empty. */
static int read_numbers(const json_t *array, const char *where, const char *key, int maximum, struct numbers *numbers,
                        struct error *error)
{
    size_t count = json_array_size(array);
    if (array && !count)
        return fail(error, "%s: \"%s\" is empty; list at least one number", where, key);
    numbers->items = xcalloc(count, sizeof *numbers->items);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 1 || value > maximum)
            return fail(error, "%s: \"%s\"[%zu] must be a whole number from 1 to %d", where, key, i, maximum);
        for (int j = 0; j < numbers->count; j++)
            if (numbers->items[j] == value)
                return fail(error, "%s: \"%s\" lists %d twice; remove one", where, key, (int)value);
        numbers->items[numbers->count++] = (int)value;
    }
    return 0;
}

/* A dimension of the arms that a plan may leave out: [1]. */
static int read_dimension(const json_t *array, const char *where, const char *key, int maximum, struct numbers *numbers,
                          struct error *error)
{
    if (read_numbers(array, where, key, maximum, numbers, error))
        return -1;
    if (!array) {
        numbers->items = xrealloc(numbers->items, 1, sizeof *numbers->items);
        numbers->items[numbers->count++] = 1;
    }
    return 0;
}

/* --- sections --------------------------------------------------------------------------------------------------- */

static int read_top(struct plan *plan, struct sections *sections, struct error *error)
{
    const char *schema = json_string_value(json_object_get(plan->json, "schema"));
    if (!schema || strcmp(schema, PLAN_SCHEMA) != 0)
        return fail(error, "%s: \"schema\" is %s%s%s; this program reads \"%s\"", plan->path, schema ? "\"" : "",
                    schema ? schema : "missing", schema ? "\"" : "", PLAN_SCHEMA);
    const json_t *comment;
    const struct json_field fields[] = {
        {"schema", JSON_FIELD_STRING, &schema, true, 0, 0},
        {"name", JSON_FIELD_STRING, &plan->name, true, 0, 0},
        {"title", JSON_FIELD_STRING, &plan->title, false, 0, 0},
        {"comment", JSON_FIELD_ANY, &comment, false, 0, 0}, /* for those who read the file */
        {"source", JSON_FIELD_OBJECT, &sections->source, true, 0, 0},
        {"stage", JSON_FIELD_ARRAY, &sections->stage, false, 0, 0},
        {"tensor_parallel", JSON_FIELD_ARRAY, &sections->tensor_parallel, false, 0, 0},
        {"methods", JSON_FIELD_ARRAY, &sections->methods, true, 0, 0},
        {"budgets", JSON_FIELD_ARRAY, &sections->budgets, false, 0, 0},
        {"concurrency", JSON_FIELD_ARRAY, &sections->concurrency, false, 0, 0},
        {"blocks", JSON_FIELD_INT, &plan->blocks, true, 1, PLAN_BLOCKS_MAXIMUM},
        {"seed", JSON_FIELD_INT64, &plan->seed, false, 0, 0},
        {"sampling", JSON_FIELD_OBJECT, &sections->sampling, false, 0, 0},
        {"workloads", JSON_FIELD_ARRAY, &sections->workloads, true, 0, 0},
        {"headline", JSON_FIELD_OBJECT, &sections->headline, false, 0, 0},
        {"tuning", JSON_FIELD_OBJECT, &sections->tuning, false, 0, 0},
        {"warmup", JSON_FIELD_INT, &plan->warmup, false, 0, 100},
        {"limits", JSON_FIELD_OBJECT, &sections->limits, false, 0, 0},
        {"rules", JSON_FIELD_OBJECT, &sections->rules, false, 0, 0},
        {0},
    };
    plan->seed = 1;
    plan->warmup = 1;
    if (json_read_fields(plan->json, plan->path, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (!plan->title)
        plan->title = plan->name;
    return plan_check_name(plan->name, plan->path, error);
}

static int read_source(struct plan *plan, const struct sections *sections, struct error *error)
{
    static const char *const kinds[] = {[PLAN_SOURCE_ENGINE] = "engine", [PLAN_SOURCE_SERVER] = "server"};
    const char *kind = json_string_value(json_object_get(sections->source, "kind"));
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s: source", plan->path);
    int found = plan_find_word(kind ? kind : kinds[PLAN_SOURCE_ENGINE], kinds, LENGTH(kinds));
    if (found < 0)
        return plan_refuse_word(kind, kinds, LENGTH(kinds), where, "kind", error);
    plan->source = (enum plan_source)found;
    return plan->source == PLAN_SOURCE_SERVER ? plan_read_server(plan, sections->source, where, error)
                                              : plan_read_engine(plan, sections->source, where, error);
}

static int read_methods(const struct plan *plan, const json_t *array, struct numbers *methods, struct error *error)
{
    bool taken[METHOD_COUNT] = {false};
    size_t count = json_array_size(array);
    if (!count)
        return fail(error, "%s: \"methods\" is empty; list at least one of \"auto\", \"linear\", \"ddtree\"",
                    plan->path);
    methods->items = xcalloc(count, sizeof *methods->items);
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(array, i));
        if (!word)
            return fail(error, "%s: \"methods\"[%zu] must be a string", plan->path, i);
        int method = plan_find_word(word, method_names, METHOD_COUNT);
        if (method < 0)
            return plan_refuse_word(word, method_names, METHOD_COUNT, plan->path, "methods", error);
        if (taken[method])
            return fail(error, "%s: \"methods\" lists \"%s\" twice; remove one", plan->path, word);
        taken[method] = true;
        methods->items[methods->count++] = method;
        if (method != METHOD_AUTO && plan->source == PLAN_SOURCE_ENGINE && !plan->engine.drafter)
            return fail(error, "%s: method \"%s\" needs a drafter; add \"drafter\" to \"source\"", plan->path, word);
    }
    return 0;
}

/* What arms are made of: every combination. */
struct dimensions {
    struct numbers tensor_parallel, concurrency, methods, budgets;
};

static void add_arms(struct plan *plan, const struct dimensions *all, int tensor_parallel, int concurrency)
{
    for (int i = 0; i < all->methods.count; i++) {
        bool tree = method_has_budget((enum method)all->methods.items[i]);
        for (int j = 0; j < (tree ? all->budgets.count : 1); j++)
            plan->arms[plan->arm_count++] = (struct arm){.tensor_parallel = tensor_parallel,
                                                         .method = (enum method)all->methods.items[i],
                                                         .budget = tree ? all->budgets.items[j] : 0,
                                                         .concurrency = concurrency};
    }
}

static void make_arms(struct plan *plan, const struct dimensions *all)
{
    size_t each = (size_t)all->methods.count + (size_t)all->budgets.count;
    plan->arms =
        xcalloc((size_t)all->tensor_parallel.count * (size_t)all->concurrency.count * each, sizeof *plan->arms);
    for (int t = 0; t < all->tensor_parallel.count; t++)
        for (int c = 0; c < all->concurrency.count; c++)
            add_arms(plan, all, all->tensor_parallel.items[t], all->concurrency.items[c]);
}

static int read_arms(struct plan *plan, const struct sections *sections, struct error *error)
{
    struct dimensions all = {0};
    int result = -1;
    if (read_dimension(sections->tensor_parallel, plan->path, "tensor_parallel", PLAN_RANKS_MAXIMUM,
                       &all.tensor_parallel, error) ||
        read_dimension(sections->concurrency, plan->path, "concurrency", PLAN_CONCURRENCY_MAXIMUM, &all.concurrency,
                       error) ||
        read_methods(plan, sections->methods, &all.methods, error) ||
        read_numbers(sections->budgets, plan->path, "budgets", ARM_BUDGET_MAXIMUM, &all.budgets, error))
        goto out;
    bool tree = false;
    for (int i = 0; i < all.methods.count; i++)
        tree |= method_has_budget((enum method)all.methods.items[i]);
    if (tree && !all.budgets.count)
        fail(error, "%s: method \"ddtree\" needs budgets; add \"budgets\": [16], for example", plan->path);
    else if (!tree && all.budgets.count)
        fail(error, "%s: \"budgets\" belong to method \"ddtree\"; add it to \"methods\" or remove them", plan->path);
    else
        result = 0;
    if (!result)
        make_arms(plan, &all);
    for (int i = 0; !result && i < plan->arm_count; i++)
        result = plan_check_arm(plan, &plan->arms[i], error);
out:
    free(all.tensor_parallel.items);
    free(all.concurrency.items);
    free(all.methods.items);
    free(all.budgets.items);
    return result;
}

static int read_sampling(struct plan *plan, const struct sections *sections, struct error *error)
{
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s: sampling", plan->path);
    struct plan_sampling *sampling = &plan->sampling;
    const struct json_field fields[] = {{"temperature", JSON_FIELD_DOUBLE, &sampling->temperature, false, 0, 100},
                                        {"top_k", JSON_FIELD_INT, &sampling->top_k, false, 0, 1 << 24},
                                        {"top_p", JSON_FIELD_DOUBLE, &sampling->top_p, false, 1e-6, 1},
                                        {0}};
    sampling->top_p = 1;
    if (!sections->sampling)
        return 0;
    if (json_read_fields(sections->sampling, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    if (sampling->temperature > 0 && sampling->temperature < 1e-6)
        return fail(error, "%s: \"temperature\" is %g; it must be 0, or from 1e-06 to 100", where,
                    sampling->temperature);
    if (sampling->temperature == 0 && (sampling->top_k > 0 || sampling->top_p < 1))
        return fail(error,
                    "%s: \"top_k\" and \"top_p\" mean nothing at temperature 0; remove them or raise the temperature",
                    where);
    return 0;
}

static int read_stages(struct plan *plan, const struct sections *sections, struct error *error)
{
    return plan_read_stages(plan, sections->stage, error);
}

static int read_workloads(struct plan *plan, const struct sections *sections, struct error *error)
{
    return plan_read_workloads(plan, sections->workloads, error);
}

/* The first arm that the tables call so, or NULL. */
static const struct arm *find_label(const struct plan *plan, const char *label)
{
    char name[ARM_NAME_SIZE];
    for (int i = 0; i < plan->arm_count; i++)
        if (strcmp(arm_method_label(&plan->arms[i], name), label) == 0)
            return &plan->arms[i];
    return NULL;
}

/* Reports compare everything with auto, and trees with linear, at the same concurrency. */
static bool may_compare(const struct arm *arm, const struct arm *baseline)
{
    bool over_auto = baseline->method == METHOD_AUTO && arm->method != METHOD_AUTO;
    bool over_linear = baseline->method == METHOD_LINEAR && method_has_budget(arm->method);
    return arm->concurrency == baseline->concurrency && (over_auto || over_linear);
}

static int read_comparison(struct plan *plan, const json_t *pair, const char *where, struct error *error)
{
    int at = plan->comparison_count;
    struct plan_comparison *comparison = &plan->comparisons[at];
    comparison->method = json_string_value(json_array_get(pair, 0));
    comparison->baseline = json_string_value(json_array_get(pair, 1));
    if (json_array_size(pair) != 2 || !comparison->method || !comparison->baseline)
        return fail(error, "%s: comparisons[%d] must be a pair such as [\"b16\", \"auto\"]", where, at);
    const char *const labels[] = {comparison->method, comparison->baseline};
    const struct arm *arms[2];
    for (int i = 0; i < 2; i++)
        if (!(arms[i] = find_label(plan, labels[i])))
            return fail(error, "%s: comparisons[%d] names \"%s\", which the plan does not measure", where, at,
                        labels[i]);
    if (!may_compare(arms[0], arms[1]))
        return fail(error,
                    "%s: comparisons[%d]: \"%s\" over \"%s\"; compare with \"auto\", or a tree with \"linear\", at the "
                    "same concurrency",
                    where, at, comparison->method, comparison->baseline);
    for (int i = 0; i < at; i++)
        if (strcmp(plan->comparisons[i].method, comparison->method) == 0 &&
            strcmp(plan->comparisons[i].baseline, comparison->baseline) == 0)
            return fail(error, "%s: comparisons[%d] repeats comparisons[%d]; remove one", where, at, i);
    plan->comparison_count++;
    return 0;
}

static int read_headline(struct plan *plan, const struct sections *sections, struct error *error)
{
    const json_t *comparisons = NULL;
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s: headline", plan->path);
    const struct json_field fields[] = {
        {"comparisons", JSON_FIELD_ARRAY, &comparisons, false, 0, 0},
        {"alpha", JSON_FIELD_DOUBLE, &plan->alpha, false, 1e-6, 0.5},
        {0},
    };
    plan->alpha = 0.05;
    if (!sections->headline)
        return 0;
    if (json_read_fields(sections->headline, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    plan->comparisons = xcalloc(json_array_size(comparisons), sizeof *plan->comparisons);
    for (size_t i = 0; i < json_array_size(comparisons); i++)
        if (read_comparison(plan, json_array_get(comparisons, i), where, error))
            return -1;
    return 0;
}

static int read_tuning(struct plan *plan, const struct sections *sections, struct error *error)
{
    return plan_read_tuning(plan, sections->tuning, error);
}

static int read_limits(struct plan *plan, const struct sections *sections, struct error *error)
{
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s: limits", plan->path);
    const struct json_field fields[] = {
        {"request_s", JSON_FIELD_INT, &plan->request_limit_s, false, 1, 86400},
        {"silence_s", JSON_FIELD_INT, &plan->silence_limit_s, false, 1, 86400},
        {"start_s", JSON_FIELD_INT, &plan->start_limit_s, false, 1, 86400},
        {0},
    };
    plan->request_limit_s = 120;
    plan->silence_limit_s = 60;
    plan->start_limit_s = 900;
    return sections->limits ? json_read_fields(sections->limits, where, fields, JSON_UNKNOWN_KEYS_REFUSED, error) : 0;
}

int plan_read_rules(struct plan *plan, const json_t *rules, struct error *error)
{
    char where[WHERE_SIZE];
    snprintf(where, sizeof where, "%s: rules", plan->path);
    const struct json_field fields[] = {
        {"MIN_BLOCKS", JSON_FIELD_INT, &plan->min_blocks, false, 2, PLAN_BLOCKS_MAXIMUM}, {0}};
    plan->min_blocks = MIN_BLOCKS_DEFAULT;
    if (rules && json_read_fields(rules, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    return rule_settings_read(rules, where, &plan->rules, error);
}

static int read_rules(struct plan *plan, const struct sections *sections, struct error *error)
{
    return plan_read_rules(plan, sections->rules, error);
}

typedef int read_section(struct plan *plan, const struct sections *sections, struct error *error);

int plan_read(const char *path, struct plan *plan, struct error *error)
{
    static read_section *const readers[] = {read_source,   read_stages, read_arms,   read_sampling, read_workloads,
                                            read_headline, read_tuning, read_limits, read_rules};
    struct sections sections = {0};
    *plan = (struct plan){.path = xstrdup(path), .json = json_read_file(path, error)};
    const bool imported = plan_is_import(plan->json);
    int result = !plan->json ? -1 : imported ? plan_read_import(plan, error) : read_top(plan, &sections, error);
    for (int i = 0; !result && !imported && i < LENGTH(readers); i++)
        result = readers[i](plan, &sections, error);
    if (result)
        plan_free(plan);
    return result;
}

void plan_free(struct plan *plan)
{
    free(plan->path);
    json_decref(plan->json);
    free(plan->stages);
    free(plan->workloads);
    free(plan->arms);
    free(plan->comparisons);
    *plan = (struct plan){0};
}

const struct plan_workload *plan_find_workload(const struct plan *plan, const char *name)
{
    for (int i = 0; i < plan->workload_count; i++)
        if (strcmp(plan->workloads[i].name, name) == 0)
            return &plan->workloads[i];
    return NULL;
}
