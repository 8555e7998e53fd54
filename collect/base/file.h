/* Files: read whole, written whole (temporary name, fsync, rename), or appended line by line. */
#ifndef COLLECT_BASE_FILE_H
#define COLLECT_BASE_FILE_H

#include "collect/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FILE_HASH_SIZE 65 /* 64 hexadecimal digits of a SHA-256, and the end */

/* A descriptor for reading a regular file, and its size in *size (may be NULL). Folders, devices and pipes are refused,
 * without waiting for a pipe's writer. */
int file_open(const char *path, size_t *size, struct error *error);

/* The whole file, with a NUL behind it; *size (may be NULL) without that NUL. free() it. NULL and a message where it
 * cannot be read or is larger than `limit` bytes. */
char *file_read(const char *path, size_t limit, size_t *size, struct error *error);

/* Replaces `path` by these bytes: written beside it, fsynced, renamed, folder fsynced. A reader sees old or new, whole.
 */
int file_write_whole(const char *path, const void *bytes, size_t size, struct error *error);

/* Appends one line by one write, and fsyncs. `line` has no newline of its own. */
int file_append_line(int descriptor, const char *path, const char *line, struct error *error);

/* Makes the folder and those above it. A file of that name is an error. */
int file_make_folder(const char *path, struct error *error);

/* Removes the file for good: the folder is fsynced. One that is not there is no error. */
int file_remove(const char *path, struct error *error);

bool file_exists(const char *path);

/* What stands behind the name of a copy that is not whole yet. */
#define FILE_COPY_ENDING ".part"

/* Called with the bytes that were copied since. */
typedef void file_on_copied(void *context, size_t bytes);

/* Copies a file to `to`, which is replaced when the copy is whole, and was read back with the SHA-256 of what was read;
 * that is in hex[FILE_HASH_SIZE]. A copy that fails leaves nothing. */
int file_copy(const char *from, const char *to, char *hex, file_on_copied *tell, void *context, struct error *error);

/* SHA-256 of bytes, or of a file read in pieces. */
void file_hash_bytes(const void *bytes, size_t size, char *hex);
int file_hash(const char *path, char *hex, struct error *error);

/* "folder/name", to be free()d. */
char *file_join(const char *folder, const char *name);

#endif
