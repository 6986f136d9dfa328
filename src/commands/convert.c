/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice convert`: a Hugging Face folder becomes a GGUF file; flags and order of work. docs/convert.md.
 * Must not know: how files are read (convert_source), rounded (convert_encode) or written (output.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/convert_encode.h"
#include "src/commands/convert_journal.h"
#include "src/commands/convert_source.h"
#include "src/commands/convert_tokenizer.h"
#include "src/commands/convert_verify.h"
#include "src/commands/gguf_keys.h"
#include "src/commands/output.h"

static const char help_text[] =
    "usage: sluice convert -m FOLDER --type bf16|f16|q8_0 -o OUT.gguf [options]\n"
    "\n"
    "Makes a GGUF file of a Hugging Face folder (FP8 with block scales, BF16, F16 or F32). Every weight is rounded once; norms,\n"
    "routers and selection biases become F32; the MTP layer is kept. Memory: about 10 MiB for each worker (two a core) and\n"
    "the tables of tensors, whatever the size of the model. An interrupted run leaves OUT.gguf.part and OUT.gguf.journal; the\n"
    "same command continues it and ends with the same bytes.\n"
    "\n"
    "  -m FOLDER             the model, or any shard of it\n"
    "  --type NAME           bf16 (exact for BF16, FP8 rounded to 8 bits), f16, q8_0\n"
    "  -o OUT                file to write; it appears when it is complete\n"
    "  --split-size SIZE     several files OUT-0000N-of-0000M.gguf of at most this size\n"
    "  --verify              read the result back and compare every value with the source\n"
    "  --mtp-from PATH       take the MTP layer from another folder; --mtp off: leave it out\n"
    "  --pre-tokenizer NAME  where the patterns of tokenizer.json are not known\n"
    "  --no-tokenizer        a file without tokenizer; keep tokenizer.json beside it\n"
    "  --force               replace OUT, start an interrupted run over\n"
    "\n"
    "Exit status: 0 complete, 1 failed, 2 usage, 130 interrupted.\n"
    "\n"
    "examples:\n"
    "  sluice convert -m DeepSeek-V3/ --type q8_0 -o v3-q8_0.gguf --split-size 40G\n"
    "  sluice convert -m models/demo --type bf16 -o demo.gguf --verify\n";

struct options {
    struct settings settings;
    const char *type, *out, *split, *pre;
    bool no_tokenizer, verify, force, help;
    enum weight_format format;
    uint64_t split_bytes;
};

static int check_options(struct options *o, struct error *e)
{
    if (o->out == NULL || o->out[0] == '\0' || o->type == NULL) {
        return error_set(e, ERROR_USAGE, "--type and -o are needed; see `sluice convert --help`");
    }
    o->format = weight_format_by_name(o->type);
    if (!convert_encodes(o->format) || o->format == FORMAT_F32) {
        return error_set(e, ERROR_USAGE, "--type %s: not in this build; bf16, f16 and q8_0 are", o->type);
    }
    if (o->split != NULL && (!parse_size(o->split, &o->split_bytes) || o->split_bytes == 0)) {
        return error_set(e, ERROR_USAGE, "--split-size %s: a size like 40G is expected", o->split);
    }
    return 0;
}

/* ---- one conversion ---- */

struct conversion {
    const struct options *o;
    const volatile int *cancel;
    struct weights *w;
    struct convert_tokenizer *tokenizer; /* NULL: --no-tokenizer */
    struct tensor_list list;
    struct output out;
    struct convert_source source;
    struct convert_journal journal;
    struct output_job job;
};

/* Where a run of values goes in a piece. */
struct target {
    const struct tensor_entry *t;
    uint64_t first; /* element at `out` */
    unsigned char *out;
};

static int encode_run(void *ctx, const float *values, uint64_t first, size_t n, struct error *e)
{
    const struct target *target = ctx;
    const struct weight_format_info *info = weight_format_info(target->t->format);
    unsigned char *out = target->out + (first - target->first) / info->block_elems * info->block_bytes;
    if (!convert_encode(target->t->format, values, n, out)) {
        return error_set(e, ERROR_FORMAT, "tensor %s holds values that are too large for %s; take --type bf16", target->t->name, info->name);
    }
    return 0;
}

static int make_piece(void *ctx, const struct output_piece *p, void *out, uint32_t worker, struct error *e)
{
    const struct conversion *c = ctx;
    const struct tensor_entry *t = &c->list.items[p->tensor];
    const struct weight_format_info *info = weight_format_info(t->format);
    struct target target = {.t = t, .first = p->at / info->block_bytes * info->block_elems, .out = out};
    return convert_source_read(&c->source, t, target.first, p->bytes / info->block_bytes * info->block_elems, worker, encode_run, &target, e);
}

static int checkpoint(void *ctx, const struct output_place *done, struct error *e)
{
    struct conversion *c = ctx;
    return convert_journal_write(&c->journal, done, e);
}

/* The folder's own name. */
static void model_name(const char *folder, char *out, size_t out_bytes)
{
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/') {
        len--;
    }
    size_t start = len;
    while (start > 0 && folder[start - 1] != '/') {
        start--;
    }
    snprintf(out, out_bytes, "%.*s", (int)(len - start), folder + start);
}

static void add_keys(void *ctx, struct gguf_writer *w)
{
    const struct conversion *c = ctx;
    char name[256];
    model_name(c->w->containers[0]->folder, name, sizeof(name));
    gguf_keys_write(w, &c->w->shape, name, c->o->format);
    if (c->tokenizer != NULL) {
        convert_tokenizer_write(c->tokenizer, w);
    } else {
        convert_tokenizer_write_ids(&c->w->shape, w);
    }
}

static int open_tokenizer(struct conversion *c, struct error *e)
{
    if (c->o->no_tokenizer) {
        return 0;
    }
    const char *folder = c->w->containers[0]->folder;
    int r = convert_tokenizer_open(folder, c->o->pre, &c->w->shape, &c->tokenizer, e);
    return r == -ENOENT ? error_set(e, r, "%s: no tokenizer.json; put it there, or take --no-tokenizer", folder) : r;
}

static int open_source(struct conversion *c, struct error *e)
{
    struct bind_options options = arguments_bind(&c->o->settings);
    int r = weights_open(&options, &c->w, e);
    if (r == 0 && c->w->containers[0]->kind == CONTAINER_GGUF) {
        r = error_set(e, ERROR_USAGE, "%s: is a GGUF file already; a Hugging Face folder is expected", options.path);
    }
    for (uint32_t i = 0; r == 0 && i < c->w->n_notes; i++) {
        fprintf(stderr, "sluice: %s\n", c->w->notes[i]);
    }
    r = r < 0 ? r : gguf_keys_check(&c->w->shape, options.path, e);
    return r < 0 ? r : open_tokenizer(c, e);
}

/* --force replaces what an earlier run wrote, never a file of another kind or one that is read: a slip of -o must not cost the
 * source. */
static int check_replaced(const struct conversion *c, const char *path, struct error *e)
{
    struct stat there, source;
    char magic[4];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return 0; /* absent; whatever else is wrong shows when it is created */
    }
    size_t n = fread(magic, 1, sizeof(magic), f);
    int r = n == 0 || (n == sizeof(magic) && memcmp(magic, "GGUF", sizeof(magic)) == 0)
                ? 0 : error_set(e, ERROR_USAGE, "%s: is there and is no GGUF file, which --force does not replace; name a new file", path);
    bool known = fstat(fileno(f), &there) == 0;
    for (uint32_t k = 0; r == 0 && known && k < c->w->n_containers; k++) {
        for (uint32_t i = 0; r == 0 && i < c->w->containers[k]->n_files; i++) {
            bool same = fstat(c->w->containers[k]->files[i].fd, &source) == 0 && source.st_ino == there.st_ino && source.st_dev == there.st_dev;
            r = same ? error_set(e, ERROR_USAGE, "%s: is read from, so it cannot be written; name a new file", path) : 0;
        }
    }
    fclose(f);
    return r;
}

static int plan_files(struct conversion *c, struct error *e)
{
    struct tensor_formats formats = {c->o->format, c->o->format};
    int r = tensor_list_build(&c->list, &c->w->shape, FORM_GGUF, &formats, e);
    r = r < 0 ? r : output_init_gguf(&c->out, c->o->out, c->o->split_bytes, &c->list, add_keys, c, e);
    for (uint32_t i = 0; r == 0 && i < c->out.n; i++) {
        r = output_check_free(c->out.files[i].path, c->o->force, e);
        r = r < 0 ? r : check_replaced(c, c->out.files[i].path, e);
    }
    r = r < 0 ? r : convert_journal_init(&c->journal, c->o->out, c->w, &c->out, e);
    if (r == 0 && c->list.fallbacks > 0) {
        fprintf(stderr, "sluice: %u tensors have rows that do not fit %s and become f16\n", c->list.fallbacks, c->o->type);
    }
    return r;
}

/* Where an interrupted run left off, or the beginning. */
static int find_start(struct conversion *c, struct error *e)
{
    struct output_place place = {0};
    if (c->o->force) {
        convert_journal_remove(&c->journal);
    }
    int r = convert_journal_read(&c->journal, &place, e);
    if (r == 1 && (place.tensor > c->list.n || (place.at > 0 && (place.tensor == c->list.n || place.at >= c->list.items[place.tensor].bytes ||
                                                                 place.at % c->list.items[place.tensor].grain != 0)))) {
        r = error_set(e, ERROR_FORMAT, "%s: names a place that does not exist; give --force to start over", c->journal.path);
    }
    if (r == 1) {
        c->job.start = place;
        c->job.resume = true;
        fprintf(stderr, "sluice: continuing an interrupted run at tensor %zu of %zu\n", place.tensor + (place.tensor < c->list.n), c->list.n);
    }
    return r == 0 ? output_check_space(c->o->out, output_bytes(&c->out), e) : r < 0 ? r : 0;
}

static int verify(struct conversion *c, struct error *e)
{
    int r = convert_verify(c->out.files[0].path, &c->out, &c->source, c->cancel, e);
    if (r == 0) {
        fprintf(stderr, "%s: every value is the source's, rounded once\n", c->o->out);
    }
    return r;
}

/* The journal stays where the parts do. */
static int write_model(struct conversion *c, struct error *e)
{
    int r = output_write(&c->out, &c->job, e);
    if (r == 0 || r == ERROR_FORMAT) {
        convert_journal_remove(&c->journal);
    }
    return r;
}

static int convert(struct conversion *c, struct error *e)
{
    c->job = (struct output_job){.make = make_piece, .checkpoint = checkpoint, .ctx = c, .cancel = c->cancel, .keep = true};
    int r = open_source(c, e);
    r = r < 0 ? r : plan_files(c, e);
    r = r < 0 ? r : output_workers(&c->job.workers, e);
    r = r < 0 ? r : convert_source_init(&c->source, c->w, c->job.workers, e);
    r = r < 0 ? r : find_start(c, e);
    r = r < 0 ? r : write_model(c, e);
    if (r < 0) {
        return r;
    }
    char size[24];
    fprintf(stderr, "%s: %zu tensors, %s%s in %u file%s\n", c->o->out, c->list.n, format_bytes(size, c->list.bytes),
            c->w->shape.mtp_layers > 0 ? " with the MTP layer" : "", c->out.n, c->out.n == 1 ? "" : "s");
    return c->o->verify ? verify(c, e) : 0;
}

static int run(const struct options *o, const volatile int *cancel, struct error *e)
{
    struct conversion c = {.o = o, .cancel = cancel};
    int r = convert(&c, e);
    convert_source_deinit(&c.source);
    convert_journal_deinit(&c.journal);
    output_deinit(&c.out);
    tensor_list_deinit(&c.list);
    convert_tokenizer_close(c.tokenizer);
    weights_close(c.w);
    return r;
}

int command_convert(int argc, char **argv, const volatile int *cancel)
{
    struct options o = {0};
    const struct argument own[] = {{"--type", NULL, &o.type},         {"-o", NULL, &o.out},
                                   {"--split-size", NULL, &o.split},  {"--pre-tokenizer", NULL, &o.pre},
                                   {"--no-tokenizer", &o.no_tokenizer, NULL}, {"--verify", &o.verify, NULL},
                                   {"--force", &o.force, NULL},       {0}};
    struct error e = {0};
    int r = settings_init(&o.settings, &e);
    if (r == 0) {
        r = arguments_read(argc, argv, own, &o.settings, &o.help, &e);
        if (r == 0 && o.help) {
            fputs(help_text, stdout);
        } else if (r == 0) {
            r = check_options(&o, &e);
            r = r < 0 ? r : run(&o, cancel, &e);
        }
        settings_deinit(&o.settings);
    }
    return arguments_finish("convert", r, &e);
}
