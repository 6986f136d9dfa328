/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the only hwloc and libnuma calls: which processors and nodes this process may use. Must not know: policy. */
#ifndef SLUICE_BASE_NUMA_H
#define SLUICE_BASE_NUMA_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { TOPOLOGY_MAX_CPUS = 1024, TOPOLOGY_MAX_NODES = 64 };

/* Facts about what the process may use (affinity and Mems_allowed respected). */
struct topology {
    uint32_t cores;                     /* physical cores with at least one allowed processor */
    int core_cpu[TOPOLOGY_MAX_CPUS];    /* [cores] first allowed processor of each */
    uint32_t core_node[TOPOLOGY_MAX_CPUS]; /* index into node_os */
    uint32_t processors;                /* allowed ones, hyperthreads counted */
    uint32_t nodes_there;               /* memory nodes of the machine, allowed or not */
    int nodes_errno;                    /* why the system does not let this process ask for nodes (EPERM, ENOSYS), or 0 */
    uint32_t nodes;                     /* allowed memory nodes; 1 if it does not let it */
    int node_os[TOPOLOGY_MAX_NODES];    /* their numbers */
    uint64_t node_total[TOPOLOGY_MAX_NODES], node_free[TOPOLOGY_MAX_NODES]; /* bytes */
    uint32_t here;                      /* index of the node of the calling thread's processor */
    uint64_t l2_bytes, l3_bytes;        /* 0 if unknown */
};

int topology_read(struct topology *ret, struct error *e);

/* From now on, untouched whole pages come from memory node `node` (its number) and no other. 0, or -errno: a refusal. */
int numa_bind_pages(void *data, size_t bytes, int node);

/* From now on, untouched whole pages come from these n nodes in turn, from others where they are full. As above. */
int numa_interleave_pages(void *data, size_t bytes, const int *node, uint32_t n);

/* Where memory lies: node[i] becomes the number of the memory node of the i-th of n evenly spaced pages, below 0 where a page
 * was never touched. 0, or -errno: the system does not tell. */
int numa_pages_where(const void *data, size_t bytes, int *node, uint32_t n);

#endif
