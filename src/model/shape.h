/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dimensions and rules of a model of the DeepSeek-V2/V3 family, from config.json or GGUF metadata.
 * No dimension is a constant. Must not know: tensors, placement. Fields and defaults: docs/formats.md. */
#ifndef SLUICE_MODEL_SHAPE_H
#define SLUICE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"

enum { SHAPE_MAX_EOS = 16, SHAPE_MAX_NOTES = 16, SHAPE_NOTE_BYTES = 200 };

struct shape {
    char family[48];       /* model_type or GGUF architecture, as in the file */
    uint32_t vocab, hidden, layers, dense_layers, mtp_layers; /* layers: without MTP; MTP layer i has index layers + i */
    uint32_t moe_layer_freq;
    uint32_t heads, q_lora /* 0: one q_proj */, kv_lora, nope, rope, v_head;
    uint32_t dense_width, expert_width, shared_width; /* shared_width: n_shared_experts * expert_width, 0: none */
    uint32_t experts, experts_used, groups, groups_used;
    enum router_score score;
    enum router_group group;
    bool router_bias;      /* noaux_tc: a selection bias tensor is required */
    bool normalise;
    float routed_factor;
    float rms_eps;         /* all norms but the two inner ones */
    float inner_eps;       /* q_a_layernorm, kv_a_layernorm */
    bool tied_head;
    bool rope_half_split;  /* rope_interleave false */
    double rope_theta;
    bool yarn;
    double yarn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_original;
    bool yarn_truncate;    /* floor/ceil of the correction range; default true */
    double rope_magnitude; /* multiplies cos and sin: m(mscale)/m(mscale_all_dim) */
    double attn_scale;     /* includes m^2 */
    uint32_t max_positions;
    int32_t bos;           /* -1: none */
    int32_t eos[SHAPE_MAX_EOS];
    uint32_t n_eos;
    /* Values assumed because a key is absent, or ignored keys, one line each: announced once, shown by inspect. */
    uint32_t n_notes;
    char notes[SHAPE_MAX_NOTES][SHAPE_NOTE_BYTES];
};

static inline bool shape_layer_is_moe(const struct shape *s, uint32_t layer)
{
    return s->experts > 0 && (layer >= s->layers || (layer >= s->dense_layers && layer % s->moe_layer_freq == 0));
}
static inline uint32_t shape_all_layers(const struct shape *s) { return s->layers + s->mtp_layers; }
static inline uint32_t shape_q_head(const struct shape *s) { return s->nope + s->rope; }

/* Checks every field against the limits below and against each other; ERROR_FORMAT names the field, found, expected. */
int shape_check(const struct shape *s, const char *where, struct error *e);

/* Angular frequencies w_j of the rope/2 pairs (spec 3.5). */
void shape_rope_frequencies(const struct shape *s, double *ret_w);

/* cos, sin (float32, [rope/2, 2]) of one position; angles in double. */
void shape_rope_row(const struct shape *s, const double *w, uint32_t position, float *ret_cos_sin);

struct gguf_meta;

/* From config.json text and, if not NULL, generation_config.json text (eos ids). */
int shape_from_config(const char *config, size_t len, const char *generation, size_t generation_len, const char *where,
                      struct shape *ret, struct error *e);

/* From GGUF metadata. `group_routing` false: groups are not assumed when the keys are absent (spec 7.4).
 * Tensor-derived facts (fused or split kv_b, presence of a bias) are settled by bind. */
int shape_from_gguf(const struct gguf_meta *meta, const char *where, bool group_routing, struct shape *ret, struct error *e);

#endif
