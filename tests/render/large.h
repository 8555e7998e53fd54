/* A summary as large as wanted, with all that can be drawn: arms of 1, 4 and 8 ranks, 1 and 64 requests in flight,
 * names of 40 characters, speedups over four decades, numbers that are missing, readings of eight devices. */
#ifndef TESTS_RENDER_LARGE_H
#define TESTS_RENDER_LARGE_H

/* 1 to 24 arms, 1 to 12 workloads. */
void large_write(const char *path, int arms, int workloads);

#endif
