/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fetch.h. A request's tag is (slot, number of the read). Must not know: why it is read. */
#include "src/tier/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

enum { READS_MAX = EXPERT_PARTS * WEIGHT_NODES_MAX };

static uint64_t tag_of(uint32_t slot, size_t read) { return (uint64_t)slot * READS_MAX + read; }

int fetch_init(struct fetch *f, struct reader *reader, uint32_t requests, const struct expert_slots *slots, const struct fingerprints *fingerprints, struct error *e)
{
    size_t experts = (size_t)shape_all_layers(&slots->weights->shape) * slots->weights->shape.experts;
    assert(requests >= READS_MAX);
    *f = (struct fetch){.reader = reader, .slots = slots, .fingerprints = fingerprints, .most = requests};
    f->flights = calloc((size_t)slots->n + 1, sizeof(*f->flights));
    f->seen = calloc(ceil_div_u64(experts, 32) + 1, sizeof(*f->seen));
    return f->flights != NULL && f->seen != NULL ? 0 : error_nomem(e, "table of reads", slots->n * sizeof(*f->flights));
}

void fetch_deinit(struct fetch *f)
{
    struct read_result result;
    for (uint32_t i = 0; f->flights != NULL && i < f->slots->n && f->open > 0; i++) {
        fetch_cancel(f, i);
    }
    while (f->open > 0 && reader_collect(f->reader, &result, -1) > 0) {
        f->open -= !result.more;
    }
    free(f->flights);
    free(f->seen);
    *f = (struct fetch){0};
}

/* By experts: when the first reads of one have arrived makes no difference. */
bool fetch_has_room(const struct fetch *f) { return (f->under_way + 1) * EXPERT_PARTS * f->slots->buffers.nodes <= f->most; }

void fetch_start(struct fetch *f, struct expert_key key, uint32_t slot, enum read_priority priority)
{
    struct fetch_flight *x = &f->flights[slot];
    struct load_item items[READS_MAX];
    size_t n = expert_slots_reads(f->slots, key, slot, items);
    assert(x->left == 0 && fetch_has_room(f) && n > 0);
    *x = (struct fetch_flight){.key = key, .left = (uint32_t)n};
    f->under_way++;
    f->open += (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        struct read_request request = {
            .file = items[i].ref.file, .offset = items[i].ref.offset + items[i].begin, .bytes = items[i].bytes, .data = items[i].data,
            .tag = tag_of(slot, i), .priority = priority};
        int r = reader_submit(f->reader, &request);
        assert(r == 0); /* there was room */
        (void)r;
    }
}

void fetch_cancel(struct fetch *f, uint32_t slot)
{
    struct fetch_flight *x = &f->flights[slot];
    for (size_t i = 0; x->left > 0 && i < READS_MAX; i++) {
        reader_cancel(f->reader, tag_of(slot, i));
    }
}

void fetch_raise(struct fetch *f, uint32_t slot)
{
    for (size_t i = 0; i < READS_MAX; i++) {
        reader_raise(f->reader, tag_of(slot, i));
    }
}

/* ---- arrival ---- */

static int tell_failure(const struct fetch *f, const struct fetch_flight *x, uint32_t slot, struct error *e)
{
    struct load_item items[READS_MAX];
    expert_slots_reads(f->slots, x->key, slot, items);
    const struct weight_ref *ref = &items[x->failed_read].ref;
    return error_set(e, x->status, "%s: tensor %s: layer %u, expert %u: reading at byte %llu failed: %s; this answer ends here, the next one tries "
                     "again; `sluice check` reads the whole file", x->failed->path, ref->name, x->key.layer, x->key.expert,
                     (unsigned long long)x->failed_at, reader_status_text(x->status));
}

/* NaN codes end a session late and without a name, so the first arrival is checked as a load at open is. So are damaged bytes, where
 * there are fingerprints. */
static int check(struct fetch *f, const struct fetch_flight *x, uint32_t slot, struct error *e)
{
    uint32_t index = expert_slots_index(f->slots, x->key), bit = 1u << index % 32;
    struct load_item items[READS_MAX];
    size_t n = (f->seen[index / 32] & bit) == 0 ? expert_slots_reads(f->slots, x->key, slot, items) : 0;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        r = load_check_item(&items[i], e);
    }
    if (n > 0 && r == 0) {
        struct weight_view part[EXPERT_PARTS];
        expert_slots_view(f->slots, x->key, slot, part);
        r = fingerprints_check_expert(f->fingerprints, &f->slots->weights->layers[x->key.layer].experts[x->key.expert], part, e);
    }
    f->seen[index / 32] |= r == 0 ? bit : 0;
    return r;
}

int fetch_collect(struct fetch *f, int timeout_ms, struct fetch_arrival *ret, struct error *e)
{
    struct read_result result;
    while (f->open > 0 && reader_collect(f->reader, &result, timeout_ms) > 0) {
        if (result.more) {
            continue;
        }
        uint32_t slot = (uint32_t)(result.tag / READS_MAX);
        struct fetch_flight *x = &f->flights[slot];
        f->open--;
        if (result.status < 0 && (x->status == 0 || x->status == -ECANCELED)) {
            x->status = result.status;
            x->failed_read = (int)(result.tag % READS_MAX);
            x->failed_at = result.file_offset;
            x->failed = result.file;
        }
        if (--x->left > 0) {
            continue;
        }
        f->under_way--;
        *ret = (struct fetch_arrival){x->key, slot, x->status};
        if (x->status == 0) {
            ret->status = check(f, x, slot, e);
        } else if (x->status != -ECANCELED) {
            tell_failure(f, x, slot, e);
        }
        return 1;
    }
    return 0;
}
