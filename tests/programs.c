#include "tests/programs.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

char *programs_folder;
static char *programs;

int programs_set_up(void **state)
{
    (void)state;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    char *tests = strstr(self, "/tests/");
    assert_non_null(tests);
    *tests = '\0';
    programs = xstrdup(self);
    programs_folder = fixture_make_folder();
    return 0;
}

int programs_tear_down(void **state)
{
    (void)state;
    fixture_remove_folder(programs_folder);
    free(programs);
    return 0;
}

int programs_shell(const char *command, char **said)
{
    char *line =
        xformat("bin='%s' out='%s'; { %s; } >'%s/said' 2>&1", programs, programs_folder, command, programs_folder);
    int status = system(line);
    char *path = file_join(programs_folder, "said");
    *said = fixture_read(path, NULL);
    free(path);
    free(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* To stderr, since cmocka's messages have an end, and what a program dies of comes last. */
void programs_check(bool expected, int status, const char *said)
{
    if (expected)
        return;
    fprintf(stderr, "%s\n", said);
    fail_msg("ended with %d", status);
}

void programs_expect(int expected, const char *command, char **said)
{
    const int status = programs_shell(command, said);
    if (status != expected)
        fprintf(stderr, "%s\n", command);
    programs_check(status == expected, status, *said);
}

void programs_must(const char *command)
{
    char *said;
    programs_expect(0, command, &said);
    free(said);
}
