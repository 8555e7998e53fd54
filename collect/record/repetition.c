#include "collect/record/repetition.h"

/* A run with period p is a stretch where every token equals the one p before it, and the p tokens in front of that
 * stretch. */
static int longest_run(const int *token_ids, int count, int period)
{
    int longest = 0, matches = 0;
    for (int i = period; i < count; i++) {
        matches = token_ids[i] == token_ids[i - period] ? matches + 1 : 0;
        if (matches >= (REPETITION_PERIODS_MINIMUM - 1) * period && matches + period > longest)
            longest = matches + period;
    }
    return longest;
}

int repetition_longest_cycle(const int *token_ids, int count)
{
    int longest = 0;
    for (int period = 1; period <= REPETITION_PERIOD_MAXIMUM; period++) {
        int run = longest_run(token_ids, count, period);
        longest = run > longest ? run : longest;
    }
    return longest;
}

bool repetition_found(const int *token_ids, int count)
{
    return count > 0 && repetition_longest_cycle(token_ids, count) >= REPETITION_SHARE * count;
}
