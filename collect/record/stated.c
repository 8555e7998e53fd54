#include "collect/record/stated.h"

#include <math.h>

/* Of all requests, from their start on; NaN where unknown. With several at a time the duration is no sum of theirs. */
static double whole_ns(const struct attempt *attempt)
{
    const struct observed *observed = &attempt->observed;
    if (observed->completed > 0 && observed->e2e_ns > 0)
        return observed->completed * observed->e2e_ns;
    return attempt->arm.concurrency == 1 && observed->duration_ns > 0 ? (double)observed->duration_ns : NAN;
}

struct stated_times stated_times(const struct attempt *attempt)
{
    const struct observed *observed = &attempt->observed;
    const double requests = observed->completed > 0 ? observed->completed : NAN;
    const double tokens = observed->tokens > 0 ? (double)observed->tokens : NAN;
    const double summed_ns = requests * (observed->e2e_ns - observed->ttft_ns);
    struct stated_times times = {NAN, NAN, observed->ttft_ns, false};
    if (summed_ns > 0 && tokens > requests) {
        times.decode_ns = summed_ns;
        times.tokens = tokens - requests;
    } else if (observed->tpot_ns > 0) {
        times.tokens = tokens > requests ? tokens - requests : 1;
        times.decode_ns = observed->tpot_ns * times.tokens;
    } else if (whole_ns(attempt) > 0 && tokens > 0) {
        times.decode_ns = whole_ns(attempt);
        times.tokens = tokens;
        times.with_prefill = true;
    }
    return times;
}

double stated_tpot_ns(const struct attempt *attempt)
{
    const struct stated_times times = stated_times(attempt);
    return times.decode_ns / times.tokens;
}
