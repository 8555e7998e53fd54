/* What a backend chose by timing, in a run's folder: chosen once, reused whenever the run goes on, so that all its
 * rounds are computed alike. The file has an id that cells depend on: where it is lost, what is measured anew is not
 * pooled with what was measured before. */
#ifndef COLLECT_ENGINE_ALGORITHMS_H
#define COLLECT_ENGINE_ALGORITHMS_H

#include "collect/base/error.h"

#include <jansson.h>

struct algorithms;

/* Those of FOLDER/algorithms.json, or none yet under a new id. NULL where the file cannot be read. */
struct algorithms *algorithms_open(const char *folder, struct error *error);
void algorithms_close(struct algorithms *algorithms);

const char *algorithms_id(const struct algorithms *algorithms);

/* The choices, to be added to. Borrowed. */
json_t *algorithms_list(struct algorithms *algorithms);

/* Writes the file unless it stands there as it is. */
int algorithms_save(struct algorithms *algorithms, struct error *error);

#endif
