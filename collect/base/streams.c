#include "collect/base/streams.h"

#include "collect/base/error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

void streams_open(void)
{
    /* In this order: open() takes the lowest number that is free. */
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 &&
            open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor)
            _exit(EXIT_CODE_FAILURE);
    signal(SIGXFSZ, SIG_IGN);
}

int streams_close(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "standard output: cannot be written, and what was printed is not whole; make room, or write it "
                    "elsewhere\n");
    return code == EXIT_CODE_OK ? EXIT_CODE_FAILURE : code;
}
