/* The validity rules: one table (rule_table.c) of all that the project has, each with its scope, what it voids, level,
 * default and explanation.
 *
 * A rule that fires gives a verdict: what it saw, against which threshold. An invalid verdict voids the rule's metrics
 * in its scope and no more; a suspect one marks them. Rules of scope sample to attempt judge an attempt by itself, some
 * of scope pair an attempt beside its baseline; the others need the view over a whole run, and are applied by those who
 * have it (rule_run.c, analyze). */
#ifndef COLLECT_RECORD_RULE_H
#define COLLECT_RECORD_RULE_H

#include "collect/base/error.h"
#include "collect/record/attempt.h"

#include <jansson.h>
#include <stdbool.h>

enum rule_scope { RULE_SAMPLE, RULE_WORKLOAD, RULE_ATTEMPT, RULE_PAIR, RULE_BLOCK, RULE_CELL, RULE_RUN };
extern const char *const rule_scope_names[]; /* "sample" to "run" */

enum rule_level { RULE_VALID, RULE_NOTE, RULE_SUSPECT, RULE_INVALID };
extern const char *const rule_level_names[]; /* "valid", "note", "suspect", "invalid" */

/* What a rule voids: a bit set. */
enum rule_metric {
    RULE_VOIDS_NONE = 0,
    RULE_VOIDS_TIMES = 1,       /* TPOT, tokens/s, stages, and the speedup made of them */
    RULE_VOIDS_TAU = 2,         /* acceptance */
    RULE_VOIDS_TTFT = 4,        /* time to first token, end-to-end */
    RULE_VOIDS_SPEEDUP = 8,     /* the comparison alone */
    RULE_VOIDS_SCALING = 16,    /* comparisons of different numbers of ranks */
    RULE_VOIDS_ITL = 32,        /* time between deliveries */
    RULE_VOIDS_THROUGHPUT = 64, /* of all requests together */
    RULE_VOIDS_PEAK = 128,
    RULE_VOIDS_ALL = 255,
};

enum rule_id {
    RULE_INCOMPLETE,
    /* Why, before what follows from it: the first that is invalid is told as the reason. */
    RULE_CONTEXT_OVERFLOW,
    RULE_SERVER_DIED,
    RULE_OUT_OF_MEMORY,
    RULE_SILENT,
    RULE_ALL_FAILED,
    RULE_ZERO_TOKENS,
    RULE_EMPTY_STREAM,
    RULE_ZERO_LATENCY,
    RULE_INBAND_ERROR,
    RULE_TOKENS_MISMATCH,
    RULE_CLOCK,
    RULE_FAILED_REQUEST,
    RULE_OUTPUT_SHORT,
    RULE_OUTPUT_LONG,
    RULE_ACCEPT_OUT_OF_RANGE,
    RULE_ACCEPT_SUM,
    RULE_OUTPUT_DIVERGES,
    RULE_AUDIT_REGRET,
    RULE_REPETITION,
    RULE_PAST_EOS,
    RULE_COLD_FIRST,
    RULE_SHORT_RUN,
    RULE_THROTTLED,
    RULE_SYNTHETIC_ACCEPTANCE,
    RULE_SHARED_DEVICE,
    RULE_TOO_FEW_REQUESTS,
    RULE_PREFIX_CACHE_HIT,
    RULE_ITL_PER_CHUNK,
    RULE_CONCURRENCY_CAPPED,
    RULE_CACHE_STARVED,
    RULE_LITTLES_LAW,
    RULE_PEAK_LT_MEAN,
    RULE_COUNTER_RESET,
    RULE_SPEC_METRICS_MISSING,
    RULE_DECLARED_INVALID,
    RULE_SOURCE_DAMAGED,
    RULE_TIMES_UNKNOWN,
    RULE_PREFILL_INCLUDED,
    RULE_UNPAIRED_IMPORT,
    RULE_MIXED_SERVERS,
    RULE_WITHDRAWN,
    RULE_TAMPERED,
    RULE_VANISHED,
    RULE_SUPERSEDED,
    RULE_DUPLICATE,
    RULE_NOT_MEASURED,
    RULE_FINGERPRINT,
    RULE_MIXED_DEVICES,
    RULE_UNPAIRED_RERUN,
    RULE_NO_SHARED_PROMPT,
    RULE_MIN_BLOCKS,
    RULE_SPEEDUP_GT_ACCEPT,
    RULE_KNOB_NO_EFFECT,
    RULE_DRIFT,
    RULE_COUNT
};

