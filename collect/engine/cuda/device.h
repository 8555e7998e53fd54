/* The GPUs that the CUDA backend computes on, as the driver numbers them (CUDA_VISIBLE_DEVICES chooses). The CUDA
 * runtime is linked statically and finds the driver when it is first called, so that the program starts without one. */
#ifndef COLLECT_ENGINE_CUDA_DEVICE_H
#define COLLECT_ENGINE_CUDA_DEVICE_H

#include "collect/base/error.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* ABSENT: nothing of NVIDIA's is here. UNUSABLE: a GPU or its driver is, but CUDA cannot be used. */
enum device_state { DEVICE_ABSENT, DEVICE_UNUSABLE, DEVICE_USABLE };

/* Initialises the first GPU of a list as device_assign() reads it, when first called. Where it cannot be used, `reason`
 * names the cause and the remedy. */
enum device_state device_find(const char *list, struct error *reason);

/* Which GPU each of `ranks` ranks gets, into devices[ranks], by a list like "cuda:0,0,1" or, without numbers, 0, 1,
 * .... Answers how many different GPUs these are, `ranks` or 1; -1 where they are not there, or some but not all are
 * shared. */
int device_assign(const char *list, int ranks, int *devices, struct error *error);

/* The first GPU of such a list: 0 where it names none that is there. */
int device_first(const char *list);

/* Ends in die_at_once() with file, line and CUDA's text unless `status` is success. */
#define CUDA_CHECK(call) device_check((call), __FILE__, __LINE__)
void device_check(cudaError_t status, const char *file, int line);

/* The PCI bus id of GPU `device`, into id[size]. */
void device_bus_id(int device, char *id, int size);

/* Of the GPU that is current, as the next three: whether a kernel may start while the one before it ends. */
bool device_overlaps(void);

/* Whether it has Hopper's products of warpgroups, which no other generation has. */
bool device_has_wgmma(void);

int device_multiprocessors(void);

/* The most shared memory that a block may ask for. */
int device_shared_bytes(void);

/* Zeroed memory of the GPU, 256-byte aligned; given back by cudaFree(). */
void *device_allocate(size_t bytes);

/* Host memory that the GPU copies from and to directly; given back by cudaFreeHost(). */
void *device_allocate_pinned(size_t bytes);

#endif
