/* The machine that measures, as attempts record it. */
#ifndef COLLECT_MACHINE_H
#define COLLECT_MACHINE_H

#include <jansson.h>

#define MACHINE_BOOT_ID_SIZE 64

/* {"cpu", "cores", "memory_bytes", "os", "kernel", "hostname", "boot_id"}: what cannot be found out is null. `cores`
 * are those this process may run on. A new reference. */
json_t *machine_describe(void);

/* The parts of a described machine that cell hashes cover: the hardware, not the state of the system. A new reference.
 */
json_t *machine_identity(const json_t *machine);

/* The kernel's random id of this boot, into boot_id[MACHINE_BOOT_ID_SIZE]: timings of two boots are never paired. Empty
 * where the system has none. */
const char *machine_boot_id(char *boot_id);

#endif
