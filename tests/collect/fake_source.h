/* A source that answers at once and always the same, and does on request what real ones do by accident. */
#ifndef TESTS_COLLECT_FAKE_SOURCE_H
#define TESTS_COLLECT_FAKE_SOURCE_H

#include "collect/source.h"

struct fake_source {
    struct source base;
    int context;         /* tokens that fit: a byte of a prompt is one */
    const char *weights; /* what describe() calls the model's hash */
    const char *gpu;     /* the PCI bus id of the one it runs on; NULL: none */

    int loads, requests;                            /* how often it was asked */
    void (*on_request)(struct fake_source *source); /* before each is answered; NULL: nothing */
    int at_request;                                 /* for on_request */

    int bad_budget;             /* trees of this budget answer badly; 0: none */
    int bad_attempts;           /* so often, then well */
    const char *bad_error_code; /* NULL: half of the tokens; else an error with this code */
    bool bad;                   /* the arm that is loaded answers badly */

    /* Sets what follows for the arm that is loaded, and answers how it was launched, which describe() has; also called
     * for arms that are only described. NULL: nothing. */
    const char *(*on_arm)(struct fake_source *source, const struct arm *arm);
    bool dies;                           /* at its first request */
    const char *overflowing;             /* every request of this workload is too long; NULL: none */
    int cache_slots, cache_slots_needed; /* what it sees of itself; 0: nothing */
};

void fake_source_init(struct fake_source *source);

#endif
