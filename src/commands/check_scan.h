/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding numbers in tensor bytes that no kernel may meet: NaN and infinity in plain floats, in block scales and
 * in FP8 codes, negative FP8 scales. Must not know: files, tensor names. */
#ifndef SLUICE_COMMANDS_CHECK_SCAN_H
#define SLUICE_COMMANDS_CHECK_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/format.h"

enum scan_kind {
    SCAN_NOTHING, /* integers, foreign types: bytes are only fingerprinted */
    SCAN_FORMAT,  /* blocks (or single numbers) of a weight format */
    SCAN_SCALE,   /* FP8 scales of a plain float type: not negative either */
    SCAN_E8M0,    /* one exponent byte each, 255 is NaN */
};

struct scan {
    enum scan_kind kind;
    enum weight_format format; /* SCAN_FORMAT, SCAN_SCALE */
    uint64_t seen;             /* blocks so far */
    uint64_t bad, first_bad;   /* blocks */
    const char *what;          /* of the first bad one */
};

uint32_t scan_block_bytes(const struct scan *s);
uint32_t scan_block_elems(const struct scan *s);

/* The next `bytes` of the tensor: whole blocks. */
void scan_bytes(struct scan *s, const uint8_t *data, size_t bytes);

#endif
