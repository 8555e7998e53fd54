/* The plan: a JSON file (schema cleanslate.plan/1) that says what to measure. Unknown keys are errors. */
#ifndef COLLECT_PLAN_H
#define COLLECT_PLAN_H

#include "collect/base/error.h"
#include "collect/prompt.h"
#include "collect/record/arm.h"
#include "collect/record/rule.h"
#include "collect/record/run.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PLAN_SCHEMA "cleanslate.plan/1"
#define PLAN_BLOCKS_MAXIMUM ATTEMPT_BLOCK_MAXIMUM
#define PLAN_RANKS_MAXIMUM 64
#define PLAN_CONCURRENCY_MAXIMUM 256
#define PLAN_WORKLOADS_MAXIMUM 64

struct plan_workload {
    const char *name;
    const char *prompts; /* path of a prompt file */
    int count;           /* the first so many prompts of the file; 0: all */
    enum prompt_template template;
    enum prompt_chat chat;
    int context_tokens; /* every prompt is filled up to so many tokens; 0: as long as it is */
    const char *corpus; /* path of the text that fills; NULL where nothing is filled */
    int max_new_tokens;
    bool ignore_eos;
};

/* What is measured: the built-in engine, a server over HTTP, or nothing: the run holds imports alone. */
enum plan_source { PLAN_SOURCE_ENGINE, PLAN_SOURCE_SERVER, PLAN_SOURCE_IMPORT };

struct plan_engine {
    const char *target, *drafter; /* model folders; drafter NULL where no method needs one */
    const char *device;           /* "auto", "cpu", "cuda" */
    const char *dtype;            /* "float32", "bfloat16" */
};

/* A command line or a value of the environment may hold {tp}, {method}, {budget}, {port}, {arm} and {log}: see
 * collect/server/launch.h. */
struct plan_launch {
    const json_t *argv; /* what is started for each arm, in a process group of its own; NULL: nothing */
    const json_t *methods[METHOD_COUNT]; /* arguments that follow, by method; NULL: none */
    const json_t *start, *stop;          /* commands that start and stop a server elsewhere; NULL: none */
    const json_t *env;                   /* object of strings; NULL: none */
    int stop_s;                          /* how long it may take to end when asked to */
};

struct plan_server {
    const char *dialect, *route;     /* route NULL: the dialect's first */
    const char *url[METHOD_COUNT];   /* of each method's server */
    const char *model;               /* NULL: the first that the server lists */
    const char *api_key_env;         /* the environment variable that holds the key; NULL: none */
    const json_t *request;           /* merged into the body of each request; NULL: nothing */
    const json_t *launch_as_written; /* NULL: the server is running */
    struct plan_launch launch;
};

/* How tokens are chosen. */
struct plan_sampling {
    double temperature; /* 0: the likeliest */
    int top_k;          /* 0: all */
    double top_p;       /* 1: all */
};

/* A folder in a memory disk, which is kept a copy of a folder that lasts. */
struct plan_stage {
    const char *original, *folder;
};

/* "b16 over auto": an entry of the headline family, fixed when the first attempt begins. */
struct plan_comparison {
    const char *method, *baseline; /* labels as arm_method_label() writes them */
};

struct plan {
    char *path;
    json_t *json; /* as read; the strings below are borrowed from it */
    const char *name, *title;
    enum plan_source source;
    struct plan_engine engine;
    struct plan_server server;
    struct plan_stage *stages;
    int stage_count;
    struct plan_sampling sampling;
    int blocks;        /* that are reported */
    int tuning_blocks; /* before them, on the other half of the prompts, for the choice of the best budget; 0: none */
    int64_t seed;
    int warmup; /* requests before the measured ones of each attempt */
    struct plan_workload *workloads;
    int workload_count;
    struct arm *arms; /* every TP x concurrency x method (x budget), in the plan's order */
    int arm_count;
    struct plan_comparison *comparisons;
    int comparison_count;
    double alpha;
    int request_limit_s; /* a request that takes longer is an error */
    int silence_limit_s; /* so is one of which no byte comes for so long */
    int start_limit_s;   /* a server that does not answer by then did not come up */
    struct rule_settings rules;
    int min_blocks; /* below: a point without an interval; rule MIN_BLOCKS */
};

/* Reads and checks the plan file. Paths inside are relative to the working directory. */
int plan_read(const char *path, struct plan *plan, struct error *error);
void plan_free(struct plan *plan);

/* Whether a command line holds a secret that a run folder must not keep. Plans that are kept are read all the same. */
int plan_check_secrets(const struct plan *plan, struct error *error);

/* Adds the arms and workloads of the run's imports, which no plan lists. The plan borrows from the run from then on. */
void plan_add_imported(struct plan *plan, const struct run *run);

const struct plan_workload *plan_find_workload(const struct plan *plan, const char *name);

/* Blocks of a run: those of tuning, from 1, and behind them those that are reported. */
int plan_block_count(const struct plan *plan);

/* The order of the arms in a block: order[arm_count] holds indices of plan->arms, sorted by a hash of (seed, block,
 * arm's name), so that an arm that is added later moves no other. */
void plan_arm_order(const struct plan *plan, int block, int *order);

/* A shuffle of `count` prompts that depends on (seed, block, workload) alone: the same for all arms of the block. */
void plan_prompt_order(const struct plan *plan, int block, const char *workload, int count, int *order);

/* A request's stream of random numbers, from (seed, block, workload, prompt): the same for all arms of the block. */
uint64_t plan_prompt_stream(const struct plan *plan, int block, const char *workload, const char *prompt_id);

#endif
