/* Run folders of any size, written fast: nothing is flushed to the disk. */
#ifndef TESTS_SCALE_H
#define TESTS_SCALE_H

#define SCALE_ARMS 10

/* Writes RUN with its plan, SCALE_ARMS attempts in each block and a ledger that knows them: two workloads of 3 prompts,
 * 13 tokens each. Every seventh attempt of the trees was cut off, and its second try is well. Answers the number of
 * attempts. */
int scale_make(const char *run, int blocks);

#endif
