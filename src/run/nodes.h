/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which memory nodes an engine uses (--numa) and where its threads run. Must not know: models, what a node holds. */
#ifndef SLUICE_RUN_NODES_H
#define SLUICE_RUN_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/base/numa.h"

struct nodes {
    struct topology use;  /* the chosen nodes and their cores; with `off` all */
    uint32_t parts;       /* nodes that weights are spread over and bound to: use.nodes, or 1 and not bound */
    bool bind, pin;
    bool may_fall_back;   /* if they cannot hold their shares: automatic choice */
    char note[160];       /* a step down to announce, or empty */
};

/* What `setting` (settings.h: numa) means on this machine. ERROR_USAGE for numbers of nodes that may not be used. */
int nodes_choose(const struct topology *t, const char *setting, struct nodes *ret, struct error *e);

/* One part, bound nowhere: what is left when the nodes cannot hold their shares. */
void nodes_join(struct nodes *n);

/* Processor and index of the node for each of so many threads: a core each, evenly from all nodes. False if there are not so
 * many cores: cpu is not written, nodes take turns. */
bool nodes_assign(const struct nodes *n, uint32_t threads, int *cpu, uint32_t *node);

#endif
