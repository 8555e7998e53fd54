/* What `collect bench` found, as a table and as JSON. */
#ifndef COLLECT_BENCH_REPORT_H
#define COLLECT_BENCH_REPORT_H

#include "collect/engine/bench.h"

#include <jansson.h>

struct bench_report {
    const struct bench *bench;
    const char *dtype;
    const json_t *device; /* as the backend describes it */
    const char *trees;    /* whose shapes the forced trees have; NULL: none are forced */
    struct backend_rates rates;
    int prefill_tokens;
    int64_t prefill_ns;
    const struct arm *arms; /* [count]; the first is auto */
    const struct bench_arm *results;
    int count;
};

void bench_report_print(const struct bench_report *report);

/* {"schema": "cleanslate.bench/1", ...}. A new reference. */
json_t *bench_report_to_json(const struct bench_report *report);

#endif
