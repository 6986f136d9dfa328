/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: cost_input.h. Must not know: the machine, time. */
#include "src/tier/cost_input.h"

#include "common/intmath.h"

/* COST_PARTS: not read for every token, or a vector. */
static enum cost_part part_of(enum role role)
{
    switch (role) {
    case ROLE_Q:
    case ROLE_Q_A:
    case ROLE_Q_B:
    case ROLE_KV_A:
    case ROLE_KV_B:
    case ROLE_K_B:
    case ROLE_V_B:
    case ROLE_O:
        return COST_ATTENTION;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return COST_DENSE;
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN:
        return COST_SHARED;
    case ROLE_ROUTER:
        return COST_ROUTER;
    default:
        return COST_PARTS;
    }
}

/* Keys and values by head are products of float32 in either form of attention. */
static bool meets_floats(enum role role) { return role == ROLE_KV_B || role == ROLE_K_B || role == ROLE_V_B; }

static void add(struct cost *c, enum cost_part part, const struct weight_ref *ref, bool floats)
{
    double n = (double)ref->rows * ref->cols;
    const struct weight_format_info *info = weight_format_info(ref->format);
    c->bytes[part] += (double)ref->bytes;
    if (ref->scale != NULL) {
        double scales = (double)(ceil_div_u64(ref->rows, FORMAT_SCALE_BLOCK) * ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK) * sizeof(float));
        c->bytes[part] += scales;
        c->routed_scales += part == COST_ROUTED ? scales : 0;
    }
    double *weights = floats || info == NULL || info->act_block == 0 ? c->float_weights : c->int8_weights;
    weights[part] += n;
}

void cost_input_init(struct cost *ret, const struct weights *w)
{
    cost_of_shape(&w->shape, ret);
    add(ret, COST_HEAD, &w->head, false);
    for (uint32_t l = 0; l < w->shape.layers; l++) {
        const struct layer_refs *layer = &w->layers[l];
        for (int role = 0; role < ROLE_COUNT; role++) {
            enum cost_part part = part_of((enum role)role);
            if (part != COST_PARTS && layer->role[role].rows > 0) {
                add(ret, part, &layer->role[role], meets_floats((enum role)role));
            }
        }
        for (uint32_t x = 0; layer->experts != NULL && x < w->shape.experts; x++) {
            add(ret, COST_ROUTED, &layer->experts[x].gate, false);
            add(ret, COST_ROUTED, &layer->experts[x].up, false);
            add(ret, COST_ROUTED, &layer->experts[x].down, false);
        }
    }
}
