/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a shape as Hugging Face configuration, with the keys of the published files. Must not know: tensors, files. */
#include "src/commands/synth_config.h"

#include <stdlib.h>

#include "src/base/json_text.h"

static json_t *dimensions(const struct shape *s)
{
    return json_pack("{s:i s:i s:i s:i s:i s:i s:i s:o s:i s:i s:i s:i s:i s:f s:f s:i s:i s:i}", "vocab_size", (int)s->vocab, "hidden_size",
                     (int)s->hidden, "num_hidden_layers", (int)s->layers, "num_nextn_predict_layers", (int)s->mtp_layers, "intermediate_size",
                     (int)s->dense_width, "num_attention_heads", (int)s->heads, "num_key_value_heads", (int)s->heads, "q_lora_rank",
                     s->q_lora > 0 ? json_integer(s->q_lora) : json_null(), "kv_lora_rank", (int)s->kv_lora, "qk_nope_head_dim", (int)s->nope,
                     "qk_rope_head_dim", (int)s->rope, "v_head_dim", (int)s->v_head, "max_position_embeddings", (int)s->max_positions,
                     "rms_norm_eps", 1e-6, "rope_theta", s->rope_theta, "moe_layer_freq", 1, "bos_token_id", s->bos, "eos_token_id",
                     s->eos[0]);
}

static json_t *experts(const struct shape *s)
{
    const char *method = s->score == ROUTER_SIGMOID ? "noaux_tc" : s->groups > 1 ? "group_limited_greedy" : "greedy";
    return json_pack("{s:i s:i s:i s:i s:i s:i s:i s:s s:s s:b s:f}", "first_k_dense_replace", (int)s->dense_layers, "moe_intermediate_size",
                     (int)s->expert_width, "n_routed_experts", (int)s->experts, "n_shared_experts", (int)(s->shared_width / s->expert_width),
                     "num_experts_per_tok", (int)s->experts_used, "n_group", (int)s->groups, "topk_group", (int)s->groups_used, "scoring_func",
                     s->score == ROUTER_SIGMOID ? "sigmoid" : "softmax", "topk_method", method, "norm_topk_prob", (int)s->normalise,
                     "routed_scaling_factor", (double)s->routed_factor);
}

static json_t *rules(const struct synth_model *m)
{
    const struct shape *s = &m->shape;
    return json_pack("{s:[s] s:s s:s s:b s:b s:s s:{s:s s:f s:i s:f s:f s:f s:f}}", "architectures", m->architecture, "model_type", m->model_type,
                     "hidden_act", "silu", "attention_bias", 0, "tie_word_embeddings", 0, "torch_dtype", "bfloat16", "rope_scaling", "type",
                     "yarn", "factor", s->yarn_factor, "original_max_position_embeddings", (int)s->yarn_original, "beta_fast",
                     s->yarn_beta_fast, "beta_slow", s->yarn_beta_slow, "mscale", m->mscale, "mscale_all_dim", m->mscale);
}

static json_t *quantization(void)
{
    return json_pack("{s:{s:s s:s s:s s:[i i]}}", "quantization_config", "quant_method", "fp8", "fmt", "e4m3", "activation_scheme", "dynamic",
                     "weight_block_size", FORMAT_SCALE_BLOCK, FORMAT_SCALE_BLOCK);
}

/* Takes `part`; false: no memory. */
static bool merge(json_t *root, json_t *part)
{
    bool ok = root != NULL && part != NULL && json_object_update(root, part) == 0;
    json_decref(part);
    return ok;
}

static char *print(json_t *root, bool complete)
{
    char *text = complete ? json_text_print(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

int synth_config_text(const struct synth_model *m, bool fp8, char **ret_config, char **ret_generation, struct error *e)
{
    json_t *root = json_object();
    bool ok = merge(root, rules(m));
    ok = merge(root, dimensions(&m->shape)) && ok;
    ok = merge(root, experts(&m->shape)) && ok;
    ok = (!fp8 || merge(root, quantization())) && ok;
    char *config = print(root, ok);
    json_t *small = json_pack("{s:i s:i}", "bos_token_id", m->shape.bos, "eos_token_id", m->shape.eos[0]);
    char *generation = print(small, small != NULL);
    if (config == NULL || generation == NULL) {
        free(config);
        free(generation);
        return error_nomem(e, "config.json", 0);
    }
    *ret_config = config;
    *ret_generation = generation;
    return 0;
}
