/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dimensions of the published models of the family (docs/formats.md). Must not know: tensors, files. */
#include "src/commands/synth_shape.h"

#include <math.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"

#define LATENT_512 .kv_lora = 512, .nope = 128, .rope = 64, .v_head = 128
#define YARN(f, fast, original) .yarn = true, .yarn_truncate = true, .yarn_factor = (f), .yarn_beta_fast = (fast), .yarn_beta_slow = 1, .yarn_original = (original)
#define SIGMOID .score = ROUTER_SIGMOID, .group = ROUTER_GROUP_SUM2, .router_bias = true, .normalise = true
#define SOFTMAX .score = ROUTER_SOFTMAX, .group = ROUTER_GROUP_MAX
#define COMMON .family = "deepseek2", .moe_layer_freq = 1, .rms_eps = 1e-6f, .inner_eps = 1e-6f, .rope_magnitude = 1, .n_eos = 1

static const struct synth_model models[] = {
    {"v3", {COMMON, LATENT_512, SIGMOID, YARN(40, 32, 4096), .vocab = 129280, .hidden = 7168, .layers = 61, .dense_layers = 3,
            .mtp_layers = 1, .heads = 128, .q_lora = 1536, .dense_width = 18432, .expert_width = 2048, .shared_width = 2048,
            .experts = 256, .experts_used = 8, .groups = 8, .groups_used = 4, .routed_factor = 2.5f, .rope_theta = 10000,
            .max_positions = 163840, .bos = 0, .eos = {1}}, 1.0, "deepseek-v3", "deepseek_v3", "DeepseekV3ForCausalLM"},
    {"v2", {COMMON, LATENT_512, SOFTMAX, YARN(40, 32, 4096), .vocab = 102400, .hidden = 5120, .layers = 60, .dense_layers = 1,
            .heads = 128, .q_lora = 1536, .dense_width = 12288, .expert_width = 1536, .shared_width = 3072,
            .experts = 160, .experts_used = 6, .groups = 8, .groups_used = 3, .routed_factor = 16, .rope_theta = 10000,
            .max_positions = 163840, .bos = 100000, .eos = {100001}}, 0.707, "deepseek-llm", "deepseek_v2", "DeepseekV2ForCausalLM"},
    {"v2-lite", {COMMON, LATENT_512, SOFTMAX, YARN(40, 32, 4096), .vocab = 102400, .hidden = 2048, .layers = 27, .dense_layers = 1,
                 .heads = 16, .dense_width = 10944, .expert_width = 1408, .shared_width = 2816,
                 .experts = 64, .experts_used = 6, .groups = 1, .groups_used = 1, .routed_factor = 1, .rope_theta = 10000,
                 .max_positions = 163840, .bos = 100000, .eos = {100001}}, 0.707, "deepseek-llm", "deepseek_v2", "DeepseekV2ForCausalLM"},
    {"kimi-k2", {COMMON, LATENT_512, SIGMOID, YARN(32, 1, 4096), .vocab = 163840, .hidden = 7168, .layers = 61, .dense_layers = 1,
                 .heads = 64, .q_lora = 1536, .dense_width = 18432, .expert_width = 2048, .shared_width = 2048,
                 .experts = 384, .experts_used = 8, .groups = 1, .groups_used = 1, .routed_factor = 2.827f, .rope_theta = 50000,
                 .max_positions = 131072, .bos = 163584, .eos = {163585}}, 1.0, "kimi-k2", "kimi_k2", "DeepseekV3ForCausalLM"},
    {"demo", {COMMON, SIGMOID, YARN(8, 32, 512), .kv_lora = 64, .nope = 32, .rope = 16, .v_head = 32, .vocab = 4096, .hidden = 256,
              .layers = 6, .dense_layers = 1, .mtp_layers = 1, .heads = 8, .q_lora = 128, .dense_width = 768, .expert_width = 64,
              .shared_width = 64, .experts = 64, .experts_used = 6, .groups = 8, .groups_used = 4, .routed_factor = 2.5f,
              .rope_theta = 10000, .max_positions = 4096, .bos = 0, .eos = {1}}, 1.0, "deepseek-v3", "deepseek_v3", "DeepseekV3ForCausalLM"},
};

static int reduce(struct shape *s, const struct synth_reduction *r, struct error *e)
{
    uint32_t dense = r->dense != UINT32_MAX ? r->dense : s->dense_layers, moe = r->moe != UINT32_MAX ? r->moe : s->layers - s->dense_layers;
    if (dense > 1000 || moe > 1000 || dense + moe == 0) {
        return error_set(e, ERROR_USAGE, "--dense %u, --moe %u: a model has 1 to 1000 layers of each kind", dense, moe);
    }
    s->dense_layers = dense;
    s->layers = dense + moe;
    s->mtp_layers = r->mtp ? s->mtp_layers : 0;
    if (r->experts != UINT32_MAX) {
        if (r->experts < 2 || r->experts > 4096) {
            return error_set(e, ERROR_USAGE, "--experts %u: 2 to 4096 are possible", r->experts);
        }
        s->experts = r->experts;
        s->experts_used = min_u32(s->experts_used, s->experts);
        uint32_t per_group = s->experts / s->groups;
        if (s->experts % s->groups != 0 || per_group < 2 || per_group * s->groups_used < s->experts_used) {
            s->groups = s->groups_used = 1;
        }
    }
    return 0;
}

int synth_model_find(const char *name, const struct synth_reduction *reduction, struct synth_model *ret, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (strcmp(models[i].name, name) == 0) {
            struct synth_model m = models[i];
            double magnitude = 0.1 * m.mscale * log(m.shape.yarn_factor) + 1;
            m.shape.attn_scale = magnitude * magnitude / sqrt((double)m.shape.nope + m.shape.rope);
            int r = reduce(&m.shape, reduction, e);
            if (r == 0 && reduction->mtp && m.shape.mtp_layers == 0) {
                r = error_set(e, ERROR_USAGE, "--mtp: models of shape %s have no MTP layer; v3 and demo have", name);
            }
            if (r == 0) {
                *ret = m;
            }
            return r;
        }
    }
    return error_set(e, ERROR_USAGE, "--shape %s: unknown, expected v3, v2, v2-lite, kimi-k2 or demo", name);
}
