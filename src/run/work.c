/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: carving the scratch buffers (work.h) out of one allocation. */
#include "src/run/work.h"

#include <stdlib.h>
#include <string.h>

static void *carve(unsigned char **at, size_t bytes)
{
    void *p = *at;
    *at += align_up_u64(bytes, 64);
    return p;
}

/* Halves of double-sized buffers: one form per block length. */
static void carve_forms(struct act_form form[FORM_COUNT], unsigned char **at, size_t q_bytes, size_t scale_bytes, size_t bsum_bytes)
{
    int8_t *q = carve(at, q_bytes);
    unsigned char *scale = carve(at, scale_bytes), *bsum = carve(at, bsum_bytes);
    for (size_t i = 0; i < FORM_COUNT; i++) {
        form[i].q = q + i * (q_bytes / FORM_COUNT);
        form[i].scale = (float *)(void *)(scale + i * (scale_bytes / FORM_COUNT));
        form[i].bsum16 = (int16_t *)(void *)(bsum + i * (bsum_bytes / FORM_COUNT));
    }
}

static void worker_carve(struct worker_scratch *w, const struct scratch_sizes *z, unsigned char **at)
{
    w->panel = carve(at, z->panel);
    w->gather = carve(at, z->gather);
    w->tile = carve(at, z->tile);
    w->attn = carve(at, z->attn);
    w->bulk = carve(at, z->bulk);
    w->router = carve(at, z->router);
    w->form.q = carve(at, z->w_q);
    w->form.scale = carve(at, z->w_scale);
    w->form.bsum16 = carve(at, z->w_bsum);
}

static void work_carve(struct work *w)
{
    const struct scratch_sizes *z = &w->size;
    unsigned char *at = w->memory.data;
    w->norm = carve(&at, z->norm);
    w->q_a = carve(&at, z->q_a);
    w->q = carve(&at, z->q);
    w->kv_a = carve(&at, z->kv_a);
    w->heads = carve(&at, z->heads);
    w->q_latent = carve(&at, z->q_latent);
    w->part_m = carve(&at, z->part_m);
    w->part_z = carve(&at, z->part_z);
    w->part_u = carve(&at, z->part_u);
    w->out = carve(&at, z->out);
    w->router_logits = carve(&at, z->router_logits);
    w->ids = carve(&at, z->ids);
    w->weights = carve(&at, z->weights);
    w->ffn_mid = carve(&at, z->ffn_mid);
    carve_forms(w->ffn_form, &at, z->ffn_q, z->ffn_scale, z->ffn_bsum);
    w->expert_mid = carve(&at, z->expert_mid);
    carve_forms(w->expert_form, &at, z->expert_q, z->expert_scale, z->expert_bsum);
    w->expert_out = carve(&at, z->expert_out);
    w->mtp_in = carve(&at, z->mtp_in);
    w->logits = carve(&at, z->logits);
    carve_forms(w->form, &at, z->form_q, z->form_scale, z->form_bsum);
    w->moe_lists = carve(&at, z->moe_lists);
    for (uint32_t i = 0; i < w->workers; i++) {
        worker_carve(&w->worker[i], z, &at);
    }
}

int work_init(struct work *w, struct account *account, const struct shape *s, const struct scratch_request *r, struct error *e)
{
    memset(w, 0, sizeof(*w));
    scratch_sizes(s, r, &w->size);
    w->rows = r->rows;
    w->workers = r->workers;
    w->worker = calloc(r->workers, sizeof(*w->worker));
    int rc = w->worker ? 0 : error_nomem(e, "worker scratch table", r->workers * sizeof(*w->worker));
    if (rc == 0) {
        rc = buffer_init(&w->memory, account, PURPOSE_WORK, (size_t)w->size.total, e);
    }
    if (rc < 0) {
        work_deinit(w);
        return rc;
    }
    work_carve(w);
    return 0;
}

void work_deinit(struct work *w)
{
    buffer_deinit(&w->memory);
    free(w->worker);
    memset(w, 0, sizeof(*w));
}
