#include "collect/base/error.h"
#include "collect/base/streams.h"
#include "collect/command.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name, *purpose;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", "measure what a plan asks for and its run folder lacks", command_run},
    {"status", "show what a run folder holds: arms by blocks, and why something does not count", command_status},
    {"invalidate", "withdraw attempts, for a reason", command_invalidate},
    {"reinstate", "take a withdrawal back", command_reinstate},
    {"purge", "remove the files of invalid attempts; the ledger keeps what they said", command_purge},
    {"import", "read result files of other tools into a run", command_import},
    {"bench", "time the engine's rounds beside their matrix products alone", command_bench},
    {"check-model", "say what a model's folder holds, and whether engine and drafter fit it", command_check_model},
    {"record-trees", "record the shapes of a drafter's trees, for bench --shape", command_record_trees},
    {"plan-name", "check a plan and print its name", command_plan_name},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *stream)
{
    fputs("usage: collect COMMAND [options]; collect COMMAND --help says more\n\n", stream);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-12s %s\n", commands[i].name, commands[i].purpose);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return EXIT_CODE_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "unknown command %s; `collect --help` lists them\n", argv[1]);
    return EXIT_CODE_USAGE;
}

int main(int argc, char **argv)
{
    streams_open();
    return streams_close(run(argc, argv));
}
