#include "collect/import/choice.h"

#include "collect/import/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool choice_parse(const char *text, struct choice *choice)
{
    struct arm arm;
    char *whole = xformat("%s-auto", text);
    const bool ranks_alone = !strchr(text, '-') && arm_parse(whole, &arm);
    *choice = (struct choice){0};
    free(whole);
    if (!ranks_alone && !arm_parse(text, &arm))
        return false;
    choice->tensor_parallel = arm.tensor_parallel;
    if (!ranks_alone) {
        choice->method_known = true;
        choice->method = arm.method;
        choice->budget = arm.budget;
        choice->concurrency = arm.concurrency;
    }
    return true;
}

static const char *place_of(const struct imported *imported)
{
    return imported->document->path;
}

static int check_ranks(const struct choice *choice, const struct imported *imported, struct error *error)
{
    if (choice->tensor_parallel && imported->tensor_parallel && choice->tensor_parallel != imported->tensor_parallel)
        return fail(error, "%s: ran on %d ranks by its own words, not on the %d of --as", place_of(imported),
                    imported->tensor_parallel, choice->tensor_parallel);
    return 0;
}

/* Of one that drafts a file may say little more; that it drafts, or does not, is certain. */
static int check_method(const struct choice *choice, const struct imported *imported, struct error *error)
{
    const bool drafts = imported->method != METHOD_AUTO, chosen = choice->method != METHOD_AUTO;
    if (choice->method_known && imported->method_known && drafts != chosen)
        return fail(error, "%s: %s by its own words, which is not what --as says", place_of(imported),
                    drafts ? "drafts" : "decodes plainly");
    return 0;
}

static int refuse_open(const struct imported *imported, const struct arm *arm, bool method_known, struct error *error)
{
    char missing[128] = "";
    const struct {
        bool open;
        const char *what;
    } parts[] = {{!arm->tensor_parallel, "on how many ranks it ran"},
                 {!method_known, "whether it drafted"},
                 {!arm->concurrency, "how many requests it had at a time"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].open)
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), "%s%s", missing[0] ? ", or " : "",
                     parts[i].what);
    return fail(error,
                "%s: %s does not say %s; say it by --as: tp4 for ranks alone, or an arm such as tp1-auto, "
                "tp4-linear-c8, tp1-b16",
                place_of(imported), imported->format->name, missing);
}

int choice_apply(const struct choice *choice, struct imported *imported, struct arm *arm, struct error *error)
{
    const bool method_known = choice->method_known || imported->method_known;
    if (check_ranks(choice, imported, error) || check_method(choice, imported, error))
        return -1;
    *arm = (struct arm){
        .tensor_parallel = imported->tensor_parallel ? imported->tensor_parallel : choice->tensor_parallel,
        .method = choice->method_known ? choice->method : imported->method,
        .budget = choice->method_known ? choice->budget : imported->budget,
        .concurrency = imported->concurrency ? imported->concurrency : choice->concurrency,
    };
    return arm->tensor_parallel && arm->concurrency && method_known ? 0
                                                                    : refuse_open(imported, arm, method_known, error);
}
