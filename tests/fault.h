/* Stand-ins for the calls of the C library by which a program changes files. They count those calls on one folder that
 * the fault may strike, and at the n-th the process is killed, the disk is full, or something else goes wrong from then
 * on. An fsync() that does not fail does nothing, since what a killed process has written is in the kernel's hands.
 *
 * Programs that link this file (the Makefile says which) call these instead of the library's. */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#include <stdint.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_KILL,      /* SIGKILL before the call */
    FAULT_TEAR,      /* SIGKILL in the middle of a write */
    FAULT_FULL,      /* half of a write is done, and no later one: no space is left */
    FAULT_READ_ONLY, /* from this call on the folder's file system is mounted read-only */
    FAULT_DENIED,    /* from this open, mkdir, rename or unlink on all of them are forbidden; open files stay so */
    FAULT_UNSYNCED,  /* from this fsync on what is written does not reach the disk, and fsync says so */
};

struct fault {
    const char *folder; /* calls on what lies in there are counted; borrowed */
    enum fault_kind kind;
    int at; /* from 1, of the calls that such a fault strikes */
};

/* Counting begins anew. NULL: it stops, and the count stays. */
void fault_set(const struct fault *fault);

/* Calls since that such a fault strikes, those of child processes among them. FAULT_NONE: all calls. */
int fault_calls(enum fault_kind kind);

/* From its n-th reading on (0: never) the wall clock is off by so many seconds, and by so many more at each reading. */
void fault_set_clock(int at, int64_t jump_s, int64_t more_s);
int fault_clock_readings(void);

#endif
