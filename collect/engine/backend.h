/* What a device must do for the engine. decode.c holds the methods over them and knows no device.
 *
 * Everything is a tree. An autoregressive step verifies one node, a linear block a path, DDTree a tree; a prompt is
 * appended as a causal run. Several sessions may take part in a call; each has a committed cache of some length, and
 * what a call adds to it is not committed until `extend` returns or `commit` says which path to keep.
 *
 * Numbers. `float32`: everything in float32. `bfloat16`: weights, and whatever enters a product, are rounded to
 * bfloat16 (nearest even): normalised rows, rotated queries and keys, values, attention's weights and its output, the
 * gated product of the MLP, the drafter's features. Products accumulate in float32, and the residual stream, norms,
 * softmax, logits and log-probabilities are float32 in both. The caches hold keys (rotated) and values in the mode's
 * type. In recurrent layers what the convolution reads is rounded, and all behind it is float32 until the gated norm's
 * output: lengths, decays, states.
 *
 * Operations do not fail: what could be refused is refused by open. A broken device ends in die(). */
#ifndef COLLECT_ENGINE_BACKEND_H
#define COLLECT_ENGINE_BACKEND_H

#include "collect/base/error.h"
#include "collect/engine/model.h"
#include "collect/engine/sample.h"
#include "collect/engine/tree.h"

#include <jansson.h>
#include <stdint.h>

enum engine_dtype { ENGINE_FLOAT32, ENGINE_BFLOAT16 };

struct backend_options {
    const struct model *target;
    const struct model *drafter; /* NULL: no drafter is loaded and no features are kept */
    enum engine_dtype dtype;
    const char *device; /* "cuda:0,0,1": the ranks' GPUs; without numbers, and NULL: 0, 1, ... */
    json_t *algorithms; /* what was chosen by timing: read where it fits, added to otherwise; NULL: chosen anew */
    int ranks;          /* tensor-parallel */
    int sessions;
    int capacity;    /* positions a session may hold, uncommitted nodes included */
    int nodes;       /* the most nodes of one session that a verify call brings: 1 + budget, or the block */
    int draft_width; /* the most tokens of a slot that a draft is asked for */
    int vocabulary;  /* tokens that may be chosen: ids from here on are padding rows */
    int candidates;  /* sample_candidates() of the sessions to come; of one that has more, tokens may take longer */
};

/* Rows for one session: a causal run (parents NULL), or a tree whose first row is the root; parents as in struct tree.
 */
struct segment {
    int session;
    int count;
    const int *tokens;  /* [count] */
    const int *parents; /* [count], or NULL */
};

/* The path of a session's last verified tree that is kept, root first. */
struct kept_path {
    int session;
    int length;
    const int *nodes; /* [length] */
};

enum inspect_what {
    INSPECT_LOGITS,   /* of the last extend or verify: [rows, vocabulary_size] */
    INSPECT_FEATURES, /* of the same: [rows, feature_count * hidden_size] */
    INSPECT_DRAFT,    /* logits of the last draft's slots, the anchor's first: [rows, vocabulary_size] */
    INSPECT_STATE,    /* committed states of session `first`: [recurrent layers, value heads, key size, value size] */
};

#define BACKEND_GPU_ID_SIZE 32 /* "0000:1b:00.0" */

enum backend_step { BACKEND_DRAFT, BACKEND_VERIFY, BACKEND_COMMIT };

/* The most that the device was seen to do, all its ranks together. */
struct backend_rates {
    double read_bytes_s;   /* out of memory */
    double product_flop_s; /* one large matrix product in the mode's type */
};

struct backend_part {
    const char *name; /* "qkv", "attention" */
    int64_t ns;
};

struct backend; /* each backend's own; its first member is `const struct backend_class *class` */

struct backend_class {
    const char *name; /* "cpu", "cuda" */
    bool chooses_by_timing;
    bool has_recurrence; /* it can run recurrent layers */

    /* Loads the weights and readies every shape that the options allow, so that no later call allocates. NULL and a
     * message where the memory plan does not fit. */
    struct backend *(*open)(const struct backend_options *options, struct error *error);

    /* What results depend on before anything is loaded: device, threads, the type that products run in
     * ("compute_dtype"). device: as in the options. A new reference. */
    json_t *(*describe_device)(const char *device, enum engine_dtype dtype);

