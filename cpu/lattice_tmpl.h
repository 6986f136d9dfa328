/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: the IQ1, IQ2 and IQ3 types, whose weights are rows of a lattice.
 * Must not know: loops over rows. */
#ifndef SLUICE_CPU_LATTICE_TMPL_H
#define SLUICE_CPU_LATTICE_TMPL_H

#include "cpu/iq_grids.h"
#include "cpu/matvec_tmpl.h"

enum { LATTICE_PARTS = 4 }; /* of 64 weights; lane (i/4) % 16 */

/* What IQ1 adds to its weights. */
enum { LATTICE_RAISED = 9 };

/* 64 weights: size, and a byte that is negative where the weight is. IQ1: the weights, raised, and no signs. */
struct lattice_part {
    struct vi size, sign;
};

/* What is taken out of a whole block at once. Groups are of 32 weights. */
struct lattice_head {
    uint32_t sign[8];  /* if not in the block; bit i: weight i is negative. IQ1: 1 or -1 in bytes, each for 8 weights */
    uint32_t scale[8]; /* of a group, 2s+1, in both words; where a scale is for 16 weights: */
    struct vi scales;  /* laid out for vi_spread */
    uint16_t row[64];  /* of the table, where it is not a byte of the block */
    float d;           /* with the constant of the type */
};

/* Fills in what the type has. */
#define LATTICE_HEAD(name) void name(const uint8_t *b, struct lattice_head *ret)
/* d with the constant of the type. */
#define LATTICE_SCALE(name) float name(const uint8_t *b)
#define LATTICE_PART(name)                                                                                           \
    void name(const uint8_t *b, const struct lattice_head *head, uint32_t k, struct lattice_part *ret)

struct lattice_format {
    LATTICE_SCALE((*d));
    LATTICE_HEAD((*head));
    LATTICE_PART((*part));
    bool by_16;  /* which scales there are */
    bool raised; /* which parts */
    uint32_t bytes;
};

/* ---- scales ---- */

/* vi_spread(.., k) takes bytes 8h + 2k + m for the weights 64k + 32h + 16m. */
static const uint8_t lattice_order[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};

/* 2s+1 of the dwords s, in both words. */
SIMD_INLINE void put_scales(struct d8 s, struct lattice_head *ret)
{
    struct d8 odd = d8_or(d8_add(s, s), d8_set1(1));
    d8_store(ret->scale, d8_or(odd, d8_shl(odd, 16)));
}

/* 2s+1 of 16 nibbles. */
SIMD_INLINE struct vi nibble_scales(const uint8_t *b)
{
    struct b16 twice = b16_double_low(b16_load_half(b));
    struct b16 s = b16_choose(b16_and(twice, 15), b16_high_nibbles(twice));
    return vi_spreadable(b16_permute(b16_or(b16_add(s, s), 1), lattice_order));
}

SIMD_INLINE LATTICE_SCALE(scale_eighth) { return half_float(b) * 0.125f; }
SIMD_INLINE LATTICE_SCALE(scale_quarter) { return half_float(b) * 0.25f; }
SIMD_INLINE LATTICE_SCALE(scale_one) { return half_float(b); }

/* The half is in the top nibbles of four words. */
SIMD_INLINE LATTICE_SCALE(scale_iq1_m)
{
    uint64_t x = load_u64(b + 48);
    uint64_t d = (x >> 12 & 0xf) | (x >> 24 & 0xf0) | (x >> 36 & 0xf00) | (x >> 48 & 0xf000);
    return half_bits_float((uint16_t)d) * 0.125f;
}

/* ---- heads ---- */

/* Four groups of 7 bits in each dword to four bytes of 8: the eighth is their parity. */
SIMD_INLINE struct d8 signs_of_sevens(struct d8 x)
{
    x = d8_or(d8_and(x, d8_set1(0x3fff)), d8_shl(d8_and(x, d8_set1(0x0fffc000)), 2));
    x = d8_or(d8_and(x, d8_set1(0x007f007f)), d8_shl(d8_and(x, d8_set1(0x3f803f80)), 1));
    return d8_add_parity(x);
}

