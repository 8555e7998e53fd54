/* What an attempt's requests took of energy, by its telemetry. */
#ifndef COLLECT_RECORD_ENERGY_H
#define COLLECT_RECORD_ENERGY_H

#include "collect/record/attempt.h"

/* Joules of all devices from the start of the workload's first measured request (NULL: of all workloads') to the end of
 * its last one: by the devices' counters,
 * between readings in proportion to time; of a device without a counter by its power, the same way. NaN where a
 * device's readings do not bracket the requests. */
double energy_joules(const struct attempt *attempt, const char *workload);

/* The same by all tokens of the measured requests that are ok; NaN where there are none. */
double energy_joules_a_token(const struct attempt *attempt, const char *workload);

#endif
