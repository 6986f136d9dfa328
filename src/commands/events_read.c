/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading event files. A line is a word and numbers. Must not know: what is made of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/base/str.h"
#include "src/commands/events.h"
#include "src/commands/gz_lines.h"

enum { LINE_BYTES = 1 << 20, BEFORE = 2 }; /* BEFORE: numbers of every call: at_ns, took_ns */

const char *events_counter(uint32_t i)
{
    static const char *const before[EVENTS_AHEAD] = {"expert.ram.hits", "expert.ram.bytes", "expert.ram.misses", "expert.nvme.hits", "expert.nvme.bytes", "expert.ram.admitted"};
    static const char *const after[] = {"expert.nvme.demand_us", "expert.nvme.demand_bytes", "expert.nvme.drive_bytes"};
    if (i < EVENTS_AHEAD || i >= EVENTS_EXACT) {
        return i < EVENTS_AHEAD ? before[i] : after[i - EVENTS_EXACT];
    }
    uint32_t row = (i - EVENTS_AHEAD) / (2 * AHEAD_OUTCOMES), lead = row == 0 ? HINT_LEADS : row - 1; /* all of them first */
    return ahead_counter_name(lead, (enum ahead_outcome)((i - EVENTS_AHEAD) / 2 % AHEAD_OUTCOMES), i % 2 != 0);
}

const char *const events_calls[STORE_CALLS] = {
    [STORE_BEGIN] = "begin", [STORE_HINT] = "hint", [STORE_EXPECT] = "expect", [STORE_NEXT] = "next", [STORE_RELEASE] = "release", [STORE_END] = "end"};

void events_deinit(struct events *x)
{
    free(x->item);
    free(x->batches);
    free(x->numbers);
    *x = (struct events){0};
}

struct prediction events_hint(const struct events *events, const struct event *x, uint32_t i)
{
    const uint32_t *w = &events->numbers[x->first + (size_t)EVENTS_HINT * i];
    struct prediction p = {.key = {(uint16_t)w[0], (uint16_t)w[1]}, .ahead = w[2], .lead = (enum hint_lead)w[4]};
    memcpy(&p.probability, &w[3], sizeof(p.probability));
    return p;
}

/* ---- lines ---- */

static int wrong(const struct events_text *t, struct error *e, const char *found, const char *expected)
{
    return error_set(e, ERROR_FORMAT, "%s: line %llu: %.40s, expected %s", t->name, (unsigned long long)t->line, found, expected);
}

/* Makes room for `need` items in *array, which has room for *have. */
static int grow(void *array, size_t *have, size_t need, size_t item, struct error *e)
{
    void *old;
    memcpy(&old, array, sizeof(old));
    if (need <= *have) {
        return 0;
    }
    size_t room = need + need / 2 + 1024;
    void *now = realloc(old, room * item);
    if (now == NULL) {
        return error_nomem(e, "events", (unsigned long long)room * item);
    }
    memcpy(array, &now, sizeof(now));
    *have = room;
    return 0;
}

static int keep_numbers(struct events_text *t, const uint64_t *from, size_t n, size_t *ret_first, struct error *e)
{
    struct events *x = t->events;
    int r = grow(&x->numbers, &t->numbers, x->n_numbers + n, sizeof(*x->numbers), e);
    *ret_first = x->n_numbers;
    for (size_t i = 0; r == 0 && i < n; i++) {
        x->numbers[x->n_numbers++] = (uint32_t)from[i];
    }
    return r;
}

/* ---- the setting ---- */

