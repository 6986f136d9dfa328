/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what tokens cost - weight bytes and multiply-adds by part of the model - and the least time a machine of given rates
 * needs for them, as pure arithmetic. Must not know: files, kernels, how a rate was found. */
#ifndef SLUICE_PLACE_COST_H
#define SLUICE_PLACE_COST_H

#include <stdint.h>

#include "src/model/shape.h"
#include "src/place/machine.h"

enum cost_part { COST_ATTENTION, COST_DENSE, COST_SHARED, COST_ROUTER, COST_ROUTED, COST_HEAD, COST_PARTS };
const char *cost_part_name(enum cost_part p); /* "attention", "dense ffn", ... */

/* Of the main layers. COST_ROUTED counts all experts of all layers: a token meets experts_used / experts of it. */
struct cost {
    double bytes[COST_PARTS];       /* of weights, FP8 scales included */
    double routed_scales;           /* of bytes[COST_ROUTED]: FP8 scales, which no drive brings later */
    double int8_weights[COST_PARTS]; /* weights in integer blocks: met by int8 activations */
    double float_weights[COST_PARTS]; /* the others */
    uint32_t experts, experts_used; /* 0: no routed ones */
    double score_macs;              /* attention itself, of one query and one visible position, all layers: keys and values expanded */
    double latent_macs;             /* the same on the latent (absorbed), as decoding does it */
};

/* The fields that follow from the shape alone. */
void cost_of_shape(const struct shape *s, struct cost *ret);

/* Expected share of the experts of a layer that `rows` rows meet when they choose evenly and independently. */
double cost_experts_met(const struct cost *c, double rows);

enum roof_bound { ROOF_UNKNOWN, ROOF_MEMORY, ROOF_INT8, ROOF_FLOAT, ROOF_DRIVE };
const char *roof_bound_name(enum roof_bound b); /* "unknown", "memory reads", "int8 products", "float products", "drive reads" */

/* Least work and time of a test: max(bytes / read rate, operations / peaks). */
struct roof {
    double bytes;               /* weights and cached latents read */
    double int8_operations, float_operations; /* two for a multiply-add */
    double memory_s, compute_s; /* 0: the rate is unknown */
    double seconds;             /* the larger one; 0: unknown */
    enum roof_bound bound;
};

/* Adds what has to come from a drive at so many bytes per second (0: unknown), while the rest goes on. */
void roof_add_drive(struct roof *r, double bytes, double bytes_per_second);

/* n prompt tokens from position `depth` on, in chunks of `ubatch` rows; every chunk reads the weights once. */
void cost_prefill(const struct cost *c, const struct machine *m, uint32_t n, uint32_t depth, uint32_t ubatch, struct roof *ret);

/* One step of `rows` timelines that each have `depth` positions and `kv_bytes` per position. `experts_met`: share of the
 * experts read, as counted; < 0: as expected. */
void cost_decode(const struct cost *c, const struct machine *m, uint32_t rows, uint32_t depth, uint64_t kv_bytes, double experts_met, struct roof *ret);

#endif
