/* How products are computed, as a GPU's tests have timed it: once for all backends that a test program opens, since
 * that takes most of their time. CLEANSLATE_ALGORITHMS names a folder that keeps it for the next program as well, such
 * as one under a sanitizer, where timing takes minutes. */
#ifndef TESTS_ENGINE_KEPT_ALGORITHMS_H
#define TESTS_ENGINE_KEPT_ALGORITHMS_H

#include <jansson.h>

/* For engine_keep(). */
const char *kept_folder(void);

/* For a backend's options. Borrowed; added to the folder's at the program's end. */
json_t *kept_algorithms(void);

#endif