static int read_store(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    struct events_setting *s = &t->events->setting;
    if (t->set || n != 12) {
        return wrong(t, e, "store", "one such line of 12 numbers");
    }
    bool shape = w[0] > 0 && w[0] <= EVENTS_LAYERS && w[1] <= EVENTS_LAYERS - w[0] && w[2] <= w[0] && w[3] > 0 && w[3] <= EVENTS_LAYERS && w[4] > 0 && w[4] <= EVENTS_EXPERTS && w[5] > 0 && w[5] <= w[4];
    bool slots = w[6] <= EVENTS_ALL && w[7] > 0 && w[7] <= EVENTS_ALL && w[8] >= 16 && w[8] <= EVENTS_ROOM / EXPERT_PARTS;
    bool reader = w[9] > 0 && w[9] <= READER_DEPTH_MAX && w[10] > 0 && w[10] <= 1 << 30;
    if (!shape || !slots || !reader) {
        return wrong(t, e, !shape ? "a shape" : !slots ? "slots" : "a reader", "numbers that an engine may have");
    }
    *s = (struct events_setting){
        .layers = (uint32_t)w[0], .mtp_layers = (uint32_t)w[1], .dense_layers = (uint32_t)w[2], .moe_layer_freq = (uint32_t)w[3], .experts = (uint32_t)w[4],
        .experts_used = (uint32_t)w[5], .cached = (uint32_t)w[6], .staging = (uint32_t)w[7], .room = (uint32_t)w[8], .depth = (uint32_t)w[9], .chunk = w[10], .limit = w[11]};
    t->set = true;
    return 0;
}

static int read_layer(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    struct events_setting *s = &t->events->setting;
    if (!t->set || t->events->n > 0 || n != 1 + 2 * EXPERT_PARTS || w[0] >= s->layers + s->mtp_layers || events_has_experts(s, (uint32_t)w[0])) {
        return wrong(t, e, "layer", "each layer once, after the store and before calls, with 7 numbers");
    }
    struct events_layer l = {0};
    for (int part = 0; part < EXPERT_PARTS; part++) {
        uint64_t bytes = w[1 + 2 * part], scales = w[2 + 2 * part];
        if (bytes == 0 || bytes > 1u << 30 || scales > 1 << 24) {
            return wrong(t, e, "layer", "matrices of 1 byte to 1 GiB");
        }
        l.bytes[part] = bytes;
        l.scales[part] = (uint32_t)scales;
    }
    s->layer[w[0]] = l;
    return 0;
}

/* ---- calls ---- */

static bool is_expert(const struct events_text *t, uint64_t layer, uint64_t expert)
{
    return layer < EVENTS_LAYERS && expert < t->events->setting.experts && events_has_experts(&t->events->setting, (uint32_t)layer);
}

static int keep_call(struct events_text *t, struct event *call, const uint64_t *list, size_t numbers, struct error *e)
{
    struct events *x = t->events;
    uint64_t before = x->n > 0 ? x->item[x->n - 1].at_ns + x->item[x->n - 1].took_ns : 0;
    if (call->at_ns < before || call->at_ns > UINT64_MAX / 4 || call->took_ns > UINT64_MAX / 4) {
        return wrong(t, e, "a time", "calls one after the other");
    }
    call->first_batch = t->told;
    call->n_batches = (uint32_t)(x->n_batches - t->told);
    t->told = x->n_batches;
    int r = keep_numbers(t, list, numbers, &call->first, e);
    r = r < 0 ? r : grow(&x->item, &t->items, x->n + 1, sizeof(*x->item), e);
    if (r == 0) {
        x->item[x->n++] = *call;
    }
    return r;
}

/* NS TOOK LEASE LAYER PASSING (EXPERT ROWS)... */
static int read_begin(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    if (n < 7 || (n - 5) % 2 != 0 || w[2] >= STORE_LEASES || w[4] > 1) {
        return wrong(t, e, "begin", "time, duration, lease, layer, 0 or 1, and experts with rows");
    }
    struct event call = {.kind = STORE_BEGIN, .at_ns = w[0], .took_ns = w[1], .lease = (uint16_t)w[2], .layer = (uint16_t)w[3], .passing = w[4] == 1, .n = (n - 5) / 2};
    for (uint32_t i = 5; i < n; i += 2) {
        if (!is_expert(t, w[3], w[i]) || (i > 5 && w[i] <= w[i - 2]) || w[i + 1] > UINT32_MAX) {
            return wrong(t, e, "begin", "rising experts of a layer that has some");
        }
    }
    return keep_call(t, &call, w + 5, n - 5, e);
}