    /* Measures what the device can do at most, with memory of its own: before open, which may take it all. device: as
     * in the options. -1 where it is not there. */
    int (*measure_rates)(const char *device, int ranks, enum engine_dtype dtype, struct backend_rates *rates,
                         struct error *error);

    /* The PCI bus ids of the GPUs that `ranks` ranks run on, into ids[ranks], and how many. Absent: it runs on none. */
    int (*list_gpus)(const char *device, int ranks, char (*ids)[BACKEND_GPU_ID_SIZE]);

    /* The memory plan as it was carried out: bytes of weights and caches, tokens a session may hold; of recurrent
     * layers the sessions' states and a node's scratch. A new reference. */
    json_t *(*describe)(const struct backend *backend);

    /* Empties a session, and says how its tokens are chosen from now on. */
    void (*reset)(struct backend *backend, int session, const struct sampling *sampling);

    /* Appends causal runs, committed at once, features handed to the drafter's cache; chosen[i]: the choice after
     * segment i's last row. */
    void (*extend)(struct backend *backend, const struct segment *segments, int count, struct choice *chosen);

    /* Runs the nodes of each segment over its session's committed cache: position = committed length + depth; a node
     * sees the committed positions, its ancestors and itself. chosen: one per row, segments one after another. */
    void (*verify)(struct backend *backend, const struct segment *segments, int count, struct choice *chosen);

    /* Keeps one root-to-node path of each session's last verify: caches compacted, the path's features to the drafter's
     * cache. May return before that is done: the next call waits for it, and says in late_commit_ns how long it took.
     */
    void (*commit)(struct backend *backend, const struct kept_path *paths, int count);

    /* The drafter's block [anchor, mask, ...] of each session at its committed length: drafts[i] receives slots =
     * block_size - 1 rows of the drafts[i].width likeliest tokens, best first (ties: lowest id), with
     * log-probabilities. */
    void (*draft)(struct backend *backend, const int *sessions, const int *anchors, int count,
                  struct tree_draft *drafts);

    /* Copies rows [first, first + count) of the last call to the host; for tests and audits only. */
    void (*inspect)(struct backend *backend, enum inspect_what what, int first, int count, float *out);

    /* Runs the matrix products of one step of `rows` rows, over a session of `committed` positions, and nothing else:
     * what benchmarks hold that step against. parents: of a verified tree, as in struct segment, since what rows take
     * from their ancestors may be products as well; otherwise NULL. Overwrites what inspect would answer and what is
     * not committed. */
    void (*run_products)(struct backend *backend, enum backend_step step, const int *parents, int rows, int committed);

    /* Waits for the device, notes when that was in *until_ns, and answers how long the device has worked since the call
     * before, which the first call begins to count. Absent: the host is the device. */
    int64_t (*busy_ns)(struct backend *backend, int64_t *until_ns);

    /* What the parts of a step of the most nodes take over session 0's cache, all layers together, into parts[maximum];
     * answers how many there are. Overwrites what is not committed, and session 0's next token. Absent: unknown. */
    int (*measure_parts)(struct backend *backend, enum backend_step step, struct backend_part *parts, int maximum);

    void (*close)(struct backend *backend);
};

struct backend {
    const struct backend_class *class;
    int64_t late_commit_ns; /* of the last call's time: a commit before it; whoever counts it sets it to 0 */
};

extern const struct backend_class backend_cpu;
extern const struct backend_class backend_cuda; /* where CLEANSLATE_CUDA is defined: nvcc was there to build it */

/* -1 and one line where the backend cannot run such a target on any machine. */
int backend_check(const struct backend_class *class, const struct model *target, struct error *error);

/* backend_check() and class->open(), which says on stderr how far it is. */
struct backend *backend_open(const struct backend_class *class, const struct backend_options *options,
                             struct error *error);

/* "cpu"; "cuda" or "cuda:0,1", or NULL and why not; "auto": "cuda" where it can be used. Where a GPU is there but
 * cannot be, "auto" says why on stderr. */
const struct backend_class *backend_find(const char *device, struct error *error);

/* The GPUs that a device such as "cuda:0,0,1" names for the first `ranks` ranks: a new array of numbers, or NULL where
 * it names none. */
json_t *backend_devices(const char *device, int ranks);

#endif
