/* The ledger: an append-only record (JSON Lines) of what was begun, ended, judged, withdrawn, purged and repaired.
 *
 * Every line carries the SHA-256 of the line before, so that no line can be changed or removed unseen; that its tail
 * was cut shows in the head hash and count which summaries, reports and each `begin` carry. Order is the sequence
 * number, never the wall clock. Whoever writes holds the run folder's lock. */
#ifndef COLLECT_RECORD_LEDGER_H
#define COLLECT_RECORD_LEDGER_H

#include "collect/base/error.h"
#include "collect/base/file.h"

#include <jansson.h>
#include <stdbool.h>

enum ledger_actor { LEDGER_COLLECT, LEDGER_RULE, LEDGER_USER };

/* What is known of the chain. `lines` are the parsed entries, in order. */
struct ledger {
    char *path;
    json_t *lines;             /* array of objects */
    char head[FILE_HASH_SIZE]; /* hash of the last line; 64 zeros before the first */
    int broken_at;             /* sequence number of the first line whose chain does not hold; 0: none */
    long torn_bytes;           /* of a last line without its newline */
    int descriptor;            /* -1 unless opened for writing */
};

/* Reads RUN/ledger.jsonl; an absent file is an empty ledger. Holds no lock. */
int ledger_read(const char *folder, struct ledger *ledger, struct error *error);

/* Reads, and takes the folder's lock (RUN/lock, an open-file-description lock; the file names boot id, host and process
 * of its holder) for as long as the ledger is open. Refused with the holder's name where another holds it, and where
 * the chain is broken: nothing is appended to a record that was changed. A torn last line is ended by a newline and
 * noted by a `recover` entry. */
int ledger_open(const char *folder, struct ledger *ledger, struct error *error);

/* Appends an entry: `action` ("begin", "end", "verdict", "amend", "recover", ...) with the keys of `details` (a
 * reference taken over; may be NULL). seq, prev, time and actor are added here. */
int ledger_append(struct ledger *ledger, enum ledger_actor actor, const char *action, json_t *details,
                  struct error *error);

/* -1, and the one line on a ledger that is broken at `broken_at`. */
int ledger_refuse_broken(const struct ledger *ledger, struct error *error);

void ledger_close(struct ledger *ledger);

#endif
