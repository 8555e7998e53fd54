/* The three methods over a backend's operations: autoregressive, DFlash's linear block (arXiv 2602.06036, section 3),
 * DDTree (arXiv 2604.12989, Algorithm 1). Knows no device.
 *
 * A decoder has slots, one a backend session. admit() prefills one and makes its first token; round() advances all that
 * are not done by one draft-and-verify step (or one token each, for auto); retire() frees the slot. What happens is
 * written into the request's sample. */
#ifndef COLLECT_ENGINE_DECODE_H
#define COLLECT_ENGINE_DECODE_H

#include "collect/engine/backend.h"
#include "collect/record/attempt.h"

struct decode_request {
    const int *prompt;
    int prompt_count;
    int max_new_tokens;
    bool ignore_eos; /* do not stop at the target's end tokens */
    struct sampling sampling;
};

struct decoder;

/* For benchmarks of weights that no drafter was trained for: trees get recorded shapes, one after the other, and each
 * round keeps `length` tokens where its tree is deep enough. */
struct forced_trees {
    int count, length;
    int *const *parents; /* [count][nodes] */
};

/* `backend` was opened with `options` and outlives the decoder. */
struct decoder *decoder_create(struct backend *backend, const struct backend_options *options, enum method method,
                               int budget);
void decoder_destroy(struct decoder *decoder);

/* Prefills slot `slot` and makes the first token. Fills the sample's start_ns, ttft_ns (clock readings: the caller
 * subtracts its origin from start_ns and end_ns), tokens, first_tokens, and what does not depend on rounds. The sample
 * is the caller's and stays in place until the slot is retired. */
void decoder_admit(struct decoder *decoder, int slot, const struct decode_request *request, struct sample *sample);

/* One step of every slot that is not done; answers how many still are not. */
int decoder_round(struct decoder *decoder);

bool decoder_done(const struct decoder *decoder, int slot);

/* The trees of the last round, of `slot`, and the path that was kept: for tests. Borrowed. */
const struct tree *decoder_last_tree(const struct decoder *decoder, int slot);

/* From the next round on; borrowed. */
void decoder_force(struct decoder *decoder, const struct forced_trees *forced);

/* How long the walk of the last round took; it is part of the stage `commit`. */
int64_t decoder_last_walk_ns(const struct decoder *decoder);

void decoder_retire(struct decoder *decoder, int slot);

#endif
