#include "collect/base/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#undef fail /* cmocka's; ours is what is tested */

static void keeps_the_first_message(void **state)
{
    (void)state;
    struct error error = {0};
    assert_int_equal(fail(&error, "%s: line %d", "plan.json", 7), -1);
    assert_int_equal(fail(&error, "something else"), -1);
    assert_string_equal(error.message, "plan.json: line 7");
}

static void adds_what_the_system_says(void **state)
{
    (void)state;
    struct error error = {0};
    errno = ENOENT;
    assert_int_equal(fail_errno(&error, "%s: cannot open", "x"), -1);
    assert_string_equal(error.message, "x: cannot open: No such file or directory");
}

/* Messages quote files: they must not be able to break the line, or to steer a terminal. */
static void makes_one_printable_line_of_anything(void **state)
{
    (void)state;
    static const struct {
        const char *said, *kept;
    } cases[] = {
        {"a\nb\r\n\tc", "a b   c"},
        {"\x1B[2J\x7F", " [2J "},
        {"\xC2\x9B"
         "31m",
         "  31m"},                 /* a control sequence of one character, U+009B */
        {"\xE2\x80\xA8x", "   x"}, /* U+2028, which ends a line */
        {"caf\xC3\xA9 \xE6\x97\xA5", "caf\xC3\xA9 \xE6\x97\xA5"},
        {"caf\xC3 \xFF\xC0\x80", "caf? ???"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        fail(&error, "%s", cases[i].said);
        assert_string_equal(error.message, cases[i].kept);
    }
}

static void cuts_what_is_too_long(void **state)
{
    (void)state;
    struct error error = {0};
    char text[3 * ERROR_MESSAGE_SIZE] = "x"; /* then characters of two bytes: the cut falls within one */
    for (size_t i = 1; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xC3\xA9", 3);
    fail(&error, "%s", text);
    assert_int_equal(strlen(error.message), ERROR_MESSAGE_SIZE - 1);
    assert_memory_equal(error.message, text, ERROR_MESSAGE_SIZE - 2);
    errno = EIO;
    struct error other = {0};
    fail_errno(&other, "%s", text);
    assert_int_equal(strlen(other.message), ERROR_MESSAGE_SIZE - 1);
}

static void gives_memory(void **state)
{
    (void)state;
    void *empty[] = {xmalloc(0), xcalloc(0, 8), xcalloc(8, 0), xrealloc(NULL, 0, 8), xaligned(0, 8)};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        assert_non_null(empty[i]);
        free(empty[i]);
    }
    unsigned char *aligned = xaligned(3, 33);
    assert_int_equal((uintptr_t)aligned % 64, 0);
    for (int i = 0; i < 99; i++)
        assert_int_equal(aligned[i], 0);
    free(aligned);
    char *text = xformat("%s-%d", "block", 3), *copy = xstrdup(text);
    assert_string_equal(copy, "block-3");
    free(text);
    free(copy);
}

static void ask_too_much(int which)
{
    switch (which) {
    case 0:
        free(xrealloc(NULL, SIZE_MAX / 2, 3));
        return;
    case 1:
        free(xaligned(SIZE_MAX / 2, 3));
        return;
    case 2:
        free(xaligned(SIZE_MAX, 1));
        return;
    default:
        die("the machine is broken: %d", which);
    }
}

/* Sizes that overflow end the program; a small block in their place would be written over. */
static void dies_with_one_line(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        int ends[2], status;
        char said[256] = "";
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            ask_too_much(which);
            _exit(0);
        }
        close(ends[1]);
        for (ssize_t used = 0, more; (more = read(ends[0], said + used, sizeof said - 1 - (size_t)used)) > 0;)
            used += more;
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), EXIT_CODE_FAILURE);
        assert_int_equal(strncmp(said,
                                 which < 3 ? "cleanslate: out of memory: " : "cleanslate: the machine is broken: 3\n",
                                 which < 3 ? 27 : 37),
                         0);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    }
}

/* In a debug build nothing can be allocated inside a timed region; outside, and in a release build, it can. */
static void allocates_nothing_while_frozen(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        memory_freeze();
        memory_freeze();
        memory_thaw();
        free(xmalloc(10));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
#ifdef CLEANSLATE_DEBUG
    assert_int_equal(WEXITSTATUS(status), EXIT_CODE_FAILURE);
#else
    assert_int_equal(WEXITSTATUS(status), 0);
#endif
    memory_freeze();
    memory_thaw();
    free(xmalloc(10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_first_message),
        cmocka_unit_test(adds_what_the_system_says),
        cmocka_unit_test(makes_one_printable_line_of_anything),
        cmocka_unit_test(cuts_what_is_too_long),
        cmocka_unit_test(gives_memory),
        cmocka_unit_test(dies_with_one_line),
        cmocka_unit_test(allocates_nothing_while_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
