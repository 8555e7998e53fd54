/* What a campaign measures: the plan's arms and workloads with their prompts loaded, on a source, on this machine; and
 * from all of that the headers of attempts and the two hashes that say which attempts may be pooled and compared. */
#ifndef COLLECT_SUBJECT_H
#define COLLECT_SUBJECT_H

#include "collect/base/file.h"
#include "collect/machine.h"
#include "collect/plan.h"
#include "collect/prompt.h"
#include "collect/source.h"

#include <jansson.h>

/* Where a plan has tuning blocks, they and the blocks that are reported share the prompts of each workload. */
enum subject_part { SUBJECT_REPORTED, SUBJECT_TUNING };

struct subject {
    const struct plan *plan; /* borrowed, as the source is */
    struct source *source;
    enum subject_part part;
    struct prompts *prompts; /* workload_count: the whole file of each, those that are measured first */
    int *prompt_counts;      /* how many of them are */
    char boot_id[MACHINE_BOOT_ID_SIZE];
    json_t **headers; /* arm_count: what the headers of an arm's attempts have in common, with all workloads */
};

/* Reads the prompt files and asks the source what it is; runs nothing. `subject` is empty after an error. */
int subject_open(const struct plan *plan, struct source *source, enum subject_part part, struct subject *subject,
                 struct error *error);
void subject_close(struct subject *subject);

/* How many prompts of the workload are measured. */
int subject_prompt_count(const struct subject *subject, int workload);

/* 64 hexadecimal digits, borrowed. */
const char *subject_cell_hash(const struct subject *subject, int arm, int workload);

/* Whether each prompt with its output fits the source's context; the message has the numbers of the first that does
 * not. */
int subject_check_prompts(const struct subject *subject, struct error *error);

/* The request for prompt `index` of a workload. Borrows from the subject. */
struct request subject_request(const struct subject *subject, int workload, int index);

/* As headers have it: {"name", "tensor_parallel", "method", "budget", "concurrency"}. A new reference. */
json_t *subject_describe_arm(const struct arm *arm);

/* What the cell hash of `workload` covers, taken from the header of an attempt: {"arm", "workload", "sampling",
 * "source", "machine", "build"}. A new reference. */
json_t *subject_cell(const json_t *header, const char *workload);

/* The keys of subject_cell() in which an attempt's header differs from today's, set in the object `changed`. */
void subject_note_changes(const struct subject *subject, int arm, int workload, const json_t *header, json_t *changed);

#endif
