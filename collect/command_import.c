#include "collect/base/option.h"
#include "collect/command.h"
#include "collect/import/choice.h"
#include "collect/import/format.h"
#include "collect/import/header.h"
#include "collect/import/merge.h"
#include "collect/import/store.h"

#include <stdio.h>
#include <stdlib.h>

/* What a call is about. */
struct request {
    const char *runs, *name, *workload;
    struct choice choice;
    struct document *documents;
    int document_count;
    struct imports imports;
    struct arm *arms; /* of imports.items */
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int read_files(struct request *request, char **paths, int count, struct error *error)
{
    request->documents = xcalloc((size_t)count, sizeof *request->documents);
    for (int i = 0; i < count; i++) {
        struct document *document = &request->documents[i];
        int passed_over;
        if (document_read(paths[i], document, error))
            return -1;
        request->document_count++;
        if (format_read(document, &request->imports, &passed_over, error))
            return -1;
        if (passed_over)
            printf("%s: %d values of other kinds were passed over\n", paths[i], passed_over);
    }
    return 0;
}

/* Of all of them, before the first is stored. */
static int choose_arms(struct request *request, struct error *error)
{
    request->arms = xcalloc((size_t)request->imports.count, sizeof *request->arms);
    for (int i = 0; i < request->imports.count; i++) {
        header_prepare(&request->imports.items[i], request->workload);
        if (choice_apply(&request->choice, &request->imports.items[i], &request->arms[i], error))
            return -1;
    }
    return 0;
}

/* --- storing ------------------------------------------------------------------------------------------------------ */

static void say_verdicts(const struct store *store, const struct attempt_place *place)
{
    const struct judged *judged = run_find(&store->run, place);
    for (int i = 0; judged && i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        printf("    %s  %s%s%s: %s\n", rule_level_names[verdict->level], rule_table[verdict->rule].id,
               verdict->workload ? ", " : "", verdict->workload ? verdict->workload : "", verdict->detail);
    }
}

static void say(const struct store *store, const struct imported *imported, const struct attempt_place *place,
                int result)
{
    char name[PLACE_NAME_SIZE];
    place_name(place, name);
    if (result == STORE_REPEATED) {
        printf("%s: is %s/%s already\n", imported->document->path, store->run.name, name);
        return;
    }
    printf("%s: %s: %s/%s, ", imported->document->path, imported->format->name, store->run.name, name);
    if (imported->sample_count)
        printf("%d requests\n", imported->sample_count);
    else
        printf("unpaired: the file has no requests\n");
    say_verdicts(store, place);
}

static int store_all(struct request *request, struct error *error)
{
    struct store store;
    if (store_open(request->runs, request->name, &store, error))
        return -1;
    int result = 0;
    for (int i = 0; result >= 0 && i < request->imports.count; i++) {
        struct attempt_place place;
        result = store_add(&store, &request->imports.items[i], &request->arms[i], &place, error);
        if (result >= 0)
            say(&store, &request->imports.items[i], &place, result);
    }
    store_close(&store);
    return result < 0 ? -1 : 0;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int import_files(struct request *request, char **paths, int count, struct error *error)
{
    int result = read_files(request, paths, count, error);
    if (!result)
        result = merge_imports(&request->imports, error);
    if (!result)
        result = choose_arms(request, error);
    if (!result)
        result = store_all(request, error);
    imports_free(&request->imports);
    for (int i = 0; i < request->document_count; i++)
        document_free(&request->documents[i]);
    free(request->documents);
    free(request->arms);
    return result;
}

int command_import(int argc, char **argv)
{
    const char *as = NULL;
    struct request request = {.runs = COMMAND_RUNS_DEFAULT, .name = "imported"};
    const struct option_entry entries[] = {
        {"--runs", OPTION_TEXT, &request.runs, "DIR", "where run folders are (" COMMAND_RUNS_DEFAULT ")", false},
        {"--run", OPTION_TEXT, &request.name, "NAME", "the run that they go to; made where it is not there (imported)",
         false},
        {"--as", OPTION_TEXT, &as, "ARM", "what files do not say: ranks (tp4), or an arm such as tp1-linear-c4", false},
        {"--workload", OPTION_TEXT, &request.workload, "NAME", "what their prompts are called here", false},
        {0},
    };
    const struct option_command command = {
        "collect import [--runs DIR] [--run NAME] [--as ARM] [--workload NAME] FILE...",
        "Reads result files of other tools, which it knows by what is in them, packed by gzip or zstd or not, and "
        "keeps\n"
        "them as attempts of the run DIR/NAME. What a file does not say stays unknown.",
        entries, 1, -1};
    struct error error = {0};
    int count;
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return parsed == OPTION_WRONG ? EXIT_CODE_USAGE : EXIT_CODE_OK;
    if (as && !choice_parse(as, &request.choice)) {
        fprintf(stderr, "--as is \"%s\"; it must be tp and a number, or an arm such as tp1-auto, tp4-b16-c8\n", as);
        return EXIT_CODE_USAGE;
    }
    int result = import_files(&request, argv, count, &error);
    fflush(stdout);
    if (result)
        fprintf(stderr, "%s\n", error.message);
    return result ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}
