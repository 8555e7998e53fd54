/* API keys, which nothing that is written may hold. */
#ifndef COLLECT_SERVER_SECRET_H
#define COLLECT_SERVER_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Writes stars over `secret` (NULL or empty: none) wherever it stands in the text. Whether it did. */
bool secret_hide(char *text, size_t size, const char *secret);

#endif