/* NS TOOK (LAYER EXPERT AHEAD CHANCE LEAD)...; the chance in bits. */
static int read_hint(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    if (n < BEFORE || (n - BEFORE) % EVENTS_HINT != 0) {
        return wrong(t, e, "hint", "time, duration, and experts as layer, number, visits ahead, chance, lead");
    }
    struct event call = {.kind = STORE_HINT, .at_ns = w[0], .took_ns = w[1], .n = (n - BEFORE) / EVENTS_HINT};
    for (uint32_t i = BEFORE; i < n; i += EVENTS_HINT) {
        if (!is_expert(t, w[i], w[i + 1]) || w[i + 2] > UINT16_MAX || w[i + 3] > 0x3f800000 || w[i + 4] >= HINT_LEADS) { /* at most 1.0 */
            return wrong(t, e, "hint", "experts of a layer that has some, with a chance and a lead");
        }
    }
    return keep_call(t, &call, w + BEFORE, n - BEFORE, e);
}

/* NS TOOK LAYER AHEAD CHANCE...; in 255ths, one for each expert of a layer. */
static int read_expect(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    bool right = n == BEFORE + 2 + t->events->setting.experts && is_expert(t, w[2], 0) && w[3] <= UINT16_MAX;
    for (uint32_t i = BEFORE + 2; right && i < n; i++) {
        right = w[i] <= UINT8_MAX;
    }
    if (!right) {
        return wrong(t, e, "expect", "time, duration, a layer that has experts, visits ahead, and the chance of each of them, 0 to 255");
    }
    struct event call = {.kind = STORE_EXPECT, .layer = (uint16_t)w[2], .at_ns = w[0], .took_ns = w[1], .max = (uint32_t)w[3], .n = n - BEFORE - 2};
    return keep_call(t, &call, w + BEFORE + 2, n - BEFORE - 2, e);
}

/* next: NS TOOK LEASE MAX N; release: NS TOOK LEASE N; end: NS TOOK LEASE */
static int read_lease(struct events_text *t, enum store_call_kind kind, const uint64_t *w, uint32_t n, struct error *e)
{
    uint32_t want = kind == STORE_NEXT ? 5 : kind == STORE_RELEASE ? 4 : 3;
    if (n != want || w[2] >= STORE_LEASES || w[want - 1] > EVENTS_EXPERTS || (kind == STORE_NEXT && (w[3] > EVENTS_EXPERTS || w[4] > w[3]))) {
        return wrong(t, e, "a call", "time, duration, lease, and how many experts");
    }
    struct event call = {.kind = kind, .at_ns = w[0], .took_ns = w[1], .lease = (uint16_t)w[2], .max = kind == STORE_NEXT ? (uint32_t)w[3] : 0, .n = kind == STORE_END ? 0 : (uint32_t)w[want - 1]};
    return keep_call(t, &call, NULL, 0, e);
}

/* (LAYER EXPERT -STATUS)... */
static int read_come(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    struct events *x = t->events;
    if (n % 3 != 0) {
        return wrong(t, e, "come", "experts as layer, number, 0 or what failed");
    }
    for (uint32_t i = 0; i < n; i += 3) {
        if (!is_expert(t, w[i], w[i + 1]) || w[i + 2] > INT32_MAX) {
            return wrong(t, e, "come", "experts of a layer that has some");
        }
    }
    int r = grow(&x->batches, &t->batches, x->n_batches + 1, sizeof(*x->batches), e);
    if (r == 0) {
        r = keep_numbers(t, w, n, &x->batches[x->n_batches].first, e);
        x->batches[x->n_batches].n = n / 3;
        x->n_batches += r == 0;
    }
    return r;
}

static int read_counted(struct events_text *t, const uint64_t *w, uint32_t n, struct error *e)
{
    if (n != 1 || t->counters == EVENTS_COUNTERS) {
        return wrong(t, e, "counted", "one number for each counter");
    }
    t->ended = true;
    t->events->counted[t->counters++] = w[0];
    return 0;
}

/* ---- words ---- */

/* Numbers of the line after its first word. */
static int cut(struct events_text *t, char *line, uint32_t *ret_n, struct error *e)
{
    char *save = NULL;
    *ret_n = 0;
    strtok_r(line, " ", &save);
    for (char *word; (word = strtok_r(NULL, " ", &save)) != NULL; ++*ret_n) {
        if (*ret_n == ARRAY_LEN(t->words) || !parse_u64(word, &t->words[*ret_n])) {
            return wrong(t, e, word, "a number, and not so many");
        }
    }
    return 0;
}

