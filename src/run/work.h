/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scratch of the token loop, sized once from the shape (place/scratch.h): buffers of a layer (one set per engine,
 * since layers run one at a time) and of each worker. Must not know: what is computed in them. */
#ifndef SLUICE_RUN_WORK_H
#define SLUICE_RUN_WORK_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"
#include "src/base/alloc.h"
#include "src/model/shape.h"
#include "src/place/scratch.h"

/* int8 forms of activation rows for one block length. */
struct act_form {
    int8_t *q;       /* [rows, stride] */
    float *scale;    /* [rows, stride / block] */
    int16_t *bsum16; /* [rows, stride / 16] */
};

enum { FORM_32, FORM_256, FORM_COUNT };

struct worker_scratch {
    float *panel;  /* [panel_floats] dequantised weight rows */
    float *gather; /* [MOE_ROW_BLOCK, stride(worker_cols)] rows of one expert */
    float *tile;   /* [MOE_ROW_BLOCK, 2 * WEIGHT_TILE_ROWS] products before they are scattered */
    float *attn;   /* [KV_PAGE, latent + rope] page as float32 */
    float *bulk;   /* bulk attention: mla_bulk.c */
    float *router; /* [2 * experts + groups] */
    struct act_form form; /* [MOE_ROW_BLOCK, stride(worker_cols)] */
};

struct work {
    struct scratch_sizes size;
    uint32_t rows, workers;
    float *norm;            /* [rows, stride(hidden)] */
    float *q_a;             /* [rows, stride(q_lora)] */
    float *q;               /* [rows, stride(heads * (nope + rope))] */
    float *kv_a;            /* [rows, stride(kv_lora + rope)] */
    float *heads;           /* [rows, stride(heads * v_head)] */
    float *q_latent;        /* [attn_rows, heads, kv_lora] */
    float *part_m, *part_z; /* [attn_rows, segments, heads] */
    float *part_u;          /* [attn_rows, segments, heads, kv_lora] */
    float *out;             /* [rows, stride(hidden)] product of o, shared experts, eh */
    float *router_logits;   /* [rows, experts] */
    int32_t *ids;           /* [rows, k] rising */
    float *weights;         /* [rows, k] */
    float *ffn_mid;         /* [rows, stride(max(dense_width, shared_width))] */
    struct act_form ffn_form[FORM_COUNT];
    float *expert_mid;      /* [rows * k, stride(expert_width)] */
    struct act_form expert_form[FORM_COUNT];
    float *expert_out;      /* [rows * k, stride(hidden)] */
    float *mtp_in;          /* [rows, stride(2 * hidden)] */
    float *logits;          /* [OPS_MAX_ROWS, vocab] */
    struct act_form form[FORM_COUNT]; /* [rows, stride(max_cols)] */
    uint32_t *moe_lists;    /* moe.c */
    struct worker_scratch *worker; /* [workers] */
    struct buffer memory;
};

int work_init(struct work *w, struct account *account, const struct shape *s, const struct scratch_request *r, struct error *e);
void work_deinit(struct work *w);

#endif
