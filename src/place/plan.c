/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the decision where every byte goes and whether it fits. Every sum saturates at UINT64_MAX, which fits nowhere.
 * Must not know: files, kernels, how a limit was found. */
#include "src/place/plan.h"

#include <stdio.h>
#include <string.h>

#include "common/intmath.h"
#include "src/place/scratch.h"

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t r = UINT64_MAX;
    return mul_u64(a, b, &r) ? r : UINT64_MAX;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t r = UINT64_MAX;
    return add_u64(a, b, &r) ? r : UINT64_MAX;
}

/* ---- sums ---- */

static bool streams(const struct plan *p) { return p->staging_slots > 0; }

static uint64_t session_pages(uint32_t context) { return ceil_div_u64(context, KV_PAGE); }

/* Scratch of the engine, of the steps that may be open at once and of timelines that draft. */
static uint64_t work_bytes(const struct plan_input *in, uint32_t context)
{
    if (in->ubatch > PLAN_MAX_UBATCH) {
        return UINT64_MAX;
    }
    struct scratch_request r = {.rows = in->ubatch + EXTRA_ROWS, .ubatch = in->ubatch, .context = context, .workers = max_u32(in->threads, 1)};
    struct scratch_sizes sizes;
    scratch_sizes(in->shape, &r, &sizes);
    uint64_t steps = times(PLAN_OPEN_STEPS, scratch_step_bytes(in->shape, r.rows)), drafts = times(max_u32(in->sessions, 1), scratch_draft_bytes(in->shape, in->drafts));
    return plus(sizes.total, plus(steps, drafts));
}

/* Fills bytes and total of the plan for a context of so many positions per session. */
static void fill_sums(const struct plan_input *in, uint32_t context, struct plan *p)
{
    const struct shape *s = in->shape;
    uint64_t workers = max_u32(in->threads, 1);
    p->bytes[PURPOSE_RESIDENT] = in->resident_bytes;
    p->bytes[PURPOSE_EXPERTS] = streams(p) ? times(p->expert_slots + p->staging_slots, in->max_expert_bytes) : in->expert_bytes;
    p->bytes[PURPOSE_SCALES] = in->scale_bytes;
    p->bytes[PURPOSE_KV] = times(times(max_u32(in->sessions, 1), session_pages(context)), p->kv_page_bytes);
    p->bytes[PURPOSE_WORK] = work_bytes(in, context);
    p->bytes[PURPOSE_STAGING] = PLAN_STAGING_BYTES;
    p->bytes[PURPOSE_TOKENIZER] = in->tokenizer_bytes;
    p->bytes[PURPOSE_TABLES] = plus(plus(in->table_bytes, (uint64_t)context * s->rope * sizeof(float)), streams(p) ? in->ahead_bytes : 0); /* cos, sin per position */
    p->bytes[PURPOSE_PROGRAM] = plus(PLAN_PROGRAM_BYTES, times(workers, PLAN_THREAD_BYTES));
    p->total = 0;
    for (int i = 0; i < PURPOSE_COUNT; i++) {
        p->total = plus(p->total, p->bytes[i]);
    }
}

static uint64_t total_at(const struct plan_input *in, const struct plan *p, uint32_t context)
{
    struct plan trial = *p;
    fill_sums(in, context, &trial);
    return trial.total;
}

/* Largest context up to the model's own that stays within the limit, whole pages or the model's maximum; 0: none. */
static uint32_t largest_context(const struct plan_input *in, const struct plan *p)
{
    uint32_t most = in->shape->max_positions;
    uint64_t low = 0, high = session_pages(most); /* pages: low fits or is 0; above high nothing is tried */
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (total_at(in, p, (uint32_t)min_u64(middle * KV_PAGE, most)) <= p->limit) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return (uint32_t)min_u64(low * KV_PAGE, most);
}

static uint64_t count_experts(const struct shape *s)
{
    uint64_t layers = 0;
    for (uint32_t i = 0; i < shape_all_layers(s); i++) {
        layers += shape_layer_is_moe(s, i);
    }
    return layers * s->experts;
}

/* ---- verdict ---- */

static int refuse_context(const struct plan_input *in, struct plan *p, struct error *e)
{
    p->fits = false;
    return error_set(e, ERROR_USAGE, "context %u (-c) is above the %u positions the model was made for: give -c %u or less, or leave it out",
                     in->context, in->shape->max_positions, in->shape->max_positions);
}

