#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/engine/engine.h"
#include "collect/model_report.h"
#include "collect/prompt.h"

#include <stdlib.h>
#include <string.h>

enum { OUTPUT_TOKENS = 128, PROMPTS_DEFAULT = 8, CONTEXT_DEFAULT = 4096 };

struct check {
    const char *target, *drafter, *dtype, *prompts, *template_name, *chat_name;
    int context, count;
    enum prompt_template template;
    enum prompt_chat chat;
};

/* A prompt's tokens. */
struct input {
    int *ids, count;
};

static const struct prompt own_prompts[] = {
    {"code", "def greatest_common_divisor(a, b):\n    \"\"\"Return the greatest common divisor of a and b.\"\"\"\n",
     NULL, 0},
    {"maths",
     "Question: A gardener plants 7 rows of 12 tulips, and then gives 25 of them away. How many tulips are "
     "left?\nAnswer:",
     NULL, 0},
    {"prose", "# Installation\n\nThe program runs on Linux and needs no other software. To install it, first", NULL, 0},
};

/* What was published of models of a known shape; a hint, not a test. */
static const struct {
    int hidden_size, layers;
    const char *features, *acceptance;
} published[] = {
    {4096, 36, "Qwen3-8B, one prompt: 0.27 23.1 23.5 23.8 26.9",
     "Qwen3-8B, linear, greedy, --template math --chat no-thinking: GSM8K 6.4 to 6.5, MATH-500 about 7.8"},
};

enum { PUBLISHED_COUNT = sizeof published / sizeof *published };

static int find_published(const struct model *target)
{
    for (int i = 0; i < PUBLISHED_COUNT; i++)
        if (published[i].hidden_size == target->hidden_size && published[i].layers == target->layer_count)
            return i;
    return -1;
}

/* --- prompts ---------------------------------------------------------------------------------------------------- */

static int read_prompts(const struct check *check, const struct engine *engine, struct prompts *prompts,
                        struct error *error)
{
    struct chat_style style = {0};
    *prompts = (struct prompts){.format = "plain"};
    if (check->prompts) {
        if (prompt_read_file(check->prompts, prompts, error))
            return -1;
    } else {
        prompts->count = sizeof own_prompts / sizeof *own_prompts;
        prompts->items = xcalloc((size_t)prompts->count, sizeof *prompts->items);
        for (int i = 0; i < prompts->count; i++)
            prompts->items[i] = (struct prompt){xstrdup(own_prompts[i].id), xstrdup(own_prompts[i].text), NULL, 0};
    }
    if (check->chat != PROMPT_CHAT_NONE && engine_chat_style(engine, &style, error))
        return -1;
    return prompt_apply(prompts, check->template, check->chat, &style,
                        check->prompts ? check->prompts : "the built-in prompts", error);
}

