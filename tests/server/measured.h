/* A server measured as a campaign would: a plan, its source, requests, and the attempt that comes of them, judged. */
#ifndef TESTS_SERVER_MEASURED_H
#define TESTS_SERVER_MEASURED_H

#include "collect/record/rule.h"
#include "collect/source.h"

#define MEASURED_REQUESTS 3

struct measured {
    char *folder;
    struct plan plan;
    struct source *source;
    int loaded, ran; /* what load() and run() answered */
    struct error error;
    struct attempt attempt;
    struct verdicts verdicts;
    int delivered; /* samples */
};

/* Opens a plan of `arm` ("tp1-auto") with this "source" (JSON with ' for ") and these limits; fails the test where that
 * cannot be. */
void measured_open(struct measured *measured, const char *arm, const char *source, const char *limits);

/* Loads the arm. */
void measured_load(struct measured *measured, const char *arm);

/* Sends `count` requests of 8 tokens, so many at a time as the arm says, to prompts "p0" to "p7" and again; then
 * judges.
 */
void measured_send(struct measured *measured, const char *arm, int count);

/* Both. */
void measured_run(struct measured *measured, const char *arm, int count);
void measured_close(struct measured *measured);

/* Whether exactly these rules fired, for nothing less than a note: "FAILED_REQUEST ALL_FAILED". */
void measured_expect(const struct measured *measured, const char *rules);

#endif
