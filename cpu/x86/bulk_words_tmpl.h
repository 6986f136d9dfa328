/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the integer products of the bulk templates where bytes are multiplied to words (AVX2, AVX-512 without VNNI): a part is
 * words, each the sum of two products per line. Needs vi_add16, vi_negative8 and vi_ready of the including header. Must not
 * know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_WORDS_TMPL_H
#define SLUICE_CPU_X86_BULK_WORDS_TMPL_H

SIMD_INLINE struct bulk_kind bulk_kind_here(struct bulk_kind kind) { return kind; }

/* Signed codes w with m = all ones where w < 0: |w| * (a ^ m) = w*a, less |w| where w < 0. That part of the sum does not
 * depend on a and is what it starts from. One operation of any unit, where a sign instruction takes a multiplier. */
struct bulk_code {
    struct vi size, mask;
};

SIMD_INLINE struct bulk_code bulk_code(struct vi w, bool is_signed)
{
    return is_signed ? (struct bulk_code){vi_abs8(w), vi_negative8(w)} : (struct bulk_code){w, vi_zero()};
}

SIMD_INLINE struct vi bulk_dot(struct vi part, struct bulk_code w, struct vi a, bool is_signed)
{
    return vi_ready(vi_add16(part, vi_dot2(w.size, is_signed ? vi_xor(a, w.mask) : a)));
}

/* A scale is a word, twice. */
SIMD_INLINE struct vi bulk_widen(struct vi total, struct vi part, struct vi scale)
{
    return vi_ready(vi_madd(total, part, scale));
}

SIMD_INLINE struct vi bulk_unit_scale(void) { return vi_set1_32(0x10001); }

/* Signed byte j of each lane as a scale. */
SIMD_INLINE struct vi bulk_scale(struct vi x, int j) { return vi_byte_pair(x, j, j); }

/* Signed codes stay as they are. */
SIMD_INLINE void bulk_store_signed(uint8_t line[64], struct vi w) { vi_store(line, w); }

SIMD_INLINE void bulk_resign(uint8_t (*line)[64], uint32_t lines)
{
    (void)line;
    (void)lines;
}

/* Completes block b of signed codes: from its codes and scales, where the sum starts. */
SIMD_INLINE void bulk_finish_signed(struct bulk_kind kind, uint32_t b, struct bulk_panel *p)
{
    const uint32_t lines = kind.group / 4, groups = kind.block / kind.group;
    struct vi less = vi_zero();
    for (uint32_t g = b * groups; g < (b + 1) * groups; g++) {
        struct vi part = vi_zero();
        SIMD_UNROLL
        for (uint32_t l = 0; l < lines; l++) {
            struct bulk_code w = bulk_code(vi_load(p->code[lines * g + l]), true);
            part = bulk_dot(part, w, vi_zero(), true); /* 0 ^ m = -1 where w < 0 */
        }
        less = bulk_widen(less, part, kind.block == 32 ? bulk_unit_scale() : vi_load(p->scale[g]));
    }
    vi_store(p->start[b], vi_sub32(vi_zero(), less));
}

#endif
