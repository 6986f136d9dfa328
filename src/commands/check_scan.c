/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the places of scales in every block format and the search for bad ones. Must not know: files, names. */
#include "src/commands/check_scan.h"

#include <stdbool.h>
#include <string.h>

#include "common/attr.h"

/* Offsets of float16 scales in a block; none: `halves` is 0. */
static const struct {
    uint8_t halves, at[2];
} scales[FORMAT_COUNT] = {
    [FORMAT_Q8_0] = { 1, { 0, 0 } },    [FORMAT_Q4_0] = { 1, { 0, 0 } },    [FORMAT_Q4_1] = { 2, { 0, 2 } },
    [FORMAT_Q5_0] = { 1, { 0, 0 } },    [FORMAT_Q5_1] = { 2, { 0, 2 } },    [FORMAT_IQ4_NL] = { 1, { 0, 0 } },
    [FORMAT_Q2_K] = { 2, { 80, 82 } },  [FORMAT_Q3_K] = { 1, { 108, 0 } },  [FORMAT_Q4_K] = { 2, { 0, 2 } },
    [FORMAT_Q5_K] = { 2, { 0, 2 } },    [FORMAT_Q6_K] = { 1, { 208, 0 } },  [FORMAT_IQ4_XS] = { 1, { 0, 0 } },
    [FORMAT_IQ1_S] = { 1, { 0, 0 } },   [FORMAT_IQ2_XXS] = { 1, { 0, 0 } }, [FORMAT_IQ2_XS] = { 1, { 0, 0 } },
    [FORMAT_IQ2_S] = { 1, { 0, 0 } },   [FORMAT_IQ3_XXS] = { 1, { 0, 0 } }, [FORMAT_IQ3_S] = { 1, { 0, 0 } },
};

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static bool half_bad(uint32_t h) { return (h & 0x7c00) == 0x7c00; }
static bool bf16_bad(uint32_t h) { return (h & 0x7f80) == 0x7f80; }

/* IQ1_M keeps its float16 scale in the top nibbles of the four 16-bit words at byte 48. */
static uint32_t iq1_m_scale(const uint8_t *p)
{
    uint32_t h = 0;
    for (unsigned i = 0; i < 4; i++) {
        h |= (uint32_t)(p[48 + 2 * i + 1] >> 4) << 4 * i;
    }
    return h;
}

static bool block_bad(enum weight_format f, const uint8_t *p)
{
    switch (f) {
    case FORMAT_F32:
        return bf16_bad(load16(p + 2));
    case FORMAT_F16:
        return half_bad(load16(p));
    case FORMAT_BF16:
        return bf16_bad(load16(p));
    case FORMAT_F8_E4M3:
        return (p[0] & 0x7f) == 0x7f;
    case FORMAT_MXFP4:
        return p[0] == 255;
    case FORMAT_IQ1_M:
        return half_bad(iq1_m_scale(p));
    default:
        break;
    }
    bool bad = false;
    for (unsigned i = 0; i < scales[f].halves; i++) {
        bad = bad || half_bad(load16(p + scales[f].at[i]));
    }
    return bad;
}

static const char *what_is_bad(enum weight_format f)
{
    return f == FORMAT_F8_E4M3 ? "NaN code" : weight_format_info(f)->block_elems == 1 ? "NaN or infinity" : "NaN or infinite scale";
}

uint32_t scan_block_bytes(const struct scan *s)
{
    return s->kind == SCAN_FORMAT || s->kind == SCAN_SCALE ? weight_format_info(s->format)->block_bytes : 1;
}

uint32_t scan_block_elems(const struct scan *s)
{
    return s->kind == SCAN_FORMAT || s->kind == SCAN_SCALE ? weight_format_info(s->format)->block_elems : 1;
}

/* Eight bytes of single numbers at once: a number is bad when `ones` of it are all set, and then adding `one` to them
 * carries into `carry`. */
static const struct {
    uint64_t ones, one, carry;
} screens[FORMAT_COUNT] = {
    [FORMAT_F32] = { 0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000 },
    [FORMAT_F16] = { 0x7c007c007c007c00, 0x0400040004000400, 0x8000800080008000 },
    [FORMAT_BF16] = { 0x7f807f807f807f80, 0x0080008000800080, 0x8000800080008000 },
    [FORMAT_F8_E4M3] = { 0x7f7f7f7f7f7f7f7f, 0x0101010101010101, 0x8080808080808080 },
};

/* Bytes from data on, a multiple of 8, that are known to be good; 0 for block formats. */
static size_t clean_bytes(enum weight_format f, const uint8_t *data, size_t bytes)
{
    size_t n = 0;
    for (; screens[f].ones != 0 && n + 8 <= bytes; n += 8) {
        uint64_t word;
        memcpy(&word, data + n, sizeof(word));
        if (((word & screens[f].ones) + screens[f].one) & screens[f].carry) {
            break;
        }
    }
    return n;
}

static void found(struct scan *s, uint64_t block, const char *what)
{
    if (s->bad++ == 0) {
        s->first_bad = block;
        s->what = what;
    }
}

void scan_bytes(struct scan *s, const uint8_t *data, size_t bytes)
{
    uint32_t size = scan_block_bytes(s);
    size_t n = bytes / size;
    for (size_t i = 0; s->kind != SCAN_NOTHING && i < n; i++) {
        if (s->kind == SCAN_FORMAT) {
            i += clean_bytes(s->format, data + i * size, bytes - i * size) / size;
        }
        if (i == n) {
            break;
        }
        const uint8_t *p = data + i * size;
        if (s->kind == SCAN_E8M0) {
            if (p[0] == 255) {
                found(s, s->seen + i, "NaN scale");
            }
        } else if (UNLIKELY(block_bad(s->format, p))) {
            found(s, s->seen + i, s->kind == SCAN_SCALE ? "NaN or infinite scale" : what_is_bad(s->format));
        } else if (s->kind == SCAN_SCALE && (p[size - 1] & 0x80) != 0) {
            found(s, s->seen + i, "negative scale");
        }
    }
    s->seen += n;
}
