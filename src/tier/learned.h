/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what predictors have learned from texts of one model - popularity of experts, the token table, maps from the MTP layer's
 * state to router scores - and the file it lies in beside the model (docs/trace.md). Must not know: how it was learned. */
#ifndef SLUICE_TIER_LEARNED_H
#define SLUICE_TIER_LEARNED_H

#include <stdint.h>

#include "common/error.h"
#include "io/container.h"
#include "src/tier/token_table.h"

enum { LEARNED_PROBES = 2 }; /* experts of the token that the MTP layer has read, and of the one it drafts */

enum { LEARNED_FINGERPRINT = 16 };

struct learned_shape {
    char fingerprint[LEARNED_FINGERPRINT + 1]; /* of the model */
    uint32_t vocab, layers, experts;
    uint32_t first_layer;                      /* with experts */
    uint32_t inputs;                           /* of a probe: 2 * hidden; 0: no MTP layer, no probes */
};

static inline uint32_t learned_probe_rows(const struct learned_shape *s) { return (s->layers - s->first_layer) * s->experts; }

struct learned {
    struct learned_shape shape;
    float *popularity;          /* [layers][experts] uses */
    struct token_table table;
    uint16_t *probe_weight;     /* [LEARNED_PROBES][probe rows][inputs] half; NULL: no probes */
    float *probe_bias;          /* [LEARNED_PROBES][probe rows] */
    struct buffer probes;       /* memory of both */
};

/* Arrays are allocated, zero; the table is empty: token_table_make fills it. account: may be NULL. */
int learned_init(struct learned *l, const struct learned_shape *s, struct account *account, struct error *e);
void learned_deinit(struct learned *l); /* accepts an all-zero one */

/* Path of the file beside a model; the caller frees; NULL: no memory. */
char *learned_path(const struct container *c);
uint64_t learned_file_bytes(const struct container *c); /* its size; 0: there is none */

/* The file appears whole or not at all. */
int learned_write(const struct learned *l, const char *path, struct error *e);

/* Refuses, naming file and field, what is damaged or belongs to another model than `s`. Probes that the file has not are left out. */
int learned_read(struct learned *l, const struct learned_shape *s, const char *path, struct account *account, struct error *e);

#endif
