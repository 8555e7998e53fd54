/* An arm: one configuration that is measured, and its name (tp1-auto, tp1-linear, tp4-b16, tp4-b16-c8). */
#ifndef COLLECT_RECORD_ARM_H
#define COLLECT_RECORD_ARM_H

#include <stdbool.h>

#define ARM_NAME_SIZE 32
#define ARM_BUDGET_MAXIMUM 1024

enum method {
    METHOD_AUTO,   /* autoregressive: no drafter */
    METHOD_LINEAR, /* DFlash: the drafter's block verified as a path */
    METHOD_DDTREE, /* DDTree: a best-first tree of `budget` nodes below the root */
    METHOD_COUNT
};

/* "auto", "linear", "ddtree": as plans and attempts spell them. */
extern const char *const method_names[METHOD_COUNT];

/* Whether each budget of the method is an arm of its own. */
bool method_has_budget(enum method method);

struct arm {
    int tensor_parallel; /* ranks */
    enum method method;
    int budget; /* nodes without the root; 0 where the method has none */
    int concurrency;
};

/* Writes the arm's name into name[ARM_NAME_SIZE] and answers it. */
const char *arm_name(const struct arm *arm, char *name);

/* The inverse; false where `name` is no arm's name. */
bool arm_parse(const char *name, struct arm *arm);

/* The same without "tp1-" and "-c1": "auto", "linear", "b16", for tables of one TP. Written into name[ARM_NAME_SIZE].
 */
const char *arm_method_label(const struct arm *arm, char *name);

bool arm_equal(const struct arm *a, const struct arm *b);

#endif
