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
};

void fake_source_init(struct fake_source *source);

#endif
