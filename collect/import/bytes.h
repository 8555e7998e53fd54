/* The bytes of a foreign result file: read whole, unpacked where it is a .gz or .zst, and made UTF-8 where it is
 * UTF-16, as PowerShell writes it; its first bytes say all that. */
#ifndef COLLECT_IMPORT_BYTES_H
#define COLLECT_IMPORT_BYTES_H

#include "collect/base/error.h"
#include "collect/base/file.h"

#include <stdbool.h>

#define BYTES_LIMIT ((size_t)1 << 30) /* of the file, and of what it unpacks to */

struct bytes {
    char *data; /* with a NUL behind it */
    size_t size;
    char sha256[FILE_HASH_SIZE]; /* of the file as it lies there */
    bool cut;                    /* what is packed ends too early, or is damaged: `data` is what came before */
};

int bytes_read(const char *path, struct bytes *bytes, struct error *error);
void bytes_free(struct bytes *bytes);

#endif
