/* A sample's line in the attempt file. */
#ifndef COLLECT_RECORD_SAMPLE_H
#define COLLECT_RECORD_SAMPLE_H

#include "collect/record/attempt.h"

/* What a line may say; more is damage, not data. Times are exact as doubles and sum up over an attempt without overflow
 * in them. */
#define SAMPLE_TOKENS_MAXIMUM (1 << 24)
#define SAMPLE_ACCEPTED_MAXIMUM (1 << 16)
#define SAMPLE_TIME_MAXIMUM_NS ((int64_t)1 << 53)

/* Reads the line; `where` is its file and line number. Keys that this version does not know are ignored. Answers -1
 * where a value has the wrong type or cannot be; then `sample` is empty. */
int sample_from_json(const json_t *line, const char *where, struct sample *sample, struct error *error);

/* What its rounds committed; it has `accepted`. */
int64_t sample_sum_accepted(const struct sample *sample);

#endif
