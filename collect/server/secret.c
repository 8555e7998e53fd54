#include "collect/server/secret.h"

#include <string.h>

bool secret_hide(char *text, size_t size, const char *secret)
{
    size_t length = secret ? strlen(secret) : 0;
    bool found = false;
    for (char *at = text; length && (at = memmem(at, size - (size_t)(at - text), secret, length)); at += length) {
        memset(at, '*', length);
        found = true;
    }
    return found;
}
