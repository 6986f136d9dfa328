/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: roles of tensors, their names in Hugging Face and GGUF checkpoints, both ways, and the table of where the bytes of
 * each role lie (filled by bind.h, immutable afterwards). Must not know: I/O. */
#ifndef SLUICE_MODEL_NAMES_H
#define SLUICE_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/format.h"
#include "io/container.h"
#include "src/model/shape.h"

enum role {
    /* model-wide (layer 0 in look-ups) */
    ROLE_EMBED,
    ROLE_FINAL_NORM,
    ROLE_HEAD,
    /* every layer */
    ROLE_ATTN_NORM,
    ROLE_Q,       /* instead of Q_A, Q_A_NORM, Q_B */
    ROLE_Q_A,
    ROLE_Q_A_NORM,
    ROLE_Q_B,
    ROLE_KV_A,
    ROLE_KV_A_NORM,
    ROLE_KV_B,    /* fused [heads*(nope+v), kv_lora], or: */
    ROLE_K_B,     /* [heads*kv_lora, nope]: UK transposed per head */
    ROLE_V_B,     /* [heads*v, kv_lora] */
    ROLE_O,
    ROLE_FFN_NORM,
    /* dense layers */
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    /* MoE layers */
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    /* MTP layers */
    ROLE_MTP_EH,
    ROLE_MTP_ENORM,
    ROLE_MTP_HNORM,
    ROLE_MTP_NORM,  /* shared_head.norm */
    ROLE_MTP_EMBED, /* optional copy, not loaded */
    ROLE_MTP_HEAD,  /* optional copy, not loaded */
    /* routed experts, per expert */
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_COUNT,
};

const char *role_name(enum role role); /* "attention output" style, for messages */
bool role_is_vector(enum role role);   /* norms and bias: held as float32 [n] */

enum { NAME_BYTES = 128 };

/* Full tensor names, e.g. "model.layers.3.mlp.experts.7.up_proj.weight" / "blk.3.ffn_up_exps.weight" (stacked over
 * experts; `expert` ignored). Writes at most NAME_BYTES. False if the role has no name in that kind. */
bool names_hf(enum role role, uint32_t layer, uint32_t expert, char *out);
bool names_gguf(enum role role, uint32_t layer, char *out);

/* Layer number in a name of either kind, -1 for model-wide names and foreign ones. */
int32_t names_layer(const char *name);

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

#endif
