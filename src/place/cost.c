/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the arithmetic of cost.h. Must not know: files, kernels. */
#include "src/place/cost.h"

#include <math.h>

#include "common/intmath.h"

const char *cost_part_name(enum cost_part p)
{
    static const char *const names[COST_PARTS] = {"attention", "dense ffn", "shared experts", "router", "routed experts", "head"};
    return (unsigned)p < COST_PARTS ? names[p] : "unknown";
}

const char *roof_bound_name(enum roof_bound b)
{
    static const char *const names[] = {"unknown", "memory reads", "int8 products", "float products", "drive reads"};
    return names[b];
}

void roof_add_drive(struct roof *r, double bytes, double bytes_per_second)
{
    double seconds = bytes > 0 && bytes_per_second > 0 ? bytes / bytes_per_second : 0;
    if (seconds > r->seconds && r->seconds > 0) {
        r->seconds = seconds;
        r->bound = ROOF_DRIVE;
    }
}

void cost_of_shape(const struct shape *s, struct cost *ret)
{
    double per_layer = (double)s->layers * s->heads;
    *ret = (struct cost){
        .experts = s->experts,
        .experts_used = s->experts > 0 ? s->experts_used : 0,
        .score_macs = per_layer * (s->nope + s->rope + s->v_head),
        .latent_macs = per_layer * (2.0 * s->kv_lora + s->rope),
    };
}

double cost_experts_met(const struct cost *c, double rows)
{
    return c->experts == 0 ? 0 : 1 - pow(1 - (double)c->experts_used / c->experts, rows);
}

/* Bytes of one pass over the weights by rows that meet such a share of the experts. */
static double pass_bytes(const struct cost *c, double experts_met, bool head)
{
    double sum = c->bytes[COST_ROUTED] * experts_met;
    for (int p = 0; p < COST_PARTS; p++) {
        sum += p == COST_ROUTED || (p == COST_HEAD && !head) ? 0 : c->bytes[p];
    }
    return sum;
}

/* Multiply-adds of `rows` rows with weights of one kind, and of `heads` rows with the head. */
static double macs(const struct cost *c, const double *weights, double rows, double heads)
{
    double chosen = c->experts == 0 ? 0 : (double)c->experts_used / c->experts;
    double sum = heads * weights[COST_HEAD] + rows * chosen * weights[COST_ROUTED];
    for (int p = 0; p < COST_PARTS; p++) {
        sum += p == COST_ROUTED || p == COST_HEAD ? 0 : rows * weights[p];
    }
    return sum;
}

static void finish(struct roof *r, const struct machine *m)
{
    double floats = fmax(m->fma_gop_s, m->bf16_gop_s);
    r->memory_s = m->ram_read_gb_s > 0 ? 1e-9 * r->bytes / m->ram_read_gb_s : 0;
    double int8_s = m->int8_gop_s > 0 ? 1e-9 * r->int8_operations / m->int8_gop_s : 0;
    double float_s = floats > 0 ? 1e-9 * r->float_operations / floats : 0;
    r->compute_s = m->int8_gop_s > 0 && floats > 0 ? int8_s + float_s : 0;
    r->seconds = r->memory_s > 0 && r->compute_s > 0 ? fmax(r->memory_s, r->compute_s) : 0;
    r->bound = r->seconds == 0 ? ROOF_UNKNOWN : r->memory_s >= r->compute_s ? ROOF_MEMORY : int8_s >= float_s ? ROOF_INT8 : ROOF_FLOAT;
}

void cost_prefill(const struct cost *c, const struct machine *m, uint32_t n, uint32_t depth, uint32_t ubatch, struct roof *ret)
{
    struct roof r = {0};
    for (uint32_t done = 0; done < n;) {
        uint32_t rows = min_u32(n - done, ubatch - (depth + done) % ubatch);
        done += rows;
        r.bytes += pass_bytes(c, cost_experts_met(c, rows), done == n);
    }
    double positions = (double)n * depth + (double)n * (n + 1.0) / 2; /* visible ones, summed over the queries */
    r.int8_operations = 2 * macs(c, c->int8_weights, n, 1);
    r.float_operations = 2 * (macs(c, c->float_weights, n, 1) + positions * c->score_macs);
    finish(&r, m);
    *ret = r;
}

void cost_decode(const struct cost *c, const struct machine *m, uint32_t rows, uint32_t depth, uint64_t kv_bytes, double experts_met, struct roof *ret)
{
    struct roof r = {0};
    double visible = (double)rows * (depth + 1.0);
    r.bytes = pass_bytes(c, experts_met < 0 ? cost_experts_met(c, rows) : experts_met, true) + visible * (double)kv_bytes;
    r.int8_operations = 2 * macs(c, c->int8_weights, rows, rows);
    r.float_operations = 2 * (macs(c, c->float_weights, rows, rows) + visible * c->latent_macs);
    finish(&r, m);
    *ret = r;
}
