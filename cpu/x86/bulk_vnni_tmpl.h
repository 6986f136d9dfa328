/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the integer products of the bulk templates on AVX-512 with VNNI: a part is int32 sums, and never overflows. Signed codes
 * are stored 128 above their value. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_VNNI_TMPL_H
#define SLUICE_CPU_X86_BULK_VNNI_TMPL_H

SIMD_INLINE struct bulk_kind bulk_kind_here(struct bulk_kind kind)
{
    kind.run = kind.group / 4;
    kind.sum = kind.is_signed ? BULK_SUM_OFFSET : kind.sum;
    kind.is_signed = false;
    return kind;
}

struct bulk_code {
    struct vi w;
};

SIMD_INLINE struct bulk_code bulk_code(struct vi w, bool is_signed)
{
    (void)is_signed;
    return (struct bulk_code){w};
}

SIMD_INLINE struct vi bulk_dot(struct vi part, struct bulk_code w, struct vi a, bool is_signed)
{
    (void)is_signed;
    return (struct vi){_mm512_dpbusd_epi32(part.v, w.w.v, a.v)};
}

/* A scale is an int32. */
SIMD_INLINE struct vi bulk_widen(struct vi total, struct vi part, struct vi scale)
{
    return vi_add32(total, (struct vi){_mm512_mullo_epi32(part.v, scale.v)});
}

SIMD_INLINE struct vi bulk_unit_scale(void) { return vi_set1_32(1); }

SIMD_INLINE struct vi bulk_scale(struct vi x, int j)
{
    return (struct vi){_mm512_srai_epi32(vi_shl32(x, 24 - 8 * j).v, 24)};
}

SIMD_INLINE void bulk_store_signed(uint8_t line[64], struct vi w) { vi_store(line, vi_xor(w, vi_set1_8(-128))); }

/* Lines of signed codes that were stored as they are. */
SIMD_INLINE void bulk_resign(uint8_t (*line)[64], uint32_t lines)
{
    for (uint32_t l = 0; l < lines; l++) {
        bulk_store_signed(line[l], vi_load(line[l]));
    }
}

/* Blocks of 256: the factors of their activation sums are there already. */
SIMD_INLINE void bulk_finish_signed(struct bulk_kind kind, uint32_t b, struct bulk_panel *p)
{
    (void)b;
    (void)kind;
    p->offset = 128;
}

#endif
