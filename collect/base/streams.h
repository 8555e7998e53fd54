/* The three streams that a program is given. */
#ifndef COLLECT_BASE_STREAMS_H
#define COLLECT_BASE_STREAMS_H

/* First of all in main(): a stream that was closed is opened so that it can be neither read nor written. A file that
 * the program opens would have its number otherwise, and what is said on that stream would stand in the file. A write
 * beyond the largest file that is allowed (ulimit -f) fails as one to a full disk does, and does not kill. */
void streams_open(void);

/* Last of all: writes what is left for stdout. Answers `code`, or EXIT_CODE_FAILURE in the place of EXIT_CODE_OK, with
 * a line on stderr, where something of it could not be written: on a full disk half an output must not pass for one. */
int streams_close(int code);

#endif
