/* Whether the GPUs of this host are free for the next server: what ended gives memory back a while later. Without
 * NVIDIA's library, or a GPU, all is free. */
#ifndef COLLECT_SERVER_GPUS_H
#define COLLECT_SERVER_GPUS_H

#include "collect/base/error.h"
#include "collect/telemetry.h"

#define GPUS_FOLDER "/sys/bus/pci/devices"

struct gpus;

/* Finds them in `folder`, which has one for each PCI device, and notes what memory is in use now, by others. NULL where
 * there is none. */
struct gpus *gpus_open(const char *folder);
void gpus_close(struct gpus *gpus); /* NULL: nothing happens */

/* Waits up to limit_s until no more memory is in use than was; -1, and which GPU still has how much. */
int gpus_await(const struct gpus *gpus, int limit_s, struct error *error);

/* Those in which more memory is in use than was, so that what was started since runs on them: their PCI bus ids into
 * ids[maximum], and how many. */
int gpus_list_busy(const struct gpus *gpus, char (*ids)[TELEMETRY_ID_SIZE], int maximum);

#endif
