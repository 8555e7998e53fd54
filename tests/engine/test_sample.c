/* The choice of a token against published values of its generator and against the distribution it must draw from. */
#include "collect/engine/sample.h"

#include "tests/engine/sample_scene.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 50000 };

static int indices[TOKENS];
static float values[TOKENS];
static const struct sample_scratch scratch = {indices, values};

/* Known answers of the Random123 library's own test vectors for philox4x32-10. */
static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[4];
        sample_philox(cases[i].counter, cases[i].key, words);
        assert_memory_equal(words, cases[i].words, sizeof words);
    }
}

/* Draws at positions 0, 1, ... and p of the chi-square statistic against `probabilities`; none may fall where there is
 * no probability. */
static double chi_square_p(const float *logits, const struct sampling *sampling, const double *probabilities)
{
    int counts[TOKENS] = {0};
    for (int position = 0; position < DRAWS; position++)
        counts[sample_choose(logits, TOKENS, sampling, position, &scratch).token]++;
    double statistic = 0, rest_expected = 0, rest_count = 0;
    int cells = 0;
    for (int i = 0; i < TOKENS; i++) {
        double expected = DRAWS * probabilities[i];
        assert_true(expected > 0 || counts[i] == 0);
        if (expected < 5) { /* too few for the test's approximation: one cell for all of them */
            rest_expected += expected;
            rest_count += counts[i];
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rest_expected >= 5) {
        statistic += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
        cells++;
    }
    return gsl_cdf_chisq_Q(statistic, cells - 1);
}

/* The softmax at that temperature over the `kept` likeliest tokens. */
static void softmax(const float *logits, double temperature, const bool *kept, double *probabilities)
{
    double sum = 0;
    for (int i = 0; i < TOKENS; i++) {
        probabilities[i] = kept[i] ? exp((double)logits[i] / temperature) : 0;
        sum += probabilities[i];
    }
    for (int i = 0; i < TOKENS; i++)
        probabilities[i] /= sum;
}

static int tokens_above(const float *logits, int token)
{
    int above = 0;
    for (int i = 0; i < TOKENS; i++)
        above += logits[i] > logits[token] || (i < token && logits[i] == logits[token]);
    return above;
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    static const double temperatures[] = {0.3, 0.7, 1, 2};
    float logits[TOKENS];
    double probabilities[TOKENS];
    bool all[TOKENS];
    memset(all, true, sizeof all);
    fill_logits(logits);
    for (uint64_t i = 0; i < 4; i++) {
        const struct sampling sampling = {(float)temperatures[i], 0, 1, 1000 + i};
        softmax(logits, temperatures[i], all, probabilities);
        assert_true(chi_square_p(logits, &sampling, probabilities) > 0.001);
    }
}

static void top_k_keeps_exactly_k(void **state)
{
    (void)state;
    float logits[TOKENS];
    double probabilities[TOKENS];
    bool kept[TOKENS];
    fill_logits(logits);
    for (int i = 0; i < TOKENS; i += 3)
        logits[i] = roundf(logits[i]); /* ties at the boundary */
    for (int k = 1; k <= TOKENS; k += k < 4 ? 1 : 19) {
        const struct sampling sampling = {1, k, 1, (uint64_t)k};
        for (int i = 0; i < TOKENS; i++)
            kept[i] = tokens_above(logits, i) < k;
        softmax(logits, 1, kept, probabilities);
        assert_true(k == 1 || chi_square_p(logits, &sampling, probabilities) > 0.001);
        for (int position = 0; k == 1 && position < 100; position++)
            assert_int_equal(tokens_above(logits, sample_choose(logits, TOKENS, &sampling, position, &scratch).token),
                             0);
    }
}

/* The smallest set whose probability reaches p: the token that crosses p is in, the next is out. */
static void top_p_keeps_the_smallest_set(void **state)
{
    (void)state;
    static const double levels[] = {1e-6, 0.3, 0.9, 0.999};
    float logits[TOKENS];
    double whole[TOKENS], probabilities[TOKENS];
    bool all[TOKENS], kept[TOKENS];
    memset(all, true, sizeof all);
    fill_logits(logits);
    softmax(logits, 0.7, all, whole);
    for (uint64_t i = 0; i < 4; i++) {
        const struct sampling sampling = {0.7f, 0, (float)levels[i], 7 + i};
        int count = 0;
        for (int t = 0; t < TOKENS; t++) {
            double before = 0;
            for (int other = 0; other < TOKENS; other++)
                before += tokens_above(logits, other) < tokens_above(logits, t) ? whole[other] : 0;
            kept[t] = before < levels[i];
            count += kept[t];
        }
        softmax(logits, 0.7, kept, probabilities);
        assert_true(count == 1 || chi_square_p(logits, &sampling, probabilities) > 0.001);
        for (int position = 0; count == 1 && position < 100; position++)
            assert_int_equal(tokens_above(logits, sample_choose(logits, TOKENS, &sampling, position, &scratch).token),
                             0);
    }
}

/* top_p is of what top_k has left. */
static void top_p_follows_top_k(void **state)
{
    (void)state;
    const float logits[4] = {logf(4), logf(3), logf(2), logf(1)};
    const struct sampling sampling = {1, 2, 0.5f, 3}; /* of the two likeliest, 4/7 and 3/7, the first reaches 0.5 */
    for (int position = 0; position < 200; position++)
        assert_int_equal(sample_choose(logits, 4, &sampling, position, &scratch).token, 0);
}

static void noise_differs_by_stream_position_and_token_alone(void **state)
{
    (void)state;
    const float flat[8] = {0};
    struct sampling first = {1, 0, 1, 5}, second = {1, 0, 1, 6};
    int same = 0, differs = 0;
    for (int position = 0; position < 400; position++) {
        int token = sample_choose(flat, 8, &first, position, &scratch).token;
        assert_int_equal(sample_choose(flat, 8, &first, position, &scratch).token, token);
        same += sample_choose(flat, 8, &second, position, &scratch).token == token;
        differs += sample_choose(flat, 8, &first, position + 1, &scratch).token != token;
    }
    assert_in_range(same, 20, 90); /* one in eight by chance */
    assert_in_range(differs, 310, 380);
}

/* The word of a stream's noise at a position and a token. */
struct source_word {
    uint32_t word;
    int position, token;
};

static struct source_word word_of(int position, int token)
{
    uint32_t words[4];
    sample_philox((const uint32_t[4]){(uint32_t)token / 4, (uint32_t)position, 0, 0}, (const uint32_t[2]){0, 0}, words);
    return (struct source_word){words[token % 4], position, token};
}

/* Gumbel's quantile for the part of all words that lie above. */
static double quantile(struct source_word at)
{
    return -log(-log1p(-((double)at.word + 0.5) * 0x1p-32));
}

/* Of two tokens 60 apart the likelier is chosen, whichever of them has that noise, and leads by what both noises say.
 */
static void check_noise(struct source_word at, double tolerance)
{
    const struct sampling sampling = {1, 0, 1, 0};
    const struct source_word other = word_of(at.position, 1 - at.token);
    for (int likelier = 0; likelier < 2; likelier++) {
        const float logits[2] = {likelier == 0 ? 30 : -30, likelier == 1 ? 30 : -30};
        double lead = (quantile(at) - quantile(other)) * (likelier == at.token ? 1 : -1);
        struct choice choice = sample_choose(logits, 2, &sampling, at.position, &scratch);
        assert_int_equal(choice.token, likelier);
        assert_float_equal(choice.margin, 60 + lead, tolerance);
    }
}

/* The noise is finite and right at both of its ends: where it is not, tokens are drawn that have hardly any chance. */
static void noise_is_right_at_its_ends(void **state)
{
    (void)state;
    struct source_word smallest = {.word = UINT32_MAX}, largest = {.word = 0};
    for (int position = 0; position < 1 << 24; position++)
        for (int token = 0; token < 2; token++) {
            struct source_word at = word_of(position, token);
            smallest = at.word < smallest.word ? at : smallest;
            largest = at.word > largest.word ? at : largest;
        }
    assert_true(smallest.word < 1000 && UINT32_MAX - largest.word < 1000);
    check_noise(smallest, 2e-5);
    check_noise(largest, 0.2); /* floats just below 1 are few */
}

/* --- lists of the likeliest in place of rows -------------------------------------------------------------------- */

enum { ROW = 3000 };

static const float *ordered; /* logits that by_rank() compares by */

static int by_rank(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (ordered[i] != ordered[j])
        return ordered[i] < ordered[j] ? 1 : -1;
    return i - j;
}

static double weight(const float *logits, const struct sampling *sampling, int token, int best)
{
    return exp(((double)logits[token] - (double)logits[best]) / (double)sampling->temperature);
}

/* A row with its tokens sorted, and what is chosen of it by the definition: every token scored, and none left out
 * before the whole is sorted. kept: how many may be chosen. */
struct defined {
    float logits[ROW], sorted[ROW];
    int count, order[ROW], kept;
    double mass;
    struct choice choice;
};

static void define(struct defined *row, const struct sampling *sampling, int position)
{
    int limit = sampling->top_k > 0 && sampling->top_k < row->count ? sampling->top_k : row->count;
    double sum = 0, limited = 0;
    row->mass = 0;
    for (int i = 0; i < row->count; i++)
        row->order[i] = i;
    ordered = row->logits;
    qsort(row->order, (size_t)row->count, sizeof *row->order, by_rank);
    for (int i = 0; i < row->count; i++) {
        row->sorted[i] = row->logits[row->order[i]];
        row->mass += weight(row->logits, sampling, i, row->order[0]);
        limited += i < limit ? weight(row->logits, sampling, row->order[i], row->order[0]) : 0;
    }
    row->kept = limit;
    for (int i = 0; i < limit && row->kept == limit && sampling->top_p < 1; i++) {
        sum += weight(row->logits, sampling, row->order[i], row->order[0]);
        if (sum >= (double)sampling->top_p * (limit < row->count ? limited : row->mass))
            row->kept = i + 1;
    }
    float best = -INFINITY, second = -INFINITY;
    for (int i = 0; i < row->kept; i++) {
        float score = noisy(row->logits, sampling, position, row->order[i]);
        bool leads = score > best || (score == best && row->order[i] < row->choice.token);
        second = fmaxf(second, leads ? best : score);
        if (leads) {
            best = score;
            row->choice.token = row->order[i];
        }
    }
    row->choice.margin = (best - second) * sampling->temperature;
}

/* Logits of several kinds: spread; few values, so that most tie; all the same; one far above the others; falling by a
 * power, as a language model's do. */
static void fill_row(float *logits, int count, unsigned kind, uint64_t seed)
{
    for (int i = 0; i < count; i++) {
        uint32_t words[4];
        sample_philox((const uint32_t[4]){(uint32_t)i, 1, 0, 0}, (const uint32_t[2]){(uint32_t)seed, kind}, words);
        float x = (float)words[0] * 0x1p-32f;
        float kinds[] = {12 * x, floorf(6 * x), -3, i == count / 3 ? 25 : 6 * x, -2 * logf(0.5f + (float)count * x)};
        logits[i] = kinds[kind];
    }
}

static const float temperatures[] = {0.1f, 0.7f, 1, 1.5f};

/* What sample_choose_listed() answers of the row's first `listed` tokens. `off`: by which part its mass is wrong. */
static bool choose_listed(const struct defined *row, const struct sampling *sampling, int position, int listed,
                          double off, double error, struct choice *choice)
{
    const struct sample_list list = {row->order, row->sorted, listed, row->count, row->mass * (1 + off), error};
    return sample_choose_listed(&list, sampling, position, choice);
}

static void assert_same_choice(struct choice expected, struct choice actual)
{
    assert_int_equal(actual.token, expected.token);
    assert_true(actual.margin == expected.margin);
}

/* Whatever a list of any length, its mass being right or wrong within its error, says, the whole row says; it says it
 * where what is kept is listed and certain; and sample_choose() says the definition's. */
static void check_lists(struct defined *row, const struct sampling *sampling, int position, int *doubtful)
{
    static int row_indices[ROW];
    static float row_values[ROW];
    static const int lengths[] = {1, 2, 20, 64, 1024, ROW};
    static const double errors[] = {0, 1e-5, 1e-2};
    const struct sample_scratch row_scratch = {row_indices, row_values};
    struct choice choice;
    define(row, sampling, position);
    assert_same_choice(row->choice, sample_choose(row->logits, row->count, sampling, position, &row_scratch));
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
            for (int sign = -1; sign <= 1; sign++) {
                int listed = lengths[l] < row->count ? lengths[l] : row->count;
                double off = 0.99 * sign * errors[e];
                bool settled = choose_listed(row, sampling, position, listed, off, errors[e], &choice);
                bool whole = sampling->top_k > 0 && sampling->top_k < row->count
                                 ? listed >= sampling->top_k
                                 : sampling->top_p < 1 || listed == row->count;
                if (settled)
                    assert_same_choice(row->choice, choice);
                if (errors[e] == 0)
                    assert_true(settled == (whole && listed >= row->kept));
                *doubtful += !settled && whole && listed == row->count && errors[e] < 1e-3 &&
                             row->sorted[0] != row->sorted[row->count - 1];
            }
}

static void lists_choose_what_rows_do(void **state)
{
    (void)state;
    static struct defined row;
    static const int counts[] = {1, 2, 21, 65, 1025, ROW}, top_ks[] = {0, 1, 2, 20, 1024, ROW - 1, ROW, 1 << 24};
    static const float top_ps[] = {0.01f, 0.5f, 0.95f, 0.999f, 1};
    int doubtful = 0, position = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (unsigned kind = 0; kind < 5; kind++)
            for (size_t k = 0; k < sizeof top_ks / sizeof *top_ks; k++)
                for (size_t p = 0; p < sizeof top_ps / sizeof *top_ps; p++) {
                    float temperature = temperatures[position % 4];
                    const struct sampling sampling = {temperature, top_ks[k], top_ps[p], 99 + (uint64_t)position};
                    row.count = counts[c];
                    fill_row(row.logits, row.count, kind, (uint64_t)position);
                    check_lists(&row, &sampling, position++, &doubtful);
                }
    assert_in_range(doubtful, 0, 3); /* an error of 1e-5 hardly ever matters */
}

/* An error that leaves a token in doubt is told where that token would matter, and there alone. */
static void doubt_is_told(void **state)
{
    (void)state;
    static struct defined row;
    int told = 0, chosen = 0;
    row.count = 10;
    memset(row.logits, 0, sizeof row.logits);
    for (int position = 0; position < 2000; position++) {
        const struct sampling sampling = {1, 0, 0.3f, 8}; /* the first three of ten equal ones, but for rounding four */
        struct choice three, four, listed;
        define(&row, &(struct sampling){1, 3, 1, 8}, position);
        three = row.choice;
        define(&row, &(struct sampling){1, 4, 1, 8}, position);
        four = row.choice;
        define(&row, &sampling, position);
        bool settled = choose_listed(&row, &sampling, position, 5, 0, 1e-6, &listed);
        assert_true(settled == (three.token == four.token && three.margin == four.margin));
        if (settled)
            assert_same_choice(three, listed);
        told += !settled;
        chosen += four.token == 3;
    }
    assert_in_range(chosen, 400, 600); /* a quarter */
    assert_in_range(told, 900, 1100);  /* the first or the second of four: a half */
}

static void lists_have_the_argmax_at_temperature_0(void **state)
{
    (void)state;
    const float best[] = {3, 2.5f, NAN};
    const int tokens[] = {7, 4};
    const struct sampling greedy = {0, 0, 1, 0};
    struct choice choice;
    assert_true(sample_choose_listed(&(struct sample_list){tokens, best, 2, 9, 0, 0}, &greedy, 0, &choice));
    assert_same_choice((struct choice){7, 0.5f}, choice);
    assert_false(sample_choose_listed(&(struct sample_list){tokens, best, 1, 9, 0, 0}, &greedy, 0, &choice));
    assert_false(sample_choose_listed(&(struct sample_list){tokens, best + 2, 1, 1, 0, 0}, &greedy, 0, &choice));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_p_keeps_the_smallest_set),
        cmocka_unit_test(top_p_follows_top_k),
        cmocka_unit_test(noise_differs_by_stream_position_and_token_alone),
        cmocka_unit_test(noise_is_right_at_its_ends),
        cmocka_unit_test(lists_choose_what_rows_do),
        cmocka_unit_test(doubt_is_told),
        cmocka_unit_test(lists_have_the_argmax_at_temperature_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