static int read_call(struct events_text *t, const char *word, uint32_t n, struct error *e)
{
    int kind = 0;
    while (kind < STORE_CALLS && strcmp(word, events_calls[kind]) != 0) {
        kind++;
    }
    if (kind == STORE_CALLS || !t->set || t->ended) {
        return wrong(t, e, word, !t->set ? "the store first" : "begin, hint, expect, next, release, end or come, and counters last");
    }
    switch (kind) {
    case STORE_BEGIN: return read_begin(t, t->words, n, e);
    case STORE_HINT: return read_hint(t, t->words, n, e);
    case STORE_EXPECT: return read_expect(t, t->words, n, e);
    default: return read_lease(t, (enum store_call_kind)kind, t->words, n, e);
    }
}

int events_text_line(struct events_text *t, char *line, struct error *e)
{
    char word[16];
    uint32_t n;
    if (t->line++ == 0) {
        return strcmp(line, "sluice-events 2") == 0 ? 0 : error_set(e, ERROR_FORMAT, "%s: line 1: \"%.40s\", expected sluice-events 2: a file of this version's `sluice trace record --events`", t->name, line);
    }
    size_t len = strcspn(line, " ");
    if (len == 0 || len >= sizeof(word)) {
        return wrong(t, e, len == 0 ? "nothing" : line, "a word and numbers");
    }
    memcpy(word, line, len);
    word[len] = '\0';
    int r = cut(t, line, &n, e);
    if (r < 0) {
        return r;
    }
    if (strcmp(word, "store") == 0) {
        return read_store(t, t->words, n, e);
    }
    if (strcmp(word, "layer") == 0) {
        return read_layer(t, t->words, n, e);
    }
    if (strcmp(word, "counted") == 0) {
        return read_counted(t, t->words, n, e);
    }
    return strcmp(word, "come") == 0 && t->set && !t->ended ? read_come(t, t->words, n, e) : read_call(t, word, n, e);
}

/* Whether experts of the model itself, not of its MTP layer alone, were used. */
static bool was_used(const struct events *x)
{
    uint32_t first = 0;
    while (first < x->setting.layers && !events_has_experts(&x->setting, first)) {
        first++;
    }
    for (size_t i = 0; first < x->setting.layers && i < x->n; i++) {
        if (x->item[i].kind == STORE_BEGIN && x->item[i].layer == first) {
            return true;
        }
    }
    return false;
}

/* Experts that stay are fewer than there are: others come and go. */
int events_text_end(struct events_text *t, struct error *e)
{
    const struct events_setting *s = &t->events->setting;
    uint64_t experts = 0;
    for (uint32_t i = 0; i < s->layers + s->mtp_layers; i++) {
        experts += events_has_experts(s, i) ? s->experts : 0;
    }
    if (t->events->n == 0 || t->counters != EVENTS_COUNTERS || t->told != t->events->n_batches) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu: the file ends early, expected calls and then %d lines counted", t->name, (unsigned long long)t->line, EVENTS_COUNTERS);
    }
    if (!was_used(t->events)) {
        return error_set(e, ERROR_FORMAT, "%s: no token came to the first layer with experts: there is nothing to play; record a run that computes tokens", t->name);
    }
    if (experts > EVENTS_ALL) {
        return error_set(e, ERROR_FORMAT, "%s: %llu experts in all layers, expected at most %d", t->name, (unsigned long long)experts, EVENTS_ALL);
    }
    return s->cached < experts ? 0 : error_set(e, ERROR_FORMAT, "%s: %u experts stay of %llu, expected fewer", t->name, s->cached, (unsigned long long)experts);
}

/* ---- the file ---- */

static int use_line(void *ctx, char *line, struct error *e) { return events_text_line(ctx, line, e); }

int events_read(const char *path, struct events *ret, struct error *e)
{
    struct events x = {0};
    struct events_text *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "events", sizeof(*t));
    }
    t->events = &x;
    t->name = path;
    int r = gz_lines_read(path, LINE_BYTES, use_line, t, e);
    r = r < 0 ? r : events_text_end(t, e);
    free(t);
    if (r < 0) {
        events_deinit(&x);
        return r;
    }
    *ret = x;
    return 0;
}
