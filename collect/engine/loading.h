/* How far the loading of weights has come, on stderr: on a terminal a line that is rewritten and vanishes, elsewhere a
 * line every few seconds; nothing where it is quick. One load at a time; any thread may report. */
#ifndef COLLECT_ENGINE_LOADING_H
#define COLLECT_ENGINE_LOADING_H

#include <stdint.h>

/* what: of whom, borrowed until the end. elements: about how many weights there will be, of so many bytes each. */
void loading_begin(const char *what, int64_t elements, int element_bytes);
void loading_add(int64_t elements);
void loading_end(void);

/* "loading qwen3: 25% of 16.4 GB, 2.1 GB/s, about 6 s left", into text[LOADING_TEXT_SIZE]. */
#define LOADING_TEXT_SIZE 512
const char *loading_text(const char *what, int64_t done_bytes, int64_t bytes, double seconds, char *text);

#endif