/* Encodes the first prompts into inputs[count]; *longest: positions that the longest needs with its output. */
static int encode(const struct engine *engine, const struct prompts *prompts, struct input *inputs, int count,
                  int *longest, struct error *error)
{
    int limit = engine_position_limit(engine);
    *longest = 0;
    for (int i = 0; i < count; i++) {
        inputs[i].count = engine_encode(engine, prompts->items[i].text, &inputs[i].ids, error);
        if (inputs[i].count < 0)
            return -1;
        int positions = inputs[i].count + OUTPUT_TOKENS;
        if (inputs[i].count == 0 || positions > limit)
            return fail(error, "prompt \"%s\": %d tokens and %d of output do not fit 1 to %d positions",
                        prompts->items[i].id, inputs[i].count, OUTPUT_TOKENS, limit);
        *longest = positions > *longest ? positions : *longest;
    }
    return 0;
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static void print_features(struct engine *engine, const struct model *drafter, const struct input *input, int hint)
{
    double rms[ENGINE_FEATURES_MAXIMUM];
    int count = engine_feature_rms(engine, input->ids, input->count, rms);
    printf("features: root mean square at the last of the first prompt's %d tokens\n", input->count);
    for (int i = 0; i < count; i++)
        printf("  after layer %-4d %.4g\n", drafter->feature_layers[i], rms[i]);
    if (hint >= 0)
        printf("  published: %s\n", published[hint].features);
}

struct totals {
    int64_t committed, rounds, decoded, decode_ns;
    double mean_sum; /* of each prompt's tokens a round */
    int answers;     /* that had a round */
};

static void add_sample(struct totals *totals, const struct sample *sample)
{
    int64_t committed = 0;
    for (int i = 0; i < sample->rounds; i++)
        committed += sample->accepted[i];
    totals->committed += committed;
    totals->rounds += sample->rounds;
    totals->decoded += sample->tokens - sample->first_tokens;
    totals->decode_ns += sample->decode_ns;
    if (sample->rounds > 0) {
        totals->mean_sum += (double)committed / sample->rounds;
        totals->answers++;
    }
}

static void run_input(struct engine *engine, const struct input *input, struct totals *totals)
{
    struct sample sample;
    sample_init(&sample);
    sample.asked_tokens = OUTPUT_TOKENS;
    engine_run(engine, &(struct engine_request){input->ids, input->count, 0, 0, &sample}, 1);
    add_sample(totals, &sample);
    sample_free(&sample);
}

static void print_totals(const struct arm *arm, const struct totals *totals)
{
    char label[ARM_NAME_SIZE];
    arm_method_label(arm, label);
    if (totals->answers == 0)
        printf("  %-8s every answer ended with its first token\n", label);
    else
        printf("  %-8s %8.3f %12.3f %8lld %10.1f\n", label, (double)totals->committed / (double)totals->rounds,
               totals->mean_sum / totals->answers, (long long)totals->rounds,
               (double)totals->decoded * 1e9 / (double)totals->decode_ns);
}

static int run_arms(struct engine *engine, const struct model *drafter, const struct input *inputs, int count,
                    int longest, int hint, struct error *error)
{
    static const struct arm arms[] = {{1, METHOD_LINEAR, 0, 1}, {1, METHOD_DDTREE, 16, 1}};
    const struct sampling greedy = {.top_p = 1};
    for (int a = 0; a < 2; a++) {
        struct totals totals = {0};
        json_t *memory = NULL;
        if (engine_load(engine, &arms[a], &greedy, longest, &memory, error))
            return -1;
        json_decref(memory);
        if (a == 0) {
            print_features(engine, drafter, &inputs[0], hint);
            printf("\nacceptance length: %d prompts, up to %d tokens each, greedy\n", count, OUTPUT_TOKENS);
            printf("  %-8s %8s %12s %8s %10s\n", "", "tau", "prompts' mean", "rounds", "tokens/s");
        }
        for (int i = 0; i < count; i++)
            run_input(engine, &inputs[i], &totals);
        print_totals(&arms[a], &totals);
    }
    if (hint >= 0)
        printf("  published: %s\n", published[hint].acceptance);
    return 0;
}

static int run_drafter(const struct check *check, const struct model *drafter, int hint, struct error *error)
{
    struct prompts prompts = {0};
    struct input *inputs = NULL;
    struct engine *engine = NULL;
    int count = 0, longest, result = -1;
    if (!(engine = engine_open(check->target, check->drafter, check->dtype, "auto", error)) ||
        read_prompts(check, engine, &prompts, error))
        goto out;
    count = prompts.count < check->count ? prompts.count : check->count;
    inputs = xcalloc((size_t)count, sizeof *inputs);
    if (!encode(engine, &prompts, inputs, count, &longest, error))
        result = run_arms(engine, drafter, inputs, count, longest, hint, error);
out:
    for (int i = 0; inputs && i < count; i++)
        free(inputs[i].ids);
    free(inputs);
    engine_close(engine);
    prompt_free(&prompts);
    return result;
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static int print_folders(const struct check *check, const struct model_report *target,
                         const struct model_report *drafter, struct error *error)
{
    model_report_print(target, stdout);
    if (model_report_print_tokenizer(target->model, stdout, error))
        return -1;
    putchar('\n');
    if (drafter->model) {
        model_report_print(drafter, stdout);
        putchar('\n');
    }
    model_report_print_memory(target->model, drafter->model, strcmp(check->dtype, "float32") == 0 ? 4 : 2,
                              check->context, stdout);
    if (!model_report_is_whole(target) || (drafter->model && !model_report_is_whole(drafter)))
        return fail(error, "%s: tensors are missing or unfit, as listed; the engine cannot run it",
                    model_report_is_whole(target) ? check->drafter : check->target);
    return 0;
}

static int run_check(const struct check *check, struct error *error)
{
    struct model_report target = {0}, drafter = {0};
    int result = -1;
    if (model_report_open(check->target, NULL, &target, error) ||
        (check->drafter && model_report_open(check->drafter, target.model, &drafter, error)) ||
        print_folders(check, &target, &drafter, error))
        goto out;
    result = 0;
    if (drafter.model) {
        putchar('\n');
        result = run_drafter(check, drafter.model, find_published(target.model), error);
    }
out:
    model_report_close(&drafter);
    model_report_close(&target);
    return result;
}

/* Answers the place of an option's word, or -1 and one line. */
static int find_word(const char *option, const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    fprintf(stderr, "%s %s: give one of", option, word);
    for (int i = 0; i < count; i++)
        fprintf(stderr, " %s", words[i]);
    fputc('\n', stderr);
    return -1;
}

static int read_words(struct check *check)
{
    static const char *const dtypes[] = {"bfloat16", "float32"};
    int template = find_word("--template", check->template_name, prompt_template_names, PROMPT_TEMPLATE_COUNT);
    int chat = find_word("--chat", check->chat_name, prompt_chat_names, PROMPT_CHAT_COUNT);
    if (template <0 || chat < 0 || find_word("--dtype", check->dtype, dtypes, 2) < 0)
        return -1;
    check->template = (enum prompt_template) template;
    check->chat = (enum prompt_chat)chat;
    return 0;
}

int command_check_model(int argc, char **argv)
{
    struct check check = {.dtype = "bfloat16",
                          .template_name = "plain",
                          .chat_name = "none",
                          .context = CONTEXT_DEFAULT,
                          .count = PROMPTS_DEFAULT};
    const struct option_entry entries[] = {
        {"--drafter", OPTION_TEXT, &check.drafter, "DIR", "a drafter of it: features and acceptance are measured too"},
        {"--dtype", OPTION_TEXT, &check.dtype, "TYPE", "bfloat16 (default) or float32"},
        {"--context", OPTION_COUNT, &check.context, "N", "tokens that the memory plan is for (default 4096)"},
        {"--prompts", OPTION_TEXT, &check.prompts, "FILE", "a prompt file instead of three built-in texts"},
        {"--count", OPTION_COUNT, &check.count, "N", "its first so many prompts (default 8)"},
        {"--template", OPTION_TEXT, &check.template_name, "NAME", "as in a plan: math, humaneval, ... (default plain)"},
        {"--chat", OPTION_TEXT, &check.chat_name, "MODE", "as in a plan: thinking, no-thinking (default none)"},
        {0},
    };
    const struct option_command command = {
        "collect check-model DIR [options]",
        "Says what a model's folder holds, what memory it takes, and with a drafter whether the two fit.", entries, 1,
        1};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    check.target = argv[0];
    if (read_words(&check))
        return EXIT_CODE_USAGE;
    if (!run_check(&check, &error))
        return EXIT_CODE_OK;
    fflush(stdout);
    fprintf(stderr, "%s\n", error.message);
    return EXIT_CODE_FAILURE;
}
