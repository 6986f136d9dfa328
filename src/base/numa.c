/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the only hwloc and libnuma calls. Must not know: policy. */
#include "src/base/numa.h"

#include <errno.h>
#include <hwloc.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/attr.h"
#include "common/intmath.h"

/* libnuma calls these where it would print; numa(3) lets programs have their own. */
void numa_error(char *where ATTR_UNUSED) {}
void numa_warn(int number ATTR_UNUSED, char *where ATTR_UNUSED, ...) {}

/* Processors this process may run on, by affinity (hwloc knows the cgroup's cpuset only). */
static bool affinity_allows(const cpu_set_t *set, unsigned cpu) { return cpu < CPU_SETSIZE && CPU_ISSET(cpu, set); }

static void read_nodes(struct topology *t)
{
    t->nodes_errno = get_mempolicy(NULL, NULL, 0, NULL, 0) == 0 ? 0 : errno;
    /* The cpuset's nodes, and of these what numactl --membind left: a policy that this process inherited. */
    bool known = t->nodes_errno == 0 && numa_available() >= 0;
    struct bitmask *allowed = known ? numa_get_mems_allowed() : NULL, *bound = known ? numa_get_membind() : NULL;
    for (int n = 0; allowed != NULL && bound != NULL && n <= numa_max_node() && t->nodes < TOPOLOGY_MAX_NODES; n++) {
        long long free_bytes = 0;
        bool usable = numa_bitmask_isbitset(allowed, (unsigned)n) && numa_bitmask_isbitset(bound, (unsigned)n);
        long long total = usable ? numa_node_size64(n, &free_bytes) : 0;
        if (total <= 0) {
            continue; /* not allowed, or a node of processors only */
        }
        t->node_os[t->nodes] = n;
        t->node_total[t->nodes] = (uint64_t)total;
        t->node_free[t->nodes] = free_bytes > 0 ? (uint64_t)free_bytes : 0;
        t->nodes++;
    }
    if (allowed != NULL) {
        numa_bitmask_free(allowed);
    }
    if (bound != NULL) {
        numa_bitmask_free(bound);
    }
    if (t->nodes == 0) { /* a kernel without NUMA: all memory is node 0 */
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        t->node_total[0] = page * (uint64_t)sysconf(_SC_PHYS_PAGES);
        t->node_free[0] = page * (uint64_t)sysconf(_SC_AVPHYS_PAGES);
        t->nodes = 1;
    }
}

/* Index in t->node_os of the node nearest to obj; 0 when its own node is not allowed. */
static uint32_t node_index(const struct topology *t, hwloc_obj_t obj)
{
    for (uint32_t i = 0; i < t->nodes; i++) {
        if (obj->nodeset != NULL && hwloc_bitmap_isset(obj->nodeset, (unsigned)t->node_os[i])) {
            return i;
        }
    }
    return 0;
}

static int read_cores(struct topology *t, hwloc_topology_t topo, struct error *e)
{
    cpu_set_t affinity;
    if (sched_getaffinity(0, sizeof(affinity), &affinity) != 0) {
        memset(&affinity, 0xff, sizeof(affinity)); /* more processors than cpu_set_t holds: take hwloc's word */
    }
    int here = sched_getcpu();
    /* Some virtual machines show no cores: every processor is one then. */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topo, type, core)) != NULL;) {
        uint32_t allowed = 0;
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0 && t->cores < TOPOLOGY_MAX_CPUS; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
            if (affinity_allows(&affinity, (unsigned)cpu) && allowed++ == 0) {
                t->core_cpu[t->cores] = cpu;
                t->core_node[t->cores] = node_index(t, core);
            }
            t->here = cpu == here ? node_index(t, core) : t->here;
        }
        t->processors += allowed;
        t->cores += allowed > 0;
    }
    return t->cores > 0 ? 0 : error_set(e, -ENODEV, "topology: no allowed processor found; check taskset and cpuset");
}

static uint64_t cache_bytes(hwloc_topology_t topo, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topo, type, 0);
    return cache == NULL ? 0 : cache->attr->cache.size;
}

int topology_read(struct topology *ret, struct error *e)
{
    struct topology t = { 0 };
    hwloc_topology_t topo;
    if (hwloc_topology_init(&topo) != 0) {
        return error_nomem(e, "topology", sizeof(t));
    }
    if (hwloc_topology_load(topo) != 0) {
        int code = errno > 0 ? -errno : -EIO;
        hwloc_topology_destroy(topo);
        return error_set(e, code, "topology: hwloc cannot read this machine: %s", strerror(-code));
    }
    read_nodes(&t);
    t.nodes_there = max_u32(t.nodes, (uint32_t)hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_NUMANODE));
    int rc = read_cores(&t, topo, e);
    t.l2_bytes = cache_bytes(topo, HWLOC_OBJ_L2CACHE);
    t.l3_bytes = cache_bytes(topo, HWLOC_OBJ_L3CACHE);
    hwloc_topology_destroy(topo);
    if (rc == 0) {
        *ret = t;
    }
    return rc;
}

static int set_policy(void *data, size_t bytes, int policy, const int *node, uint32_t n)
{
    enum { BITS = 8 * sizeof(unsigned long), MASK_NODES = 1024 };
    unsigned long mask[MASK_NODES / BITS] = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        if (node[i] < 0 || node[i] >= MASK_NODES) {
            return -EINVAL;
        }
        mask[node[i] / BITS] |= 1ul << (node[i] % BITS);
    }
    return mbind(data, bytes, policy, mask, MASK_NODES + 1, 0) == 0 ? 0 : -errno; /* the kernel reads one bit less */
}

int numa_bind_pages(void *data, size_t bytes, int node) { return set_policy(data, bytes, MPOL_BIND, &node, 1); }

int numa_interleave_pages(void *data, size_t bytes, const int *node, uint32_t n) { return set_policy(data, bytes, MPOL_INTERLEAVE, node, n); }

int numa_pages_where(const void *data, size_t bytes, int *node, uint32_t n)
{
    enum { BATCH = 256 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    void *at[BATCH];
    for (uint32_t done = 0, some = 0; done < n; done += some) {
        for (some = 0; some < BATCH && done + some < n; some++) {
            size_t i = (size_t)((double)pages / n * (done + some));
            at[some] = (char *)(uintptr_t)data + i * page;
        }
        if (numa_move_pages(0, some, at, NULL, node + done, 0) != 0) {
            return errno > 0 ? -errno : -EIO;
        }
    }
    return 0;
}
