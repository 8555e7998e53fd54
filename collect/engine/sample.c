#include "collect/engine/sample.h"

#include "collect/engine/cpu/kernels.h"

#include <math.h>
#include <stdbool.h>

/* No noise lies above: the largest uniform is 1 - 2^-25. */
#define GUMBEL_LARGEST 17.4f

void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53u * c[0], second = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ c[1] ^ k[0], (uint32_t)second,
                            (uint32_t)(first >> 32) ^ c[3] ^ k[1], (uint32_t)first};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

static float gumbel(const struct sampling *sampling, int position, int token)
{
    const uint32_t counter[4] = {(uint32_t)token / 4, (uint32_t)position, 0, 0};
    const uint32_t key[2] = {(uint32_t)sampling->stream, (uint32_t)(sampling->stream >> 32)};
    uint32_t words[4];
    sample_philox(counter, key, words);
    float uniform = ((float)(words[token % 4] >> 8) + 0.5f) * 0x1p-24f;
    return -logf(-logf(uniform));
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The last token in the order (logit falling, id rising) that may be chosen. */
struct boundary {
    float logit;
    int token;
};

static bool is_within(const struct boundary *boundary, float logit, int token)
{
    return logit > boundary->logit || (logit == boundary->logit && token <= boundary->token);
}

static double mass(const float *logits, int count, const struct sampling *sampling, float best)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += exp(((double)logits[i] - (double)best) / (double)sampling->temperature);
    return sum;
}

/* The fewest of the `limit` likeliest tokens whose share of their probability reaches top_p. */
static struct boundary find_nucleus(const float *logits, int count, const struct sampling *sampling, int limit,
                                    const struct sample_scratch *scratch)
{
    double total = 0;
    for (int width = limit < count ? limit : least(64, count);; width = least(width * 8, limit)) {
        kernel_top(logits, count, width, scratch->indices, scratch->values);
        const float *values = scratch->values;
        if (total == 0)
            total = limit < count ? mass(values, limit, sampling, values[0]) : mass(logits, count, sampling, values[0]);
        double sum = 0;
        for (int i = 0; i < width; i++) {
            sum += mass(&values[i], 1, sampling, values[0]);
            if (sum >= (double)sampling->top_p * total || i == limit - 1)
                return (struct boundary){values[i], scratch->indices[i]};
        }
    }
}

static struct boundary find_boundary(const float *logits, int count, const struct sampling *sampling,
                                     const struct sample_scratch *scratch)
{
    int limit = sampling->top_k > 0 && sampling->top_k < count ? sampling->top_k : count;
    if (sampling->top_p < 1)
        return find_nucleus(logits, count, sampling, limit, scratch);
    if (limit == count)
        return (struct boundary){-INFINITY, count};
    kernel_top(logits, count, limit, scratch->indices, scratch->values);
    return (struct boundary){scratch->values[limit - 1], scratch->indices[limit - 1]};
}

static float perturbed(const float *logits, const struct sampling *sampling, int position, int token)
{
    return logits[token] / sampling->temperature + gumbel(sampling, position, token);
}

static struct choice choose_within(const float *logits, int count, const struct sampling *sampling, int position,
                                   const struct boundary *boundary)
{
    int likeliest = kernel_choose(logits, count).token, token = likeliest;
    float best = perturbed(logits, sampling, position, likeliest), second = -INFINITY;
    for (int i = 0; i < count; i++) {
        if (i == likeliest || !is_within(boundary, logits[i], i) ||
            logits[i] / sampling->temperature + GUMBEL_LARGEST < second)
            continue;
        float score = perturbed(logits, sampling, position, i);
        if (score > best || (score == best && i < token)) {
            second = best;
            best = score;
            token = i;
        } else if (score > second) {
            second = score;
        }
    }
    return (struct choice){token, (best - second) * sampling->temperature};
}

struct choice sample_choose(const float *logits, int count, const struct sampling *sampling, int position,
                            const struct sample_scratch *scratch)
{
    if (sampling->temperature == 0)
        return kernel_choose(logits, count);
    struct boundary boundary = find_boundary(logits, count, sampling, scratch);
    return choose_within(logits, count, sampling, position, &boundary);
}

double sample_regret(const float *logits, int count, const struct sampling *sampling, int position, int token,
                     const struct sample_scratch *scratch)
{
    if (sampling->temperature == 0)
        return (double)logits[kernel_choose(logits, count).token] - (double)logits[token];
    struct boundary boundary = find_boundary(logits, count, sampling, scratch);
    int chosen = choose_within(logits, count, sampling, position, &boundary).token;
    double below =
        (double)perturbed(logits, sampling, position, chosen) - (double)perturbed(logits, sampling, position, token);
    double outside = is_within(&boundary, logits[token], token) ? 0 : (double)boundary.logit - (double)logits[token];
    return fmax(fmax(below * (double)sampling->temperature, outside), 0);
}
