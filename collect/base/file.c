#include "collect/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open(const char *path, size_t *size, struct error *error)
{
    struct stat status;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status))
        fail_errno(error, "%s: cannot open", path);
    else if (!S_ISREG(status.st_mode))
        fail(error, "%s: not a file%s", path, S_ISDIR(status.st_mode) ? ", but a folder" : "");
    else {
        if (size)
            *size = (size_t)status.st_size;
        return descriptor;
    }
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

/* Reads up to `size` bytes, fewer where the file ends before. Answers how many, or -1. */
static ssize_t read_all(int descriptor, char *bytes, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(descriptor, bytes + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

char *file_read(const char *path, size_t limit, size_t *size, struct error *error)
{
    size_t capacity;
    char *bytes = NULL;
    int descriptor = file_open(path, &capacity, error);
    if (descriptor < 0)
        return NULL;
    if (capacity > limit) {
        fail(error, "%s: %zu bytes, more than the %zu this kind of file may have", path, capacity, limit);
        goto out;
    }
    bytes = xmalloc(capacity + 1);
    ssize_t used = read_all(descriptor, bytes, capacity);
    if (used < 0) {
        fail_errno(error, "%s: cannot read", path);
        free(bytes);
        bytes = NULL;
        goto out;
    }
    bytes[used] = '\0';
    if (size)
        *size = (size_t)used;
out:
    close(descriptor);
    return bytes;
}

static int write_all(int descriptor, const char *path, const char *bytes, size_t size, struct error *error)
{
    while (size > 0) {
        ssize_t wrote = write(descriptor, bytes, size);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return fail_errno(error, "%s: cannot write", path);
        bytes += wrote;
        size -= (size_t)wrote;
    }
    return 0;
}

static int sync_folder_of(const char *path, struct error *error)
{
    char *copy = xstrdup(path);
    int result = 0, descriptor = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 || fsync(descriptor))
        result = fail_errno(error, "%s: cannot sync its folder", path);
    if (descriptor >= 0)
        close(descriptor);
    free(copy);
    return result;
}

/* What is renamed to `path` takes its place, so that must be a file, or nothing as yet: never a device, which root
 * would take from the whole machine. A link stays, and the file that it names is replaced. To be free()d; or NULL. */
static char *find_place(const char *path, struct error *error)
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        fail(error, "%s: not a file%s; name a file, which is then written", path,
             S_ISDIR(status.st_mode) ? ", but a folder" : "");
        return NULL;
    }
    char *real = lstat(path, &status) == 0 && S_ISLNK(status.st_mode) ? realpath(path, NULL) : NULL;
    return real ? real : xstrdup(path);
}

static int write_to_place(const char *path, const void *bytes, size_t size, struct error *error)
{
    char *temporary = xformat("%s.%ld.tmp", path, (long)getpid());
    int result = -1;
    int descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        fail_errno(error, "%s: cannot create", temporary);
        goto out;
    }
    if (write_all(descriptor, temporary, bytes, size, error))
        goto out;
    if (fsync(descriptor)) {
        fail_errno(error, "%s: cannot write to the disk", temporary);
        goto out;
    }
    if (rename(temporary, path)) {
        fail_errno(error, "%s: cannot rename to %s", temporary, path);
        goto out;
    }
    result = sync_folder_of(path, error);
out:
    if (descriptor >= 0)
        close(descriptor);
    if (result)
        unlink(temporary);
    free(temporary);
    return result;
}

int file_write_whole(const char *path, const void *bytes, size_t size, struct error *error)
{
    char *place = find_place(path, error);
    int result = place ? write_to_place(place, bytes, size, error) : -1;
    free(place);
    return result;
}

int file_append_line(int descriptor, const char *path, const char *line, struct error *error)
{
    size_t length = strlen(line);
    char *with_end = xmalloc(length + 1);
    memcpy(with_end, line, length);
    with_end[length] = '\n';
    int result = write_all(descriptor, path, with_end, length + 1, error);
    free(with_end);
    if (!result && fsync(descriptor))
        result = fail_errno(error, "%s: cannot write to the disk", path);
    return result;
}

static int make_one_folder(const char *path, struct error *error)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return fail_errno(error, "%s: cannot make the folder", path);
    if (stat(path, &status) || !S_ISDIR(status.st_mode))
        return fail(error, "%s: cannot make the folder: a file has its name", path);
    return 0;
}

