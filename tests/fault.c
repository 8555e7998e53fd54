#include "tests/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a call does: to the bytes of a file, to their way to the disk, or to names; each a bit. */
enum call { CALL_WRITE = 1, CALL_TRUNCATE = 2, CALL_SYNC = 4, CALL_NAME = 8, CALL_ALL = 15 };

/* Those that a fault strikes. */
static const unsigned struck[] = {
    [FAULT_NONE] = CALL_ALL,      [FAULT_KILL] = CALL_ALL,    [FAULT_TEAR] = CALL_WRITE,    [FAULT_FULL] = CALL_ALL,
    [FAULT_READ_ONLY] = CALL_ALL, [FAULT_DENIED] = CALL_NAME, [FAULT_UNSYNCED] = CALL_SYNC,
};

/* Shared with child processes. */
struct counts {
    int calls[CALL_ALL + 1]; /* of each enum call */
    int readings;
};

static struct fault armed;
static int clock_at;
static int64_t clock_jump_s, clock_more_s;

static struct counts *counts(void)
{
    static struct counts *shared;
    if (!shared)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    return shared;
}

void fault_set(const struct fault *fault)
{
    armed = fault ? *fault : (struct fault){0};
    if (fault)
        memset(counts()->calls, 0, sizeof counts()->calls);
}

int fault_calls(enum fault_kind kind)
{
    int calls = 0;
    for (unsigned call = 1; call <= CALL_ALL; call <<= 1)
        calls += struck[kind] & call ? counts()->calls[call] : 0;
    return calls;
}

void fault_set_clock(int at, int64_t jump_s, int64_t more_s)
{
    clock_at = at;
    clock_jump_s = jump_s;
    clock_more_s = more_s;
    counts()->readings = 0;
}

int fault_clock_readings(void)
{
    return counts()->readings;
}

/* The library's function of that name. */
static void *find(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

enum outcome { GO_ON, FAIL, HALF_THEN_FAIL, HALF_THEN_DIE };

static void die_now(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static enum outcome decide(enum call call)
{
    counts()->calls[call]++;
    const int number = fault_calls(armed.kind);
    if (armed.kind == FAULT_NONE || !(struck[armed.kind] & call) || number < armed.at)
        return GO_ON;
    switch (armed.kind) {
    case FAULT_KILL:
        die_now();
        break;
    case FAULT_TEAR:
        return HALF_THEN_DIE;
    case FAULT_FULL:
        errno = ENOSPC;
        return call != CALL_WRITE ? GO_ON : number == armed.at ? HALF_THEN_FAIL : FAIL;
    case FAULT_DENIED:
        errno = EACCES;
        break;
    case FAULT_UNSYNCED:
        errno = EIO;
        break;
    default:
        errno = EROFS;
    }
    return FAIL;
}

static bool is_inside(const char *path)
{
    return armed.folder && strncmp(path, armed.folder, strlen(armed.folder)) == 0;
}

static enum outcome decide_path(const char *path)
{
    return is_inside(path) ? decide(CALL_NAME) : GO_ON;
}

static enum outcome decide_descriptor(int descriptor, enum call call)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return GO_ON;
    path[length] = '\0';
    return is_inside(path) ? decide(call) : GO_ON;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

int open(const char *path, int flags, ...)
{
    static int (*real_open)(const char *, int, ...);
    if (!real_open)
        *(void **)&real_open = find("open");
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return (flags & O_ACCMODE) != O_RDONLY && decide_path(path) == FAIL ? -1 : real_open(path, flags, mode);
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    static ssize_t (*real_write)(int, const void *, size_t);
    if (!real_write)
        *(void **)&real_write = find("write");
    const enum outcome outcome = decide_descriptor(descriptor, CALL_WRITE);
    if (outcome == GO_ON)
        return real_write(descriptor, bytes, size);
    if (outcome == FAIL)
        return -1;
    ssize_t wrote = real_write(descriptor, bytes, size / 2);
    if (outcome == HALF_THEN_DIE)
        die_now();
    return wrote;
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
    if (!real_pwrite)
        *(void **)&real_pwrite = find("pwrite");
    const enum outcome outcome = decide_descriptor(descriptor, CALL_WRITE);
    if (outcome == GO_ON)
        return real_pwrite(descriptor, bytes, size, offset);
    if (outcome == FAIL)
        return -1;
    ssize_t wrote = real_pwrite(descriptor, bytes, size / 2, offset);
    if (outcome == HALF_THEN_DIE)
        die_now();
    return wrote;
}

int fsync(int descriptor)
{
    return decide_descriptor(descriptor, CALL_SYNC) == FAIL ? -1 : 0;
}

int ftruncate(int descriptor, off_t length)
{
    static int (*real_ftruncate)(int, off_t);
    if (!real_ftruncate)
        *(void **)&real_ftruncate = find("ftruncate");
    return decide_descriptor(descriptor, CALL_TRUNCATE) == FAIL ? -1 : real_ftruncate(descriptor, length);
}

int rename(const char *from, const char *to)
{
    static int (*real_rename)(const char *, const char *);
    if (!real_rename)
        *(void **)&real_rename = find("rename");
    return decide_path(to) == FAIL ? -1 : real_rename(from, to);
}

int unlink(const char *path)
{
    static int (*real_unlink)(const char *);
    if (!real_unlink)
        *(void **)&real_unlink = find("unlink");
    return decide_path(path) == FAIL ? -1 : real_unlink(path);
}

int mkdir(const char *path, mode_t mode)
{
    static int (*real_mkdir)(const char *, mode_t);
    if (!real_mkdir)
        *(void **)&real_mkdir = find("mkdir");
    struct stat status;
    if (stat(path, &status) == 0) { /* the program makes sure of folders that are there */
        errno = EEXIST;
        return -1;
    }
    return decide_path(path) == FAIL ? -1 : real_mkdir(path, mode);
}

time_t time(time_t *to)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int since = ++counts()->readings - clock_at;
    const time_t seconds = now.tv_sec + (clock_at && since >= 0 ? clock_jump_s + since * clock_more_s : 0);
    if (to)
        *to = seconds;
    return seconds;
}