SIMD_INLINE LATTICE_HEAD(head_iq2_xxs)
{
    struct d8 bits = d8_load_seconds(b + 2);
    put_scales(d8_shr(bits, 28), ret);
    d8_store(ret->sign, signs_of_sevens(bits));
}

SIMD_INLINE LATTICE_HEAD(head_iq3_xxs)
{
    struct d8 bits = d8_load(b + 66);
    put_scales(d8_shr(bits, 28), ret);
    d8_store(ret->sign, signs_of_sevens(bits));
}

SIMD_INLINE LATTICE_HEAD(head_iq2_xs)
{
    struct d8 q0 = d8_load(b + 2), q1 = d8_load(b + 34), mask = d8_set1(0x01ff01ff);
    d8_store(ret->row, d8_and(q0, mask));
    d8_store(ret->row + 16, d8_and(q1, mask));
    d8_store(ret->sign, d8_add_parity(d8_pack_words(d8_shr_words(q0, 9), d8_shr_words(q1, 9))));
    ret->scales = nibble_scales(b + 66);
}

/* Table rows: low bytes from `low`, and what `high` times `by` leaves at `mask`. */
SIMD_INLINE void put_rows(const uint8_t *low, struct d8 high, struct d8 by, uint32_t mask, uint16_t *row)
{
    d8_store(row, d8_or(d8_load_bytes(low), d8_and(d8_mul_low(high, by), d8_set1(mask))));
}

/* Eight bytes, each as four words. */
static const uint8_t words_by_4[2][32] = {
    {0, 255, 0, 255, 0, 255, 0, 255, 1, 255, 1, 255, 1, 255, 1, 255,
     2, 255, 2, 255, 2, 255, 2, 255, 3, 255, 3, 255, 3, 255, 3, 255},
    {4, 255, 4, 255, 4, 255, 4, 255, 5, 255, 5, 255, 5, 255, 5, 255,
     6, 255, 6, 255, 6, 255, 6, 255, 7, 255, 7, 255, 7, 255, 7, 255},
};

SIMD_INLINE LATTICE_HEAD(head_iq2_s)
{
    static const uint16_t by[16] = {256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4};
    struct b16 high = b16_make(load_u64(b + 66), 0);
    put_rows(b + 2, d8_spread(high, words_by_4[0]), d8_load(by), 0x03000300, ret->row);
    put_rows(b + 18, d8_spread(high, words_by_4[1]), d8_load(by), 0x03000300, ret->row + 16);
    ret->scales = nibble_scales(b + 74);
}

/* Eight bytes, each as eight words. */
static const uint8_t words_by_8[4][32] = {
    {0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255,
     1, 255, 1, 255, 1, 255, 1, 255, 1, 255, 1, 255, 1, 255, 1, 255},
    {2, 255, 2, 255, 2, 255, 2, 255, 2, 255, 2, 255, 2, 255, 2, 255,
     3, 255, 3, 255, 3, 255, 3, 255, 3, 255, 3, 255, 3, 255, 3, 255},
    {4, 255, 4, 255, 4, 255, 4, 255, 4, 255, 4, 255, 4, 255, 4, 255,
     5, 255, 5, 255, 5, 255, 5, 255, 5, 255, 5, 255, 5, 255, 5, 255},
    {6, 255, 6, 255, 6, 255, 6, 255, 6, 255, 6, 255, 6, 255, 6, 255,
     7, 255, 7, 255, 7, 255, 7, 255, 7, 255, 7, 255, 7, 255, 7, 255},
};

SIMD_INLINE LATTICE_HEAD(head_iq3_s)
{
    static const uint16_t by[16] = {256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2};
    struct b16 high = b16_make(load_u64(b + 66), 0);
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
        put_rows(b + 2 + 16 * i, d8_spread(high, words_by_8[i]), d8_load(by), 0x01000100, ret->row + 16 * i);
    }
    put_scales(d8_nibbles(load_u32(b + 106)), ret);
}

