/* What the tests of the record build their cases from: folders that vanish again, headers, samples. */
#ifndef TESTS_RECORD_FIXTURE_H
#define TESTS_RECORD_FIXTURE_H

#include "collect/record/attempt.h"

#include <jansson.h>
#include <stddef.h>

/* A fresh folder, and its removal with all that is in it. */
char *fixture_make_folder(void);
void fixture_remove_folder(char *folder);

/* One for a test or a group of tests, by cmocka. */
extern char *fixture_folder;
int fixture_set_up(void **state);
int fixture_tear_down(void **state);

/* The file's bytes replaced, or read; both fail the test where they cannot. */
void fixture_write(const char *path, const void *bytes, size_t size);
char *fixture_read(const char *path, size_t *size);

/* A header for `arm` ("tp1-b16") with workloads "code" and "maths", float32, temperature 0, block size 16. */
json_t *fixture_header(const char *arm, int block, int try_number);

/* An ok sample of 9 tokens in 3 rounds: 1 from prefill, then 3, 2 and 4 of which 3 are emitted. All members are known.
 */
void fixture_sample(struct sample *sample, const char *workload, const char *prompt);

#define FIXTURE_SAMPLES 10
#define FIXTURE_STEP_NS 5000
#define FIXTURE_END_NS 50600

/* An attempt in memory that is well: workload "code", prompts p0 to p9, each sample as above; for auto in 8 rounds
 * of 1. As many begin at once as the arm has in flight, and the next ones FIXTURE_STEP_NS later; one at a time the last
 * ends at FIXTURE_END_NS. */
void fixture_build(struct attempt *attempt, const char *arm);

/* Puts a value (taken over) into the header's source, or into an object of it. */
void fixture_set_source(struct attempt *attempt, const char *object, const char *key, json_t *value);

/* Makes the sample a failed one with that code and a message of two lines. */
void fixture_fail_sample(struct sample *sample, const char *code);

/* Gives the sample so many tokens, all different, and takes its other arrays away. */
void fixture_set_tokens(struct sample *sample, int tokens, int asked);

void fixture_set_accepted(struct sample *sample, int rounds, const int *accepted);

/* Writes an attempt with one sample for each workload, and the end line where `status` is not NULL. */
void fixture_attempt(const char *path, json_t *header, const char *status);

/* Gives the run's ledger what it lacks: a `begin` for every attempt file of the folder, and the `end` of those that
 * have an end line. */
void fixture_enter(const char *run);

#endif