static int refuse_total(const struct plan_input *in, const struct plan *p, struct error *e)
{
    char total[24], limit[24], needed[24], over[24];
    format_bytes(total, p->total);
    format_bytes(limit, p->limit);
    format_bytes(needed, p->needed);
    if (p->context_max > 0) {
        return error_set(e, ERROR_DOES_NOT_FIT,
                         "does not fit: needs %s with context %u, the limit is %s (%s); the least that works is %s; give -c %u or less, "
                         "a smaller cache type (-ctk q8_0) or fewer rows per chunk (-ub)", total, p->context, limit,
                         memory_limit_name(p->binding), needed, p->context_max);
    }
    uint64_t weights = plus(p->bytes[PURPOSE_RESIDENT], p->bytes[PURPOSE_SCALES]);
    if (weights > p->limit) {
        return error_set(e, ERROR_DOES_NOT_FIT,
                         "does not fit: needs %s, the limit is %s (%s); attention, shared experts, router and head, which every token uses, are "
                         "%s alone: take a smaller file of the model (fewer bits) or a machine with more memory", needed, limit,
                         memory_limit_name(p->binding), format_bytes(total, weights));
    }
    return error_set(e, ERROR_DOES_NOT_FIT,
                     "does not fit: needs %s, the limit is %s (%s); the least that works is %s (context %u), %s more than the limit; raise "
                     "the limit, give a smaller -ub or -ctk, or take a smaller file of the model", total, limit, memory_limit_name(p->binding),
                     needed, min_u32(KV_PAGE, in->shape->max_positions), format_bytes(over, p->needed - p->limit));
}

/* Several nodes are bound strictly: what one lacks the others do not give. The rest of the memory comes evenly from where threads run. */
static int check_nodes(struct plan *p, struct error *e)
{
    uint64_t rest = p->nodes == 0 ? 0 : (p->total - p->bytes[PURPOSE_RESIDENT] - p->bytes[PURPOSE_EXPERTS]) / p->nodes;
    for (uint32_t k = 0; p->nodes > 1 && k < p->nodes; k++) { /* one alone is a limit of the machine */
        const struct plan_node *n = &p->node[k];
        if (n->available > 0 && plus(n->weights, rest) > n->available) {
            char share[24], more[24], there[24];
            p->fits = false;
            p->node_short = true;
            return error_set(e, ERROR_DOES_NOT_FIT, "does not fit: node %d would hold %s of the weights and %s of the rest, and has %s; free memory there, name other nodes "
                             "(--numa) or let the system place them (--numa off)", n->number, format_bytes(share, n->weights), format_bytes(more, rest), format_bytes(there, n->available));
        }
    }
    return 0;
}

static void describe_binding(struct plan *p)
{
    char limit[24];
    snprintf(p->binding_text, sizeof(p->binding_text), "memory: %s (%s); %s", memory_limit_name(p->binding), format_bytes(limit, p->limit), p->speed.binding);
}

/* ---- experts that stay ---- */

/* Experts that --expert-ram allows to stay. */
static uint64_t expert_cap(const struct plan_input *in, uint64_t all)
{
    const struct amount *a = &in->expert_ram;
    double most = a->unit == AMOUNT_AUTO ? (double)all
                : a->unit == AMOUNT_BYTES ? (a->value >= (double)in->expert_bytes ? (double)all : a->value / (double)max_u64(in->max_expert_bytes, 1))
                : a->unit == AMOUNT_PERCENT ? (double)all * a->value / 100 : a->value;
    return most >= (double)all ? all : (uint64_t)most;
}

/* Context of a plan in which experts stream: it takes at most a quarter of what experts could have, but for a useful one. */
static uint32_t streaming_context(const struct plan_input *in, const struct plan *least)
{
    struct plan quarter = *least;
    uint64_t smallest = least->needed;
    quarter.limit = smallest + (least->limit - min_u64(least->limit, smallest)) / 4;
    uint32_t most = min_u32(in->shape->max_positions, PLAN_DEFAULT_CONTEXT), useful = min_u32(most, PLAN_USEFUL_CONTEXT);
    uint32_t context = max_u32(min_u32(most, largest_context(in, &quarter)), min_u32(useful, least->context_max));
    return max_u32(context, min_u32(KV_PAGE, in->shape->max_positions));
}

/* Without -c: as many positions as are useful, before experts leave. */
static bool all_stay(const struct plan_input *in, const struct plan *p)
{
    uint32_t context = in->context > 0 ? in->context : min_u32(in->shape->max_positions, PLAN_USEFUL_CONTEXT);
    return p->experts == 0 || (expert_cap(in, p->experts) == p->experts && total_at(in, p, context) <= p->limit);
}

