/* Progress on stderr: on a terminal one line that is rewritten, elsewhere one line for each attempt. */
#ifndef COLLECT_PROGRESS_H
#define COLLECT_PROGRESS_H

#include "collect/record/attempt.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal, drawn;
    int64_t started_ns;
    long requests_left, requests_done; /* of all attempts of this run of the program, warm-up included */

    int block, blocks; /* the attempt at hand */
    const char *arm;
    int requests, request; /* how many it has, and how many are done */
    int64_t attempt_started_ns, tokens, decode_ns;
};

void progress_init(struct progress *progress);

/* A line that stays. */
void progress_say(struct progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `arm` is borrowed until progress_end(). */
void progress_begin(struct progress *progress, int block, int blocks, const char *arm, int requests);
void progress_add(struct progress *progress, const struct sample *sample);

/* outcome: "valid", or what is wrong. On a terminal a valid attempt leaves no line. */
void progress_end(struct progress *progress, bool valid, const char *outcome);

#endif
