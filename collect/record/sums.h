/* What is left of an attempt when its file goes: sums over the measured samples of each workload. */
#ifndef COLLECT_RECORD_SUMS_H
#define COLLECT_RECORD_SUMS_H

#include "collect/record/attempt.h"

/* By workload: "cell_hash", "samples", "failed"; over those that are ok "tokens", "first_tokens", "ttft_ns",
 * "decode_ns", "rounds", "accepted", each null where a sample does not say. Empty for what cannot be read. A new
 * reference. */
json_t *sums_by_workload(const struct attempt *attempt);

#endif