SIMD_INLINE LATTICE_HEAD(head_iq1_s)
{
    /* Bits 3j..3j+2 of a group's word for j < 3; of its high byte, from bit 1, for j = 3. */
    static const uint8_t words[2][32] = {
        {0, 1, 0, 1, 0, 1, 1, 255, 2, 3, 2, 3, 2, 3, 3, 255, 4, 5, 4, 5, 4, 5, 5, 255, 6, 7, 6, 7, 6, 7, 7, 255},
        {8, 9, 8, 9, 8, 9, 9, 255, 10, 11, 10, 11, 10, 11, 11, 255,
         12, 13, 12, 13, 12, 13, 13, 255, 14, 15, 14, 15, 14, 15, 15, 255},
    };
    static const uint16_t by[16] = {256, 32, 4, 128, 256, 32, 4, 128, 256, 32, 4, 128, 256, 32, 4, 128};
    struct b16 high = b16_load(b + 34);
    struct d8 h = d8_load_words(b + 34);
    put_rows(b + 2, d8_spread(high, words[0]), d8_load(by), 0x07000700, ret->row);
    put_rows(b + 18, d8_spread(high, words[1]), d8_load(by), 0x07000700, ret->row + 16);
    put_scales(d8_and(d8_shr(h, 12), d8_set1(7)), ret);
    struct d8 down = d8_equal_bytes(d8_shr(h, 15), d8_set1(1)); /* the lowest byte of each dword counts */
    static const uint8_t lowest[32] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
                                       0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    d8_store(ret->sign, d8_or(d8_shuffle(down, lowest), d8_set1(0x01010101)));
}

SIMD_INLINE LATTICE_HEAD(head_iq1_m)
{
    /* Group 4k + 2h + m of 16 weights: bits 3*(2h+m).. of word k; doubled, they are in the high half of a product. */
    static const uint8_t words[32] = {0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7,
                                      0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7};
    static const uint16_t by[16] = {1 << 15, 1 << 12, 1 << 15, 1 << 12, 1 << 15, 1 << 12, 1 << 15, 1 << 12,
                                    1 << 9,  1 << 6,  1 << 9,  1 << 6,  1 << 9,  1 << 6,  1 << 9,  1 << 6};
    struct d8 s = d8_spread(b16_make(load_u64(b + 48), 0), words);
    s = d8_and(d8_mul_high(d8_add(s, s), d8_load(by)), d8_set1(0x00070007));
    ret->scales = vi_spreadable_words(d8_or(d8_add(s, s), d8_set1(0x00010001)));
    struct d8 nibbles = b16_nibbles(b16_load(b + 32));
    struct d8 down = d8_equal_bytes(d8_and(nibbles, d8_set1(0x08080808)), d8_set1(0x08080808));
    d8_store(ret->sign, d8_or(down, d8_set1(0x01010101)));
    d8_store_words(ret->row, d8_load(b), d8_and(nibbles, d8_set1(0x07070707)));
}

/* ---- 64 weights ---- */

SIMD_INLINE struct vi rows_of_words(const uint64_t *table, const uint16_t *row)
{
    return vi_rows8(table, (const uint32_t[8]){row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]});
}

SIMD_INLINE LATTICE_PART(part_iq2_xxs)
{
    const uint8_t *p = b + 2 + 16 * k, *q = p + 8;
    ret->size = vi_rows8(iq2_xxs_grid, (const uint32_t[8]){p[0], p[1], p[2], p[3], q[0], q[1], q[2], q[3]});
    ret->sign = vi_signs_at(head->sign + 2 * k);
}

SIMD_INLINE LATTICE_PART(part_iq2_xs)
{
    (void)b;
    ret->size = rows_of_words(iq2_xs_grid, head->row + 8 * k);
    ret->sign = vi_signs_at(head->sign + 2 * k);
}

SIMD_INLINE LATTICE_PART(part_iq2_s)
{
    ret->size = rows_of_words(iq2_s_grid, head->row + 8 * k);
    ret->sign = vi_signs_at(b + 34 + 8 * k);
}

