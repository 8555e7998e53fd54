/* A campaign: all blocks of a plan, attempt by attempt, into the run folder RUNS/NAME. What is there, valid and made
 * with today's settings is kept; what is missing is measured; so a campaign goes on after a crash where it stopped. */
#ifndef COLLECT_CAMPAIGN_H
#define COLLECT_CAMPAIGN_H

#include "collect/plan.h"
#include "collect/source.h"

#include <stdbool.h>

struct campaign_options {
    const char *runs; /* the folder of run folders */
    const bool *only; /* plan->arm_count: the arms to measure, their baselines aside; NULL: all */
};

enum campaign_result { CAMPAIGN_DONE, CAMPAIGN_INTERRUPTED };

/* Answers CAMPAIGN_DONE where nothing more can be measured (cells may have been given up: the record says why),
 * CAMPAIGN_INTERRUPTED after SIGINT or SIGTERM, or -1. Progress goes to stderr. */
int campaign_run(const struct plan *plan, struct source *source, const struct campaign_options *options,
                 struct error *error);

#endif
