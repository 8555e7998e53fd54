#include "collect/base/name.h"

#include "collect/base/error.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Open addressing, at most half full. */
static struct {
    const char **slots;
    size_t capacity, count; /* capacity: a power of two */
} names;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* FNV-1a. */
static uint64_t hash(const char *bytes, size_t length)
{
    uint64_t value = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return value;
}

/* Where the name is, or would be. */
static const char **find(const char *bytes, size_t length)
{
    size_t at = hash(bytes, length) & (names.capacity - 1);
    while (names.slots[at] && (strncmp(names.slots[at], bytes, length) != 0 || names.slots[at][length]))
        at = (at + 1) & (names.capacity - 1);
    return &names.slots[at];
}

static void grow(void)
{
    const char **former = names.slots;
    const size_t count = names.capacity;
    names.capacity = count ? 2 * count : 256;
    names.slots = xcalloc(names.capacity, sizeof *names.slots);
    for (size_t i = 0; i < count; i++)
        if (former[i])
            *find(former[i], strlen(former[i])) = former[i];
    free(former);
}

const char *name_keep_bytes(const char *bytes, size_t length)
{
    pthread_mutex_lock(&lock);
    if (2 * names.count >= names.capacity)
        grow();
    const char **slot = find(bytes, length);
    if (!*slot) {
        *slot = xformat("%.*s", (int)length, bytes);
        names.count++;
    }
    const char *kept = *slot;
    pthread_mutex_unlock(&lock);
    return kept;
}

const char *name_keep(const char *text)
{
    return name_keep_bytes(text, strlen(text));
}

int name_compare(const char *a, const char *b)
{
    return a == b ? 0 : strcmp(a, b);
}
