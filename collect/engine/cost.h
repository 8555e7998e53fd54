/* The least that the engine's steps cost on any device: bytes that must come out of memory, operations that must be
 * done. What a measured time is held against. */
#ifndef COLLECT_ENGINE_COST_H
#define COLLECT_ENGINE_COST_H

#include "collect/engine/backend.h"

/* Bytes that a step reads at least, with elements of `element_bytes`: every matrix that it multiplies with, once, and
 * the cache of `committed` positions, or recurrent layers' states. DRAFT: the drafter's layers and the head. VERIFY (an
 * autoregressive step, too): the target's layers and the head. COMMIT: what fuses features and makes the drafter's keys
 * and values of them, and the states again.
 * Activations are left out, and so are embeddings, of which a row is read. drafter NULL: only VERIFY. */
int64_t cost_read_bytes(const struct model *target, const struct model *drafter, enum backend_step step, int committed,
                        int element_bytes);

/* Floating-point operations of a prompt of `tokens` tokens through the target's layers, causal attention and the
 * recurrent rule's own steps included, and of one row through the head. */
double cost_prefill_flop(const struct model *target, int tokens);

#endif
