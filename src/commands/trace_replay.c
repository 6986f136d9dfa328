/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_replay.h: what is expected at which visit, and counting. Must not know: how results are shown. */
#include "src/commands/trace_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/base/str.h"

#include "src/tier/calibrate.h"

const struct trace_policy trace_policies[] = {
    {"lru", "least recently used leaves, everything is let in", EVICT_LRU, AHEAD_NONE, 64},
    {"lfu", "popularity; what is not hotter than the coldest is not let in", EVICT_LFU, AHEAD_NONE, 64},
    {"odds", "what the engine does without predictions: lfu, but who comes in is a fifth hotter", EVICT_ODDS, AHEAD_NONE, 64},
    {"lfu-ahead", "lfu, but what shadow_ids expects within one token stays", EVICT_LFU, AHEAD_SHADOW, 64},
    {"odds-ahead", "chance of use by shadow_ids weighed against popularity", EVICT_ODDS, AHEAD_SHADOW, 32},
    {"exact-ahead", "lfu-ahead with a prediction that is always right", EVICT_LFU, AHEAD_EXACT, 64},
    {"min", "all uses to come are known (Belady): nothing hits more", EVICT_LFU, AHEAD_ALL, 64},
    {NULL, NULL, EVICT_LRU, AHEAD_NONE, 0},
};

struct replay {
    const struct trace *trace;
    const struct trace_policy *policy;
    const struct replay_options *options;
    struct heat heat;
    struct evict cache;
    struct calibration calibration; /* EVICT_ODDS */
    uint32_t *next;                 /* AHEAD_ALL: [n_rows][used] visits of the next use; 0: none */
    size_t start, end;              /* rows of the window; visit v is row start + v - 1 */
    size_t told;                    /* rows before it have been expected */
    struct expert_key *keys, *missed;
    struct evict_answer *answers;
    uint32_t *slots;                /* these: [used] */
};

/* ---- expectations ---- */

static void expect_set(struct replay *p, size_t row, const uint16_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        evict_expect(&p->cache, (struct expert_key){p->trace->rows[row].layer, ids[i]}, row - p->start + 1, 1);
    }
}

/* Every expert of the layer gets its chance. */
static void expect_chances(struct replay *p, size_t row, const uint16_t *ids, uint32_t n)
{
    const struct trace *t = p->trace;
    uint16_t layer = t->rows[row].layer;
    double per_use = heat_per_use(&p->heat, t->n_layers);
    calibration_set(&p->calibration, layer, ids, n);
    for (uint32_t x = 0; x < p->options->experts; x++) {
        struct expert_key key = {layer, (uint16_t)x};
        double chance = calibration_chance(&p->calibration, key, heat_value(&p->heat, key) * per_use);
        evict_expect(&p->cache, key, row - p->start + 1, (float)chance);
    }
}

/* At a row, the rows up to the same layer of the next token are predicted. */
static void expect_cycle(struct replay *p, size_t row)
{
    const struct trace *t = p->trace;
    for (p->told = p->told > row ? p->told : row + 1; p->told < p->end && p->told <= row + t->n_layers; p->told++) {
        const struct trace_row *r = &t->rows[p->told];
        if (p->policy->ahead == AHEAD_EXACT) {
            expect_set(p, p->told, trace_ids(t, p->told), t->used);
        } else if (p->policy->policy == EVICT_ODDS) {
            expect_chances(p, p->told, t->shadow + r->shadow, r->n_shadow);
        } else {
            expect_set(p, p->told, t->shadow + r->shadow, r->n_shadow);
        }
    }
}

static void expect(struct replay *p, size_t row)
{
    const struct trace *t = p->trace;
    if (p->policy->policy == EVICT_ODDS) {
        calibration_outcome(&p->calibration, t->rows[row].layer, trace_ids(t, row), t->used);
    }
    if (p->policy->ahead == AHEAD_ALL) {
        for (uint32_t k = 0; k < t->used; k++) {
            evict_expect(&p->cache, p->keys[k], p->next[row * t->used + k], 1);
        }
    } else if (p->policy->ahead != AHEAD_NONE) {
        expect_cycle(p, row);
    }
}

