/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: filling the weights table (names.h) from one or several containers (the MTP layer may come from another one),
 * with shapes and formats checked. Must not know: residency, tiers, kernels. */
#ifndef SLUICE_MODEL_BIND_H
#define SLUICE_MODEL_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "io/container.h"
#include "src/model/names.h"
#include "src/model/shape.h"

struct bind_options {
    const char *path;      /* -m */
    const char *mtp_from;  /* NULL: from path */
    const char *mirrors;   /* as mirror_open takes them; NULL: none */
    bool mtp;              /* false: MTP layers are left out */
    bool group_routing;    /* see shape_from_gguf */
    bool allow_header_only;
};

/* Opens the containers, reads the shape, binds every role. All missing tensors, wrong shapes and unreadable formats are
 * collected (the first 8 named, the rest counted) in one message. */
int weights_open(const struct bind_options *options, struct weights **ret, struct error *e);
void weights_close(struct weights *w);

/* Sum of bytes of a kind, for the plan. */
uint64_t weights_resident_bytes(const struct weights *w); /* all dense matrices and vectors, without scales */
uint64_t weights_scale_bytes(const struct weights *w);    /* as float32, routed experts included */
uint64_t weights_expert_bytes(const struct weights *w);   /* all routed experts */
uint64_t weights_max_expert_bytes(const struct weights *w); /* largest single expert: one slot */

#endif
