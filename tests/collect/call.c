#include "tests/collect/call.h"

#include "collect/base/error.h"
#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ARGUMENTS_MAXIMUM = 16 };

static int redirect(int descriptor, const char *path)
{
    int former = dup(descriptor), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    dup2(file, descriptor);
    close(file);
    return former;
}

static void restore(int descriptor, int former)
{
    dup2(former, descriptor);
    close(former);
}

int call_command(const char *folder, command_function *run, const char *const *arguments, char **said)
{
    char *argv[ARGUMENTS_MAXIMUM + 2] = {"command"}, *path = file_join(folder, "said.txt");
    int argc = 1;
    for (; arguments[argc - 1]; argc++) {
        if (argc > ARGUMENTS_MAXIMUM)
            die("more than %d arguments", ARGUMENTS_MAXIMUM);
        argv[argc] = (char *)arguments[argc - 1];
    }
    fflush(stdout);
    int output = redirect(STDOUT_FILENO, path), errors = dup(STDERR_FILENO);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    int exit_code = run(argc, argv);
    fflush(stdout);
    fflush(stderr);
    restore(STDOUT_FILENO, output);
    restore(STDERR_FILENO, errors);
    *said = fixture_read(path, NULL);
    free(path);
    return exit_code;
}
