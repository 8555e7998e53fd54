/* The CUDA backend's own state, shared by cuda.c (operations), open.c (loading), memory.c (what it takes), batch.c
 * (what a call is about), layers.c (a stack of layers over a batch), halves.c (a small model's over a single row),
 * recurrence.c (its recurrent layers), context.c (what the drafter is handed), calls.c (from a batch to the choice of
 * tokens), likeliest.c (what the host reads of rows) and graph.c (calls captured once).
 *
 * Tensor parallelism. Each rank holds a slice of the weights and caches; what all ranks know alike (the residual
 * stream, features, what a call is about) is once on each GPU. Either every rank has a GPU of its own, or all share
 * one: then the one stream runs them one after another between two reductions. Pointers are to a GPU's memory unless
 * they say `host`. */
#ifndef COLLECT_ENGINE_CUDA_CUDA_H
#define COLLECT_ENGINE_CUDA_CUDA_H

#include "collect/engine/backend.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/kernels.h"
#include "collect/engine/cuda/product.h"
#include "collect/engine/cuda/recurrence.h"

#define CUDA_PROMPT_CHUNK 2048 /* the most rows of a prompt that run together */
#define CUDA_AHEAD 2           /* steps whose choices stand in the ring at a time */

/* Those of attention are NULL in a recurrent layer, and the other way round. */
struct layer_weights {
    float *input_norm, *post_attention_norm; /* [hidden_size] */
    float *q_norm, *k_norm;                  /* [head_size] */
    void *qkv;                               /* [layers_qkv_width(), hidden_size] */
    void *o;                                 /* [hidden_size, heads * head_size] */
    void *recurrent_in;                      /* [recurrent_in_width(), hidden_size] */
    void *recurrent_out;                     /* [hidden_size, recurrent_values()] */
    void *gate_up;                           /* [2 * inner, hidden_size] */
    void *down;                              /* [hidden_size, inner] */
};

/* A rank's slice of a stack of decoder layers with its caches: the target's or the drafter's. */
struct layers {
    const struct model *model;
    int heads, kv_heads, inner;                         /* this rank's query heads, KV heads, MLP columns */
    int kv_slice;                                       /* which KV heads; ranks share one where there are fewer */
    struct layer_weights *weights;                      /* host [layer_count] */
    void *context;                                      /* a drafter's K and V rows of all layers, or NULL */
    float *k_norms;                                     /* the same layers': [layer_count, head_size], or NULL */
    struct product *qkv, *o, *gate_up, *down, *project; /* project: with `context` */
    struct product *recurrent_in, *recurrent_out;
    void *keys, *values; /* [layer that attends, session, kv_head, capacity, head_size] */
    struct recurrence recurrence;
};

struct rank {
    int index;
    struct layers target, drafter;
    void *head; /* [vocabulary_size / ranks, hidden_size] */
    void *fuse; /* columns of the drafter's fc: [hidden_size, feature_count * hidden_size / ranks] */
    struct product *head_product, *fuse_product;

    /* On the way; rows: most_rows. */
    float *fused;             /* [rows, widest]: what a product answers */
    void *queries;            /* [rows, heads * head_size] */
    void *attended;           /* the same */
    void *gated;              /* [rows, inner] */
    float *partial;           /* attention's parts */
    float *sums[3];           /* [rows, hidden_size]: what attention, the MLP and fc add; read by other GPUs */
    float *logits;            /* [head_rows, vocabulary_size / ranks] */
    void *choose_partial;     /* of head_rows rows */
    struct leader *leaders;   /* [rows]: the slice's best token; read by other GPUs */
    void *top_partial;        /* of head_rows rows */
    int *top_tokens;          /* host, pinned: the slice's likeliest of a draft's rows, or of those that are chosen for;
                               * the longer of [sessions * block_size, draft_width] and [sessions * nodes, top_width] */
    float *top_logits;        /* the same */
    struct row_sum *top_sums; /* host, pinned: of those rows */
};

/* Small things of a call, gathered in pinned memory and sent by one copy to every GPU. Each kind of call has its own,
 * since a call may be made ready while another's copy still waits. */
