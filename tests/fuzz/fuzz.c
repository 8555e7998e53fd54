#include "tests/fuzz/fuzz.h"

#include "collect/base/file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

static char *folder;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

const char *fuzz_folder(void)
{
    if (folder)
        return folder;
    const char *parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : P_tmpdir;
    folder = xformat("%s/cleanslate-fuzz-XXXXXX", parent);
    if (!mkdtemp(folder))
        die("%s: cannot make a folder in it", parent);
    atexit(remove_folder);
    return folder;
}

const char *fuzz_write(const char *name, const void *bytes, size_t size)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        die("%s: cannot write", path);
    return path;
}

void fuzz_require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static bool is_printable_line(const char *text)
{
    size_t size = strlen(text);
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t character;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &character);
        if (length <= 0 || character < ' ' || (character >= 0x7F && character < 0xA0) || character == 0x2028 ||
            character == 0x2029)
            return false;
        at += (size_t)length;
    }
    return true;
}

void fuzz_check_line(const char *text)
{
    fuzz_require(is_printable_line(text), "what is shown is one line of printable UTF-8");
}

void fuzz_check_answer(bool well, const struct error *error)
{
    fuzz_require(well == (error->message[0] == '\0'), "a message says what is wrong, and only then");
    fuzz_check_line(error->message);
}