/* Slots for what there is room for: some to read into, the others to stay. */
static int share_slots(const struct plan_input *in, struct plan *p, struct error *e)
{
    uint64_t wanted = expert_cap(in, p->experts), others, room;
    p->expert_slots = 0;
    p->staging_slots = 1;
    others = total_at(in, p, p->context) - in->max_expert_bytes;
    room = others < p->limit ? (p->limit - others) / max_u64(in->max_expert_bytes, 1) : 0;
    if (p->binding == LIMIT_AVAILABLE) { /* an estimate, and others on the machine want to live */
        room = max_u64(room - min_u64(room, p->limit / PLAN_LEFT_SHARE / max_u64(in->max_expert_bytes, 1)), room > 0);
    }
    room = max_u64(room - min_u64(room, ceil_div_u64(in->spare, max_u64(in->max_expert_bytes, 1))), room > 0);
    p->staging_slots = max_u64(1, min_u64(room / 2, 2ull * in->shape->experts_used));
    uint64_t most = min_u64(room - min_u64(room, p->staging_slots), p->experts - 1);
    p->expert_slots = min_u64(wanted, most);
    if (in->expert_ram.unit == AMOUNT_AUTO || wanted <= most || room == 0) {
        return 0;
    }
    p->fits = false;
    char bytes[24];
    return error_set(e, ERROR_DOES_NOT_FIT, "does not fit: --expert-ram asks for %llu of %llu experts in RAM, and there is room for %llu (%s) beside the rest: "
                     "give %llux or less, or leave it out", (unsigned long long)wanted, (unsigned long long)p->experts, (unsigned long long)most,
                     format_bytes(bytes, times(most, in->max_expert_bytes)), (unsigned long long)most);
}

static uint32_t choose_context(const struct plan_input *in, const struct plan *p)
{
    if (in->context > 0) {
        return in->context;
    }
    uint32_t most = min_u32(in->shape->max_positions, PLAN_DEFAULT_CONTEXT);
    return p->context_max > 0 ? min_u32(most, p->context_max) : min_u32(KV_PAGE, most);
}

static void fill_nodes(const struct plan_input *in, struct plan *p)
{
    const struct machine *m = in->machine;
    p->nodes = in->nodes;
    for (uint32_t k = 0; k < p->nodes; k++) {
        uint64_t slots = times(p->expert_slots + p->staging_slots, in->node_slot_bytes[k]);
        uint64_t weights = streams(p) ? plus(in->node_bytes[k] - in->node_expert_bytes[k], slots) : in->node_bytes[k];
        p->node[k] = (struct plan_node){m->node_number[k], weights, m->node_available[k]};
    }
}

/* OpenBLAS maps addresses that it does not use. */
static void take_gemm_addresses(const struct plan_input *in, struct machine *m)
{
    uint64_t mapped = times(max_u32(in->threads, 1), PLAN_GEMM_ADDRESSES), *limit = &m->limit[LIMIT_ADDRESS_SPACE];
    if (*limit > 0 && in->ubatch > OPS_MAX_ROWS) {
        *limit = max_u64(*limit - min_u64(*limit, mapped), 1);
    }
}

static int verdict(const struct plan_input *in, struct plan *p, struct error *e)
{
    if (p->context > in->shape->max_positions) {
        return refuse_context(in, p, e);
    }
    if (p->fits) {
        return check_nodes(p, e);
    }
    int r = refuse_total(in, p, e);
    if (p->binding == LIMIT_ADDRESS_SPACE && in->ubatch > OPS_MAX_ROWS && e != NULL) {
        r = error_set(e, r, "%s; OpenBLAS maps %u MiB of addresses for each of %u threads, taken from this limit already: -ub 8 needs none",
                      e->text, PLAN_GEMM_ADDRESSES >> 20, max_u32(in->threads, 1));
    }
    return r;
}

int plan_make(const struct plan_input *in, struct plan *ret, struct error *e)
{
    const struct shape *s = in->shape;
    struct machine m = *in->machine;
    if (in->ram_setting > 0) {
        m.limit[LIMIT_SETTING] = in->ram_setting;
    }
    take_gemm_addresses(in, &m);
    struct plan p = {.experts = count_experts(s)};
    p.limit = machine_memory(&m, &p.binding);
    p.kv_token_bytes = times(shape_all_layers(s), kv_row_bytes(in->kv, s->kv_lora, s->rope));
    p.kv_page_bytes = times(p.kv_token_bytes, KV_PAGE);
    p.expert_slots = p.experts;
    bool stream = !all_stay(in, &p);
    struct plan least = p;
    least.expert_slots = p.experts > 0 ? 0 : p.expert_slots;
    least.staging_slots = p.experts > 0;
    p.needed = total_at(in, &least, min_u32(KV_PAGE, s->max_positions));
    p.context_max = largest_context(in, stream ? &least : &p);
    least.needed = p.needed;
    least.context_max = p.context_max;
    p.context = stream && in->context == 0 ? streaming_context(in, &least) : choose_context(in, &p);
    int r = stream ? share_slots(in, &p, e) : 0;
    fill_sums(in, p.context, &p);
    fill_nodes(in, &p);
    p.nvme_bytes = p.experts > 0 ? in->expert_bytes / p.experts * (p.experts - p.expert_slots) : 0;
    speed_of(in, p.experts, p.expert_slots, &p.speed);
    uint64_t pages = times(max_u32(in->sessions, 1), session_pages(p.context));
    p.kv_pages = (uint32_t)min_u64(pages, UINT32_MAX);
    p.fits = r == 0 && p.total <= p.limit && pages <= UINT32_MAX;
    describe_binding(&p);
    r = r < 0 ? r : verdict(in, &p, e);
    *ret = p;
    return r;
}
