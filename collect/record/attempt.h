/* The attempt file: one arm in one block at its n-th try, as JSON Lines (schema cleanslate.attempt/1).
 *
 * First line: the header. Then samples and telemetry, each written by one write and fsynced outside the timed region.
 * Last line: the end. A file without an end line is INCOMPLETE; a torn last line is never read as data. Everything is
 * missing until it is said: absent counts and times are -1, absent arrays NULL, and never 0. */
#ifndef COLLECT_RECORD_ATTEMPT_H
#define COLLECT_RECORD_ATTEMPT_H

#include "collect/base/error.h"
#include "collect/base/file.h"
#include "collect/record/arm.h"
#include "collect/record/observed.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ATTEMPT_SCHEMA "cleanslate.attempt/1"
#define ATTEMPT_IMPORT_KIND "import" /* "kind" of the source */
#define ATTEMPT_ABSENT (-1)
#define ATTEMPT_BLOCK_MAXIMUM 1000 /* a plan has no more: tables have a column for each */
#define ATTEMPT_TRY_MAXIMUM 1000000

enum stage { STAGE_DRAFT, STAGE_BUILD, STAGE_VERIFY, STAGE_COMMIT, STAGE_COUNT };
extern const char *const stage_names[STAGE_COUNT];

enum finish { FINISH_ABSENT, FINISH_LENGTH, FINISH_STOP, FINISH_ABORT, FINISH_COUNT };
extern const char *const finish_names[FINISH_COUNT]; /* finish_names[FINISH_ABSENT] is NULL */

#define SAMPLE_CANCELLED "CANCELLED" /* error code of a request that the client cut off on purpose */

/* One request. Times are nanoseconds; start and end count from the attempt's start. */
struct sample {
    const char *workload, *prompt; /* the prompt's id within the workload; name_keep() has both */
    bool warmup;                   /* recorded, never analysed */
    bool ok;                       /* outcome "ok"; else `error_*` say why */
    char *error_code;              /* a rule's id where one fits: "CONTEXT_OVERFLOW"; NULL where ok */
    int error_http_status;
    char *error_message;

    int asked_tokens; /* max_new_tokens */
    bool asked_ignore_eos;
    int prompt_tokens, cached_tokens;

    int tokens;       /* emitted: cut at the end token or the limit */
    int first_tokens; /* tokens of the first delivery, which prefill pays for: 1 in the engine */
    int *token_ids;   /* tokens */
    float *margins;   /* tokens: how far each chosen token's logit lay above the runner-up's; NaN: unknown */
    enum finish finish;

    int64_t start_ns, ttft_ns, decode_ns, end_ns, stall_ns;
    int rounds;
    int *accepted;                  /* rounds: tokens each round committed, bonus included, uncut */
    int64_t committed;              /* their sum, as the reader makes it; -1: not known */
    int64_t stages_ns[STAGE_COUNT]; /* summed over the rounds */
    int64_t communicate_ns;         /* between ranks; part of the stages */

    int chunks;        /* deliveries that held tokens */
    int64_t *chunk_ns; /* chunks: when each came, from the request's start */
    int *chunk_tokens; /* chunks: tokens in each */
};

#define TELEMETRY_DEVICES_MAXIMUM 64

/* A reading of a device while the attempt ran. */
struct telemetry {
    int64_t time_ns;  /* from the attempt's start; -1: unknown */
    int device;       /* from 0 */
    double clock_mhz; /* of its multiprocessors; NaN: unknown, as the four below */
    double temperature_c, power_w, memory_bytes;
    double energy_j; /* counted since some time before the attempt */
    bool slowdown;   /* by heat, or by the hardware to protect itself */
    bool power_cap;
};

/* How the outputs of an attempt stood up to rescoring by plain causal extension, outside all timing. */
struct audit {
    bool done;
    double
        regret_max; /* nats of logit: how far the chosen token lay below the best, at worst; NaN: not a finite number */
    int64_t tokens; /* rescored */
};