struct staging {
    char *host;
    size_t used, size;
};

enum call { CALL_PROMPT, CALL_STEP, CALL_DRAFT, CALL_VERIFY, CALL_COMMIT, CALL_COUNT };

/* The rows of a call. */
struct batch {
    int rows, segment_count, tile_count, words;
    int longest;                                /* rows of a segment at most */
    int reach;                                  /* positions and rows that a segment ends behind at most */
    bool advances;                              /* the rows are committed as they run */
    int *tokens, *positions, *sessions, *slots; /* [rows] */
    struct attention_segment *segments;         /* [segment_count] */
    struct attention_tile *tiles;               /* [tile_count] */
    uint64_t *visible;                          /* [rows, words] */
    int16_t *near;                              /* [rows, RECURRENT_NEAR], or NULL: struct recurrent_call's */
    struct choose_row *how;                     /* [rows] */
};

/* The rows [first, first + count) of a batch for which tokens are chosen, and by whom. */
struct asked {
    int first, count;
    bool limited; /* by the host: top-k or top-p limits some session's vocabulary */
    bool listed;  /* among the likeliest, as far as they settle it */
    int head;     /* from which of the rows on logits stand on the GPUs; -1: of none */
};

/* The kept rows of all paths, each path padded to the most that a round keeps; rows behind it have slot -1. */
struct kept {
    int count, path_count;             /* rows, of all paths */
    struct compact_path *paths;        /* [path count] */
    int *nodes, *rows;                 /* [count]: within the segment; of the batch */
    int *positions, *sessions, *slots; /* [count] */
};

struct gpu {
    int ordinal;
    cudaStream_t stream;
    struct product_library *library;
    struct rank *ranks; /* host [rank_count] */
    int rank_count;
    void *embedding;              /* [vocabulary_size, hidden_size] */
    float *norm, *drafter_norm;   /* [hidden_size] */
    float *hidden_norm;           /* the drafter's: [hidden_size] */
    float *cosines[2], *sines[2]; /* of target and drafter: [capacity, rotary_size / 2] */
    char *staging[CALL_COUNT];
    struct batch batch; /* the call's, on this GPU */
    struct kept kept;
    struct meeting meeting; /* with the other GPUs */
    unsigned *mailbox; /* what they send: [2, GPUs, peers_mailbox_words()]; or, by NCCL, one rank's behind another's */
    float *x;          /* [rows, hidden_size]: the residual stream */
    void *input;       /* [rows, hidden_size]: what a product reads */
    void *normed;      /* [rows, hidden_size]: what the head reads */
    float *squares;    /* [PRODUCT_OWN_ROWS, tiles]: of x, by tiles, where few rows are left unnormed */
    void *features;    /* [rows, feature_count * hidden_size] */
    void *kept_features;                    /* the same for paths */
    unsigned *steps;                        /* of `auto`, that this GPU has made */
    cudaGraphExec_t *graphs[CALL_COUNT][2]; /* host [sessions]: of 1, 2, ... sessions, near ones and far ones */
};

struct cuda {
    struct backend base;
    struct backend_options options;
    enum element type;
    bool shared;        /* all ranks on one GPU, and more than one */
    bool singles;       /* single rows have kernels of their own: bfloat16, and widths that they take */
    int mlp_clusters;   /* of mlp_half.cu, by which the target's single rows go near the caches' beginning; or 0 */
    bool few;           /* few rows go through the own kernels alone: bfloat16, one rank */
    json_t *algorithms; /* of products, chosen so far */
    struct gpu *gpus;
    int gpu_count;
    struct nccl *nccl;                               /* between GPUs that do not reach each other's memory, or NULL */
    unsigned *lost;                                  /* host, pinned: not 0 where a GPU waited for another too long */
    int64_t answer_limit_ns;                         /* a GPU that takes longer is lost */
    int most_rows, head_rows;                        /* of a batch; whose logits exist at a time */
    int block;                                       /* slots of the drafter's block that was captured */
    int path_rows;                                   /* the most rows that a round of the engine's keeps of a session */
    int top_width;                                   /* tokens of a row that are listed for top-k and top-p; 0: none */
    size_t weight_bytes, cache_bytes, scratch_bytes; /* of all GPUs together */
    size_t state_bytes;                              /* of the sessions' recurrent states and windows, the same */

