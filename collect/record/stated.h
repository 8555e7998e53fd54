/* The times of an attempt that was imported without its requests, from the means and sums that its file states. */
#ifndef COLLECT_RECORD_STATED_H
#define COLLECT_RECORD_STATED_H

#include "collect/record/attempt.h"

struct stated_times {
    double decode_ns, tokens; /* of all requests together, behind their first tokens; NaN: unknown */
    double ttft_ns;           /* the mean; NaN: unknown */
    bool with_prefill;        /* time and tokens are those from the requests' start on */
};

/* Where times from start to end and to the first token are known, their sums; else the stated mean time a token, which
 * weighs requests alike; else the time from start to end. */
struct stated_times stated_times(const struct attempt *attempt);

double stated_tpot_ns(const struct attempt *attempt); /* NaN: unknown */

#endif
