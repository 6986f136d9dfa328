/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a pass of binding has to say: all problems in one message, tensors that no role took, precision warnings.
 * Must not know: how roles are bound. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/str.h"
#include "src/model/binder.h"

enum { PROBLEMS_NAMED = 8 };

void problem_add(struct problems *p, const char *fmt, ...)
{
    size_t len = strlen(p->text);
    if (p->n++ >= PROBLEMS_NAMED || sizeof(p->text) - len < 80) {
        return;
    }
    len += (size_t)snprintf(p->text + len, sizeof(p->text) - len, "%s", len > 0 ? "; " : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->text + len, sizeof(p->text) - len, fmt, args);
    va_end(args);
    text_one_line(p->text + len);
}

static void append_formats(struct str *s)
{
    str_puts(s, " (readable types:");
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        str_printf(s, " %s", weight_format_info((enum weight_format)f)->name);
    }
    str_puts(s, ")");
}

int problems_result(const struct problems *p, const char *path, const char *first_unused, struct error *e)
{
    if (p->n == 0) {
        return 0;
    }
    struct str s = { 0 };
    if (p->n > PROBLEMS_NAMED) {
        str_printf(&s, "; %u in all", p->n);
    }
    if (p->type) {
        append_formats(&s);
    }
    if (p->missing && first_unused != NULL) {
        str_printf(&s, "; the first tensor of an unknown name is %.100s", first_unused);
    }
    int r = error_set(e, ERROR_FORMAT, "%s: %s%s; take the files of one complete checkpoint of a supported model", path, p->text,
                      s.data != NULL ? s.data : "");
    str_deinit(&s);
    return r;
}

/* Copies of embedding and head in an MTP layer (role names of both kinds). */
static bool is_mtp_copy(const struct binder *b, const struct tensor *t, int32_t layer)
{
    static const enum role copies[] = { ROLE_MTP_EMBED, ROLE_MTP_HEAD };
    bool copy = false;
    for (size_t i = 0; i < ARRAY_LEN(copies) && layer >= 0; i++) {
        char name[NAME_BYTES];
        bool there = b->c->kind == CONTAINER_GGUF ? names_gguf(copies[i], (uint32_t)layer, name)
                                                  : names_hf(copies[i], (uint32_t)layer, 0, name);
        copy = copy || (there && strncmp(t->name, name, strlen(name)) == 0);
    }
    return copy;
}

static const char *precision_text(enum low_precision low)
{
    return low == LOW_ROUTER ? "router matrices are quantised (they decide which experts are used; F32 or BF16 is usual)"
                             : "selection biases are not float32 (BF16 biases are known to change most routing decisions)";
}

void binder_notes(struct binder *b, uint32_t first_layer, uint32_t layers_end)
{
    uint32_t unused = 0, left_out = 0, copies = 0;
    uint64_t copy_bytes = 0;
    const char *first = NULL;
    for (size_t i = 0; i < b->c->n_tensors; i++) {
        const struct tensor *t = &b->c->tensors[i];
        int32_t layer = names_layer(t->name);
        if (b->used[i] || (layer < (int32_t)first_layer && first_layer > 0)) {
            continue;
        }
        if (layer >= (int32_t)layers_end) {
            left_out++;
        } else if (layer >= (int32_t)b->w->shape.layers && is_mtp_copy(b, t, layer)) {
            copies++;
            copy_bytes += t->bytes;
        } else if (unused++ == 0) {
            first = t->name;
        }
    }
    char size[24];
    if (copies > 0) {
        weights_note(b->w, "%u copies of embedding and head in the MTP layer are not loaded (%s)", copies,
                     format_bytes(size, copy_bytes));
    }
    if (left_out > 0) {
        weights_note(b->w, "%u tensors of layers from %u on (MTP) are not used", left_out, layers_end);
    }
    if (unused > 0) {
        weights_note(b->w, "%u tensors are not used by the engine, the first is %.100s", unused, first);
    }
    if (b->n_idle_kv > 0) {
        weights_note(b->w, "%u layers hold attn_k_b and attn_v_b beside attn_kv_b: the same weights, only attn_kv_b is used",
                     b->n_idle_kv);
    }
    for (unsigned low = 0; low < LOW_COUNT; low++) {
        if (b->n_low[low] > 0) {
            weights_note(b->w, "warning: %u %s, the first is %.60s", b->n_low[low], precision_text((enum low_precision)low),
                         b->low[low]);
        }
    }
}

const char *binder_first_unused(const struct binder *b)
{
    for (size_t i = 0; i < b->c->n_tensors; i++) {
        if (!b->used[i]) {
            return b->c->tensors[i].name;
        }
    }
    return NULL;
}
