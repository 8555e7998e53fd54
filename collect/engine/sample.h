/* The choice of a token: one for every method, rank count and backend.
 *
 * The argmax of logit / T plus Gumbel noise, over the tokens that top-k and top-p leave; at T = 0 the plain argmax. By
 * the Gumbel-max trick that is an exact draw from the softmax. The noise is a function of (stream, position, token)
 * alone, by the counter-based generator Philox4x32-10 (Salmon et al., SC 2011), so that siblings of a tree share the
 * noise of their position and every path through a tree finds the tokens that autoregressive decoding finds. */
#ifndef COLLECT_ENGINE_SAMPLE_H
#define COLLECT_ENGINE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
    float temperature; /* 0: the argmax */
    int top_k;         /* 0: all tokens */
    float top_p;       /* 1: all tokens */
    uint64_t stream;   /* of the request: no other shares its noise */
};

/* The chosen token and how far it lies above the runner-up, in logits: at T > 0 of the perturbed scores, times T. */
struct choice {
    int token;
    float margin;
};

/* Room for a sorted vocabulary: [vocabulary] each. */
struct sample_scratch {
    int *indices;
    float *values;
};

/* logits[count]; `position` is that of the token to be chosen. Ties go to the lowest id. */
struct choice sample_choose(const float *logits, int count, const struct sampling *sampling, int position,
                            const struct sample_scratch *scratch);

/* How many of a row's `count` tokens, the likeliest of them, top-k and top-p choose among: top-p all that top-k leaves;
 * 0: they leave nothing out. */
int sample_candidates(const struct sampling *sampling, int count);

/* What is known of a row without its logits: its likeliest tokens, best first, of equal ones the lowest id. */
struct sample_list {
    const int *tokens;   /* [listed] */
    const float *logits; /* [listed] */
    int listed, count;   /* of the row's `count` tokens */
    double mass;         /* Σ exp((logit - logits[0]) / T) over the row; read where top-p is of all tokens */
    double error;        /* the part of itself that `mass` may be wrong by */
};

/* The choice that sample_choose() makes in the whole row, wherever the list settles it; false where it does not: more
 * tokens may be left than are listed, or one that the error leaves in doubt would make a difference. */
bool sample_choose_listed(const struct sample_list *list, const struct sampling *sampling, int position,
                          struct choice *choice);

/* How far `token` is from being the choice: the least by which logits would have to differ from each other's for it, 0
 * where it is. Without filters that is how far it lies below the choice, as above. Of a token that top-k or top-p
 * leaves out it is what would leave it in; those that score more need not score less where less would leave all of them
 * out at once, since masses that differ by their last bits may end on either side of top-p. NaN where the likeliest
 * token's logit is not finite, or its own is no number. Writes over the scratch. */
double sample_regret(const float *logits, int count, const struct sampling *sampling, int position, int token,
                     const struct sample_scratch *scratch);

/* Four random words: the block `counter` of the generator under `key`. */
void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
