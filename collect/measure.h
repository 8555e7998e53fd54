/* Measuring one attempt: warm-up, requests, audit, verdicts; each step in the attempt's file and in the ledger. */
#ifndef COLLECT_MEASURE_H
#define COLLECT_MEASURE_H

#include "collect/progress.h"
#include "collect/record/ledger.h"
#include "collect/schedule.h"
#include "collect/subject.h"

/* What the attempts of a campaign share. All borrowed. */
struct measure {
    const struct subject *subject;
    struct ledger *ledger; /* open for writing */
    struct progress *progress;
    const char *folder;    /* the run's */
    const char *plan_file; /* name of the stored plan */
};

/* Where the attempt stands in its block. */
struct place {
    int block, try_number;
    int position; /* from 1, among all attempts of the block */
};

/* Requests of the attempt, warm-up included. */
int measure_request_count(const struct subject *subject, const struct task *task);

enum measure_result { MEASURE_DONE, MEASURE_INTERRUPTED };

/* Answers MEASURE_DONE whatever the verdicts, MEASURE_INTERRUPTED where a signal came before the last request had ended
 * (the attempt is then closed as aborted), or -1 where the source or the disk failed. */
int measure_attempt(const struct measure *measure, const struct task *task, struct place place, struct error *error);

/* Notes the `end` of attempts whose file has one and whose ledger has none, because the program ended in between: until
 * then nothing shows that such a file was changed. */
int measure_note_ends(const struct run *run, struct ledger *ledger, struct error *error);

#endif