SIMD_INLINE LATTICE_PART(part_iq3_xxs)
{
    const uint8_t *q = b + 2 + 16 * k;
    uint32_t row[16];
    SIMD_UNROLL
    for (int j = 0; j < 16; j++) {
        row[j] = q[j];
    }
    ret->size = vi_rows16(iq3_xxs_grid, row);
    ret->sign = vi_signs_at(head->sign + 2 * k);
}

SIMD_INLINE LATTICE_PART(part_iq3_s)
{
    uint32_t row[16];
    SIMD_UNROLL
    for (int j = 0; j < 16; j++) {
        row[j] = head->row[16 * k + (uint32_t)j];
    }
    ret->size = vi_rows16(iq3_s_grid, row);
    ret->sign = vi_signs_at(b + 74 + 8 * k);
}

/* 8 * number + 9 + delta, the latter 1 or -1. */
SIMD_INLINE LATTICE_PART(part_iq1_s)
{
    (void)b;
    ret->size = vi_add8(rows_of_words(iq1_raised, head->row + 8 * k), vi_pair_at(head->sign + 2 * k));
}

SIMD_INLINE LATTICE_PART(part_iq1_m)
{
    (void)b;
    ret->size = vi_add8(rows_of_words(iq1_raised, head->row + 8 * k), vi_octets_at(head->sign + 2 * k));
}

/* A part as size and sign. */
SIMD_INLINE void take_signed_part(const uint8_t *b, const struct lattice_head *head, struct lattice_format f,
                                  uint32_t k, struct lattice_part *ret)
{
    f.part(b, head, k, ret);
    if (f.raised) {
        struct vi code = vi_sub8(ret->size, vi_set1_8(LATTICE_RAISED));
        *ret = (struct lattice_part){vi_abs8(code), code};
    }
}

/* ---- products ---- */

SIMD_INLINE struct vi lattice_scale(const struct lattice_head *head, bool by_16, uint32_t k)
{
    return by_16 ? vi_spread(head->scales, (int)k) : vi_pair_at(head->scale + 2 * k);
}

/* A part times one activation row, whose elements begin at q; da: d times the scale of the activations. */
SIMD_INLINE struct vf add_part(const struct lattice_part *w, bool raised, struct vi scale, const int8_t *q,
                               struct vf da, struct vf acc)
{
    struct vi a = vi_load(q);
    struct vi p = raised ? vi_dot2_offset(w->size, a, LATTICE_RAISED) : vi_dot2(w->size, vi_sign8(a, w->sign));
    return vf_fma(da, vf_from_i32(vi_mul_words(p, scale)), acc);
}

SIMD_INLINE void take_head(const uint8_t *b, struct lattice_format f, struct lattice_head *ret)
{
    f.head(b, ret);
    ret->d = f.d(b);
    SIMD_IN_MEMORY(*ret);
}

/* A block times one or two (literal) activation rows. */
SIMD_INLINE void dot_lattice_few(const uint8_t *b, const struct lattice_head *head, struct lattice_format f,
                                 const struct act_rows *act, size_t col, uint32_t n, struct vf *acc)
{
    struct vf da[2];
    SIMD_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        da[i] = vf_set1(head->d * act->scale[(i * act->stride + col) / 256]);
    }
    SIMD_UNROLL
    for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
        struct vi scale = lattice_scale(head, f.by_16, k);
        struct lattice_part w;
        f.part(b, head, k, &w);
        SIMD_UNROLL
        for (uint32_t i = 0; i < n; i++) {
            acc[i] = add_part(&w, f.raised, scale, act->q + i * act->stride + col + 64 * k, da[i], acc[i]);
        }
    }
}

/* The same with any number of activation rows: the weights are unpacked once. */
SIMD_INLINE void dot_lattice_many(const uint8_t *b, const struct lattice_head *head, struct lattice_format f,
                                  const struct act_rows *act, size_t col, uint32_t n, struct vf *acc)
{
    struct lattice_part w[LATTICE_PARTS];
    SIMD_UNROLL
    for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
        take_signed_part(b, head, f, k, &w[k]);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct vf sum = acc[i], da = vf_set1(head->d * act->scale[(i * act->stride + col) / 256]);
        SIMD_IN_MEMORY(w);
        SIMD_UNROLL
        for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
            struct vi scale = lattice_scale(head, f.by_16, k);
            sum = add_part(&w[k], false, scale, act->q + i * act->stride + col + 64 * k, da, sum);
        }
        acc[i] = sum;
    }
}

