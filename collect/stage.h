/* Models in a memory disk, which a reboot empties: before anything is opened each folder of the plan's "stage" is made
 * a true copy of its original again.
 *
 * A file that is there counts where its size and SHA-256 are those of the original; what differs is copied, read back
 * and compared. The ledger's `stage` line has the hashes, so that originals are not read again while their sizes and
 * times of change stay the same. */
#ifndef COLLECT_STAGE_H
#define COLLECT_STAGE_H

#include "collect/plan.h"

/* Nothing where the plan stages nothing. Holds the lock of the run RUNS/NAME meanwhile; says on stderr what it copies.
 */
int stage_prepare(const struct plan *plan, const char *runs, struct error *error);

#endif
