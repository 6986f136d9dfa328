/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the deviation of each role. A matrix of n columns gets 1/sqrt(n): its outputs are then as large as its inputs.
 * Must not know: files, block layouts. */
#include "src/commands/synth_fill.h"

#include <math.h>
#include <string.h>

#include "common/exact.h"
#include "cpu/cpu.h"
#include "src/commands/synth_blocks.h"

static const float head_gain = 3.0f; /* logits of deviation 3: clear winners */

/* Attention averages over positions; what it adds is much the same at all of them, and would make all rows alike (and all
 * routing) after some dozen layers. */
static const float attention_gain = 0.5f;

int synth_fill_init(struct synth_fill *f, const struct tensor_list *list, const struct shape *shape, uint64_t seed, double zipf, struct error *e)
{
    struct cpu_flags flags;
    *f = (struct synth_fill){.list = list, .shape = shape, .seed = seed};
    cpu_detect(&flags);
    cpu_ops_init(&f->ops, CPU_SCALAR, &flags);
    return synth_router_init(&f->router, shape, zipf, &f->ops, e);
}

void synth_fill_deinit(struct synth_fill *f) { synth_router_deinit(&f->router); }

static float deviation(const struct synth_fill *f, const struct tensor_entry *t)
{
    const struct shape *s = f->shape;
    switch (t->role) {
    case ROLE_EMBED:
    case ROLE_MTP_EMBED:
        return 1.0f;
    case ROLE_HEAD:
    case ROLE_MTP_HEAD:
        return head_gain / sqrtf((float)s->hidden);
    case ROLE_K_B: /* transposed: it is the keys that have deviation 1 */
    case ROLE_V_B:
    case ROLE_KV_B:
        return 1.0f / sqrtf((float)s->kv_lora);
    case ROLE_Q_B:
        return 1.0f / sqrtf((float)s->q_lora);
    case ROLE_O:
        return attention_gain / sqrtf((float)s->heads * (float)s->v_head);
    case ROLE_EXPERT_DOWN:
        return 1.0f / sqrtf((float)s->expert_width);
    case ROLE_SHARED_DOWN:
        return 1.0f / sqrtf((float)s->shared_width);
    case ROLE_DOWN:
        return 1.0f / sqrtf((float)s->dense_width);
    case ROLE_MTP_EH:
        return 1.0f / sqrtf(2.0f * (float)s->hidden);
    default: /* reads the residual stream */
        return 1.0f / sqrtf((float)s->hidden);
    }
}

/* The MTP layer's copies of embedding and head are copies. */
static uint64_t seed_of(const struct synth_fill *f, const struct tensor_entry *t)
{
    bool copy = t->role == ROLE_MTP_EMBED || t->role == ROLE_MTP_HEAD;
    enum role role = t->role == ROLE_MTP_EMBED ? ROLE_EMBED : t->role == ROLE_MTP_HEAD ? ROLE_HEAD : t->role;
    uint64_t layer = synth_seed(f->seed, copy ? 0 : t->layer);
    return synth_seed(synth_seed(layer, (uint64_t)role * 2 + t->scales), t->expert);
}

/* Ones in any plain format. */
static void fill_ones(const struct tensor_entry *t, void *out)
{
    const float one = 1.0f;
    uint16_t half = t->format == FORMAT_F16 ? float_to_half(one) : float_to_bf16(one);
    size_t width = weight_format_info(t->format)->block_bytes;
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        memcpy((char *)out + i * width, width == sizeof(one) ? (const void *)&one : (const void *)&half, width);
    }
}

static void fill_random(const struct synth_fill *f, const struct tensor_entry *t, const struct output_piece *p, uint64_t seed, void *out)
{
    struct synth_filler filler;
    synth_filler_init(&filler, t->format, deviation(f, t), &f->ops);
    synth_filler_fill(&filler, synth_seed(seed, p->at), out, p->bytes);
}

int synth_fill_piece(void *ctx, const struct output_piece *p, void *out, uint32_t worker, struct error *e)
{
    (void)worker;
    (void)e;
    const struct synth_fill *f = ctx;
    const struct tensor_entry *t = &f->list->items[p->tensor];
    uint64_t seed = seed_of(f, t);
    float values[4096]; /* aligned, unlike out */
    if (t->scales) {
        for (size_t at = 0; at < p->bytes; at += sizeof(values)) {
            size_t bytes = p->bytes - at < sizeof(values) ? p->bytes - at : sizeof(values);
            synth_fp8_scales(synth_seed(seed, p->at + at), deviation(f, t), values, bytes / sizeof(float));
            memcpy((char *)out + at, values, bytes);
        }
    } else if (t->role == ROLE_ROUTER_BIAS) { /* at most 4096 experts */
        synth_router_layer(&f->router, seed, values);
        memcpy(out, values, p->bytes);
    } else if (role_is_vector(t->role)) {
        fill_ones(t, out);
    } else {
        fill_random(f, t, p, seed, out);
    }
    return 0;
}
