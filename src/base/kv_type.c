/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: names and row sizes of the KV types (common/ops.h), for planner, kernels and token loop alike.
 * Must not know: how rows are written. */
#include "common/ops.h"

static size_t q8_0_bytes(size_t n) { return n + 2 * ((n + 31) / 32); }

size_t kv_row_bytes(enum kv_type type, uint32_t latent, uint32_t rope)
{
    size_t elems = (size_t)latent + rope;
    switch (type) {
    case KV_F32:
        return 4 * elems;
    case KV_BF16:
    case KV_F16:
        return 2 * elems;
    case KV_Q8_0:
        return q8_0_bytes(latent) + q8_0_bytes(rope);
    default:
        return 0;
    }
}

const char *kv_type_name(enum kv_type type)
{
    static const char *const names[KV_TYPE_COUNT] = {"f32", "bf16", "f16", "q8_0"};
    return (unsigned)type < KV_TYPE_COUNT ? names[type] : NULL;
}
