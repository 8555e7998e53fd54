#include "collect/engine/sample.h"

#include "collect/engine/cpu/kernels.h"

#include <math.h>

/* No noise lies above: the smallest uniform is 2^-33. */
#define GUMBEL_LARGEST 22.9f

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

/* The random words of tokens 4 * quad to 4 * quad + 3. */
static void draw_words(const struct sampling *sampling, int position, int quad, uint32_t words[4])
{
    const uint32_t counter[4] = {(uint32_t)quad, (uint32_t)position, 0, 0};
    const uint32_t key[2] = {(uint32_t)sampling->stream, (uint32_t)(sampling->stream >> 32)};
    sample_philox(counter, key, words);
}

/* Much noise comes of a small uniform, since floats lie densest there: tokens that have hardly any chance are drawn as
 * often as they should be. The largest float below 1 keeps the noise finite at the other end. */
static float gumbel(uint32_t word)
{
    float uniform = fminf(((float)word + 0.5f) * 0x1p-32f, 1 - 0x1p-24f);
    return -logf(-log1pf(-uniform));
}

/* What gumbel() does not exceed: -log(uniform) in whole bits, which spares most tokens their logarithms. */
static float noise_bound(uint32_t word)
{
    return 0.6932f * (float)(__builtin_clzll(2 * (uint64_t)word + 1) - 30);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- what may be chosen ----------------------------------------------------------------------------------------- */

int sample_candidates(const struct sampling *sampling, int count)
{
    if (sampling->temperature > 0 && sampling->top_k > 0 && sampling->top_k < count)
        return sampling->top_k;
    return sampling->temperature > 0 && sampling->top_p < 1 ? count : 0;
}

static double mass(const float *logits, int count, const struct sampling *sampling, float best)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += exp(((double)logits[i] - (double)best) / (double)sampling->temperature);
    return sum;
}

/* How many of a list's tokens may be chosen: `surely`, and `perhaps` so many as the error of the mass leaves in doubt.
 */
struct kept {
    int surely, perhaps;
};

/* The fewest of the top_k likeliest tokens whose share of their mass reaches top_p; false: the list is too short. */
static bool keep(const struct sample_list *list, const struct sampling *sampling, struct kept *kept)
{
    int candidates = sample_candidates(sampling, list->count), limit = candidates > 0 ? candidates : list->count;
    double whole = list->mass, error = list->error, sum = 0;
    *kept = (struct kept){limit, limit};
    if ((limit < list->count || sampling->top_p >= 1) && list->listed < limit)
        return false;
    if (sampling->top_p >= 1)
        return true;
    if (limit < list->count) {
        whole = mass(list->logits, limit, sampling, list->logits[0]);
        error = 0;
    }
    for (int i = 0; i < least(list->listed, limit); i++) {
        double wanted = (double)sampling->top_p * whole;
        sum += mass(&list->logits[i], 1, sampling, list->logits[0]);
        if (i < kept->surely && sum >= wanted * (1 - error))
            kept->surely = i + 1;
        if (sum >= wanted * (1 + error) || i == limit - 1) {
            kept->perhaps = i + 1;
            return true;
        }
    }
    return false;
}

/* The shortest list of a row that settles what is kept of it. */
static struct sample_list list_row(const float *logits, int count, const struct sampling *sampling,
                                   const struct sample_scratch *scratch, int *kept)
{
    int limit = sample_candidates(sampling, count);
    struct sample_list list = {.tokens = scratch->indices, .logits = scratch->values, .count = count};
    for (int width = limit < count ? limit : least(64, count);; width = least(width * 8, count)) {
        struct kept both;
        kernel_top(logits, count, width, scratch->indices, scratch->values);
        list.listed = width;
        if (limit == count && list.mass == 0)
            list.mass = mass(logits, count, sampling, list.logits[0]);
        if (keep(&list, sampling, &both) || width == count) {
            *kept = both.perhaps;
            return list;
        }
    }
}

