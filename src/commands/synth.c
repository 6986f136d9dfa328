/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice synth`: flags, and which parts make which form of a model. docs/plan.md.
 * Must not know: shapes, metadata, block formats (synth_*.c), how files are written (output.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/gguf_keys.h"
#include "src/commands/output.h"
#include "src/commands/synth_fill.h"
#include "src/commands/synth_folder.h"
#include "src/commands/synth_vocabulary.h"

static const char help_text[] =
    "usage: sluice synth --shape v3|v2|v2-lite|kimi-k2|demo [options] -o OUT.gguf\n"
    "       sluice synth --shape v3|v2|v2-lite|kimi-k2|demo [options] -o FOLDER/\n"
    "\n"
    "Writes a model's true shape with random weights: to try a machine, or `sluice plan`, before downloading. OUT is a GGUF\n"
    "file; a name that ends with / (or --hf) gives a Hugging Face folder as DeepSeek publishes them.\n"
    "\n"
    "  --dense N, --moe N    dense and MoE layers (default: as the shape has them)\n"
    "  --experts N           routed experts per layer\n"
    "  --mtp                 with the MTP layer (v3, demo)\n"
    "  --type NAME           format of routed experts. GGUF: q4_k (default), q2_k, iq2_xxs, mxfp4, q8_0, bf16, ...\n"
    "                        folders: fp8 (default), bf16, f16, f32\n"
    "  --attn-type NAME      format of all other matrices. GGUF: q8_0 (default), ...; folders: that of the experts\n"
    "  --zipf S              popularity of experts falls as rank^-S (needs a router with a bias: v3, kimi-k2, demo)\n"
    "  --seed N              the same seed gives the same files (default 1)\n"
    "  --header-only         metadata and tensor table only: enough for `sluice plan` and `sluice inspect`\n"
    "  --hf                  a Hugging Face folder\n"
    "  --force               replace a file that is there\n"
    "  -o OUT                file or folder to write; it appears when it is complete\n"
    "\n"
    "examples:\n"
    "  sluice synth --shape v3 --header-only -o v3.gguf && sluice plan -m v3.gguf\n"
    "  sluice synth --shape v3 --dense 1 --moe 2 -o small-v3.gguf\n"
    "  sluice synth --shape v2-lite --type q4_0 --seed 7 -o v2-lite.gguf\n"
    "  sluice synth --shape v3 --mtp --dense 1 --moe 1 -o v3-fp8/\n";

struct options {
    const char *shape, *out;
    struct synth_reduction reduction;
    struct tensor_formats formats; /* FORMAT_NONE: the default of the form */
    double zipf;
    uint64_t seed;
    bool header_only, help, hf, force;
};

/* ---- flags ---- */

static int read_count(const char *flag, const char *value, uint32_t *ret, struct error *e)
{
    uint64_t n;
    if (!parse_u64(value, &n) || n >= UINT32_MAX) {
        return error_set(e, ERROR_USAGE, "%s %s: a whole number is expected", flag, value);
    }
    *ret = (uint32_t)n;
    return 0;
}

static int read_format(const char *flag, const char *value, enum weight_format *ret, struct error *e)
{
    *ret = weight_format_by_name(strcmp(value, "fp8") == 0 ? "f8_e4m3" : value);
    return weight_format_info(*ret) != NULL ? 0 : error_set(e, ERROR_USAGE, "%s %s: no known format; GGUF files have f32, f16, bf16, q8_0, q4_0 "
                                                            "to q5_1, q2_k to q6_k, iq4_nl, iq4_xs, mxfp4, iq1_s to iq3_s, folders fp8, bf16, "
                                                            "f16, f32", flag, value);
}

static int read_value(struct options *o, const char *flag, const char *value, struct error *e)
{
    if (strcmp(flag, "--shape") == 0) {
        o->shape = value;
    } else if (strcmp(flag, "-o") == 0) {
        o->out = value;
    } else if (strcmp(flag, "--dense") == 0) {
        return read_count(flag, value, &o->reduction.dense, e);
    } else if (strcmp(flag, "--moe") == 0) {
        return read_count(flag, value, &o->reduction.moe, e);
    } else if (strcmp(flag, "--experts") == 0) {
        return read_count(flag, value, &o->reduction.experts, e);
    } else if (strcmp(flag, "--type") == 0) {
        return read_format(flag, value, &o->formats.experts, e);
    } else if (strcmp(flag, "--attn-type") == 0) {
        return read_format(flag, value, &o->formats.dense, e);
    } else if (strcmp(flag, "--seed") == 0) {
        return parse_u64(value, &o->seed) ? 0 : error_set(e, ERROR_USAGE, "--seed %s: a whole number is expected", value);
    } else if (!parse_double(value, &o->zipf) || o->zipf < 0 || o->zipf > 10) { /* --zipf */
        return error_set(e, ERROR_USAGE, "--zipf %s: a number from 0 to 10 is expected", value);
    }
    return 0;
}

static bool takes_value(const char *flag)
{
    static const char *const flags[] = {"--shape", "-o", "--dense", "--moe", "--experts", "--type", "--attn-type", "--seed", "--zipf"};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (strcmp(flags[i], flag) == 0) {
            return true;
        }
    }
    return false;
}

/* What -o and the formats mean together. */
static int settle_form(struct options *o, struct error *e)
{
    size_t len = strlen(o->out);
    o->hf = o->hf || (len > 0 && o->out[len - 1] == '/');
    if (o->formats.experts == FORMAT_NONE) {
        o->formats.experts = o->hf ? FORMAT_F8_E4M3 : FORMAT_Q4_K;
    }
    if (o->formats.dense == FORMAT_NONE) {
        o->formats.dense = o->hf ? o->formats.experts : FORMAT_Q8_0;
    }
    const enum weight_format formats[] = {o->formats.experts, o->formats.dense};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        const struct weight_format_info *info = weight_format_info(formats[i]);
        if (o->hf ? info->safetensors == NULL : info->ggml < 0) {
            return error_set(e, ERROR_USAGE, "%s: %s has no such format; %s", info->name, o->hf ? "a Hugging Face folder" : "a GGUF file",
                             o->hf ? "fp8, bf16, f16 and f32 are possible" : "name a folder (-o NAME/) to get FP8");
        }
    }
    return 0;
}

static int parse(int argc, char **argv, struct options *o, struct error *e)
{
    int r = 0;
    for (int i = 1; r == 0 && i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
            return 0;
        } else if (strcmp(argv[i], "--header-only") == 0) {
            o->header_only = true;
        } else if (strcmp(argv[i], "--mtp") == 0) {
            o->reduction.mtp = true;
        } else if (strcmp(argv[i], "--hf") == 0) {
            o->hf = true;
        } else if (strcmp(argv[i], "--force") == 0) {
            o->force = true;
        } else if (!takes_value(argv[i])) {
            r = error_set(e, ERROR_USAGE, "unknown flag %s; see `sluice synth --help`", argv[i]);
        } else if (i + 1 == argc) {
            r = error_set(e, ERROR_USAGE, "%s needs a value; see `sluice synth --help`", argv[i]);
        } else {
            r = read_value(o, argv[i], argv[i + 1], e);
            i++;
        }
    }
    if (r == 0 && (o->shape == NULL || o->out == NULL || o->out[0] == '\0')) {
        r = error_set(e, ERROR_USAGE, "--shape and -o are needed; see `sluice synth --help`");
    }
    return r < 0 ? r : settle_form(o, e);
}

/* ---- files ---- */

struct keys {
    const struct options *o;
    const struct synth_model *m;
    const struct synth_vocabulary *v;
};

static void add_keys(void *ctx, struct gguf_writer *w)
{
    const struct keys *k = ctx;
    char name[64];
    snprintf(name, sizeof(name), "synthetic %s", k->m->name);
    gguf_keys_write(w, &k->m->shape, name, k->o->formats.experts);
    synth_vocabulary_gguf(k->v, w);
}

static int write_gguf(const struct options *o, const struct keys *k, struct tensor_list *l, const struct output_job *job, struct error *e)
{
    struct output out = {0};
    int r = output_check_free(o->out, o->force, e);
    r = r < 0 ? r : output_init_gguf(&out, o->out, 0, l, add_keys, (void *)(uintptr_t)k, e);
    r = r < 0 || o->header_only ? r : output_check_space(o->out, output_bytes(&out), e);
    r = r < 0 ? r : output_write(&out, job, e);
    output_deinit(&out);
    return r;
}

static int write_model(const struct options *o, const struct synth_model *m, struct tensor_list *l, const volatile int *cancel, struct error *e)
{
    struct synth_fill fill;
    struct output_job job = {.make = synth_fill_piece, .ctx = &fill, .cancel = cancel, .header_only = o->header_only};
    struct keys k = {.o = o, .m = m};
    struct synth_vocabulary *v = NULL;
    int r = synth_fill_init(&fill, l, &m->shape, o->seed, o->header_only ? 0 : o->zipf, e);
    r = r < 0 ? r : output_workers(&job.workers, e);
    r = r < 0 ? r : synth_vocabulary_create(m, &v, e);
    k.v = v;
    if (r == 0) {
        r = o->hf ? synth_folder_write(o->out, m, v, l, &job, e) : write_gguf(o, &k, l, &job, e);
    }
    synth_vocabulary_destroy(v);
    synth_fill_deinit(&fill);
    return r;
}

static int run(const struct options *o, const volatile int *cancel, struct error *e)
{
    struct synth_model m;
    struct tensor_list l;
    int r = synth_model_find(o->shape, &o->reduction, &m, e);
    if (r == 0 && o->zipf > 0 && !m.shape.router_bias) {
        r = error_set(e, ERROR_USAGE, "--zipf: the router of shape %s has no bias to skew it with; v3, kimi-k2 and demo have", o->shape);
    }
    r = r < 0 ? r : tensor_list_build(&l, &m.shape, o->hf ? FORM_HF : FORM_GGUF, &o->formats, e);
    if (r < 0) {
        return r;
    }
    r = write_model(o, &m, &l, cancel, e);
    if (r == 0) {
        char size[24];
        fprintf(stderr, "%s: shape %s, %u layers, %zu tensors, %s of weights%s", o->out, o->shape, m.shape.layers, l.n,
                format_bytes(size, l.bytes), o->header_only ? " (header only)\n" : "\n");
        if (l.fallbacks > 0) {
            fprintf(stderr, "%u tensors have rows that do not fit the format asked for and took its fallback\n", l.fallbacks);
        }
    }
    tensor_list_deinit(&l);
    return r;
}

int command_synth(int argc, char **argv, const volatile int *cancel)
{
    struct options o = {.reduction = {UINT32_MAX, UINT32_MAX, UINT32_MAX, false}, .formats = {FORMAT_NONE, FORMAT_NONE}, .seed = 1};
    struct error e = {0};
    int r = parse(argc, argv, &o, &e);
    if (r == 0 && o.help) {
        fputs(help_text, stdout);
        return 0;
    }
    r = r < 0 ? r : run(&o, cancel, &e);
    return arguments_finish("synth", r, &e);
}
