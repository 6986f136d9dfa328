/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: where buffers were asked to lie and where they do: pages sampled after loading, huge pages counted. Must not know: what
 * is in them. */
#ifndef SLUICE_RUN_PLACEMENT_H
#define SLUICE_RUN_PLACEMENT_H

#include "src/base/alloc.h"
#include "src/base/numa.h"
#include "src/base/str.h"

struct placement_row {
    int node;                   /* its number */
    uint64_t asked, found, huge; /* bytes bound to it, found there, of these in huge pages */
};

struct placement {
    uint32_t n;
    struct placement_row row[TOPOLOGY_MAX_NODES]; /* [n] nodes of the topology */
    uint64_t bytes;             /* of all buffers */
    uint64_t elsewhere;         /* found on nodes that are not in the table */
    int refused;                /* errno of the system, which does not tell where pages lie; 0: it does */
};

/* Of buffers whose bytes have all been written. -ENOMEM; what the system refuses is a fact of the table. */
int placement_measure(const struct buffer *const *buffers, uint32_t n, const struct topology *nodes, struct placement *ret, struct error *e);

/* True if less than 95 % of what was bound to a node lies there. */
bool placement_misses(const struct placement *p);

uint64_t placement_huge(const struct placement *p);
void placement_text(const struct placement *p, struct str *out); /* one line, without its end */
void placement_json(const struct placement *p, struct str *out); /* a list */

#endif