/* --- the choice among it ---------------------------------------------------------------------------------------- */

/* The best of the scores so far, and the second. */
struct lead {
    int token;
    float best, second;
};

static void offer(struct lead *lead, int token, float score)
{
    if (score > lead->best || (score == lead->best && token < lead->token)) {
        lead->second = lead->best;
        lead->best = score;
        lead->token = token;
    } else if (score > lead->second) {
        lead->second = score;
    }
}

static float perturbed(float logit, const struct sampling *sampling, int position, int token)
{
    uint32_t words[4];
    draw_words(sampling, position, token / 4, words);
    return logit / sampling->temperature + gumbel(words[token % 4]);
}

/* Whether noise of at most `noise` could bring the logit to the second place. */
static bool may_matter(const struct lead *lead, float logit, const struct sampling *sampling, float noise)
{
    return logit / sampling->temperature + noise >= lead->second;
}

static struct choice choice_of(const struct lead *lead, const struct sampling *sampling)
{
    return (struct choice){lead->token, (lead->best - lead->second) * sampling->temperature};
}

static struct lead lead_of_row(const float *logits, int count, const struct sampling *sampling, int position)
{
    int likeliest = kernel_choose(logits, count).token;
    struct lead lead = {likeliest, perturbed(logits[likeliest], sampling, position, likeliest), -INFINITY};
    uint32_t words[4];
    for (int i = 0, drawn = -1; i < count; i++) {
        if (i == likeliest || !may_matter(&lead, logits[i], sampling, GUMBEL_LARGEST))
            continue;
        if (drawn != i / 4)
            draw_words(sampling, position, drawn = i / 4, words);
        uint32_t word = words[i % 4];
        if (may_matter(&lead, logits[i], sampling, noise_bound(word)))
            offer(&lead, i, logits[i] / sampling->temperature + gumbel(word));
    }
    return lead;
}

static struct lead lead_of_list(const struct sample_list *list, int kept, const struct sampling *sampling, int position)
{
    struct lead lead = {list->tokens[0], perturbed(list->logits[0], sampling, position, list->tokens[0]), -INFINITY};
    for (int i = 1; i < kept && may_matter(&lead, list->logits[i], sampling, GUMBEL_LARGEST); i++)
        offer(&lead, list->tokens[i], perturbed(list->logits[i], sampling, position, list->tokens[i]));
    return lead;
}

bool sample_choose_listed(const struct sample_list *list, const struct sampling *sampling, int position,
                          struct choice *choice)
{
    struct kept kept;
    if (!isfinite(list->logits[0])) /* of what is not a number no list has the order */
        return false;
    if (sampling->temperature == 0) {
        *choice = (struct choice){list->tokens[0], list->listed > 1 ? list->logits[0] - list->logits[1] : INFINITY};
        return list->listed > 1 || list->count == 1;
    }
    if (!keep(list, sampling, &kept))
        return false;
    const struct lead lead = lead_of_list(list, kept.surely, sampling, position);
    for (int i = kept.surely; i < kept.perhaps; i++)
        if (perturbed(list->logits[i], sampling, position, list->tokens[i]) >= lead.second)
            return false;
    *choice = choice_of(&lead, sampling);
    return true;
}

/* Above temperature 0. `*list` and `*kept`, where top-k or top-p leave something out: of which tokens, so many. */
static struct choice draw(const float *logits, int count, const struct sampling *sampling, int position,
                          const struct sample_scratch *scratch, struct sample_list *list, int *kept)
{
    struct lead lead;
    if (sample_candidates(sampling, count) > 0) {
        *list = list_row(logits, count, sampling, scratch, kept);
        lead = lead_of_list(list, *kept, sampling, position);
    } else {
        lead = lead_of_row(logits, count, sampling, position);
    }
    return choice_of(&lead, sampling);
}

