/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: random weights in every format, with a given standard deviation, from a seed. Must not know: tensors. */
#ifndef SLUICE_COMMANDS_SYNTH_BLOCKS_H
#define SLUICE_COMMANDS_SYNTH_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/format.h"
#include "common/ops.h"

enum { SYNTH_HALVES = 4096 };

struct synth_filler {
    enum weight_format format;
    float scale; /* of blocks; of float formats the standard deviation */
    uint16_t half[SYNTH_HALVES]; /* F16, BF16: numbers to draw from */
};

/* The scale is found by measuring a few blocks with `ops`. FP8 codes have their magnitude in the scales beside them. */
void synth_filler_init(struct synth_filler *f, enum weight_format format, float deviation, const struct ops *ops);

/* Whole blocks; the same bytes for the same seed. */
void synth_filler_fill(const struct synth_filler *f, uint64_t seed, void *out, size_t bytes);

/* A seed for part `index` of what `seed` stands for. */
uint64_t synth_seed(uint64_t seed, uint64_t index);

/* FP8 block scales that give the codes this deviation, each a little different; [n]. */
void synth_fp8_scales(uint64_t seed, float deviation, float *out, size_t n);

/* n near-normal numbers of deviation 1. */
void synth_normals(uint64_t seed, float *out, size_t n);

#endif
