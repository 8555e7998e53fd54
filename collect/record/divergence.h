/* How the outputs of an attempt differ from those of plain decoding, as far as that can be told from the two attempts.
 */
#ifndef COLLECT_RECORD_DIVERGENCE_H
#define COLLECT_RECORD_DIVERGENCE_H

#include "collect/record/attempt.h"

struct divergence {
    int compared;               /* outputs of the same prompt, token ids known on both sides */
    int diverged;               /* of them: a token differs before either ends */
    int cut;                    /* of them: one begins the other and ends before it, which may be for its limit */
    int unjudged;               /* of them: the baseline has no margin where they part */
    double regret;              /* the largest: how far below the best the other choice lies at least; NaN: unknown */
    const struct sample *worst; /* the sample of that regret, else the first that diverged; borrowed; NULL: none */
    int position;               /* index of the first differing token in it */
};

/* Compares the measured samples of `workload` with the baseline's of the same prompt. Only the first differing token
 * counts: what follows continues another text. */
void divergence_measure(const struct attempt *attempt, const struct attempt *baseline, const char *workload,
                        struct divergence *divergence);

#endif
