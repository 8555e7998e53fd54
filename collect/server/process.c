#include "collect/server/process.h"

#include "collect/base/clock.h"
#include "collect/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 20,
    KILL_S = 60, /* what was killed gives back pinned memory, and a busy machine takes its time */
    CANNOT_RUN = 127
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* In the child, after fork(): nothing but system calls. Answers errno through the pipe where it cannot go on. */
static void become(char *const *argv, char *const *env, int log, pid_t parent, int pipe)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    interrupt_unblock();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (setpgid(0, 0) == 0 && getppid() == parent && null >= 0 && dup2(null, 0) == 0 && dup2(log, 1) == 1 &&
        dup2(log, 2) == 2)
        execvpe(argv[0], argv, env);
    int number = errno;
    ssize_t written = write(pipe, &number, sizeof number);
    _exit(written < 0 ? CANNOT_RUN + 1 : CANNOT_RUN);
}

extern char **environ;

/* The environment with these in front of it, so that they win. The strings are borrowed. */
static char **join_environments(char *const *env)
{
    size_t own = 0, inherited = 0, count = 0;
    while (env[own])
        own++;
    while (environ[inherited])
        inherited++;
    char **all = xcalloc(own + inherited + 1, sizeof *all);
    for (size_t i = 0; i < own; i++)
        all[count++] = env[i];
    for (size_t i = 0; i < inherited; i++) {
        bool replaced = false;
        for (size_t j = 0; j < own; j++)
            replaced |= strncmp(environ[i], env[j], (size_t)(strchr(env[j], '=') - env[j]) + 1) == 0;
        if (!replaced)
            all[count++] = environ[i];
    }
    return all;
}

/* Whether the child has become the program: then the pipe was closed without a word. */
static int await_exec(struct process *process, int pipe, const char *program, struct error *error)
{
    int number = 0;
    ssize_t size;
    do
        size = read(pipe, &number, sizeof number);
    while (size < 0 && errno == EINTR);
    if (size != (ssize_t)sizeof number)
        return 0;
    waitpid(process->group, NULL, 0);
    *process = (struct process){0};
    return fail(error, "%s: cannot be run: %s", program, strerror(number));
}

int process_start(struct process *process, char *const *argv, char *const *env, const char *log, struct error *error)
{
    int result = -1, pipes[2] = {-1, -1};
    int descriptor = open(log ? log : "/dev/null", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    pid_t parent = getpid();
    *process = (struct process){0};
    if (descriptor < 0)
        return fail_errno(error, "%s: cannot be written", log);
    if (pipe2(pipes, O_CLOEXEC))
        die("pipe: %s", strerror(errno));
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what the program leaves behind is ours to wait for */
    char **all = join_environments(env);
    process->group = fork();
    if (process->group == 0)
        become(argv, all, descriptor, parent, pipes[1]);
    close(pipes[1]);
    if (process->group < 0)
        fail_errno(error, "%s: cannot be started", argv[0]);
    else {
        setpgid(process->group, process->group);
        result = await_exec(process, pipes[0], argv[0], error);
    }
    close(pipes[0]);
    close(descriptor);
    free(all);
    return result;
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

/* Takes note of those of the group that have ended. False where none is left. */
static bool reap(struct process *process)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-process->group, &status, WNOHANG)) > 0)
        if (pid == process->group) {
            process->leader_ended = true;
            process->status = status;
        }
    return pid == 0;
}

static void say_how(const struct process *process, char *how)
{
    if (WIFSIGNALED(process->status))
        snprintf(how, PROCESS_HOW_SIZE, "ended by signal %d (%s)", WTERMSIG(process->status),
                 strsignal(WTERMSIG(process->status)));
    else
        snprintf(how, PROCESS_HOW_SIZE, "exit status %d", WEXITSTATUS(process->status));
}

bool process_is_alive(struct process *process, char how[PROCESS_HOW_SIZE])
{
    if (process->group)
        reap(process);
    if (process->group && !process->leader_ended)
        return true;
    say_how(process, how);
    return false;
}

bool process_wait(struct process *process, int limit_s, char how[PROCESS_HOW_SIZE])
{
    int64_t until_ns = clock_now_ns() + limit_s * (int64_t)1000000000;
    while (process_is_alive(process, how)) {
        if (clock_now_ns() > until_ns)
            return false;
        nap();
    }
    return true;
}

static bool await_group(struct process *process, int limit_s)
{
    int64_t until_ns = clock_now_ns() + limit_s * (int64_t)1000000000;
    while (reap(process)) {
        if (clock_now_ns() > until_ns)
            return false;
        nap();
    }
    return true;
}

void process_stop(struct process *process, int grace_s)
{
    if (!process->group)
        return;
    kill(-process->group, SIGTERM);
    if (!await_group(process, grace_s)) {
        kill(-process->group, SIGKILL);
        await_group(process, KILL_S);
    }
    process->group = 0;
}

bool process_succeeded(const struct process *process)
{
    return process->leader_ended && WIFEXITED(process->status) && WEXITSTATUS(process->status) == 0;
}