/* One weight row. The head of a block is taken while the block before it is computed: one waits for the other long. */
SIMD_INLINE void lattice_row(const struct matvec_args *a, uint32_t r, uint32_t n, struct lattice_format f)
{
    struct vf acc[OPS_MAX_ROWS];
    struct lattice_head heads[2], *head = &heads[0], *next = &heads[1];
    const uint8_t *b = row_data(&a->w, r);
    for (uint32_t i = 0; i < n; i++) {
        acc[i] = vf_zero();
    }
    if (a->w.cols > 0) {
        take_head(b, f, head);
    }
    for (uint32_t col = 0; col < a->w.cols; col += 256, b += f.bytes) {
        prefetch(b + PREFETCH_AHEAD, f.bytes);
        if (col + 256 < a->w.cols) {
            take_head(b + f.bytes, f, next);
        }
        if (SIMD_LITERAL(n)) {
            dot_lattice_few(b, head, f, &a->act, col, n, acc);
        } else {
            dot_lattice_many(b, head, f, &a->act, col, n, acc);
        }
        struct lattice_head *done = head;
        head = next;
        next = done;
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        a->y[i * a->y_stride + r] = vf_sum(acc[i]);
    }
}

SIMD_INLINE void matvec_lattice(const struct matvec_args *a, struct lattice_format f)
{
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        if (a->n == 1) {
            lattice_row(a, r, 1, f);
        } else if (a->n == 2) {
            lattice_row(a, r, 2, f);
        } else {
            lattice_row(a, r, a->n, f);
        }
    }
}

SIMD_INLINE void decode_lattice(const uint8_t *b, struct lattice_format f, float *y)
{
    /* Words of part k, as vi_spread lays them out: those of weights 16m are the low words of lanes 4m. */
    struct lattice_head head;
    take_head(b, f, &head);
    struct vf d = vf_set1(head.d);
    SIMD_UNROLL
    for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
        struct lattice_part w;
        float scale[16];
        take_signed_part(b, &head, f, k, &w);
        vf_store(scale, vf_mul(d, vf_from_i32(vi_and(lattice_scale(&head, f.by_16, k), vi_set1_32(0xffff)))));
        struct vi codes = vi_sign8(w.size, w.sign);
        SIMD_UNROLL
        for (int m = 0; m < 4; m++) {
            struct vf value = vf_mul(vf_set1(scale[4 * m]), vf_from_s8(vi_quarter(codes, m)));
            vf_store(y + 64 * k + 16 * m, value);
        }
    }
}

#define LATTICE_FORMAT(name, d_of, by_16, raised, bytes)                                                             \
    static void matvec_##name(const struct matvec_args *a)                                                           \
    {                                                                                                                \
        matvec_lattice(a, (struct lattice_format){d_of, head_##name, part_##name, by_16, raised, bytes});            \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name)                                                                         \
    {                                                                                                                \
        const uint8_t *b = row_data(w, r) + (size_t)(col / 256) * (bytes);                                           \
        for (uint32_t c = 0; c < count; c += 256, b += (bytes)) {                                                    \
            decode_lattice(b, (struct lattice_format){d_of, head_##name, part_##name, by_16, raised, bytes}, y + c); \
        }                                                                                                            \
    }

LATTICE_FORMAT(iq1_s, scale_eighth, false, true, 50)
LATTICE_FORMAT(iq1_m, scale_iq1_m, true, true, 56)
LATTICE_FORMAT(iq2_xxs, scale_eighth, false, false, 66)
LATTICE_FORMAT(iq2_xs, scale_eighth, true, false, 74)
LATTICE_FORMAT(iq2_s, scale_eighth, true, false, 82)
LATTICE_FORMAT(iq3_xxs, scale_quarter, false, false, 98)
LATTICE_FORMAT(iq3_s, scale_one, false, false, 110)

#endif
