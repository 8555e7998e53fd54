/* Names that come again and again, of workloads and prompts in every sample of a run: each is kept once, so that equal
 * ones are one string, which lies near and is often compared by its address alone. */
#ifndef COLLECT_BASE_NAME_H
#define COLLECT_BASE_NAME_H

#include <stddef.h>

/* The one string that equals the text. It stays until the program ends. Any thread may call it. */
const char *name_keep(const char *text);

/* The same of `length` bytes without a NUL among them. */
const char *name_keep_bytes(const char *bytes, size_t length);

/* As strcmp(). */
int name_compare(const char *a, const char *b);

#endif