    /* Sessions, host [session]: committed positions; where the session's rows of the last batch begin. */
    int *lengths, *first_rows;
    struct sampling *sampling;

    /* The call that runs. */
    struct staging staging[CALL_COUNT];
    struct batch host; /* the last batch */
    struct kept host_kept;
    int *block_tokens;                   /* host [sessions * block_size] */
    struct segment *block_segments;      /* host [sessions] */
    struct segment *padded;              /* host [sessions] */
    int *padded_tokens, *padded_parents; /* host [sessions * nodes] */
    int *row_of;                         /* host [rows]: where the rows that were asked for stand in the batch */
    bool drafted;                        /* the last batch was a draft's */
    struct choice *choices;              /* host, pinned [rows] */
    struct asked asked;
    float *row_logits;             /* host, pinned [vocabulary_size] */
    struct sample_scratch scratch; /* host */
    struct watch *watch;           /* NULL: nobody looks at what the GPUs do when */
    bool commit_waits;             /* a commit was queued and not waited for; between these: */
    cudaEvent_t marks[2];

    /* `auto` runs ahead: the GPU feeds its choice back and the host reads it from a ring one step behind. */
    struct {
        bool follows;        /* the GPU has what the step behind the last that was answered needs, or runs it */
        int count;           /* its sessions */
        unsigned answered;   /* steps read from the ring */
        unsigned launched;   /* steps queued */
        int *given, *last;   /* host [sessions]: the tokens that the last answered step was given, and chose */
        struct choice *ring; /* host, pinned [CUDA_AHEAD, sessions] */
        cudaEvent_t done[CUDA_AHEAD];
    } ahead;
};

/* Loops over the GPUs, each made current, and over a GPU's ranks. */
#define FOR_GPUS(cuda, gpu)                                                                                            \
    for (struct gpu *gpu = (cuda)->gpus; gpu < (cuda)->gpus + (cuda)->gpu_count && cuda_select(gpu); gpu++)
#define FOR_RANKS(gpu, rank) for (struct rank *rank = (gpu)->ranks; rank < (gpu)->ranks + (gpu)->rank_count; rank++)

static inline bool cuda_select(const struct gpu *gpu)
{
    CUDA_CHECK(cudaSetDevice(gpu->ordinal));
    return true;
}

static inline int layers_head_width(const struct layers *layers)
{
    return layers->heads * layers->model->head_size;
}

static inline int layers_kv_width(const struct layers *layers)
{
    return layers->kv_heads * layers->model->head_size;
}

/* Columns of a query head in `fused`, with its gate where it has one; of all query heads; and of keys and values, too.
 */
static inline int layers_query_size(const struct layers *layers)
{
    return layers->model->head_size * (layers->model->gated_attention ? 2 : 1);
}

static inline int layers_query_width(const struct layers *layers)
{
    return layers->heads * layers_query_size(layers);
}

static inline int layers_qkv_width(const struct layers *layers)
{
    return layers_query_width(layers) + 2 * layers_kv_width(layers);
}

/* How many layers of its kind a layer has before it. */
static inline int layers_place(const struct layers *layers, int layer)
{
    const enum model_layer_kind *kinds = layers->model->kinds;
    int place = 0;
    for (int i = 0; i < layer; i++)
        place += kinds[i] == kinds[layer];
    return place;
}

/* How many layers attend. */
static inline int layers_attending(const struct layers *layers)
{
    return layers->model->layer_count - layers->model->recurrent_count;
}

/* Rows that recurrent layers keep until a commit. */
static inline int recurrent_kept_rows(const struct cuda *cuda)
{
    return cuda->options.sessions * cuda->options.nodes;
}

struct backend *cuda_open(const struct backend_options *options, struct error *error);
void cuda_close(struct backend *backend);
json_t *cuda_describe(const struct backend *backend);
json_t *cuda_describe_device(const char *device, enum engine_dtype dtype);

/* --- load.c ----------------------------------------------------------------------------------------------------- */

