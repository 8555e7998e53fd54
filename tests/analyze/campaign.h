/* Run folders with known times, written attempt by attempt: arms auto, linear, b8 and b16 on the workloads "code" and
 * "maths", three prompts each. Every output is 1 token from prefill and 12 from decoding, cut at the limit: auto's in
 * 12 rounds, the others' in 3, 3 and 2 rounds that commit 13. */
#ifndef TESTS_ANALYZE_CAMPAIGN_H
#define TESTS_ANALYZE_CAMPAIGN_H

#include "analyze/comparisons.h"

#define CAMPAIGN_TTFT_NS 500000
#define CAMPAIGN_TOKENS_COMMITTED 13 /* by the rounds of linear and trees */

struct campaign {
    char *parent, *folder; /* the run's folder is called demo */
    struct plan plan;
    struct run run;
    struct cells cells;
    struct comparisons comparisons;
};

/* One attempt. What is 0 or NULL has a default. */
struct campaign_attempt {
    const char *arm; /* "tp1-b16" */
    int block, try_number;
    double code_tpot_ns, maths_tpot_ns;       /* time a token of the rounds; 0: the attempt lacks the workload */
    const char *started, *boot_id;            /* 2026-03-01T12:00:00Z, one boot */
    const char *cell_suffix, *compare_suffix; /* settings that differ make other hashes */
    const char *drafter;                      /* hash of its files */
    const char *device;                       /* of the source; NULL: it does not say */
    const char *dtype;                        /* NULL: float32 */
    const char *target_path;                  /* NULL: "t"; its files are always the same */
    double temperature;
    int asked;                              /* of code: max_new_tokens in the header; 0: it does not say */
    const char *cpu;                        /* the machine's; NULL: "a processor" */
    int gpu_clock_mhz, gpu_usual_clock_mhz; /* application clocks of its GPU and their default; 0: it has none */
    bool other_rounds;                      /* the rounds of each first prompt commit the same in another order */
    bool torn;                              /* no end line */
    int failed_prompt;                      /* of code, from 1 */
    int diverging_prompt;                   /* of code: its third token is another one */
    float margin;                           /* of every token; 0: 2 */
    int short_prompt;                       /* of code: its output ends one token before the limit */
    int rounds_too_many;                    /* of each answer of code, of one token each */
    int repetitive;                         /* so many of code's outputs, the first, go round in a circle */
};

/* An empty run folder with its plan of `blocks` blocks; headline: b16 over auto and over linear. `rules` is the plan's
 * JSON. */
void campaign_open(struct campaign *campaign, int blocks, const char *rules);
void campaign_add(struct campaign *campaign, const struct campaign_attempt *attempt);

/* Reads the folder into run, cells and comparisons. */
void campaign_read(struct campaign *campaign);
void campaign_close(struct campaign *campaign);

/* By name; fail the test where there is none. workload NULL: over all. */
struct cell *campaign_cell(const struct campaign *campaign, const char *arm, const char *workload);
const struct comparison *campaign_comparison(const struct campaign *campaign, const char *arm, const char *baseline,
                                             const char *workload);

#endif
