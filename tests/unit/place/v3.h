/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the 671B shape and the byte sums of its Q4_K file (docs/plan.md), as input of plans in tests. */
#ifndef SLUICE_TESTS_PLACE_V3_H
#define SLUICE_TESTS_PLACE_V3_H

#include "src/place/plan.h"

#define V3_EXPERT_Q4_K UINT64_C(24772608)
#define V3_EXPERTS UINT64_C(14848) /* 58 layers of 256 */
/* attention, shared experts, dense FFN in Q4_K, head and embedding in Q4_K, routers and norms in F32 */
#define V3_TABLE_Q4_K UINT64_C(521256960)
#define V3_RESIDENT (UINT64_C(6420049920) + UINT64_C(1436811264) + UINT64_C(668860416) + 2 * V3_TABLE_Q4_K + UINT64_C(425721856) + UINT64_C(4085760))

static inline struct shape v3_shape(void)
{
    return (struct shape){
        .family = "deepseek2", .vocab = 129280, .hidden = 7168, .layers = 61, .dense_layers = 3, .moe_layer_freq = 1, .heads = 128,
        .q_lora = 1536, .kv_lora = 512, .nope = 128, .rope = 64, .v_head = 128, .dense_width = 18432, .expert_width = 2048,
        .shared_width = 2048, .experts = 256, .experts_used = 8, .groups = 8, .groups_used = 4, .max_positions = 163840};
}

static inline struct plan_input v3_input(const struct shape *s, const struct machine *m)
{
    return (struct plan_input){
        .shape = s, .machine = m, .resident_bytes = V3_RESIDENT, .expert_bytes = V3_EXPERTS * V3_EXPERT_Q4_K,
        .max_expert_bytes = V3_EXPERT_Q4_K, .idle_bytes = V3_TABLE_Q4_K, .tokenizer_bytes = 20 << 20, .table_bytes = 3 << 20,
        .threads = 16, .ubatch = 512, .sessions = 1, .kv = KV_F16};
}

#endif