void load_weights(struct cuda *cuda, struct gpu *gpu);
void load_rotation(const struct cuda *cuda, const struct gpu *gpu, bool drafter);

/* --- peers.c ---------------------------------------------------------------------------------------------------- */

/* Whether GPUs meet or have NCCL; -1 where there is neither. */
int peers_open(struct cuda *cuda, struct error *error);
void peers_close(struct cuda *cuda);

/* Words that a GPU may send another at a time. */
size_t peers_mailbox_words(const struct cuda *cuda);

/* Tells each GPU where the others' mailboxes are, once there is memory. */
void peers_introduce(struct cuda *cuda);

/* Queues that all ranks' sums[which][rows, hidden_size], or leaders[rows], come to every GPU, where no meeting brings
 * them; and where the kernel that needs them finds each rank's: NULL where the meeting does. */
void peers_send_sums(const struct cuda *cuda, int which, int rows);
void peers_find_sums(const struct cuda *cuda, const struct gpu *gpu, int which, int rows, const float **sums);
void peers_send_leaders(const struct cuda *cuda, int rows);
void peers_find_leaders(const struct cuda *cuda, const struct gpu *gpu, int rows, const struct leader **leaders);

/* --- ready.c ---------------------------------------------------------------------------------------------------- */

/* Makes the rank's products, once its weights are there. */
void ready_products(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank);

/* --- rates.c ---------------------------------------------------------------------------------------------------- */

int cuda_measure_rates(const char *device, int ranks, enum engine_dtype dtype, struct backend_rates *rates,
                       struct error *error);
int cuda_list_gpus(const char *device, int ranks, char (*ids)[BACKEND_GPU_ID_SIZE]);

/* --- watch.c ---------------------------------------------------------------------------------------------------- */

enum watch_level { WATCH_CALLS, WATCH_PARTS };

/* Where somebody watches at that level, the GPU notes when it comes here; name: of what begins, a literal; NULL:
 * nothing does. */
void watch_mark(const struct cuda *cuda, const struct gpu *gpu, enum watch_level level, const char *name);
void watch_destroy(struct watch *watch);
int64_t cuda_busy_ns(struct backend *backend, int64_t *until_ns);
int cuda_measure_parts(struct backend *backend, enum backend_step step, struct backend_part *parts, int maximum);

/* --- cuda.c ----------------------------------------------------------------------------------------------------- */

/* Waits for all GPUs; ends in die() where one does not answer in time. */
void cuda_wait(const struct cuda *cuda);

/* Waits for what was queued, and forgets what ran ahead. */
void cuda_settle(struct cuda *cuda);

void cuda_wait_for(const struct cuda *cuda, cudaEvent_t event);

/* --- calls.c ---------------------------------------------------------------------------------------------------- */

/* Queues a call, from the batch's copy on: what is captured. */
void calls_queue(struct cuda *cuda, enum call call);

/* Queues the segments' rows through the target: a prompt's piece, or what no graph has the shape of. */
void calls_run_target(struct cuda *cuda, const struct segment *segments, int count);

/* Makes the segments a batch of the target's, whose rows stand as they were asked for. */
void calls_make_target(struct cuda *cuda, enum call call, const struct segment *segments, int count);

/* Whether top-k or top-p limits what some session's tokens are chosen from. */
bool calls_are_limited(const struct cuda *cuda, const struct segment *segments, int count);

/* Says which rows of the batch of these segments are to be chosen for; queues what comes before the answers, unless a
 * graph has it; and once that was waited for, the choice of row first + index. */
void calls_ask(struct cuda *cuda, const struct segment *segments, int segment_count, int first, int count);
void calls_choose(struct cuda *cuda);
struct choice calls_answer(struct cuda *cuda, int index);

/* Columns of a rank's slice of the vocabulary that may be chosen. */
int calls_columns(const struct cuda *cuda, const struct rank *rank);

/* Queues the copy of row `at` of the logits, all slices, to out[vocabulary_size] on the host. */
void calls_read_logits(struct cuda *cuda, int at, float *out);

/* --- likeliest.c ------------------------------------------------------------------------------------------------ */

