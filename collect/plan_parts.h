/* What the parts of the plan's reader share; the files plan*.c use it, and who checks names. */
#ifndef COLLECT_PLAN_PARTS_H
#define COLLECT_PLAN_PARTS_H

#include "collect/plan.h"

#define PLAN_WHERE_SIZE 512

/* Names become folders, file names and labels. */
int plan_check_name(const char *name, const char *where, struct error *error);

/* The place of `word` among words[count], or -1. */
int plan_find_word(const char *word, const char *const *words, int count);

/* -1, and a message that lists the words. */
int plan_refuse_word(const char *word, const char *const *words, int count, const char *where, const char *key,
                     struct error *error);

/* The object "source" of each kind. */
int plan_read_engine(struct plan *plan, const json_t *source, const char *where, struct error *error);
int plan_read_server(struct plan *plan, const json_t *source, const char *where, struct error *error);

/* Whether the source can be this arm. */
int plan_check_arm(const struct plan *plan, const struct arm *arm, struct error *error);

int plan_read_stages(struct plan *plan, const json_t *stages, struct error *error);

/* The whole of a plan whose source is of kind "import": name, title, rules. */
bool plan_is_import(const json_t *plan);
int plan_read_import(struct plan *plan, struct error *error);

/* `rules` NULL: none. */
int plan_read_rules(struct plan *plan, const json_t *rules, struct error *error);

int plan_read_workloads(struct plan *plan, const json_t *workloads, struct error *error);

/* tuning NULL: none. After arms, blocks and workloads. */
int plan_read_tuning(struct plan *plan, const json_t *tuning, struct error *error);

#endif
