/* A row of logits, and the definition of a token's noisy score. */
#ifndef TESTS_ENGINE_SAMPLE_SCENE_H
#define TESTS_ENGINE_SAMPLE_SCENE_H

#include "collect/engine/sample.h"

#include <math.h>

enum { TOKENS = 60 };

static inline void fill_logits(float *logits)
{
    for (int i = 0; i < TOKENS; i++)
        logits[i] = 4 * sinf((float)(i * i)) - (float)i / 20;
}

static inline float noisy(const float *logits, const struct sampling *sampling, int position, int token)
{
    const uint32_t counter[4] = {(uint32_t)token / 4, (uint32_t)position, 0, 0};
    const uint32_t key[2] = {(uint32_t)sampling->stream, (uint32_t)(sampling->stream >> 32)};
    uint32_t words[4];
    sample_philox(counter, key, words);
    float uniform = fminf(((float)words[token % 4] + 0.5f) * 0x1p-32f, 1 - 0x1p-24f);
    return logits[token] / sampling->temperature - logf(-log1pf(-uniform));
}

#endif
