/* Repetition in an output: a model that goes round in circles makes drafting easy and its acceptance worthless. */
#ifndef COLLECT_RECORD_REPETITION_H
#define COLLECT_RECORD_REPETITION_H

#include <stdbool.h>

#define REPETITION_PERIOD_MAXIMUM 32 /* tokens */
#define REPETITION_PERIODS_MINIMUM 3 /* what comes back less often is no cycle */
#define REPETITION_SHARE 0.25        /* of the tokens, in one cycle: repetitive */

/* The length of the longest run of tokens that has a period of at most 32 and at least 3 periods; 0 where there is
 * none. */
int repetition_longest_cycle(const int *token_ids, int count);

/* Whether at least a quarter of the tokens lie in one cycle. */
bool repetition_found(const int *token_ids, int count);

#endif
