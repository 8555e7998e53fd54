/* What a model takes of memory, by arithmetic alone: what backends plan with before they load, and what check-model
 * prints. */
#ifndef COLLECT_ENGINE_MODEL_MEMORY_H
#define COLLECT_ENGINE_MODEL_MEMORY_H

#include "collect/engine/model.h"

#include <stdint.h>

/* Bytes. */
struct model_memory {
    int64_t weights;  /* each once */
    int64_t position; /* keys and values of one position of a session */
    int64_t state;    /* recurrent states of a session, float32 */
    int64_t window;   /* of a session: what its convolutions still read */
    int64_t node;     /* what recurrent layers keep of a verified node until the commit */
};

/* Weights, caches and what convolutions read in a type of `size` bytes; all ranks together. model NULL: nothing. */
struct model_memory model_memory(const struct model *model, int size, int ranks);

/* Of a session that holds `positions`, `nodes` of them not committed. */
int64_t model_memory_of_session(const struct model_memory *memory, int64_t positions, int64_t nodes);

/* Bytes that the machine can give without swapping, or -1 where the kernel does not say. */
int64_t memory_available(void);

#endif
