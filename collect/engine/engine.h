/* The on-GPU or on-CPU engine: opens a model, readies a method, runs requests and fills their samples. The only header
 * of collect/engine/ that the rest of the project needs. */
#ifndef COLLECT_ENGINE_ENGINE_H
#define COLLECT_ENGINE_ENGINE_H

#include "collect/base/error.h"
#include "collect/engine/chat.h"
#include "collect/engine/sample.h"
#include "collect/record/attempt.h"

#include <jansson.h>
#include <stdbool.h>

struct engine;

/* Reads config, tokenizer and weights' headers of the target and (drafter not NULL) of the drafter; loads nothing yet.
 * dtype: "float32" or "bfloat16"; device: "auto", "cpu" or "cuda".
 */
struct engine *engine_open(const char *target, const char *drafter, const char *dtype, const char *device,
                           struct error *error);
void engine_close(struct engine *engine);

/* Before the first engine_describe() and engine_load() of a run: what its device chooses by timing is kept in the run's
 * folder, which need not be there yet. */
int engine_keep(struct engine *engine, const char *folder, struct error *error);

/* A prompt's tokens, in *ids (free() it): their number, or -1. */
int engine_encode(const struct engine *engine, const char *text, int **ids, struct error *error);

/* The text with so much of the end of `corpus` before its byte `at` that it has exactly `tokens` tokens: see struct
 * source_class. free() it; NULL and a message where that cannot be. */
char *engine_fill(const struct engine *engine, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error);

/* How the target's template puts chats. */
int engine_chat_style(const struct engine *engine, struct chat_style *style, struct error *error);

/* The target's max_position_embeddings. */
int engine_position_limit(const struct engine *engine);

/* What the arm's cells depend on: model files with hashes, dtype, device, threads. The drafter is in it where the arm
 * has one; arm NULL: the part that all arms share. A new reference, or NULL. */
json_t *engine_describe(const struct engine *engine, const struct arm *arm, struct error *error);

/* Loads weights and readies every shape for `arm`, for requests of at most `positions` tokens, prompt and output
 * together, chosen by `sampling` (its stream is each request's own). `memory` receives the memory plan (a new
 * reference). Replaces what was loaded before. */
int engine_load(struct engine *engine, const struct arm *arm, const struct sampling *sampling, int positions,
                json_t **memory, struct error *error);

/* The PCI bus ids of the GPUs that the loaded arm runs on, into ids[one for each rank], and how many; 0: on none. */
#define ENGINE_GPU_ID_SIZE 32
int engine_list_gpus(const struct engine *engine, char (*ids)[ENGINE_GPU_ID_SIZE]);

/* A prompt to be continued. The sample's names and `asked` stay as they are, all else is filled; its start_ns and
 * end_ns are CLOCK_MONOTONIC. */
struct engine_request {
    const int *prompt;
    int prompt_count;
    uint64_t stream;  /* of noise, at temperatures above 0 */
    int64_t limit_ns; /* a request that takes longer ends as an error; 0: none */
    struct sample *sample;
};

/* Runs the requests in order, as many in flight as the arm's concurrency: a session that ends makes room for the next.
 */
void engine_run(struct engine *engine, const struct engine_request *requests, int count);

/* How far the sample's tokens lay below the best when prompt and output are rescored by causal extension alone: the
 * largest distance in logits; NaN where one is none. */
double engine_audit(struct engine *engine, const struct engine_request *request);

/* The larger of two such distances; NaN is larger than all. */
double engine_worse(double a, double b);

/* The root mean square of each of the drafter's features at the prompt's last token, in the order of its feature
 * layers, into rms[ENGINE_FEATURES_MAXIMUM]; answers how many there are: 0 where the arm that is loaded has no drafter.
 */
#define ENGINE_FEATURES_MAXIMUM 16
int engine_feature_rms(struct engine *engine, const int *prompt, int prompt_count, double *rms);

#endif
