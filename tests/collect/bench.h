/* What tests of campaigns work at: a folder with prompts and a plan of two blocks, arms auto, linear, b8 and b16, and a
 * source that answers at once. */
#ifndef TESTS_COLLECT_BENCH_H
#define TESTS_COLLECT_BENCH_H

#include "collect/plan.h"
#include "collect/record/run.h"
#include "tests/collect/fake_source.h"

enum { BENCH_PROMPTS = 2, BENCH_REQUESTS = BENCH_PROMPTS + 1 /* warm-up */ };

/* With what the last campaign answered and said. */
struct bench {
    char *folder;
    struct fake_source source;
    struct plan plan;
    struct error error;
    int result;
    char *said;
};

int bench_set_up(void **state);
int bench_tear_down(void **state);

/* The plan with `changes` (JSON with ' for ") in place of its own values. */
void bench_read_plan(struct bench *bench, const char *changes);

/* Runs the campaign; `only` as in campaign_options. */
void bench_run(struct bench *bench, const bool *only);
void bench_expect_success(struct bench *bench);

/* Fails, with what the campaign said, where a process that ran it ended otherwise than expected. status: waitpid()'s.
 */
void bench_check_status(const struct bench *bench, int status, bool expected);

/* The path of its run, to be free()d; the run as it stands. */
char *bench_run_folder(const struct bench *bench);
void bench_read_run(const struct bench *bench, struct run *run);

/* Attempts of an arm; block 0: in all blocks. */
int bench_count_attempts(const struct run *run, const char *name, int block);
int bench_count_lines(const struct ledger *ledger, const char *action);

/* Every arm, block and workload has an attempt that counts, and shares a session with auto's and linear's. */
void bench_check_complete(const struct bench *bench);

/* As if the machine had been started anew since, which attempts and ledger have always said. */
void bench_pretend_reboot(const struct bench *bench);

#endif