/* Backwards through each window; `seen` [layers][experts] is all zero and is left so. */
static void find_next_uses(struct replay *p, uint32_t *seen)
{
    const struct trace *t = p->trace;
    for (size_t start = 0, end; start < t->n_rows; start = end) {
        end = trace_window_end(t, start);
        for (size_t row = end; row-- > start;) {
            for (uint32_t k = 0; k < t->used; k++) {
                uint32_t *last = &seen[(size_t)t->rows[row].layer * t->experts + trace_ids(t, row)[k]];
                p->next[row * t->used + k] = *last;
                *last = (uint32_t)(row - start + 1);
            }
        }
        for (size_t row = start; row < end; row++) {
            for (uint32_t k = 0; k < t->used; k++) {
                seen[(size_t)t->rows[row].layer * t->experts + trace_ids(t, row)[k]] = 0;
            }
        }
    }
}

/* ---- visits ---- */

static void count(const struct replay *p, size_t row, uint32_t layer, uint32_t missed, struct replay_counts *c)
{
    uint32_t used = p->trace->used;
    if (p->trace->rows[row].position < p->options->first_position) {
        return;
    }
    c->uses += used;
    c->hits += used - missed;
    c->layer_hits[layer] += used - missed;
    for (uint32_t i = 0; i < missed; i++) {
        c->admitted += p->answers[i].slot != EVICT_NO_SLOT;
        c->evicted += p->answers[i].evicted;
    }
}

static int visit(struct replay *p, size_t row, uint32_t layer, struct replay_counts *c, struct error *e)
{
    const struct trace *t = p->trace;
    uint64_t now = row - p->start + 1;
    uint32_t missed = 0;
    for (uint32_t k = 0; k < t->used; k++) {
        p->keys[k] = (struct expert_key){t->rows[row].layer, trace_ids(t, row)[k]};
    }
    heat_advance(&p->heat, now);
    evict_visit(&p->cache, now, p->keys, t->used, p->slots);
    for (uint32_t k = 0; k < t->used; k++) {
        heat_use(&p->heat, p->keys[k], 1);
        if (p->slots[k] == EVICT_NO_SLOT) {
            p->missed[missed++] = p->keys[k];
        }
    }
    expect(p, row);
    evict_admit(&p->cache, p->missed, missed, p->answers);
    count(p, row, layer, missed, c);
    const struct trace_row *r = &t->rows[row];
    const struct replay_visit v = {r->window, r->position, p->keys, p->missed, t->used, missed};
    return p->options->on_visit != NULL ? p->options->on_visit(p->options->ctx, &v, e) : 0;
}

static int play(struct replay *p, struct replay_counts *c, struct error *e)
{
    for (p->start = 0; p->start < p->trace->n_rows; p->start = p->end) {
        p->end = trace_window_end(p->trace, p->start);
        p->told = p->start;
        heat_clear(&p->heat);
        evict_clear(&p->cache);
        if (p->policy->policy == EVICT_ODDS) {
            calibration_forget_sets(&p->calibration);
        }
        for (size_t row = p->start; row < p->end; row++) {
            if (p->options->cancel != NULL && *p->options->cancel) {
                return error_set(e, ERROR_INTERRUPTED, "interrupted");
            }
            if (p->options->tokens > 0 && row / p->trace->n_layers >= p->options->tokens) {
                return 0;
            }
            int r = visit(p, row, (uint32_t)((row - p->start) % p->trace->n_layers), c, e);
            if (r != 0) {
                return r;
            }
        }
    }
    return 0;
}

/* ---- begin and end ---- */

