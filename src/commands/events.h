/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an event file in memory - what the store of experts was told while a model ran, what arrived, and when -, reading one, and
 * writing one while the model runs (docs/trace.md). Must not know: what is made of it. */
#ifndef SLUICE_COMMANDS_EVENTS_H
#define SLUICE_COMMANDS_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/tier/expert_slots.h"
#include "src/tier/store_observer.h"

enum { EVENTS_LAYERS = 1024, EVENTS_EXPERTS = 4096, EVENTS_ALL = 1 << 17, EVENTS_ROOM = 4096 }; /* EVENTS_ALL: experts of all layers, and slots: five times the largest model known; tables of them take 100 MB */

/* Experts of a layer: bytes of each matrix, and how many FP8 scales beside it. bytes[0] == 0: the layer has none. */
struct events_layer {
    uint64_t bytes[EXPERT_PARTS];
    uint32_t scales[EXPERT_PARTS];
};

/* Of the engine that was recorded. */
struct events_setting {
    uint32_t layers, mtp_layers, dense_layers, moe_layer_freq, experts, experts_used;
    uint32_t cached, staging, room; /* slots of experts that stay, and others; experts under way at once */
    uint32_t depth;                 /* of the reader: chunks in flight */
    uint64_t chunk, limit;          /* bytes of a chunk; bytes per second, 0: none */
    struct events_layer layer[EVENTS_LAYERS];
};

/* What is counted and must come out the same, in the order of the file. Those before EVENTS_EXACT depend on calls and arrivals alone;
 * from EVENTS_LEADS on they are those of one lead of hints after the other. */
enum {
    EVENTS_RAM_HITS = 0, EVENTS_RAM_MISSES = 2, EVENTS_AHEAD = 6, EVENTS_LEADS = EVENTS_AHEAD + 2 * AHEAD_OUTCOMES, EVENTS_EXACT = EVENTS_LEADS + 2 * HINT_LEADS * AHEAD_OUTCOMES,
    EVENTS_DEMAND_US = EVENTS_EXACT, EVENTS_DEMAND_BYTES, EVENTS_DRIVE_BYTES, EVENTS_COUNTERS
};
const char *events_counter(uint32_t i);

enum { EVENTS_HINT = 5 }; /* numbers of a hint */

/* The word that begins its line. */
extern const char *const events_calls[STORE_CALLS];

/* One call; lists are ranges of events.numbers. */
struct event {
    enum store_call_kind kind;
    uint16_t lease, layer;      /* layer: STORE_BEGIN, STORE_EXPECT */
    bool passing;               /* STORE_BEGIN */
    uint32_t n, max;            /* as in store_call; STORE_BEGIN: experts; STORE_EXPECT: max is how far ahead */
    uint64_t at_ns, took_ns;    /* since the first call; in the call */
    size_t first;               /* STORE_BEGIN: n times expert, rows; STORE_HINT: n times layer, expert, ahead, bits of the chance, lead; STORE_EXPECT: n chances in 255ths */
    size_t first_batch;         /* of events.batches */
    uint32_t n_batches;
};

/* What was booked together. */
struct events_batch {
    size_t first; /* n times layer, expert, -status */
    uint32_t n;
};

struct events {
    struct events_setting setting;
    struct event *item;           /* [n] */
    struct events_batch *batches; /* [n_batches] */
    uint32_t *numbers;            /* [n_numbers] */
    size_t n, n_batches, n_numbers;
    uint64_t counted[EVENTS_COUNTERS]; /* by the engine, at the end */
};

static inline bool events_has_experts(const struct events_setting *s, uint32_t layer) { return layer < s->layers + s->mtp_layers && s->layer[layer].bytes[0] > 0; }

/* A hint of a STORE_HINT, i < x->n. */
struct prediction events_hint(const struct events *events, const struct event *x, uint32_t i);

/* Errors name file, line and what was expected. */
int events_read(const char *path, struct events *ret, struct error *e);
void events_deinit(struct events *x); /* accepts an all-zero one */

/* Line by line, for events_read. Begins all zero but for `events` and `name`. */
struct events_text {
    struct events *events;
    const char *name;          /* of the file, for errors */
    uint64_t line;
    size_t items, batches, numbers, told; /* allocated; batches that belong to calls */
    bool set, ended;           /* the setting is known; counters have begun */
    uint32_t counters;
    uint64_t words[EVENTS_HINT * EVENTS_EXPERTS + 16]; /* of the line */
};
int events_text_line(struct events_text *t, char *line, struct error *e); /* without its end; the text is cut up */
int events_text_end(struct events_text *t, struct error *e);

/* ---- writing ---- */

struct engine;
struct events_recorder;

/* Observes the store of the engine from now on, which has just opened; what it is told goes to PATH, plain or gzip, which is there after
 * events_record_end. Refuses engines that read no experts, or whose store has been used. */
int events_record_begin(struct engine *g, const char *path, struct events_recorder **ret, struct error *e);

/* `keep`: writes the counters and gives the file its name; otherwise nothing stays. NULL: does nothing. */
int events_record_end(struct events_recorder *r, bool keep, struct error *e);

#endif
