/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weights table: for every role, layer and expert where its bytes lie, with shape and format checked.
 * Filled from one or several containers (the MTP layer may come from another one). Immutable after bind.
 * Must not know: residency, tiers, kernels. */
#ifndef SLUICE_MODEL_BIND_H
#define SLUICE_MODEL_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/format.h"
#include "io/container.h"
#include "src/model/names.h"
#include "src/model/shape.h"

/* Where one matrix or vector lies. Absent: rows == 0. */
struct weight_ref {
    const struct file *file;
    uint64_t offset, bytes;     /* rows * row bytes */
    const char *name;           /* tensor name, for messages */
    uint32_t rows, cols;        /* vectors: rows = 1, cols = n */
    enum weight_format format;  /* vectors: F32, F16 or BF16 */
    /* F8_E4M3: float32 (or BF16, F16, E8M0 as found) scales [ceil(rows/128), ceil(cols/128)] */
    const struct tensor *scale; /* NULL otherwise */
    const struct file *scale_file;
};

struct expert_refs {
    struct weight_ref gate, up, down; /* [expert_width, hidden] x2, [hidden, expert_width] */
};

struct layer_refs {
    struct weight_ref role[ROLE_COUNT]; /* model-wide and expert roles unused */
    struct expert_refs *experts;        /* [shape.experts] or NULL in dense layers */
};

struct weights {
    struct shape shape;         /* completed: mtp_layers is 0 when there is none or --mtp off */
    struct weight_ref embed, final_norm, head; /* head: embed again when tied */
    struct layer_refs *layers;  /* [shape_all_layers] */
    struct container **containers; /* [n_containers], owned */
    uint32_t n_containers;
    bool header_only;
    uint32_t n_notes;           /* unused tensors, copies skipped, precision warnings: announced once, shown by inspect */
    char notes[32][SHAPE_NOTE_BYTES];
};

struct bind_options {
    const char *path;      /* -m */
    const char *mtp_from;  /* NULL: from path */
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
