/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: facts about a machine - memory limits, cores, nodes, measured rates - to and from JSON (recorded machines).
 * Must not know: how they are found (src/run/probe) or what follows from them. */
#ifndef SLUICE_PLACE_MACHINE_H
#define SLUICE_PLACE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"

/* What bounds the memory of the process; 0 bytes: no such limit. */
enum memory_limit { LIMIT_AVAILABLE, LIMIT_CGROUP, LIMIT_NUMA, LIMIT_ADDRESS_SPACE, LIMIT_SETTING, LIMIT_COUNT };
const char *memory_limit_name(enum memory_limit l); /* "MemAvailable", "cgroup memory limit", ... */

struct machine {
    char cpu[64];
    uint32_t cores, nodes;
    double cgroup_cpus;             /* CPU quota, 0: none */
    uint64_t memory_total;
    uint64_t limit[LIMIT_COUNT];    /* bytes this process may still use under each; reclaimable memory counts as free */
    double ram_read_gb_s, nvme_read_gb_s; /* measured, 0: unknown */
};

int machine_from_json(const char *text, size_t len, const char *where, struct machine *ret, struct error *e);
void machine_to_json(const struct machine *m, struct str *out);

/* Smallest limit; *ret_which says which binds. */
uint64_t machine_memory(const struct machine *m, enum memory_limit *ret_which);

#endif