int file_make_folder(const char *path, struct error *error)
{
    char *copy = xstrdup(path);
    int result = 0;
    for (char *at = copy; !result && *at; at++)
        if (*at == '/' && at > copy) {
            *at = '\0';
            result = make_one_folder(copy, error);
            *at = '/';
        }
    if (!result)
        result = make_one_folder(path, error);
    free(copy);
    return result;
}

int file_remove(const char *path, struct error *error)
{
    if (unlink(path))
        return errno == ENOENT ? 0 : fail_errno(error, "%s: cannot remove", path);
    return sync_folder_of(path, error);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void digest_hex(EVP_MD_CTX *context, char *hex)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(context, digest, &length) != 1 || length != 32)
        die("SHA-256 failed");
    for (unsigned int i = 0; i < length; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static EVP_MD_CTX *digest_begin(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
        die("SHA-256 is not available");
    return context;
}

void file_hash_bytes(const void *bytes, size_t size, char *hex)
{
    EVP_MD_CTX *context = digest_begin();
    EVP_DigestUpdate(context, bytes, size);
    digest_hex(context, hex);
    EVP_MD_CTX_free(context);
}

int file_hash(const char *path, char *hex, struct error *error)
{
    int descriptor = file_open(path, NULL, error);
    if (descriptor < 0)
        return -1;
    enum { PIECE = 1 << 20 };
    char *piece = xmalloc(PIECE);
    EVP_MD_CTX *context = digest_begin();
    ssize_t got;
    while ((got = read(descriptor, piece, PIECE)) > 0)
        EVP_DigestUpdate(context, piece, (size_t)got);
    if (got == 0)
        digest_hex(context, hex);
    int result = got < 0 ? fail_errno(error, "%s: cannot read", path) : 0;
    EVP_MD_CTX_free(context);
    free(piece);
    close(descriptor);
    return result;
}

char *file_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    return xformat(length && folder[length - 1] == '/' ? "%s%s" : "%s/%s", folder, name);
}

/* --- copying ------------------------------------------------------------------------------------------------------ */

enum { COPY_PIECE = 1 << 22 };

/* From one descriptor to another, with the hash of what was read. */
static int copy_bytes(int from, const char *from_path, int to, const char *to_path, char *hex, file_on_copied *tell,
                      void *context, struct error *error)
{
    char *piece = xmalloc(COPY_PIECE);
    EVP_MD_CTX *digest = digest_begin();
    ssize_t got;
    int result = 0;
    while (!result && (got = read_all(from, piece, COPY_PIECE)) > 0) {
        EVP_DigestUpdate(digest, piece, (size_t)got);
        result = write_all(to, to_path, piece, (size_t)got, error);
        tell(context, (size_t)got);
    }
    if (!result && got < 0)
        result = fail_errno(error, "%s: cannot read", from_path);
    if (!result && fsync(to))
        result = fail_errno(error, "%s: cannot write to the disk", to_path);
    digest_hex(digest, hex);
    EVP_MD_CTX_free(digest);
    free(piece);
    return result;
}

static int check_copy(const char *path, const char *hex, struct error *error)
{
    char again[FILE_HASH_SIZE];
    if (file_hash(path, again, error))
        return -1;
    return strcmp(again, hex) == 0 ? 0 : fail(error, "%s: is not what was written to it; check memory and disk", path);
}

int file_copy(const char *from, const char *to, char *hex, file_on_copied *tell, void *context, struct error *error)
{
    char *part = xformat("%s%s", to, FILE_COPY_ENDING);
    int source = file_open(from, NULL, error), result = -1, target = -1;
    if (source < 0)
        goto out;
    target = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (target < 0)
        fail_errno(error, "%s: cannot create", part);
    else if (copy_bytes(source, from, target, part, hex, tell, context, error) == 0 &&
             check_copy(part, hex, error) == 0)
        result = rename(part, to) ? fail_errno(error, "%s: cannot rename to %s", part, to) : sync_folder_of(to, error);
    if (result)
        unlink(part);
out:
    if (target >= 0)
        close(target);
    if (source >= 0)
        close(source);
    free(part);
    return result;
}
