/* prompt files, as JSON Lines and as text, and what is put around their texts */
#include "collect/prompt.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/prompt";
const int fuzz_mutations = 10000;

static void check_prompts(const struct prompts *prompts)
{
    for (int i = 0; i < prompts->count; i++) {
        fuzz_require(prompts->items[i].id[0] && prompts->items[i].text[0], "neither id nor text is empty");
        fuzz_check_line(prompts->items[i].id);
        for (int j = 0; j < i && j < 64; j++)
            fuzz_require(strcmp(prompts->items[i].id, prompts->items[j].id) != 0, "ids differ");
    }
}

/* The size of the input says which template. */
static void apply(struct prompts *prompts, size_t size)
{
    struct error error = {0};
    enum prompt_template template = (enum prompt_template)(size % PROMPT_TEMPLATE_COUNT);
    enum prompt_chat chat = (enum prompt_chat)(size / PROMPT_TEMPLATE_COUNT % PROMPT_CHAT_COUNT);
    const struct chat_style style = {size & 1, size & 2};
    bool applied = prompt_apply(prompts, template, chat, &style, "x", &error) == 0;
    fuzz_check_answer(applied, &error);
    for (int i = 0; i < prompts->count; i++)
        fuzz_require(prompts->items[i].fill_at <= strlen(prompts->items[i].text), "filler goes into the text");
}

static void read_prompts(const char *path, size_t size)
{
    struct prompts prompts;
    struct error error = {0}, corpus_error = {0};
    bool read = prompt_read_file(path, &prompts, &error) == 0;
    fuzz_check_answer(read, &error);
    fuzz_require(read == (prompts.count > 0), "a file is read whole or not at all");
    check_prompts(&prompts);
    if (read)
        apply(&prompts, size);
    prompt_free(&prompts);
    char *text = prompt_read_corpus(path, &corpus_error);
    fuzz_check_answer(text, &corpus_error);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    read_prompts(fuzz_write("prompts.jsonl", bytes, size), size);
    read_prompts(fuzz_write("prompts.txt", bytes, size), size);
    return 0;
}
