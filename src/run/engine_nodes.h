/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an engine's memory nodes and threads when it opens: what was chosen, what the system refused, what was found after
 * loading. Must not know: how weights are read. */
#ifndef SLUICE_RUN_ENGINE_NODES_H
#define SLUICE_RUN_ENGINE_NODES_H

#include "src/run/engine.h"

/* Fills g->nodes by --numa. */
int engine_nodes_open(struct engine *g, struct error *e);

/* Fills g->pool: a thread per core of the nodes, pinned; of more threads than may run, the surplus sleeps. */
int engine_nodes_pool(struct engine *g, uint32_t threads, struct error *e);

/* Weights go nowhere in particular, because a node cannot hold its share: `why` says so. */
void engine_nodes_join(struct engine *g, const char *why);

/* KV pages, which every thread reads, from all nodes in turn: else those of generated tokens would all lie on the node of the
 * thread that appends them. Before the first one is written. */
void engine_nodes_spread(struct engine *g);

/* Fills g->placement of the loaded weights and announces what the system refused. */
int engine_nodes_verify(struct engine *g, struct error *e);

#endif
