/* What a model's folder holds, printed for people: the first part of `collect check-model`. Looks into the engine's
 * models, which is why it stands beside the command and not in it. */
#ifndef COLLECT_MODEL_REPORT_H
#define COLLECT_MODEL_REPORT_H

#include "collect/base/error.h"
#include "collect/engine/model.h"

#include <stdio.h>

/* A folder that was read as far as it can be. */
struct model_report {
    struct model *model;
    struct model_findings findings;
};

/* target NULL: reads a target, else a drafter of it. */
int model_report_open(const char *folder, const struct model *target, struct model_report *report, struct error *error);
void model_report_close(struct model_report *report);

/* Sizes, types of tensors, what is missing, unfit or not used. */
void model_report_print(const struct model_report *report, FILE *stream);

/* The tokenizer beside the target: its entries, the rows that no token has, the end tokens. -1 where it cannot be
 * read. */
int model_report_print_tokenizer(const struct model *target, FILE *stream, struct error *error);

/* Weights and caches in a type of `size` bytes, for a context of so many tokens; recurrent states; and how many such
 * sessions the machine's free memory has room for. drafter may be NULL. */
void model_report_print_memory(const struct model *target, const struct model *drafter, int size, int context,
                               FILE *stream);

/* Whether the engine can run it. */
bool model_report_is_whole(const struct model_report *report);

#endif