struct verdict {
    enum rule_id rule;
    enum rule_level level;
    char *workload;             /* NULL: the whole attempt */
    double observed, threshold; /* NaN where the rule has no number */
    char *detail;               /* one line: what was seen, with the sample's prompt where it was one */
    char *time;                 /* when it was found, where the ledger says so; NULL: when the attempt was measured */
    bool by_user;               /* a person's, not a rule's */
};

struct verdicts {
    struct verdict *items;
    int count;
};

/* Thresholds of a plan: {"REPETITION": 0.2}. threshold[i] is NaN where the table's default holds. */
struct rule_settings {
    double threshold[RULE_COUNT];
};

typedef void rule_judge(const struct attempt *attempt, double threshold, struct verdicts *verdicts);
typedef void rule_judge_beside(const struct attempt *attempt, const struct attempt *baseline, double threshold,
                               struct verdicts *verdicts);

struct rule {
    const char *id; /* "ZERO_TOKENS" */
    int version;
    enum rule_scope scope;
    unsigned voids;          /* bit set of enum rule_metric */
    enum rule_level level;   /* what it gives by default */
    double threshold;        /* NaN: none */
    double settable_to;      /* a plan may set the threshold, from 0 to this; 0: it may not */
    const char *explanation; /* a sentence for the report */
    /* At most one of the two: appends verdicts for `attempt` alone, or for `attempt` beside `baseline`. Neither: what
     * only ledger and run folder together can tell, which run_read() does, or only all attempts, which analyze does. */
    rule_judge *judge;
    rule_judge_beside *judge_pair;
    bool recurs; /* what made it fire does so again: nothing is gained by another try */
};

extern const struct rule rule_table[RULE_COUNT];

/* The rule of that id, or -1. */
int rule_find(const char *id);

/* Reads a plan's "rules" object (NULL: none); an unknown id, or one that has no threshold, is refused. */
int rule_settings_read(const json_t *object, const char *where, struct rule_settings *settings, struct error *error);

/* Appends what the rules of scope sample, workload and attempt see. settings NULL: the table's defaults. What a
 * threshold of the plan lets pass and the default would not is marked one level lower. */
void rule_judge_attempt(const struct attempt *attempt, const struct rule_settings *settings, struct verdicts *verdicts);

/* Appends what the rules of scope pair see in `attempt` beside the baseline of the same block. */
void rule_judge_pair(const struct attempt *attempt, const struct attempt *baseline,
                     const struct rule_settings *settings, struct verdicts *verdicts);

/* The same for a rule that sees more than attempts: `see` appends what it finds in `context` at a threshold. */
typedef void rule_see(const void *context, double threshold, struct verdicts *verdicts);
void rule_judge_by(enum rule_id rule, const struct rule_settings *settings, rule_see *see, const void *context,
                   struct verdicts *verdicts);

/* The worst level among verdicts that void any of `metrics` for `workload` (NULL: for all of the attempt); RULE_VALID
 * where none does. */
enum rule_level rule_worst(const struct verdicts *verdicts, const char *workload, unsigned metrics);

/* The verdict as JSON, as the ledger and the summary carry it: rule, rule_version, level, workload, observed,
 * threshold, detail. */
json_t *verdict_to_json(const struct verdict *verdict);

void verdicts_add(struct verdicts *verdicts, enum rule_id rule, enum rule_level level, const char *workload,
                  double observed, double threshold, const char *format, ...) __attribute__((format(printf, 7, 8)));
void verdicts_free(struct verdicts *verdicts);

#endif
