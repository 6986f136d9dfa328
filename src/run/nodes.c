/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: nodes.h. Must not know: models, what a node holds. */
#include "src/run/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

/* Numbers of the allowed nodes, "0,1". */
static const char *allowed_text(const struct topology *t, char *out, size_t bytes)
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < t->nodes && n < bytes; i++) {
        n += (size_t)snprintf(out + n, bytes - n, "%s%d", i > 0 ? "," : "", t->node_os[i]);
    }
    return out;
}

static uint32_t cores_of(const struct topology *t, uint32_t node)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < t->cores; c++) {
        n += t->core_node[c] == node;
    }
    return n;
}

/* The topology of the nodes with keep[i]. Without any core there all cores stay, as if they were of the first. */
static void select_nodes(const struct topology *t, const bool *keep, struct topology *ret)
{
    uint32_t index[TOPOLOGY_MAX_NODES];
    *ret = *t;
    ret->nodes = ret->cores = ret->here = 0;
    for (uint32_t i = 0; i < t->nodes; i++) {
        if (keep[i]) {
            index[i] = ret->nodes;
            ret->here = t->here == i ? ret->nodes : ret->here;
            ret->node_os[ret->nodes] = t->node_os[i];
            ret->node_total[ret->nodes] = t->node_total[i];
            ret->node_free[ret->nodes] = t->node_free[i];
            ret->nodes++;
        }
    }
    for (uint32_t c = 0; c < t->cores; c++) {
        if (keep[t->core_node[c]]) {
            ret->core_cpu[ret->cores] = t->core_cpu[c];
            ret->core_node[ret->cores++] = index[t->core_node[c]];
        }
    }
    if (ret->cores == 0) {
        ret->cores = t->cores;
        memcpy(ret->core_cpu, t->core_cpu, sizeof(ret->core_cpu));
        memset(ret->core_node, 0, sizeof(ret->core_node));
    }
}

/* "0,2": sets keep[] of these. */
static int read_numbers(const struct topology *t, const char *setting, bool *keep, struct error *e)
{
    char allowed[160];
    char *end;
    for (const char *at = setting;; at = end + 1) {
        long number = strtol(at, &end, 10);
        uint32_t i = 0;
        while (i < t->nodes && t->node_os[i] != number) {
            i++;
        }
        if (end == at || (*end != ',' && *end != '\0')) {
            return error_set(e, ERROR_USAGE, "--numa %s: expected numbers of memory nodes, as in 0,1", setting);
        }
        if (i == t->nodes) {
            return error_set(e, ERROR_USAGE, "--numa %s: node %ld is not there, has no memory or is forbidden to this process; allowed: %s", setting,
                             number, allowed_text(t, allowed, sizeof(allowed)));
        }
        if (keep[i]) {
            return error_set(e, ERROR_USAGE, "--numa %s: node %ld is named twice", setting, number);
        }
        keep[i] = true;
        if (*end == '\0') {
            return 0;
        }
    }
}

static uint32_t count(const bool *keep, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += keep[i];
    }
    return sum;
}

void nodes_join(struct nodes *n)
{
    n->parts = 1;
    n->bind = false;
}

static int choose_nodes(const struct topology *t, const char *setting, const bool *keep, struct nodes *n, struct error *e)
{
    uint32_t chosen = count(keep, t->nodes);
    if (chosen > WEIGHT_NODES_MAX) {
        return error_set(e, ERROR_USAGE, "--numa %s: %u nodes; weights are spread over at most %d: name the nodes, as in --numa 0,1", setting, chosen,
                         (int)WEIGHT_NODES_MAX);
    }
    select_nodes(t, keep, &n->use);
    n->parts = chosen;
    n->bind = n->pin = true;
    bool cores = false;
    for (uint32_t i = 0; i < t->nodes; i++) {
        cores |= keep[i] && cores_of(t, i) > 0;
    }
    if (!cores) {
        snprintf(n->note, sizeof(n->note), "no allowed processor on the nodes of --numa %s: threads run on the others", setting);
    }
    return 0;
}

int nodes_choose(const struct topology *t, const char *setting, struct nodes *ret, struct error *e)
{
    struct nodes n = {.use = *t, .parts = 1};
    bool keep[TOPOLOGY_MAX_NODES] = {false};
    bool automatic = strcmp(setting, "auto") == 0 || strcmp(setting, "numactl") == 0;
    int r = 0;
    if (strcmp(setting, "off") == 0) {
        *ret = n;
        return 0;
    }
    if (automatic || strcmp(setting, "on") == 0 || strcmp(setting, "distribute") == 0) {
        for (uint32_t i = 0; i < t->nodes; i++) {
            keep[i] = t->nodes == 1 || cores_of(t, i) > 0;
        }
    } else if (strcmp(setting, "isolate") == 0) {
        keep[t->here] = true;
    } else {
        r = read_numbers(t, setting, keep, e);
    }
    uint32_t chosen = count(keep, t->nodes);
    if (automatic && (chosen <= 1 || chosen > WEIGHT_NODES_MAX)) {
        n.pin = true;
        if (chosen > 1) {
            snprintf(n.note, sizeof(n.note), "%u nodes: weights are spread over at most %d, so not at all; name the nodes: --numa 0,1", chosen,
                     (int)WEIGHT_NODES_MAX);
        }
    } else {
        r = r < 0 ? r : choose_nodes(t, setting, keep, &n, e);
        n.may_fall_back = automatic;
    }
    if (r == 0) {
        *ret = n;
    }
    return r;
}

bool nodes_assign(const struct nodes *n, uint32_t threads, int *cpu, uint32_t *node)
{
    const struct topology *t = &n->use;
    if (threads > t->cores) {
        for (uint32_t i = 0; i < threads; i++) {
            node[i] = i % n->parts;
        }
        return false;
    }
    uint32_t next[TOPOLOGY_MAX_NODES] = {0}; /* core from which each node looks on */
    for (uint32_t i = 0, turn = 0; i < threads; turn = (turn + 1) % t->nodes) {
        uint32_t c = next[turn];
        while (c < t->cores && t->core_node[c] != turn) {
            c++;
        }
        next[turn] = c + 1;
        if (c < t->cores) {
            cpu[i] = t->core_cpu[c];
            node[i++] = n->parts > 1 ? turn : 0;
        }
    }
    return true;
}
