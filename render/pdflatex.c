#include "render/pdflatex.h"

#include "collect/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSES_MAXIMUM 5
#define LOG_LIMIT ((size_t)64 << 20)
#define EXIT_NOT_FOUND 127

/* In the child: never comes back. The alarm is inherited by the program that replaces this one. */
static void become_pdflatex(const char *folder, const char *name, const char *date)
{
    char *const arguments[] = {
        "pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", (char *)name, NULL};
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || chdir(folder))
        _exit(EXIT_CODE_FAILURE);
    setenv("SOURCE_DATE_EPOCH", date, 1);
    setenv("FORCE_SOURCE_DATE", "1", 1);
    setenv("max_print_line", "1000", 1);
    signal(SIGALRM, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    alarm(PDFLATEX_LIMIT_S);
    execvp(arguments[0], arguments);
    _exit(EXIT_NOT_FOUND);
}

static int run_once(const char *folder, const char *name, int64_t date, int *status, struct error *error)
{
    char *seconds = xformat("%" PRId64, date);
    pid_t child = fork();
    if (child == 0)
        become_pdflatex(folder, name, seconds);
    free(seconds);
    if (child < 0)
        return fail_errno(error, "pdflatex: cannot start");
    while (waitpid(child, status, 0) < 0)
        if (errno != EINTR)
            return fail_errno(error, "pdflatex: cannot wait for it");
    return 0;
}

static const char *line_end(const char *text)
{
    return text + strcspn(text, "\n");
}

char *pdflatex_first_error(const char *log)
{
    const char *at = strncmp(log, "! ", 2) == 0 ? log : strstr(log, "\n! ");
    if (!at)
        return NULL;
    at += *at == '\n';
    const char *end = line_end(at), *place = strstr(end, "\nl.");
    if (!place)
        return xformat("%.*s", (int)(end - at), at);
    return xformat("%.*s %.*s", (int)(end - at), at, (int)(line_end(place + 1) - place - 1), place + 1);
}

static int explain(const char *folder, const char *name, int status, const char *log, struct error *error)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return fail(error, "%s/%s.tex: pdflatex ran longer than %d s and was stopped; see %s.log", folder, name,
                    PDFLATEX_LIMIT_S, name);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NOT_FOUND)
        return fail(error, "pdflatex is not installed; run `make deps`. The report's text is in %s/%s.tex", folder,
                    name);
    char *first = log ? pdflatex_first_error(log) : NULL;
    fail(error, "%s/%s.log: %s", folder, name, first ? first : "pdflatex failed without saying why");
    free(first);
    return -1;
}

/* Leftovers of an earlier report would make the first pass differ. */
static void remove_file(const char *folder, const char *name, const char *ending)
{
    char *path = xformat("%s/%s.%s", folder, name, ending);
    unlink(path);
    free(path);
}

static bool wants_another_pass(const char *log)
{
    return strstr(log, "Rerun to get") || strstr(log, "Rerun LaTeX");
}

int pdflatex_run(const char *folder, const char *name, int64_t date, struct error *error)
{
    static const char *const leftovers[] = {"aux", "log", "pdf", "out", "toc"};
    for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++)
        remove_file(folder, name, leftovers[i]);
    char *path = xformat("%s/%s.log", folder, name);
    bool again = true;
    int result = 0;
    for (int pass = 0; !result && again && pass < PASSES_MAXIMUM; pass++) {
        int status;
        struct error unread = {0};
        result = run_once(folder, name, date, &status, error);
        char *log = result ? NULL : file_read(path, LOG_LIMIT, NULL, &unread);
        if (!result && status != 0)
            result = explain(folder, name, status, log, error);
        again = pass == 0 || !log || wants_another_pass(log);
        free(log);
    }
    if (!result)
        remove_file(folder, name, "aux");
    free(path);
    return result;
}
