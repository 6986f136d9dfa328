/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: plain C versions of the AVX-512 intrinsics that only the bulk kernels use; see emulate_avx512.h. Knows nothing of
 * sluice. */
#ifndef SLUICE_TESTS_KERNEL_EMULATE_BULK_H
#define SLUICE_TESTS_KERNEL_EMULATE_BULK_H

#include "emulate_avx512.h"

EMULATE_2(emulated_mullo_epi32, 16, ud, a.ud[i] * b.ud[i])
EMULATE_SHIFT(emulated_srai_epi16, 32, w, (int16_t)(a.w[i] >> (n > 15 ? 15 : n)))
/* Element i of each 16 bytes comes from the low or the high half of a and b in turn. */
EMULATE_2(emulated_unpacklo_epi32, 16, d, (i % 2 ? b : a).d[i - i % 4 + i % 4 / 2])
EMULATE_2(emulated_unpackhi_epi32, 16, d, (i % 2 ? b : a).d[i - i % 4 + 2 + i % 4 / 2])
EMULATE_2(emulated_unpacklo_epi64, 8, q, (i % 2 ? b : a).q[i - i % 2])
EMULATE_2(emulated_unpackhi_epi64, 8, q, (i % 2 ? b : a).q[i - i % 2 + 1])

EMULATE uint32_t emulated_cmpeq_epi16_mask(struct emulated a, struct emulated b)
{
    uint32_t mask = 0;
    for (int i = 0; i < 32; i++) {
        mask |= (uint32_t)(a.w[i] == b.w[i]) << i;
    }
    return mask;
}

EMULATE struct emulated emulated_movm_epi16(uint32_t mask)
{
    struct emulated r;
    for (int i = 0; i < 32; i++) {
        r.w[i] = (mask >> i) & 1 ? -1 : 0;
    }
    return r;
}

#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 emulated_mullo_epi32
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 emulated_srai_epi16
#undef _mm512_unpacklo_epi32
#define _mm512_unpacklo_epi32 emulated_unpacklo_epi32
#undef _mm512_unpackhi_epi32
#define _mm512_unpackhi_epi32 emulated_unpackhi_epi32
#undef _mm512_unpacklo_epi64
#define _mm512_unpacklo_epi64 emulated_unpacklo_epi64
#undef _mm512_unpackhi_epi64
#define _mm512_unpackhi_epi64 emulated_unpackhi_epi64
#undef _mm512_cmpeq_epi16_mask
#define _mm512_cmpeq_epi16_mask emulated_cmpeq_epi16_mask
#undef _mm512_movm_epi16
#define _mm512_movm_epi16 emulated_movm_epi16

#endif
