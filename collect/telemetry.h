/* What the GPUs of an attempt say of themselves while it runs: clocks, temperature, power, energy, memory, and why they
 * were slowed down. A thread of its own reads them once a second; nothing is written before the last request has ended.
 * Where there is no NVML, or it does not know the GPUs, nothing is recorded and nothing fails. */
#ifndef COLLECT_TELEMETRY_H
#define COLLECT_TELEMETRY_H

#include <jansson.h>
#include <stdint.h>

#define TELEMETRY_ID_SIZE 32 /* of a PCI bus id: "0000:1b:00.0" */

struct telemetry_recorder;

/* For GPUs by their PCI bus ids; one that stands there twice is read once, and readings of one that NVML does not know
 * hold nothing but its number and the time. NULL where none can be read. */
struct telemetry_recorder *telemetry_open(const char (*ids)[TELEMETRY_ID_SIZE], int count);
void telemetry_close(struct telemetry_recorder *recorder); /* NULL: nothing happens */

/* A list with an object for each GPU: what it is, and the clocks and power limits that were set. A new reference. */
json_t *telemetry_describe(const struct telemetry_recorder *recorder);

/* Takes a reading of all GPUs now, and then every second, until telemetry_stop(). */
void telemetry_start(struct telemetry_recorder *recorder);

/* Takes the last readings. Answers a list of the attempt's lines, times from `origin_ns` (CLOCK_MONOTONIC). A new
 * reference. */
json_t *telemetry_stop(struct telemetry_recorder *recorder, int64_t origin_ns);

#endif
