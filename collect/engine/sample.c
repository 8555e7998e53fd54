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

/* Above temperature 0. `*list`, where top-k or top-p leave something out: of the row's likeliest. */
static struct choice draw(const float *logits, int count, const struct sampling *sampling, int position,
                          const struct sample_scratch *scratch, struct sample_list *list)
{
    struct lead lead;
    int kept;
    if (sample_candidates(sampling, count) > 0) {
        *list = list_row(logits, count, sampling, scratch, &kept);
        lead = lead_of_list(list, kept, sampling, position);
    } else {
        lead = lead_of_row(logits, count, sampling, position);
    }
    return choice_of(&lead, sampling);
}

struct choice sample_choose(const float *logits, int count, const struct sampling *sampling, int position,
                            const struct sample_scratch *scratch)
{
    struct sample_list list;
    return sampling->temperature == 0 ? kernel_choose(logits, count)
                                      : draw(logits, count, sampling, position, scratch, &list);
}

/* --- regret ----------------------------------------------------------------------------------------------------- */

/* A row above temperature 0 that top-k or top-p leave something out of, and a token of it. */
struct filtered {
    const struct sampling *sampling;
    const float *logits, *leads; /* [count]; by how much each scores more than the token, in logits */
    const int *likeliest;        /* [limit], where top-k leaves no more */
    int token, count, limit;
    float best;
    double whole; /* mass of what top-k leaves */
};

/* Tokens, and their mass. */
struct group {
    int count;
    double mass;
};

static void join(struct group *group, const struct filtered *row, int token)
{
    group->count++;
    group->mass += mass(&row->logits[token], 1, row->sampling, row->best);
}

static double odds(const struct sampling *sampling)
{
    return (double)sampling->top_p / (1 - (double)sampling->top_p);
}

/* Whether top-k and top-p could leave the token in if it lay `by` logits higher against those above it. */
static bool may_be_in(const struct filtered *row, double by)
{
    struct group above = {0};
    for (int i = 0; i < row->count; i++)
        if ((double)row->logits[i] > (double)row->logits[row->token] + by)
            join(&above, row, i);
    return above.count < row->limit &&
           (row->sampling->top_p >= 1 || above.mass * exp(-by / (double)row->sampling->temperature) <
                                             odds(row->sampling) * fmax(row->whole - above.mass, 0));
}

/* Whether the other token reaches the floor, and does not score more than the token by more than `by`. */
static bool is_beside(const struct filtered *row, int token, double floor, double by)
{
    return (double)row->leads[token] <= by && (double)row->logits[token] >= floor;
}

/* Mass of what top-k leaves besides the group that is_beside(). */
static double mass_besides(const struct filtered *row, const struct group *beside, double floor, double by)
{
    struct group others = {0};
    if (row->limit == row->count)
        return fmax(row->whole - beside->mass, 0);
    for (int i = 0; i < row->limit && others.count < row->limit - beside->count; i++)
        if (!is_beside(row, row->likeliest[i], floor, by))
            join(&others, row, row->likeliest[i]);
    return others.mass;
}

/* Whether they could leave out all at once that score more than the token by more than `by`, if these lay so much lower
 * against all others. */
static bool may_leave_out(const struct filtered *row, double by)
{
    struct group beside = {0};
    double first = -INFINITY;
    for (int i = 0; i < row->count; i++)
        if ((double)row->leads[i] > by)
            first = fmax(first, (double)row->logits[i]);
    for (int i = 0; i < row->count; i++)
        if (is_beside(row, i, first - by, by))
            join(&beside, row, i);
    if (first == -INFINITY || beside.count >= row->limit)
        return true;
    return row->sampling->top_p < 1 && beside.mass * exp(by / (double)row->sampling->temperature) >=
                                           odds(row->sampling) * mass_besides(row, &beside, first - by, by);
}

static double filtered_regret(const struct filtered *row)
{
    double low = 0, high = (double)row->best - (double)row->logits[row->token];
    for (int i = 0; i < row->count; i++)
        high = fmax(high, (double)row->leads[i]);
    for (int i = 0; i < 40 && high < INFINITY; i++) {
        double middle = (low + high) / 2;
        *(may_be_in(row, middle) && may_leave_out(row, middle) ? &high : &low) = middle;
    }
    return high;
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
    int limit = sample_candidates(sampling, count),
        chosen = draw(logits, count, sampling, position, scratch, &list).token;
    const float score = perturbed(logits[token], sampling, position, token);
    if (chosen == token)
        return 0;
    if (limit == 0)
        return fmax(((double)perturbed(logits[chosen], sampling, position, chosen) - (double)score) *
                        (double)sampling->temperature,
                    0);
    double whole = limit < count ? mass(list.logits, limit, sampling, list.logits[0]) : list.mass;
    float *leads = scratch->values; /* in the place of the list's logits */
    for (int i = 0; i < count; i++)
        leads[i] = (perturbed(logits[i], sampling, position, i) - score) * sampling->temperature;
    const struct filtered row = {sampling, logits, leads, list.tokens, token, count, limit, (float)best, whole};
    return filtered_regret(&row);
}