/* What one attempt says of one workload: which attempts may be pooled with it, and compared. */
struct attempt_workload {
    const char *name;   /* name_keep() has it */
    char *cell_hash;    /* must agree to be pooled */
    char *compare_hash; /* must agree to be compared: the same without what belongs to the arm */
    int common_tokens;  /* with which all prompts begin alike; -1: unknown */
};

struct attempt {
    char *id; /* "demo/tp1-b16/1-1": run, arm, block-try */
    char *path;
    struct arm arm;
    int block, try_number; /* both from 1 */
    int position;          /* place within its block, from 1 */
    char *started;         /* RFC 3339 UTC; NULL where an imported file does not say */
    char *boot_id;
    struct attempt_workload *workloads;
    int workload_count;
    json_t *header; /* the whole first line: source, machine, memory */

    struct sample *samples; /* in the order of the file, warm-up included */
    int sample_count;
    struct telemetry *telemetry;
    int telemetry_count;
    bool complete;                    /* an end line with status "complete", and as many samples as it says */
    char *end_status;                 /* NULL where there is no end line */
    char *error_code, *error_message; /* of one that "failed": a rule's id, and why; NULL: none */
    struct audit audit;
    struct observed observed;
    int64_t torn_bytes;          /* of a last line without its newline, not read */
    char sha256[FILE_HASH_SIZE]; /* of the file's bytes, as they were read */
};

void sample_init(struct sample *sample); /* everything absent */
void sample_free(struct sample *sample);

/* The sample as its line in the file. A new reference. */
json_t *sample_to_json(const struct sample *sample);

/* Reads the file at `path`. Answers -1 where it is no attempt, or says something that cannot be; then `attempt` is
 * empty. */
int attempt_read(const char *path, struct attempt *attempt, struct error *error);
void attempt_free(struct attempt *attempt);

const struct attempt_workload *attempt_find_workload(const struct attempt *attempt, const char *workload);

/* Whether it was read from another tool's file; and whether that had no requests, so that `observed` is all there is.
 */
bool attempt_is_imported(const struct attempt *attempt);
bool attempt_is_stated(const struct attempt *attempt);

/* The next measured sample of the workload, ok or not, from index *at on, which begins at 0; NULL behind the last.
 * Never warm-up. */
const struct sample *attempt_next_sample(const struct attempt *attempt, const char *workload, int *at);

/* --- writing ------------------------------------------------------------------------------------------------------ */

struct attempt_writer;

/* Creates the file, in a folder that exists, with its header line (type and schema are added; the reference is taken
 * over). Refuses a path that exists. */
struct attempt_writer *attempt_writer_open(const char *path, json_t *header, struct error *error);

/* One line more: a sample's or a telemetry's. Takes over the reference, also where it fails; nothing can follow a
 * failure. */
int attempt_writer_add(struct attempt_writer *writer, json_t *line, struct error *error);

/* The same with an array of at least one line, in one write. */
int attempt_writer_add_all(struct attempt_writer *writer, json_t *lines, struct error *error);

/* How an attempt ended. `status`: "complete"; "aborted": cut off from outside, which is no try; "failed": the source
 * could not go on, for the reason in error_*. NULL: absent. */
struct attempt_end {
    const char *status;
    const char *error_code, *error_message;
    const struct audit *audit;
    const struct observed *observed;
};

/* Writes the end line (how many samples there are, warm-up included, and how many of them failed), closes, and answers
 * the file's SHA-256 in hex[FILE_HASH_SIZE]. Without this call the file stays INCOMPLETE. Frees the writer either way.
 */
int attempt_writer_end(struct attempt_writer *writer, const struct attempt_end *end, char *hex, struct error *error);

/* Closes without an end line. */
void attempt_writer_abandon(struct attempt_writer *writer);

#endif
