/* Synthetic campaigns from a known truth: what a round costs, what it commits, and how far blocks, attempts and
 * requests scatter around that. All attempts of a run folder are written, for any plan.
 *
 * The time of a round with r rows (requests in flight x nodes) over x tokens of context, on k ranks, in ms:
 *
 *     step(k) + drafting + row(k) (r - 1) + context(k) c x / 1000 + session (c - 1)
 *
 * where `drafting` is 0 for auto, which has one node. Every round commits 1 + Binomial(m, (tau - 1) / m) tokens, m + 1
 * the most that it can; at temperature 0 those are the same in every block. Each time is multiplied by log-normal noise
 * of a block (shared by its arms), of the attempt and of the request. */
#ifndef TESTS_SYNTHETIC_H
#define TESTS_SYNTHETIC_H

#include "collect/plan.h"

#include <stdbool.h>

#define SYNTHETIC_BLOCK_NOISE 0.02
#define SYNTHETIC_ATTEMPT_NOISE 0.01
#define SYNTHETIC_REQUEST_NOISE 0.005
#define SYNTHETIC_POWER_W 600.0 /* of every device */

/* 24 arms (1, 4 and 8 ranks, 1 and 64 requests in flight; auto, linear, b16, b64), 6 workloads, 6 blocks, as JSON to be
 * free()d. `name`: the plan's. */
char *synthetic_plan(const char *name, int blocks);

/* Writes RUN for the plan (JSON). seed: another one gives other noise. Answers the number of attempts. */
int synthetic_make(const char *run, const char *plan, unsigned long seed);

/* --- the truth ---------------------------------------------------------------------------------------------------- */

/* The terms of the time of a round in ms; drafting is not of auto. */
struct synthetic_costs {
    double step, drafting, row, context, session;
};
struct synthetic_costs synthetic_costs(int tensor_parallel);

/* Expected tokens a round. */
double synthetic_tau(const struct plan *plan, const struct arm *arm, int workload);

/* Without noise, for the rounds that were drawn: time of a round, and a token, in ns, over the workload's prompts that
 * are reported. */
double synthetic_round_ns(const struct plan *plan, const struct arm *arm, int workload);
double synthetic_tpot_ns(const struct plan *plan, const struct arm *arm, int workload);

/* Without noise. */
double synthetic_ttft_ns(const struct arm *arm, int workload);

/* What goes wrong by intent: every attempt of the plan's last arm fails its audit, in every block; the second arm's
 * first attempt in block 2 is cut off. */
bool synthetic_is_invalid(const struct plan *plan, const struct arm *arm);

#endif