static int init(struct replay *p, struct error *e)
{
    const struct trace *t = p->trace;
    const struct replay_options *o = p->options;
    uint32_t layers = t->layers[t->n_layers - 1] + 1u;
    uint32_t half_life = (o->half_life > 0 ? o->half_life : p->policy->half_life) * t->n_layers;
    struct evict_options cache = {p->policy->policy, o->slots, layers, o->experts, t->n_layers, &p->heat};
    int r = heat_init(&p->heat, layers, o->experts, half_life, e);
    r = r < 0 ? r : evict_init(&p->cache, &cache, e);
    if (r == 0 && p->policy->policy == EVICT_ODDS) {
        r = calibration_init(&p->calibration, layers, o->experts, t->used, e);
    }
    p->keys = calloc(t->used, sizeof(*p->keys));
    p->missed = calloc(t->used, sizeof(*p->missed));
    p->answers = calloc(t->used, sizeof(*p->answers));
    p->slots = calloc(t->used, sizeof(*p->slots));
    if (r == 0 && (p->keys == NULL || p->missed == NULL || p->answers == NULL || p->slots == NULL)) {
        r = error_nomem(e, "keys of a visit", t->used * sizeof(*p->answers));
    }
    if (r == 0 && p->policy->ahead == AHEAD_ALL) {
        uint32_t *seen = calloc((size_t)layers * t->experts, sizeof(*seen));
        p->next = calloc(t->n_rows * t->used, sizeof(*p->next));
        r = seen == NULL || p->next == NULL ? error_nomem(e, "uses to come", t->n_rows * t->used * sizeof(*p->next)) : 0;
        if (r == 0) {
            find_next_uses(p, seen);
        }
        free(seen);
    }
    return r;
}

static void deinit(struct replay *p)
{
    heat_deinit(&p->heat);
    evict_deinit(&p->cache);
    calibration_deinit(&p->calibration);
    free(p->keys);
    free(p->missed);
    free(p->answers);
    free(p->slots);
    free(p->next);
}

int trace_replay(const struct trace *t, const struct trace_policy *p, const struct replay_options *o, struct replay_counts *ret, struct error *e)
{
    struct replay replay = {.trace = t, .policy = p, .options = o};
    struct replay_counts counts = {0};
    int r = init(&replay, e);
    r = r < 0 ? r : play(&replay, &counts, e);
    deinit(&replay);
    if (r == 0) {
        *ret = counts;
    }
    return r;
}

const struct trace_policy *trace_policy_find(const char *name)
{
    const struct trace_policy *p = trace_policies;
    while (p->name != NULL && strcmp(p->name, name) != 0) {
        p++;
    }
    return p->name != NULL ? p : NULL;
}

uint64_t replay_tokens(const struct trace *t, uint32_t first_position)
{
    uint64_t n = 0;
    for (size_t row = 0; row < t->n_rows; row += t->n_layers) {
        n += t->rows[row].position >= first_position;
    }
    return n;
}

/* ---- numbers of slots ---- */

/* "90" slots or "10%" of all experts, rounded to the nearest. */
static bool parse_slots(char *word, uint64_t total, uint32_t *ret)
{
    size_t len = strlen(word);
    double share;
    uint64_t slots;
    if (len > 0 && word[len - 1] == '%') {
        word[len - 1] = '\0';
        if (!parse_double(word, &share) || share < 0 || share > 100) {
            return false;
        }
        slots = (uint64_t)(share / 100 * (double)total + 0.5);
    } else if (!parse_u64(word, &slots) || slots > total) {
        return false;
    }
    *ret = (uint32_t)slots;
    return true;
}

int trace_parse_slots(const char *flag, const char *text, uint64_t total, uint32_t *slots, uint32_t most, uint32_t *ret_n, struct error *e)
{
    const char *at = text;
    for (*ret_n = 0; *ret_n < most; at++) {
        char word[32];
        size_t len = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", (int)min_u32((uint32_t)len, sizeof(word)), at);
        if (len >= sizeof(word) || !parse_slots(word, total, &slots[*ret_n])) {
            return error_set(e, ERROR_USAGE, "%s %.40s: expected slots from 0 to %llu, or shares from 0%% to 100%%, with commas between", flag, text, (unsigned long long)total);
        }
        ++*ret_n;
        at += len;
        if (*at == '\0') {
            return 0;
        }
    }
    return error_set(e, ERROR_USAGE, "%s: more than %u sizes", flag, most);
}
