/* The place of an attempt in its run: arm, block and try, written "tp1-b8/3-1". A run folder keeps the attempt in the
 * file of that name, and its ledger calls it "demo/tp1-b8/3-1", after the run. */
#ifndef COLLECT_RECORD_PLACE_H
#define COLLECT_RECORD_PLACE_H

#include "collect/record/arm.h"

#define PLACE_NAME_SIZE (ARM_NAME_SIZE + 16)

struct attempt_place {
    struct arm arm;
    int block, try_number; /* both from 1 */
};

/* False where `text` is no place, with a run's name before it or without. */
bool place_parse(const char *text, struct attempt_place *place);

/* Writes it into name[PLACE_NAME_SIZE] and answers it. */
const char *place_name(const struct attempt_place *place, char *name);

/* RUN/attempts/ARM/BLOCK-TRY.jsonl, to be free()d. */
char *place_path(const char *folder, const struct attempt_place *place);

#endif
