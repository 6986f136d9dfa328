/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: engine_nodes.h. Must not know: how weights are read. */
#include "src/run/engine_nodes.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/probe_text.h"
#include "src/tier/slot.h"

/* Weights below this are not worth a line about their pages. */
#define HUGE_MATTERS ((uint64_t)16 << 20)

/* What to do about a refused call on memory nodes. */
static const char *advice(int code)
{
    switch (code) {
    case EPERM:
        return "a container needs --cap-add SYS_NICE or a seccomp profile that allows it";
    case ENOSYS:
        return "the kernel has no NUMA support, or a seccomp profile hides it";
    case EINVAL:
        return "the node may be outside the cpuset: see Mems_allowed in /proc/self/status";
    default:
        return "see mbind(2)";
    }
}

int engine_nodes_open(struct engine *g, struct error *e)
{
    const char *setting = g->settings.numa;
    struct topology *t = malloc(sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "topology", sizeof(*t));
    }
    int r = topology_read(t, e);
    bool automatic = strcmp(setting, "auto") == 0, wanted = strcmp(setting, "off") != 0;
    bool blind = r == 0 && t->nodes_errno != 0 && wanted; /* nothing can be bound: as on a machine with one node */
    r = r < 0 ? r : nodes_choose(t, blind ? "auto" : setting, &g->nodes, e);
    if (r == 0 && g->nodes.note[0] != '\0') {
        engine_step_down(g, "numa", "%s", g->nodes.note);
    }
    if (blind && (t->nodes_there > 1 || !automatic)) {
        engine_step_down(g, "numa", "get_mempolicy is refused (%s): weights are bound to no node; %s", strerror(t->nodes_errno), advice(t->nodes_errno));
    }
    free(t);
    return r;
}

void engine_nodes_join(struct engine *g, const char *why)
{
    nodes_join(&g->nodes);
    engine_step_down(g, "numa", "the system places the weights: %s", why);
}

static void float_mode(void *ctx, uint32_t worker)
{
    (void)ctx;
    (void)worker;
    cpu_float_mode_set();
    assert(cpu_float_mode_ok());
}

/* Workers that may run at a time: of the processors allowed, what the quota pays. */
static uint32_t at_once(const struct engine *g, uint32_t threads)
{
    double quota = ceil(g->machine.cgroup_cpus);
    uint32_t n = min_u32(threads, max_u32(g->nodes.use.processors, 1));
    return quota >= 1 && quota < n ? (uint32_t)quota : n;
}

int engine_nodes_pool(struct engine *g, uint32_t threads, struct error *e)
{
    int cpu[TOPOLOGY_MAX_CPUS];
    uint32_t node[TOPOLOGY_MAX_CPUS];
    assert(threads <= TOPOLOGY_MAX_CPUS); /* settings.c: threads */
    struct pool_options o = {.workers = threads, .node = node, .at_once = at_once(g, threads), .on_start = float_mode};
    if (!nodes_assign(&g->nodes, threads, cpu, node)) {
        engine_step_down(g, "pinning", "%u threads on %u cores: not pinned, %u run at a time", threads, g->nodes.use.cores, o.at_once);
    } else if (g->nodes.pin) {
        o.cpus = cpu;
    }
    int r = pool_create(&o, &g->pool, e);
    if (r == 0 && pool_unpinned(g->pool) > 0) {
        engine_step_down(g, "pinning", "sched_setaffinity is refused for %u of %u threads (%s): they run where the system puts them; allow it or take --numa off",
                         pool_unpinned(g->pool), threads, strerror(pool_pin_errno(g->pool)));
    }
    return r;
}

static bool spreads(const struct engine *g) { return g->nodes.bind && g->nodes.parts > 1; }

void engine_nodes_spread(struct engine *g)
{
    if (spreads(g)) {
        buffer_interleave(&g->kv.memory, g->nodes.use.node_os, g->nodes.parts);
    }
}

static void announce_refusals(struct engine *g)
{
    const struct account *a = &g->account;
    char text[24];
    if (a->bind_refused > 0) {
        engine_step_down(g, "numa", "mbind is refused for %s (%s): it lies where the system put it; %s", format_bytes(text, a->bind_refused),
                         strerror(a->bind_errno), advice(a->bind_errno));
    }
    if (a->huge_refused > 0) {
        engine_step_down(g, "huge pages", "madvise is refused for %s (%s): small pages; is the kernel built with transparent huge pages?",
                         format_bytes(text, a->huge_refused), strerror(a->huge_errno));
    }
}

static void announce_huge(struct engine *g, uint64_t advised)
{
    uint64_t found = placement_huge(&g->placement);
    if (g->placement.refused != 0 || advised < HUGE_MATTERS || found >= advised / 2) {
        return;
    }
    char *text = probe_read("", "/sys/kernel/mm/transparent_hugepage/enabled");
    bool never = text != NULL && strstr(text, "[never]") != NULL;
    free(text);
    engine_step_down(g, "huge pages", "%.0f %% of the weights are in huge pages: %s", 100.0 * (double)found / (double)advised,
                     never ? "the system has them off; echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"
                           : "memory is fragmented or they are off for this process; echo 1 >/proc/sys/vm/compact_memory joins free memory");
}

int engine_nodes_verify(struct engine *g, struct error *e)
{
    const struct slot_buffers *of[2] = {g->resident->storage, store_buffers(g->store)};
    const struct buffer *buffers[2 * WEIGHT_NODES_MAX];
    uint32_t n = 0;
    uint64_t advised = 0;
    int kinds = store_streams(g->store) ? 1 : 2; /* slots that nothing was read into lie nowhere yet */
    for (int i = 0; i < kinds; i++) {
        for (uint32_t k = 0; k < of[i]->nodes; k++) {
            buffers[n++] = &of[i]->node[k];
            advised += of[i]->node[k].huge ? of[i]->node[k].mapped : 0;
        }
    }
    int r = placement_measure(buffers, n, &g->nodes.use, &g->placement, e);
    if (r < 0) {
        return r;
    }
    announce_refusals(g);
    struct str line = {0};
    placement_text(&g->placement, &line);
    str_puts(&line, spreads(g) && g->kv.memory.bind_errno == 0 ? ", kv cache on all in turn" : "");
    const char *text = line.failed || line.data == NULL ? "" : line.data;
    if (g->nodes.bind && (g->placement.refused != 0 || placement_misses(&g->placement))) {
        engine_step_down(g, "placement", "%s", text);
    } else {
        log_print(&g->log, g->nodes.parts > 1 ? LOG_NOTICE : LOG_INFO, "placement: %s", text);
    }
    str_deinit(&line);
    announce_huge(g, advised);
    return 0;
}