/* Queues the lists of the likeliest tokens of the batch's rows [first, first + count), each slice's to the host: of a
 * draft, draft_width of each, otherwise top_width. Once that was waited for: */
void likeliest_list(struct cuda *cuda, bool drafter, int first, int count);

/* The `width` likeliest tokens of the row-th listed of a draft, and their log-probabilities. */
void likeliest_read_draft(const struct cuda *cuda, int row, int width, int *tokens, float *log_probabilities);

/* sample_choose() of the row-th listed; false where the list does not settle it. */
bool likeliest_choose(struct cuda *cuda, int row, const struct sampling *sampling, int position, struct choice *choice);

/* --- ahead.c ---------------------------------------------------------------------------------------------------- */

/* One step of segments of one row each; the step after it is queued as well, where there is room. */
void ahead_step(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen);

/* What runs ahead, or would follow, is not wanted: the next batch is made anew. */
void ahead_drop(struct cuda *cuda);

/* --- inspect.c -------------------------------------------------------------------------------------------------- */

void cuda_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out);
void cuda_run_products(struct backend *backend, enum backend_step step, const int *parents, int rows, int committed);

/* --- memory.c --------------------------------------------------------------------------------------------------- */

/* Sets the numbers of rows, and plans and takes all memory but the weights'; -1 where it does not fit. */
int memory_take(struct cuda *cuda, struct error *error);
void memory_give_back(struct cuda *cuda);

/* --- batch.c ---------------------------------------------------------------------------------------------------- */

/* The most bytes that a batch of `rows` rows in `segments` segments of at most `longest` takes. */
size_t batch_bytes(int rows, int segments, int longest, int group, bool recurrent);

/* Makes the segments the batch of this call, for a model's heads. whole: every row of a segment sees all of the
 * segment's; otherwise trees or causal runs by their parents. tokens NULL: zeros. */
void batch_make(struct cuda *cuda, enum call call, const struct model *model, const struct segment *segments, int count,
                bool whole);

/* Makes the paths the kept rows of the commit, `rows` each. */
void batch_keep(struct cuda *cuda, const struct kept_path *paths, int count, int rows);
size_t batch_keep_bytes(int paths, int rows);

/* Queues the copy of what was made to every GPU. */
void batch_send(struct cuda *cuda, enum call call);

/* --- layers.c --------------------------------------------------------------------------------------------------- */

/* Embeds the batch's tokens, runs all layers, and norms into `normed`; keeps the features where there is a drafter and
 * the layers are the target's. */
void layers_run(struct cuda *cuda, bool drafter);

/* Logits of the batch's rows [first, first + count), at most head_rows, behind the target's or the drafter's layers;
 * each rank's slice. */
void layers_run_head(struct cuda *cuda, bool drafter, int first, int count);

/* --- halves.c --------------------------------------------------------------------------------------------------- */

/* Finds out whether single rows go through halves of layers. */
void layers_ready_halves(struct cuda *cuda);

/* --- context.c -------------------------------------------------------------------------------------------------- */

/* Writes the drafter's keys and values of every layer for features[rows, feature_count * hidden_size] of each GPU:
 * kept_features at the kept rows, or all features of the batch. */
void layers_add_context(struct cuda *cuda, bool kept);

/* --- products_alone.c ------------------------------------------------------------------------------------------- */

/* The products of layers_run(), with attention's, and those of layers_add_context(). */
void layers_run_products(struct cuda *cuda, bool drafter);
void layers_run_context_products(struct cuda *cuda, int rows);

/* --- graph.c ---------------------------------------------------------------------------------------------------- */

/* Captures every call of 1 to `sessions` sessions, once all weights are there. */
void graph_capture_all(struct cuda *cuda);
void graph_launch(struct cuda *cuda, enum call call, int sessions);

/* Makes a batch of the call's shape for sessions 0, 1, ...; where steps ran that nobody waits for, they begin anew. */
void graph_shape(struct cuda *cuda, enum call call, int sessions);
void graph_restart_steps(struct cuda *cuda);
void graph_destroy_all(struct cuda *cuda);

#endif
