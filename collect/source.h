/* What can be measured: something that answers requests. The built-in engine is one (collect/engine/source.c); a server
 * over HTTP is another. A campaign drives it without knowing which: open, load an arm, run requests, audit. */
#ifndef COLLECT_SOURCE_H
#define COLLECT_SOURCE_H

#include "collect/base/error.h"
#include "collect/plan.h"
#include "collect/record/attempt.h"

#include "collect/telemetry.h"

#include <jansson.h>

/* Text to be continued, and how. Borrowed strings. */
struct request {
    const char *workload, *prompt_id;
    const char *text;
    int max_new_tokens;
    bool ignore_eos, warmup;
    int limit_s;     /* a request that takes longer is an error */
    uint64_t stream; /* of random numbers, for sources that sample by it: the same for all arms of a block */
};

/* Called outside the timed region as each request ends, with its sample, which the callee takes over and frees. Answers
 * non-zero to stop before the next request. */
typedef int source_on_sample(void *context, struct sample *sample);

/* Why an arm cannot go on where others still may: each ends the attempt under the rule of its name. load() and run()
 * answer one with the reason in `error` (the last words of a server's log); -1 says that nothing more can run. */
enum source_failure { SOURCE_SERVER_DIED = 1, SOURCE_OUT_OF_MEMORY, SOURCE_SILENT };

struct source {
    const struct source_class *class; /* the first member of each source's own struct */
};

struct source_class {
    const char *kind; /* "engine" */

    /* Checks a request before anything runs: the number of prompt tokens (the most that it can be, where only a server
     * that does not run yet could count), or -1 and the numbers where prompt and output do not fit the model's context.
     */
    int (*check_request)(struct source *source, const struct request *request, struct error *error);

    /* The text with filler put in before its byte `at`: as much of the end of `corpus` (over and over where it is too
     * short) as makes the whole exactly `tokens` tokens. free() it. NULL and the numbers where the text alone has more,
     * or where no cut of the corpus fits. A source that cannot count tokens lacks the operation. */
    char *(*fill)(struct source *source, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error);

    /* How the model's template puts chats. A source that does not see the model's files lacks the operation: then as
     * Qwen3's does. */
    int (*chat_style)(struct source *source, struct chat_style *style, struct error *error);

    /* Before describe: the folder of the run, which need not be there yet; what the source chooses once for a run is
     * kept there. A source that chooses nothing lacks the operation. */
    int (*keep)(struct source *source, const char *folder, struct error *error);

    /* What hashes cover of the source, and what the report prints: model files with their hashes, dtype, device. With
     * an arm: all that the arm's cells depend on. arm NULL: what every arm shares, which is what arms must agree in to
     * be compared. A new reference. */
    json_t *(*describe)(struct source *source, const struct arm *arm);

    /* Readies the arm: weights, memory, warm code. `memory` receives the memory plan (a new reference; NULL: unknown).
     * `log` is a path for what a started program writes. 0, -1 or a source_failure. */
    int (*load)(struct source *source, const struct arm *arm, const char *log, json_t **memory, struct error *error);

    /* What the loaded arm says that it is, beyond what hashes cover: kept in the attempt's header under the source's
     * kind. A new reference. A source without more to say lacks the operation. */
    json_t *(*inform)(struct source *source);

    /* Runs the requests, `in_flight` at a time, and delivers their samples in the order of the requests. Failed
     * requests are samples with ok = false. 0, -1 or a source_failure. Called for the warm-up, then for the rest. */
    int (*run)(struct source *source, const struct request *requests, int count, int in_flight,
               source_on_sample *on_sample, void *context, struct error *error);

    /* Rescores ok samples by plain causal extension, outside all timing. A source that cannot leaves audit->done false.
     */
    int (*audit)(struct source *source, const struct request *requests, const struct sample *samples, int count,
                 struct audit *audit, struct error *error);

    /* The GPUs of this machine that the loaded arm runs on: their PCI bus ids into ids[TELEMETRY_DEVICES_MAXIMUM], and
     * how many. A source on none, or none that it knows, lacks the operation. */
    int (*list_gpus)(struct source *source, char (*ids)[TELEMETRY_ID_SIZE]);

    /* What it saw of itself during the last run(): room, counters from before to after, figures of the whole.
     * `observed` is initialised. A source that sees nothing lacks the operation. */
    int (*observe)(struct source *source, struct observed *observed, struct error *error);

    void (*close)(struct source *source);
};

/* The source that the plan names; `device` overrides the plan's where it is not NULL. */
struct source *source_open(const struct plan *plan, const char *device, struct error *error);
void source_close(struct source *source);

#endif
