/* Samples as they are written here, read without a JSON parser: a run is made of them, and values, hash tables and
 * copies of keys for each would be most of the work of reading it. */
#ifndef COLLECT_RECORD_SAMPLE_SCAN_H
#define COLLECT_RECORD_SAMPLE_SCAN_H

#include "collect/record/attempt.h"

#include <stddef.h>

/* Reads an answered sample's line: compact JSON, no keys but those of sample_to_json() and in their order, numbers
 * within their ranges. False, and nothing to free, where it is anything else, be it as good: then it is
 * sample_from_json() that reads or refuses it. What is read here, that would have read alike. A newline or NUL follows
 * the line. */
bool sample_scan(const char *line, size_t size, struct sample *sample);

#endif
