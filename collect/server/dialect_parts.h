/* What the rows of the table are made of, one pair of functions for each form of request; for dialect*.c alone. */
#ifndef COLLECT_SERVER_DIALECT_PARTS_H
#define COLLECT_SERVER_DIALECT_PARTS_H

#include "collect/server/dialect.h"

typedef void dialect_write(const struct dialect *dialect, const struct request *request,
                           const struct plan_sampling *sampling, json_t *body);
typedef void dialect_read(const json_t *event, struct answer *answer);

dialect_write dialect_write_sglang, dialect_write_llama, dialect_write_completions, dialect_write_chat;
dialect_read dialect_read_sglang, dialect_read_llama, dialect_read_openai;

#endif
