/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: facts about a machine - memory limits, cores, nodes, measured rates - to and from JSON (recorded machines).
 * Must not know: how they are found (src/run/probe) or what follows from them. */
#ifndef SLUICE_PLACE_MACHINE_H
#define SLUICE_PLACE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/base/str.h"

/* What bounds the memory of the process; 0 bytes: no such limit. */
enum memory_limit { LIMIT_AVAILABLE, LIMIT_CGROUP, LIMIT_NUMA, LIMIT_ADDRESS_SPACE, LIMIT_SETTING, LIMIT_COUNT };
const char *memory_limit_name(enum memory_limit l); /* "MemAvailable", "cgroup memory limit", ... */

enum { MACHINE_NODES = 8, MACHINE_DEPTH_MAX = 256, MACHINE_CHUNK_LEAST = 64 << 10, MACHINE_CHUNK_MOST = 16 << 20 };

struct machine {
    char cpu[64];
    uint32_t cores, nodes;
    uint64_t node_available[WEIGHT_NODES_MAX]; /* of the first so many nodes: bytes free or reclaimable; 0: unknown */
    int node_number[WEIGHT_NODES_MAX];         /* their numbers */
    double cgroup_cpus;             /* CPU quota, 0: none */
    uint64_t memory_total;
    uint64_t limit[LIMIT_COUNT];    /* bytes this process may still use under each; reclaimable memory counts as free */
    /* Measured at best, 0: unknown. Reads in 10^9 bytes per second; multiply-adds of float32, bfloat16 and int8 in 10^9
     * operations per second, two each. */
    uint32_t rate_threads;                /* threads that "all" means below */
    double ram_read_gb_s, thread_read_gb_s; /* by all, by one */
    double node_read_gb_s[MACHINE_NODES]; /* [nodes_measured] by the threads of each node from its own memory */
    uint32_t nodes_measured;
    double fma_gop_s, bf16_gop_s, int8_gop_s;
    double thread_fma_gop_s, thread_bf16_gop_s, thread_int8_gop_s;
    double decode_read_gb_s;              /* weights of one model through the kernels of a single row, by all */
    double nvme_read_gb_s;
    uint32_t nvme_depth;                  /* reads in flight, and bytes of each, that are enough for it */
    uint64_t nvme_chunk;
};

int machine_from_json(const char *text, size_t len, const char *where, struct machine *ret, struct error *e);
void machine_to_json(const struct machine *m, struct str *out);

/* Nodes of a machine that is only described have the numbers from 0. */
void machine_number_nodes(struct machine *m);

/* Smallest limit; *ret_which says which binds. */
uint64_t machine_memory(const struct machine *m, enum memory_limit *ret_which);

#endif
