/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: roles of tensors and their names in Hugging Face and GGUF checkpoints, both ways. Must not know: I/O, shapes. */
#ifndef SLUICE_MODEL_NAMES_H
#define SLUICE_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
