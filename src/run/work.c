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

/* Halves of a double-sized buffer: one form per block length. */
static void forms_split(struct act_form form[FORM_COUNT], void *q, size_t q_bytes, void *scale, size_t scale_bytes, void *bsum, size_t bsum_bytes)
{
    for (size_t i = 0; i < FORM_COUNT; i++) {
        form[i].q = (int8_t *)q + i * (q_bytes / 2);
        form[i].scale = (float *)(void *)((unsigned char *)scale + i * (scale_bytes / 2));
        form[i].bsum16 = (int16_t *)(void *)((unsigned char *)bsum + i * (bsum_bytes / 2));
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
    w->gate = carve(&at, z->gate);
    w->up = carve(&at, z->up);
    w->router_logits = carve(&at, z->router_logits);
    w->ids = carve(&at, z->ids);
    w->weights = carve(&at, z->weights);
    w->expert_mid = carve(&at, z->expert_mid);
    w->expert_out = carve(&at, z->expert_out);
    w->mtp_in = carve(&at, z->mtp_in);
    w->logits = carve(&at, z->logits);
    void *q = carve(&at, z->form_q), *scale = carve(&at, z->form_scale), *bsum = carve(&at, z->form_bsum);
    forms_split(w->form, q, z->form_q, scale, z->form_scale, bsum, z->form_bsum);
    q = carve(&at, z->mid_q), scale = carve(&at, z->mid_scale), bsum = carve(&at, z->mid_bsum);
    forms_split(w->mid, q, z->mid_q, scale, z->mid_scale, bsum, z->mid_bsum);
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