struct choice sample_choose(const float *logits, int count, const struct sampling *sampling, int position,
                            const struct sample_scratch *scratch)
{
    struct sample_list list;
    int kept;
    return sampling->temperature == 0 ? kernel_choose(logits, count)
                                      : draw(logits, count, sampling, position, scratch, &list, &kept);
}

/* --- regret ----------------------------------------------------------------------------------------------------- */

/* A row above temperature 0, with what its filters go by. */
struct filtered {
    const float *logits;
    int count;
    const struct sampling *sampling;
    double whole; /* mass of what top-k leaves, as by mass() */
    float best;
};

/* Whether top-k and top-p could leave the token in (`in`), or out, if it lay `by` logits higher, or lower, than it does
 * against all others. By the tokens that lie above it then: their number, and the odds of their mass. */
static bool may_be(const struct filtered *row, int token, bool in, double by)
{
    const struct sampling *sampling = row->sampling;
    const double from = (double)row->logits[token] + (in ? by : -by), t = (double)sampling->temperature;
    const int limit = sample_candidates(sampling, row->count);
    double sum = 0;
    int above = 0;
    for (int i = 0; i < row->count; i++)
        if (i != token && (in ? (double)row->logits[i] > from : (double)row->logits[i] >= from)) {
            sum += mass(&row->logits[i], 1, sampling, row->best);
            above++;
        }
    if (above >= limit)
        return !in;
    if (sampling->top_p >= 1)
        return in;
    const double odds = (double)sampling->top_p / (1 - (double)sampling->top_p) * fmax(row->whole - sum, 0);
    return in ? sum * exp(-by / t) < odds : sum * exp(by / t) >= odds;
}

/* The least `by` of may_be(), `most` where none below is enough. */
static double distance(const struct filtered *row, int token, bool in, double most)
{
    double low = 0, high = most;
    if (may_be(row, token, in, 0))
        return 0;
    for (int i = 0; i < 40 && high < INFINITY; i++) {
        double middle = (low + high) / 2;
        if (may_be(row, token, in, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static bool is_listed(const struct sample_list *list, int count, int token)
{
    for (int i = 0; i < count; i++)
        if (list->tokens[i] == token)
            return true;
    return false;
}

/* Where a filter leaves tokens out the token has to be in, and each that scores more has to be out or to score less. */
static double filtered_regret(const struct filtered *row, const struct sample_list *list, int kept, int position,
                              int token)
{
    const double t = (double)row->sampling->temperature;
    const double score = (double)perturbed(row->logits[token], row->sampling, position, token);
    double regret =
        is_listed(list, kept, token) ? 0 : distance(row, token, true, (double)row->best - (double)row->logits[token]);
    for (int i = 0; i < kept; i++) {
        const int other = list->tokens[i];
        double below = ((double)perturbed(list->logits[i], row->sampling, position, other) - score) * t;
        if (below > regret && !may_be(row, other, false, regret))
            regret = distance(row, other, false, below);
    }
    return regret;
}

double sample_regret(const float *logits, int count, const struct sampling *sampling, int position, int token,
                     const struct sample_scratch *scratch)
{
    double best = (double)logits[kernel_choose(logits, count).token], beside = (double)logits[token];
    if (!isfinite(best) || isnan(beside))
        return NAN;
    if (sampling->temperature == 0)
        return best - beside;
    struct sample_list list = {0};
    int kept = 0, limit = sample_candidates(sampling, count);
    int chosen = draw(logits, count, sampling, position, scratch, &list, &kept).token;
    if (chosen == token)
        return 0;
    if (limit == 0)
        return fmax(((double)perturbed(logits[chosen], sampling, position, chosen) -
                     (double)perturbed(logits[token], sampling, position, token)) *
                        (double)sampling->temperature,
                    0);
    const struct filtered row = {logits, count, sampling,
                                 limit < count ? mass(list.logits, limit, sampling, list.logits[0]) : list.mass,
                                 (float)best};
    return filtered_regret(&row, &list, kept, position, token);
}
