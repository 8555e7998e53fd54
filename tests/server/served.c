#include "tests/server/served.h"

#include "tests/server/loopback.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct loopback_page good = {
    .content_type = "text/event-stream", .body = SERVED_ANSWER, .piece = 40, .delay_ms = 1};

static void leave_slowly(int signal)
{
    (void)signal;
    usleep(500000);
    _exit(0);
}

static int serve(const char *mode, int port)
{
    struct loopback_page pages[] = {{.path = "/v1/models", .body = "{\"data\": [{\"id\": \"m\"}]}"}, good, {0}};
    pages[1].path = "/v1/completions";
    fprintf(stderr, "INFO started as %s, with key %s\nINFO at %s\n", mode, getenv("CLEANSLATE_TEST_KEY"),
            getenv("CLEANSLATE_TEST_PLACE"));
    if (strcmp(mode, "crashing") == 0) {
        fprintf(stderr, "RuntimeError: CUDA error: an illegal instruction was encountered\nINFO bye\n");
        pages[1].first = &good;
        pages[1].crash = true;
    }
    if (strcmp(mode, "broken") == 0) {
        fprintf(stderr, "ValueError: no such model\n");
        return 1;
    }
    if (strcmp(mode, "starved") == 0) {
        fprintf(stderr, "torch.OutOfMemoryError: CUDA out of memory.\n");
        return 1;
    }
    if (strcmp(mode, "leaving") == 0)
        signal(SIGTERM, leave_slowly);
    if (strcmp(mode, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        const pid_t child = fork();
        while (child == 0) /* it takes no port: there is but one */
            pause();
        fprintf(stderr, "CHILD %d\n", (int)child);
    }
    loopback_start(pages, port);
    for (;;)
        pause();
}

char served_self[4096];

void served_begin(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        exit(serve(argv[2], (int)strtol(argv[3], NULL, 10)));
    if (readlink("/proc/self/exe", served_self, sizeof served_self - 1) < 0)
        exit(1);
}
