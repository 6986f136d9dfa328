/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how fast a plan can be: bytes over each edge of the tiers for a token, the time each edge takes, what binds and what more
 * of the machine would buy. Must not know: how experts were shared out. */
#ifndef SLUICE_PLACE_SPEED_H
#define SLUICE_PLACE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

struct plan_input;

/* Of one decoded token, but for prefill_tok_s. Times and rates are the machine's at best; 0: a rate is unknown. */
struct speed {
    uint64_t ram_bytes;   /* weights that cores read from RAM */
    uint64_t nvme_bytes;  /* of them read from a drive before */
    double hit_ratio;     /* expected share of experts that are in RAM when they are used; 1 without experts */
    double ram_s, nvme_s; /* the first with what the drive writes into RAM */
    double decode_tok_s;  /* both at the same time */
    double expected_tok_s; /* nothing is read ahead: a layer's experts are computed while others are read, all else waits */
    bool kernels_known;   /* expected_tok_s goes by the measured rate of kernels, not by that of RAM */
    double serial_tok_s;  /* one after the other */
    double prefill_tok_s;
    double more_ram_tok_s, more_nvme_tok_s; /* added to decode_tok_s by one GiB of RAM for experts, by 1 GB/s of the drive */
    char binding[96];     /* "decode: drive reads of 1.46 GiB per token at 12.8 GB/s" */
};

/* `experts` of the model, `slots` of them in RAM. */
void speed_of(const struct plan_input *in, uint64_t experts, uint64_t slots, struct speed *ret);

#endif
