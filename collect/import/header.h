/* The first line of an imported attempt: what it is, and the hashes that say what it may be compared with. */
#ifndef COLLECT_IMPORT_HEADER_H
#define COLLECT_IMPORT_HEADER_H

#include "collect/import/imported.h"

/* Makes the import fit for an attempt: names of workloads such as plans may have, figures that can be, secrets taken
 * out. `workload` not NULL: what it is called by a person. */
void header_prepare(struct imported *imported, const char *workload);

/* All but its place, of a prepared import. A new reference. */
json_t *header_make(const struct imported *imported, const struct arm *arm);

/* Sets "format", "file", "sha256", "value" and "also": what the ledger says as well. */
void header_describe_file(const struct imported *imported, json_t *object);

#endif
