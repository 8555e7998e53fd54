/* specdec_bench: acceptance_rate.json and timing.json of one folder, whose statistics are strings of seconds. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

static double mean_of(const json_t *record, const char *key)
{
    return document_number(json_object_get(json_object_get(record, key), "mean"));
}

/* Of all rounds, not the mean of requests' means. */
void specdec_bench_read_acceptance(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, record);
    const char *length;
    json_t *count;
    double rounds = 0, tokens = 0, longest = 0;
    json_object_foreach(json_object_get(record, "Acceptance_Length_Histogram"), length, count)
    {
        const double each = strtod(length, NULL), times = document_number(count);
        rounds += times;
        tokens += each * times;
        longest = times > 0 ? fmax(longest, each) : longest;
    }
    imported->observed.accept_length = rounds > 0 ? tokens / rounds : NAN;
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
    if (longest > 1)
        imported_set_linear(imported, 0);
    else if (longest == 1)
        imported_set_auto(imported);
}

/* Means of four digits; a time a token is made of those of the whole, the first token and the number. */
void specdec_bench_read_timing(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, record);
    struct observed *observed = &imported->observed;
    const double tokens = mean_of(record, "Number of Output Tokens");
    const double rate = take_number(imported->rest, "Output TPS");
    const double of_gpu = take_number(imported->rest, "Output TPS/gpu");
    observed->ttft_ns = mean_of(record, "TTFT Time") * NS_OF_S;
    observed->e2e_ns = mean_of(record, "E2E Request Time") * NS_OF_S;
    observed->itl_ns = mean_of(record, "Request Generation Step Time") * NS_OF_S;
    observed->tokens_per_s = rate;
    if (tokens > 1)
        observed->tpot_ns = (observed->e2e_ns - observed->ttft_ns) / (tokens - 1);
    if (of_gpu > 0 && rate / of_gpu < 4096)
        imported->tensor_parallel = (int)lround(rate / of_gpu);
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
}
