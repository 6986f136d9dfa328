/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice inspect`: shape, notes, precision per class and tensors of a checkpoint, without reading a weight.
 * Must not know: how any of it was found. Keys of --json: docs/formats.md. */
#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/inspect_class.h"

static const char help_text[] =
    "usage: sluice inspect -m MODEL [--tensors] [--json] [--mtp-from PATH] [--mtp off] [--expert-groups off]\n"
    "\n"
    "What a checkpoint is: dimensions and routing rules, values assumed because a key is absent, bytes and bits per\n"
    "weight of each class of weights, and with --tensors every tensor. Reads headers only, so it works on files whose\n"
    "tensor data is not there. Shapes are listed in the order of the file: [out, in] in safetensors, {in, out} in GGUF.\n"
    "\n"
    "examples:\n"
    "  sluice inspect -m DeepSeek-V3-Q4_K_M-00001-of-00009.gguf\n"
    "  sluice inspect -m DeepSeek-V3/ --json | jq .shape\n"
    "  sluice inspect -m model.gguf --mtp-from DeepSeek-V3/ --tensors\n";

static const char *kind_name(const struct container *c) { return c->kind == CONTAINER_GGUF ? "gguf" : "safetensors"; }

/* Dimension i of n in the order of the file. */
static uint64_t file_dim(const struct container *c, const struct tensor *t, uint32_t i)
{
    return t->dims[c->kind == CONTAINER_GGUF ? t->n_dims - 1 - i : i];
}

static void put_dims(struct str *out, const struct container *c, const struct tensor *t)
{
    str_puts(out, "[");
    for (uint32_t i = 0; i < t->n_dims; i++) {
        str_printf(out, "%s%llu", i > 0 ? ", " : "", (unsigned long long)file_dim(c, t, i));
    }
    str_puts(out, "]");
}

/* ---- shape ---- */

struct shape_field {
    const char *name;
    enum { FIELD_U32, FIELD_BOOL, FIELD_FLOAT, FIELD_DOUBLE } kind;
    size_t offset;
};

#define FIELD(kind, member) { #member, kind, offsetof(struct shape, member) }

static const struct shape_field shape_fields[] = {
    FIELD(FIELD_U32, vocab), FIELD(FIELD_U32, hidden), FIELD(FIELD_U32, layers), FIELD(FIELD_U32, dense_layers),
    FIELD(FIELD_U32, mtp_layers), FIELD(FIELD_U32, moe_layer_freq), FIELD(FIELD_U32, heads), FIELD(FIELD_U32, q_lora),
    FIELD(FIELD_U32, kv_lora), FIELD(FIELD_U32, nope), FIELD(FIELD_U32, rope), FIELD(FIELD_U32, v_head),
    FIELD(FIELD_U32, dense_width), FIELD(FIELD_U32, expert_width), FIELD(FIELD_U32, shared_width),
    FIELD(FIELD_U32, experts), FIELD(FIELD_U32, experts_used), FIELD(FIELD_U32, groups), FIELD(FIELD_U32, groups_used),
    FIELD(FIELD_BOOL, router_bias), FIELD(FIELD_BOOL, normalise), FIELD(FIELD_FLOAT, routed_factor),
    FIELD(FIELD_FLOAT, rms_eps), FIELD(FIELD_FLOAT, inner_eps), FIELD(FIELD_BOOL, tied_head),
    FIELD(FIELD_BOOL, rope_half_split), FIELD(FIELD_DOUBLE, rope_theta), FIELD(FIELD_BOOL, yarn),
    FIELD(FIELD_DOUBLE, yarn_factor), FIELD(FIELD_DOUBLE, yarn_beta_fast), FIELD(FIELD_DOUBLE, yarn_beta_slow),
    FIELD(FIELD_U32, yarn_original), FIELD(FIELD_BOOL, yarn_truncate), FIELD(FIELD_DOUBLE, rope_magnitude),
    FIELD(FIELD_DOUBLE, attn_scale), FIELD(FIELD_U32, max_positions),
};

static void put_field(struct str *out, const struct shape *s, const struct shape_field *f)
{
    const char *at = (const char *)s + f->offset;
    switch (f->kind) {
    case FIELD_U32:
        str_printf(out, "%u", *(const uint32_t *)(const void *)at);
        break;
    case FIELD_BOOL:
        str_puts(out, *(const bool *)(const void *)at ? "true" : "false");
        break;
    case FIELD_FLOAT:
        str_printf(out, "%.9g", (double)*(const float *)(const void *)at);
        break;
    case FIELD_DOUBLE:
        str_printf(out, "%.17g", *(const double *)(const void *)at);
        break;
    }
}

static const char *score_name(const struct shape *s) { return s->score == ROUTER_SIGMOID ? "sigmoid" : "softmax"; }
static const char *group_name(const struct shape *s) { return s->group == ROUTER_GROUP_SUM2 ? "sum2" : "max"; }

static void put_eos(struct str *out, const struct shape *s)
{
    for (uint32_t i = 0; i < s->n_eos; i++) {
        str_printf(out, "%s%d", i > 0 ? ", " : "", s->eos[i]);
    }
}

static void json_shape(struct str *out, const struct shape *s)
{
    str_puts(out, "{\"family\": ");
    str_json(out, s->family, strlen(s->family));
    for (size_t i = 0; i < ARRAY_LEN(shape_fields); i++) {
        str_printf(out, ", \"%s\": ", shape_fields[i].name);
        put_field(out, s, &shape_fields[i]);
    }
    str_printf(out, ", \"score\": \"%s\", \"group\": \"%s\", \"bos\": %d, \"eos\": [", score_name(s), group_name(s), s->bos);
    put_eos(out, s);
    str_puts(out, "]}");
}

static void text_shape(struct str *out, const struct shape *s)
{
    str_printf(out, "\n%s\n", s->family);
    str_printf(out, "  layers          %u, the first %u dense, %u MTP\n", s->layers, s->dense_layers, s->mtp_layers);
    str_printf(out, "  widths          hidden %u, vocabulary %u, dense %u, expert %u, shared %u\n", s->hidden, s->vocab,
               s->dense_width, s->expert_width, s->shared_width);
    str_printf(out, "  attention       %u heads of %u + %u (rotated), value %u, q_lora %u, kv_lora %u, scale %.7f\n", s->heads,
               s->nope, s->rope, s->v_head, s->q_lora, s->kv_lora, s->attn_scale);
    if (s->experts > 0) {
        str_printf(out, "  experts         %u, %u per token, %u groups of which %u, %s%s%s, factor %g\n", s->experts,
                   s->experts_used, s->groups, s->groups_used, score_name(s), s->router_bias ? " with bias" : "",
                   s->normalise ? ", normalised" : "", (double)s->routed_factor);
    }
    str_printf(out, "  positions       %u, theta %g%s", s->max_positions, s->rope_theta, s->rope_half_split ? ", half split" : "");
    if (s->yarn) {
        str_printf(out, ", YaRN factor %g over %u, beta %g and %g", s->yarn_factor, s->yarn_original, s->yarn_beta_fast,
                   s->yarn_beta_slow);
    }
    str_printf(out, "\n  tokens          begin %d, end ", s->bos);
    put_eos(out, s);
    str_printf(out, "%s\n  norm epsilon    %g, inner norms %g%s\n", s->n_eos == 0 ? "none" : "", (double)s->rms_eps,
               (double)s->inner_eps, s->tied_head ? "; the head is the embedding" : "");
}

/* ---- the two reports ---- */

static void json_notes(struct str *out, const struct weights *w)
{
    uint32_t n = w->shape.n_notes + w->n_notes;
    for (uint32_t i = 0; i < n; i++) {
        const char *note = i < w->shape.n_notes ? w->shape.notes[i] : w->notes[i - w->shape.n_notes];
        str_puts(out, i > 0 ? ", " : "");
        str_json(out, note, strlen(note));
    }
}

static void json_tensors(struct str *out, const struct weights *w)
{
    const char *comma = "";
    for (uint32_t k = 0; k < w->n_containers; k++) {
        const struct container *c = w->containers[k];
        for (size_t i = 0; i < c->n_tensors; i++) {
            const struct tensor *t = &c->tensors[i];
            const char *path = c->files[t->file].path;
            str_printf(out, "%s\n{\"name\": ", comma);
            str_json(out, t->name, strlen(t->name));
            str_puts(out, ", \"type\": ");
            str_json(out, t->type_name, strlen(t->type_name));
            str_puts(out, ", \"shape\": ");
            put_dims(out, c, t);
            str_printf(out, ", \"bytes\": %llu, \"offset\": %llu, \"file\": ", (unsigned long long)t->bytes,
                       (unsigned long long)t->offset);
            str_json(out, path, strlen(path));
            str_puts(out, "}");
            comma = ",";
        }
    }
}

static void json_files(struct str *out, const struct weights *w)
{
    const char *comma = "";
    for (uint32_t k = 0; k < w->n_containers; k++) {
        for (uint32_t i = 0; i < w->containers[k]->n_files; i++) {
            const struct file *f = &w->containers[k]->files[i];
            str_printf(out, "%s{\"path\": ", comma);
            str_json(out, f->path, strlen(f->path));
            str_printf(out, ", \"bytes\": %llu}", (unsigned long long)f->size);
            comma = ", ";
        }
    }
}

static void report_json(struct str *out, const struct weights *w)
{
    str_printf(out, "{\"kind\": \"%s\", \"header_only\": %s, \"files\": [", kind_name(w->containers[0]),
               w->header_only ? "true" : "false");
    json_files(out, w);
    str_puts(out, "],\n\"shape\": ");
    json_shape(out, &w->shape);
    str_puts(out, ",\n\"notes\": [");
    json_notes(out, w);
    str_puts(out, "],\n\"classes\": [");
    inspect_classes_json(out, w);
    str_puts(out, "],\n\"tensors\": [");
    json_tensors(out, w);
    str_puts(out, "]}\n");
}

static void text_tensors(struct str *out, const struct container *c)
{
    char size[24];
    str_printf(out, "\ntensors of %s (%s order)\n", c->path, c->kind == CONTAINER_GGUF ? "{in, out, count}" : "[out, in]");
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        str_printf(out, "  %-60s %-8s %10s  ", t->name, t->type_name, format_bytes(size, t->bytes));
        put_dims(out, c, t);
        str_printf(out, "  %s\n", c->files[t->file].path);
    }
}

static void report_text(struct str *out, const struct weights *w, bool tensors)
{
    char size[24];
    for (uint32_t k = 0; k < w->n_containers; k++) {
        const struct container *c = w->containers[k];
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < c->n_files; i++) {
            bytes += c->files[i].size;
        }
        str_printf(out, "%s: %s, %u file%s, %zu tensors, %s%s\n", c->path, kind_name(c), c->n_files, c->n_files == 1 ? "" : "s", c->n_tensors,
                   format_bytes(size, bytes), c->header_only ? ", tensor data not there" : "");
    }
    text_shape(out, &w->shape);
    inspect_classes_text(out, w);
    if (w->shape.n_notes + w->n_notes > 0) {
        str_puts(out, "\nnotes\n");
    }
    for (uint32_t i = 0; i < w->shape.n_notes; i++) {
        str_printf(out, "  %s\n", w->shape.notes[i]);
    }
    for (uint32_t i = 0; i < w->n_notes; i++) {
        str_printf(out, "  %s\n", w->notes[i]);
    }
    for (uint32_t k = 0; tensors && k < w->n_containers; k++) {
        text_tensors(out, w->containers[k]);
    }
}

static int inspect(const struct settings *s, bool json, bool tensors, struct error *e)
{
    struct bind_options options = arguments_bind(s);
    options.allow_header_only = true;
    struct weights *w;
    int r = weights_open(&options, &w, e);
    if (r != 0) {
        return r;
    }
    struct str out = { 0 };
    if (json) {
        report_json(&out, w);
    } else {
        report_text(&out, w, tensors);
    }
    r = arguments_print(&out, e);
    weights_close(w);
    return r;
}

int command_inspect(int argc, char **argv, const volatile int *cancel)
{
    (void)cancel; /* headers only: over before a signal matters */
    bool json = false, tensors = false, help = false;
    const struct argument own[] = { { "--json", &json, NULL }, { "--tensors", &tensors, NULL }, { 0 } };
    struct settings s;
    struct error e = { 0 };
    int r = settings_init(&s, &e);
    if (r == 0) {
        r = arguments_read(argc, argv, own, &s, &help, &e);
        if (r == 0 && help) {
            fputs(help_text, stdout);
        } else if (r == 0) {
            r = inspect(&s, json, tensors, &e);
        }
        settings_deinit(&s);
    }
    return arguments_finish("inspect", r, &e);
}
