/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table of roles with their names in both kinds of checkpoint. Must not know: I/O, shapes. */
#include "src/model/names.h"

#include <stdio.h>
#include <string.h>

enum place { PLACE_MODEL, PLACE_LAYER, PLACE_EXPERT };

static const struct {
    const char *text; /* for messages */
    const char *hf;   /* NULL: no such tensor there; PLACE_EXPERT: after "mlp.experts.J." */
    const char *gguf;
    enum place place;
    bool vector;
} roles[ROLE_COUNT] = {
    [ROLE_EMBED] = { "embedding", "model.embed_tokens.weight", "token_embd.weight", PLACE_MODEL, false },
    [ROLE_FINAL_NORM] = { "final norm", "model.norm.weight", "output_norm.weight", PLACE_MODEL, true },
    [ROLE_HEAD] = { "output head", "lm_head.weight", "output.weight", PLACE_MODEL, false },
    [ROLE_ATTN_NORM] = { "attention norm", "input_layernorm.weight", "attn_norm.weight", PLACE_LAYER, true },
    [ROLE_Q] = { "query", "self_attn.q_proj.weight", "attn_q.weight", PLACE_LAYER, false },
    [ROLE_Q_A] = { "query down", "self_attn.q_a_proj.weight", "attn_q_a.weight", PLACE_LAYER, false },
    [ROLE_Q_A_NORM] = { "query norm", "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", PLACE_LAYER, true },
    [ROLE_Q_B] = { "query up", "self_attn.q_b_proj.weight", "attn_q_b.weight", PLACE_LAYER, false },
    [ROLE_KV_A] = { "latent down", "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", PLACE_LAYER, false },
    [ROLE_KV_A_NORM] = { "latent norm", "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", PLACE_LAYER, true },
    [ROLE_KV_B] = { "key and value up", "self_attn.kv_b_proj.weight", "attn_kv_b.weight", PLACE_LAYER, false },
    [ROLE_K_B] = { "key up", NULL, "attn_k_b.weight", PLACE_LAYER, false },
    [ROLE_V_B] = { "value up", NULL, "attn_v_b.weight", PLACE_LAYER, false },
    [ROLE_O] = { "attention output", "self_attn.o_proj.weight", "attn_output.weight", PLACE_LAYER, false },
    [ROLE_FFN_NORM] = { "ffn norm", "post_attention_layernorm.weight", "ffn_norm.weight", PLACE_LAYER, true },
    [ROLE_GATE] = { "dense gate", "mlp.gate_proj.weight", "ffn_gate.weight", PLACE_LAYER, false },
    [ROLE_UP] = { "dense up", "mlp.up_proj.weight", "ffn_up.weight", PLACE_LAYER, false },
    [ROLE_DOWN] = { "dense down", "mlp.down_proj.weight", "ffn_down.weight", PLACE_LAYER, false },
    [ROLE_ROUTER] = { "router", "mlp.gate.weight", "ffn_gate_inp.weight", PLACE_LAYER, false },
    [ROLE_ROUTER_BIAS] = { "selection bias", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", PLACE_LAYER, true },
    [ROLE_SHARED_GATE] = { "shared gate", "mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", PLACE_LAYER, false },
    [ROLE_SHARED_UP] = { "shared up", "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", PLACE_LAYER, false },
    [ROLE_SHARED_DOWN] = { "shared down", "mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", PLACE_LAYER, false },
    [ROLE_MTP_EH] = { "MTP projection", "eh_proj.weight", "nextn.eh_proj.weight", PLACE_LAYER, false },
    [ROLE_MTP_ENORM] = { "MTP embedding norm", "enorm.weight", "nextn.enorm.weight", PLACE_LAYER, true },
    [ROLE_MTP_HNORM] = { "MTP hidden norm", "hnorm.weight", "nextn.hnorm.weight", PLACE_LAYER, true },
    [ROLE_MTP_NORM] = { "MTP head norm", "shared_head.norm.weight", "nextn.shared_head_norm.weight", PLACE_LAYER, true },
    [ROLE_MTP_EMBED] = { "MTP copy of the embedding", "embed_tokens.weight", "nextn.embed_tokens.weight", PLACE_LAYER, false },
    [ROLE_MTP_HEAD] = { "MTP copy of the head", "shared_head.head.weight", "nextn.shared_head_head.weight", PLACE_LAYER, false },
    [ROLE_EXPERT_GATE] = { "expert gate", "gate_proj.weight", "ffn_gate_exps.weight", PLACE_EXPERT, false },
    [ROLE_EXPERT_UP] = { "expert up", "up_proj.weight", "ffn_up_exps.weight", PLACE_EXPERT, false },
    [ROLE_EXPERT_DOWN] = { "expert down", "down_proj.weight", "ffn_down_exps.weight", PLACE_EXPERT, false },
};

const char *role_name(enum role role) { return (unsigned)role < ROLE_COUNT ? roles[role].text : "unknown role"; }

bool role_is_vector(enum role role) { return (unsigned)role < ROLE_COUNT && roles[role].vector; }

bool names_hf(enum role role, uint32_t layer, uint32_t expert, char *out)
{
    if ((unsigned)role >= ROLE_COUNT || roles[role].hf == NULL) {
        return false;
    }
    switch (roles[role].place) {
    case PLACE_MODEL:
        snprintf(out, NAME_BYTES, "%s", roles[role].hf);
        break;
    case PLACE_LAYER:
        snprintf(out, NAME_BYTES, "model.layers.%u.%s", layer, roles[role].hf);
        break;
    case PLACE_EXPERT:
        snprintf(out, NAME_BYTES, "model.layers.%u.mlp.experts.%u.%s", layer, expert, roles[role].hf);
        break;
    }
    return true;
}

bool names_gguf(enum role role, uint32_t layer, char *out)
{
    if ((unsigned)role >= ROLE_COUNT || roles[role].gguf == NULL) {
        return false;
    }
    if (roles[role].place == PLACE_MODEL) {
        snprintf(out, NAME_BYTES, "%s", roles[role].gguf);
    } else {
        snprintf(out, NAME_BYTES, "blk.%u.%s", layer, roles[role].gguf);
    }
    return true;
}

int32_t names_layer(const char *name)
{
    static const char *const prefixes[] = { "model.layers.", "blk." };
    const char *digits = NULL;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0) {
            digits = name + n;
        }
    }
    if (digits == NULL) {
        return -1;
    }
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 8 || digits[n] != '.' || (n > 1 && digits[0] == '0')) {
        return -1;
    }
    int32_t layer = 0;
    for (size_t i = 0; i < n; i++) {
        layer = layer * 10 + (digits[i] - '0');
    }
    return layer;
}
