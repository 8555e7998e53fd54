/* Sessions: attempts of one boot that began within 12 hours of the session's first. Only what was measured in one
 * session is compared with each other, since an offset between days is invisible to an interval. */
#ifndef COLLECT_SESSION_H
#define COLLECT_SESSION_H

#include "collect/record/run.h"

#include <stdint.h>

#define SESSION_HOURS 12

struct sessions {
    int *of_attempt; /* a number from 0 for each of run->attempts; -1 where an attempt does not say when and where it
                        began */
    int current;     /* the number of an attempt that begins now */
};

/* now_s: seconds since 1970. */
void sessions_init(const struct run *run, const char *boot_id, int64_t now_s, struct sessions *sessions);
void sessions_free(struct sessions *sessions);

#endif
