/* Sums over the samples of one attempt and one workload, warm-up and failed requests left out: what the statistics are
 * made of.
 *
 * The tokens that decode time paid for are those the rounds committed where the output was cut at its limit, for the
 * cut is the benchmark's and the last round was paid in full; what a round commits behind an end token is waste, and is
 * not counted. */
#ifndef ANALYZE_SAMPLES_H
#define ANALYZE_SAMPLES_H

#include "collect/record/attempt.h"

#include <stdint.h>

struct sample_sums {
    int prompts;                   /* answered, with a decode time and tokens behind the first delivery */
    double decode_ns, tokens;      /* of those */
    double rounds;                 /* of those; NaN where one does not say */
    int first_prompts;             /* answered, with a time to first token */
    double first_ns, first_tokens; /* tokens NaN where means alone are known */
};

/* `beside` not NULL: only prompts that it answered as well. */
struct sample_sums samples_sum(const struct attempt *attempt, const char *workload, const struct attempt *beside);

/* The same of fewer samples: those whose output does not go round in circles (rule REPETITION), or those whose output
 * is the same in both. */
enum samples_kept { SAMPLES_ALL, SAMPLES_VARIED, SAMPLES_IDENTICAL };
struct sample_sums samples_sum_kept(const struct attempt *attempt, const char *workload, const struct attempt *beside,
                                    enum samples_kept kept);

/* Nanoseconds a token after the first delivery; of the mean time to first token; a token with the time to the first.
 * NaN where missing. */
double samples_tpot_ns(const struct sample_sums *sums);
double samples_ttft_ns(const struct sample_sums *sums);
double samples_end_to_end_ns(const struct sample_sums *sums);

/* What one answered sample says; NaN where missing: nanoseconds a token after the first delivery, to the first token,
 * and from start to end. */
struct sample_times {
    double tpot_ns, ttft_ns, end_to_end_ns;
};
struct sample_times samples_times(const struct sample *sample);

/* The next answered sample of the workload from index *at on, which begins at 0; NULL behind the last. */
const struct sample *samples_next(const struct attempt *attempt, const char *workload, int *at);

/* Tokens/s of all requests in flight together. With several places: between the moment when all are filled for the
 * first time and the last admission, tokens of a request spread evenly over its decode time. With one: requests back to
 * back. NaN where missing, or where nothing lies between. */
double samples_aggregate_tokens_per_s(const struct attempt *attempt, const char *workload);

/* Acceptance of a prompt, summed over the attempts that answered it. */
struct prompt_rounds {
    const char *prompt; /* borrowed from the first of them */
    int attempts;
    double accepted, rounds; /* tokens committed, uncut */
    double emitted;          /* tokens after the first delivery, cut */
};

/* Rounds over any number of attempts. Zero-initialised: none. */
struct round_sums {
    struct prompt_rounds *prompts; /* in the order of their first appearance */
    int prompt_count;
    int64_t *histogram; /* histogram[n]: rounds that committed n tokens, of those of which that is known */
    int histogram_size;
    int64_t rounds;
};

void samples_add_rounds(const struct attempt *attempt, const char *workload, enum samples_kept kept,
                        struct round_sums *sums);
void samples_free_rounds(struct round_sums *sums);

/* Time of rounds over any number of attempts. Zero-initialised: none. What a sample does not say is NaN. */
struct stage_sums {
    double rounds, decode_ns;
    double stall_ns; /* of the decode time: others' prefills */
    double stage_ns[STAGE_COUNT];
    double communicate_ns; /* contained in the stages */
    double context;        /* tokens that a round looks back on, summed over the rounds */
};

/* `beside` not NULL: only prompts that it answered as well. */
void samples_add_stages(const struct attempt *attempt, const char *workload, const struct attempt *beside,
                        struct stage_sums *sums);

/* Nanoseconds a round, without stalls; NaN where missing. */
double samples_round_ns(const struct stage_sums *sums);

#endif
