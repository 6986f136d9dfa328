/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/bulk_<isa>.h. Owns: the kind of each format, the functions of one instruction set and their entry
 * into the table of operations. Must not know: the processor. */
#ifndef SLUICE_CPU_BULK_TABLE_TMPL_H
#define SLUICE_CPU_BULK_TABLE_TMPL_H

#include "cpu/bulk_float_tmpl.h"

/* Functions of a kind for each number of activation rows; BULK_EACH_ROWS(X, name) of the instruction set counts them. */
#define BULK_KIND_ROWS(name, n)                                                                                      \
    static void name##_##n(const struct bulk_panel *p, uint32_t blocks, const struct act_rows *act, float *y,        \
                           size_t y_stride)                                                                          \
    {                                                                                                                \
        bulk_rows(kind_##name(), p, blocks, act, n, y, y_stride);                                                    \
    }
#define BULK_ROWS_NAME(name, n) name##_##n,
#define BULK_KIND(name, ...)                                                                                         \
    SIMD_INLINE struct bulk_kind kind_##name(void) { return bulk_kind_here((struct bulk_kind){__VA_ARGS__}); }       \
    BULK_EACH_ROWS(BULK_KIND_ROWS, name)                                                                             \
    static bulk_rows_fn *const rows_##name[BULK_ROWS] = {BULK_EACH_ROWS(BULK_ROWS_NAME, name)};

/* block, group, run, sum, is_signed */
BULK_KIND(signed_32, 32, 32, 1, BULK_SUM_NONE, true)     /* Q8_0, IQ4_NL */
BULK_KIND(offset_32, 32, 32, 4, BULK_SUM_OFFSET, false)  /* Q4_0, Q5_0, MXFP4 */
BULK_KIND(min_32, 32, 32, 4, BULK_SUM_MIN, false)        /* Q4_1, Q5_1 */
BULK_KIND(signed_256, 256, 16, 1, BULK_SUM_NONE, true)   /* IQ4_XS, lattice types */
BULK_KIND(four_bits, 256, 32, 8, BULK_SUM_MIN, false)    /* Q4_K */
BULK_KIND(five_bits, 256, 32, 4, BULK_SUM_MIN, false)    /* Q5_K */
BULK_KIND(two_bits, 256, 16, 4, BULK_SUM_MIN, false)     /* Q2_K */
BULK_KIND(three_bits, 256, 16, 4, BULK_SUM_OFFSET, false) /* Q3_K */
BULK_KIND(six_bits, 256, 16, 2, BULK_SUM_OFFSET, false)  /* Q6_K */

#define BULK_FORMAT(name, rows, block, bytes)                                                                        \
    static void bulk_##name(const struct matvec_args *a)                                                             \
    {                                                                                                                \
        static const struct bulk_format format = {rows_##rows, unpack_##name};                                      \
        bulk_product(&format, a, block, bytes);                                                                      \
    }

/* Out of line: unpacking is called once per panel. */
#define BULK_UNPACKED_FORMAT(name, rows, block, bytes)                                                               \
    static BULK_UNPACK(unpack_##name) { bulk_unpack_##name(w, row_bytes, blocks, ret); }                             \
    BULK_FORMAT(name, rows, block, bytes)

#define BULK_ROWS_FORMAT(name, format, bytes)                                                                        \
    static BULK_UNPACK(unpack_##name) { bulk_unpack_rows(format, bytes, w, row_bytes, blocks, ret); }                \
    BULK_FORMAT(name, signed_256, 256, bytes)

BULK_UNPACKED_FORMAT(q8_0, signed_32, 32, 34)
BULK_UNPACKED_FORMAT(q4_0, offset_32, 32, 18)
BULK_UNPACKED_FORMAT(q4_1, min_32, 32, 20)
BULK_UNPACKED_FORMAT(q5_0, offset_32, 32, 22)
BULK_UNPACKED_FORMAT(q5_1, min_32, 32, 24)
BULK_UNPACKED_FORMAT(iq4_nl, signed_32, 32, 18)
BULK_UNPACKED_FORMAT(mxfp4, offset_32, 32, 17)
BULK_UNPACKED_FORMAT(q2_k, two_bits, 256, 84)
BULK_UNPACKED_FORMAT(q3_k, three_bits, 256, 110)
BULK_UNPACKED_FORMAT(q4_k, four_bits, 256, 144)
BULK_UNPACKED_FORMAT(q5_k, five_bits, 256, 176)
BULK_UNPACKED_FORMAT(q6_k, six_bits, 256, 210)
BULK_UNPACKED_FORMAT(iq4_xs, signed_256, 256, 136)
BULK_ROWS_FORMAT(iq1_s, FORMAT_IQ1_S, 50)
BULK_ROWS_FORMAT(iq1_m, FORMAT_IQ1_M, 56)
BULK_ROWS_FORMAT(iq2_xxs, FORMAT_IQ2_XXS, 66)
BULK_ROWS_FORMAT(iq2_xs, FORMAT_IQ2_XS, 74)
BULK_ROWS_FORMAT(iq2_s, FORMAT_IQ2_S, 82)
BULK_ROWS_FORMAT(iq3_xxs, FORMAT_IQ3_XXS, 98)
BULK_ROWS_FORMAT(iq3_s, FORMAT_IQ3_S, 110)

static void set_bulk_table(struct ops *ops)
{
    ops->bulk_f32 = bulk_f32;
    ops->bulk[FORMAT_Q8_0] = bulk_q8_0;
    ops->bulk[FORMAT_Q4_0] = bulk_q4_0;
    ops->bulk[FORMAT_Q4_1] = bulk_q4_1;
    ops->bulk[FORMAT_Q5_0] = bulk_q5_0;
    ops->bulk[FORMAT_Q5_1] = bulk_q5_1;
    ops->bulk[FORMAT_IQ4_NL] = bulk_iq4_nl;
    ops->bulk[FORMAT_MXFP4] = bulk_mxfp4;
    ops->bulk[FORMAT_Q2_K] = bulk_q2_k;
    ops->bulk[FORMAT_Q3_K] = bulk_q3_k;
    ops->bulk[FORMAT_Q4_K] = bulk_q4_k;
    ops->bulk[FORMAT_Q5_K] = bulk_q5_k;
    ops->bulk[FORMAT_Q6_K] = bulk_q6_k;
    ops->bulk[FORMAT_IQ4_XS] = bulk_iq4_xs;
    ops->bulk[FORMAT_IQ1_S] = bulk_iq1_s;
    ops->bulk[FORMAT_IQ1_M] = bulk_iq1_m;
    ops->bulk[FORMAT_IQ2_XXS] = bulk_iq2_xxs;
    ops->bulk[FORMAT_IQ2_XS] = bulk_iq2_xs;
    ops->bulk[FORMAT_IQ2_S] = bulk_iq2_s;
    ops->bulk[FORMAT_IQ3_XXS] = bulk_iq3_xxs;
    ops->bulk[FORMAT_IQ3_S] = bulk_iq3_s;
}

#endif
