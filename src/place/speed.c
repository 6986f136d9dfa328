/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: speed.h. Must not know: how experts were shared out. */
#include "src/place/speed.h"

#include <math.h>
#include <stdio.h>

#include "common/intmath.h"
#include "src/place/plan.h"

static uint64_t whole(double bytes) { return bytes < 0x1p64 ? (uint64_t)bytes : UINT64_MAX; }

static double seconds(double bytes, double gb_s) { return gb_s > 0 ? 1e-9 * bytes / gb_s : 0; }

static double share_of(uint64_t slots, uint64_t experts) { return experts > 0 ? (double)min_u64(slots, experts) / (double)experts : 1; }

/* Chosen experts of the main layers: their weights, where these are known, else their slots. */
static double routed_bytes(const struct plan_input *in, uint64_t experts)
{
    const struct shape *s = in->shape;
    if (in->cost.bytes[COST_ROUTED] > 0) {
        return in->cost.bytes[COST_ROUTED] * s->experts_used / s->experts;
    }
    uint64_t main_layers = experts == 0 ? 0 : experts / s->experts - s->mtp_layers;
    return experts == 0 ? 0 : (double)in->expert_bytes / (double)experts * (double)(main_layers * s->experts_used);
}

/* Without reading ahead. Weights go through kernels; those of a layer's experts that are there are computed while the others are read,
 * and the last one to come after that. */
static double expected_seconds(const struct plan_input *in, double dense, double routed, const struct speed *s)
{
    double rate = in->machine->decode_read_gb_s > 0 ? in->machine->decode_read_gb_s : in->machine->ram_read_gb_s, used = max_u32(in->shape->experts_used, 1);
    double last = s->nvme_bytes > 0 ? seconds(routed, rate) / used * (1 - pow(s->hit_ratio, used)) : 0;
    return seconds(dense, rate) + fmax(seconds(routed, rate), s->nvme_s + last);
}

/* Bytes and times of a decoded token; a byte from the drive is written into RAM before it is read there. */
static void decode(const struct plan_input *in, uint64_t experts, double share, double nvme_gb_s, struct speed *ret)
{
    double routed = routed_bytes(in, experts), dense = (double)(in->resident_bytes - min_u64(in->resident_bytes, in->idle_bytes));
    ret->hit_ratio = hits_ratio(&in->hits, share);
    double missed = (routed - in->cost.routed_scales * in->shape->experts_used / max_u32(in->shape->experts, 1)) * (1 - ret->hit_ratio);
    ret->ram_bytes = whole(dense + routed);
    ret->nvme_bytes = whole(missed);
    ret->ram_s = seconds(dense + routed + missed, in->machine->ram_read_gb_s);
    ret->nvme_s = seconds(missed, nvme_gb_s);
    bool known = ret->ram_s > 0 && (ret->nvme_s > 0 || ret->nvme_bytes == 0);
    ret->decode_tok_s = known ? 1 / fmax(ret->ram_s, ret->nvme_s) : 0;
    ret->expected_tok_s = known ? 1 / expected_seconds(in, dense, routed, ret) : 0;
    ret->serial_tok_s = known ? 1 / (ret->ram_s + ret->nvme_s) : 0;
}

/* A chunk at its roof, or at the rate of the drive that brings what the chunk's rows meet and RAM does not hold. */
static double prefill(const struct plan_input *in, double share)
{
    struct roof chunk;
    cost_prefill(&in->cost, in->machine, in->ubatch, 0, in->ubatch, &chunk);
    double missed = share < 1 ? in->cost.bytes[COST_ROUTED] * cost_experts_met(&in->cost, in->ubatch) * (1 - share) : 0;
    double reads = seconds(missed, in->machine->nvme_read_gb_s);
    return chunk.seconds > 0 && (reads > 0 || missed <= 0) ? in->ubatch / fmax(chunk.seconds, reads) : 0;
}

static void describe(const struct machine *m, struct speed *s)
{
    char token[24];
    bool drive = s->nvme_bytes > 0 && (s->ram_s <= 0 || s->nvme_s <= 0 || s->nvme_s > s->ram_s);
    double rate = drive ? m->nvme_read_gb_s : m->ram_read_gb_s;
    int n = snprintf(s->binding, sizeof(s->binding), "decode: %s reads of %s per token", drive ? "drive" : "RAM",
                     format_bytes(token, drive ? s->nvme_bytes : s->ram_bytes));
    if (rate > 0 && n > 0 && (size_t)n < sizeof(s->binding)) {
        snprintf(s->binding + n, sizeof(s->binding) - (size_t)n, " at %.1f GB/s", rate);
    }
}

void speed_of(const struct plan_input *in, uint64_t experts, uint64_t slots, struct speed *ret)
{
    struct speed s = {.prefill_tok_s = prefill(in, share_of(slots, experts)), .kernels_known = in->machine->decode_read_gb_s > 0}, more = {0};
    double share = share_of(slots, experts), drive = in->machine->nvme_read_gb_s;
    decode(in, experts, share, drive, &s);
    if (s.decode_tok_s > 0 && share < 1) {
        double one = (double)(UINT64_C(1) << 30) / (double)max_u64(in->max_expert_bytes, 1) / (double)experts;
        decode(in, experts, fmin(1, share + one), drive, &more);
        s.more_ram_tok_s = more.decode_tok_s - s.decode_tok_s;
        decode(in, experts, share, drive + 1, &more);
        s.more_nvme_tok_s = more.decode_tok_s - s.decode_tok_s;
    }
    describe(in->machine, &s);
    *ret = s;
}
