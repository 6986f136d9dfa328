/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the only hwloc and libnuma calls: which processors and nodes this process may use. Must not know: policy. */
#ifndef SLUICE_BASE_NUMA_H
#define SLUICE_BASE_NUMA_H

#include <stdint.h>

#include "common/error.h"

enum { TOPOLOGY_MAX_CPUS = 1024, TOPOLOGY_MAX_NODES = 64 };

/* Facts about what the process may use (affinity and Mems_allowed respected). */
struct topology {
    uint32_t cores;                     /* physical cores with at least one allowed processor */
    int core_cpu[TOPOLOGY_MAX_CPUS];    /* [cores] first allowed processor of each */
    uint32_t core_node[TOPOLOGY_MAX_CPUS]; /* index into node_os */
    uint32_t nodes;                     /* allowed memory nodes */
    int node_os[TOPOLOGY_MAX_NODES];    /* their numbers */
    uint64_t node_total[TOPOLOGY_MAX_NODES], node_free[TOPOLOGY_MAX_NODES]; /* bytes */
    uint64_t l2_bytes, l3_bytes;        /* 0 if unknown */
};

int topology_read(struct topology *ret, struct error *e);

#endif
