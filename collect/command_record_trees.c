#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/engine/bench.h"
#include "collect/engine/recorded_trees.h"
#include "collect/engine/tokenizer.h"
#include "collect/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 4 /* of which the last one's tree is kept: the drafter has its own context by then */

struct recorder {
    struct bench bench;
    struct tokenizer *tokenizer;
    const char *prompt_file;
    json_t *trees;
};

static int record_prompt(struct recorder *recorder, const struct prompt *prompt, struct error *error)
{
    static struct tree tree;
    int *ids = NULL,
        count = tokenizer_encode(recorder->tokenizer, prompt->text, strlen(prompt->text), true, &ids, error);
    int result = count < 0 ? -1 : bench_record_tree(&recorder->bench, ids, count, ROUNDS, &tree, error);
    free(ids);
    if (result)
        return -1;
    char *name = xformat("%s/%s", recorder->prompt_file, prompt->id);
    json_append(recorder->trees, recorded_tree_to_json(name, &tree));
    free(name);
    return 0;
}

/* The first `count` prompts of the file. */
static int record_prompts(struct recorder *recorder, int count, struct error *error)
{
    struct prompts prompts;
    int result = prompt_read_file(recorder->prompt_file, &prompts, error);
    for (int i = 0; !result && i < prompts.count && i < count; i++)
        result = record_prompt(recorder, &prompts.items[i], error);
    prompt_free(&prompts);
    return result;
}

static int record(const char *target_folder, const char *drafter_folder, struct recorder *recorder, int count,
                  const char *out, struct error *error)
{
    struct model *target = model_open_target(target_folder, error), *drafter = NULL;
    char *tokenizer = file_join(target_folder, "tokenizer.json"), *source = NULL;
    int result = -1;
    if (target && (drafter = model_open_drafter(drafter_folder, target, error)) &&
        (recorder->tokenizer = tokenizer_open(tokenizer, error)) &&
        (recorder->bench.class = backend_find("auto", error))) {
        recorder->bench.target = target;
        recorder->bench.drafter = drafter;
        source = xformat("%s for %s, round %d behind each prompt", drafter_folder, target_folder, ROUNDS);
        result = record_prompts(recorder, count, error) || recorded_trees_write(out, source, recorder->trees, error);
    }
    tokenizer_close(recorder->tokenizer);
    model_close(drafter);
    model_close(target);
    free(tokenizer);
    free(source);
    return result;
}

int command_record_trees(int argc, char **argv)
{
    struct recorder recorder = {.bench = {.dtype = ENGINE_FLOAT32, .ranks = 1}, .trees = json_array()};
    const char *target, *drafter, *out;
    int count = 16, arguments;
    const struct option_entry entries[] = {
        {"--target", OPTION_TEXT, &target, "DIR", "the target's folder", true},
        {"--drafter", OPTION_TEXT, &drafter, "DIR", "the drafter's folder", true},
        {"--prompts", OPTION_TEXT, &recorder.prompt_file, "FILE", "prompts, as plans name them", true},
        {"--out", OPTION_TEXT, &out, "FILE", "where the trees go", true},
        {"--count", OPTION_COUNT, &count, "N", "prompts, one tree each (default 16)"},
        {0},
    };
    const struct option_command command = {
        "collect record-trees --target DIR --drafter DIR --prompts FILE --out FILE [--count N]",
        "Records the shapes of the trees that a drafter proposes, which collect bench --shape verifies.", entries, 0,
        0};
    struct error error = {0};
    enum option_result parsed = option_parse(&command, argc, argv, &arguments);
    if (parsed != OPTION_RUN) {
        json_decref(recorder.trees);
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    }
    int result = record(target, drafter, &recorder, count, out, &error);
    json_decref(recorder.trees);
    if (!result)
        return EXIT_CODE_OK;
    fprintf(stderr, "%s\n", error.message);
    return EXIT_CODE_FAILURE;
}
