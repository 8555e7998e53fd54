/* What a source saw of itself while an attempt ran: what it had room for, what its counters said before and after, and
 * the figures that it states of the whole. Part of the attempt's end line; the rules hold it against the samples.
 * Everything is absent until it is said: counts -1, numbers NaN. */
#ifndef COLLECT_RECORD_OBSERVED_H
#define COLLECT_RECORD_OBSERVED_H

#include "collect/base/error.h"

#include <jansson.h>
#include <stdint.h>

/* A number that only grows while the source runs. */
struct observed_counter {
    char *name; /* "drafts", "draft_tokens", "accepted_tokens", "generation_tokens", or the source's own word */
    double before, after;
};

struct observed {
    int slots;                                 /* requests that it can run at a time */
    int running_max;                           /* most that were seen to run at a time */
    int64_t cache_tokens, cache_tokens_needed; /* positions that its caches hold; that the arm's requests take */
    int cache_slots, cache_slots_needed;       /* states of recurrent layers, likewise */

    int prefix_cache_flushed; /* 1: emptied before what is measured; 0: that was refused */
    double client_cpu_share;  /* of a processor, that measuring itself took while requests ran */

    int completed; /* requests that were answered; this and the next are what it states of all of them */
    int requests;  /* that were sent */
    int cancelled; /* of them, by the client: neither answered nor failed */
    int64_t prompt_tokens, tokens;
    int64_t duration_ns;
    double requests_per_s; /* answered */
    double tokens_per_s, peak_tokens_per_s;
    double itl_ns, tpot_ns, e2e_ns; /* means: between deliveries, a token, a request from start to end */
    double ttft_ns;                 /* the mean */
    double accept_length;           /* tokens a round commits, the bonus token included */

    struct observed_counter *counters;
    int counter_count;
};

void observed_init(struct observed *observed); /* everything absent */
void observed_free(struct observed *observed);

void observed_add_counter(struct observed *observed, const char *name, double before, double after);

/* after - before; NaN where it does not have the counter. */
double observed_growth(const struct observed *observed, const char *name);

/* As the end line has it. A new reference; NULL where nothing was observed. */
json_t *observed_to_json(const struct observed *observed);

/* Reads it; `object` NULL: nothing was observed. Keys that this version does not know are ignored. */
int observed_from_json(const json_t *object, const char *where, struct observed *observed, struct error *error);

#endif
