/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice synth`: flags, and writing a synthetic model at the speed of the disk. docs/plan.md.
 * Must not know: shapes, metadata, block formats (synth_*.c). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/intmath.h"
#include "cpu/cpu.h"
#include "io/file.h"
#include "src/base/clock.h"
#include "src/base/numa.h"
#include "src/base/str.h"
#include "src/base/thread.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/synth_blocks.h"
#include "src/commands/synth_meta.h"
#include "src/commands/synth_tensors.h"

static const char help_text[] =
    "usage: sluice synth --shape v3|v2|v2-lite|kimi-k2|demo [options] -o OUT.gguf\n"
    "\n"
    "Writes a GGUF file of a model's true shape with random weights: to try a machine, or `sluice plan`, before downloading.\n"
    "\n"
    "  --dense N, --moe N    dense and MoE layers (default: as the shape has them)\n"
    "  --experts N           routed experts per layer\n"
    "  --mtp                 with the MTP layer (v3, demo)\n"
    "  --type NAME           format of routed experts: q4_k (default), q2_k, iq2_xxs, mxfp4, q8_0, bf16, ...\n"
    "  --attn-type NAME      format of all other matrices: q8_0 (default), q4_k, f16, ...\n"
    "  --zipf S              popularity of experts falls as rank^-S (needs a router with a bias: v3, kimi-k2, demo)\n"
    "  --seed N              the same seed gives the same file (default 1)\n"
    "  --header-only         metadata and tensor table only: enough for `sluice plan` and `sluice inspect`\n"
    "  -o OUT                file to write; it appears when it is complete\n"
    "\n"
    "examples:\n"
    "  sluice synth --shape v3 --header-only -o v3.gguf && sluice plan -m v3.gguf\n"
    "  sluice synth --shape v3 --dense 1 --moe 2 -o small-v3.gguf\n"
    "  sluice synth --shape v2-lite --type q4_0 --seed 7 -o v2-lite.gguf\n";

struct options {
    const char *shape, *out;
    struct synth_reduction reduction;
    struct synth_formats formats;
    double zipf;
    uint64_t seed;
    bool header_only, help;
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
    enum weight_format f = weight_format_by_name(value);
    const struct weight_format_info *info = weight_format_info(f);
    if (info == NULL || info->ggml < 0) {
        return error_set(e, ERROR_USAGE, "%s %s: no format of GGUF files; known are f32, f16, bf16, q8_0, q4_0 to q5_1, q2_k to q6_k, "
                         "iq4_nl, iq4_xs, mxfp4, iq1_s to iq3_s", flag, value);
    }
    *ret = f;
    return 0;
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
        } else if (!takes_value(argv[i])) {
            r = error_set(e, ERROR_USAGE, "unknown flag %s; see `sluice synth --help`", argv[i]);
        } else if (i + 1 == argc) {
            r = error_set(e, ERROR_USAGE, "%s needs a value; see `sluice synth --help`", argv[i]);
        } else {
            r = read_value(o, argv[i], argv[i + 1], e);
            i++;
        }
    }
    if (r == 0 && (o->shape == NULL || o->out == NULL)) {
        r = error_set(e, ERROR_USAGE, "--shape and -o are needed; see `sluice synth --help`");
    }
    return r;
}

/* ---- data ---- */

enum { CHUNK = 1 << 20, BATCH_CHUNKS = 16, MAX_THREADS = 16 };

struct writing {
    const struct options *o;
    const struct shape *shape;
    const volatile int *cancel;
    struct gguf_writer *writer;
    struct pool *pool;
    unsigned char *buffer; /* [BATCH_CHUNKS * CHUNK] */
    struct ops ops;
    struct clock clock;
    uint64_t start, told, done, total;
};

/* Up to BATCH_CHUNKS chunks of one tensor, filled in parallel; each chunk has its own seed. */
struct batch {
    const struct synth_filler *filler;
    unsigned char *data;
    uint64_t seed, first_chunk;
    size_t bytes, chunk;
};

static void fill_chunk(void *ctx, uint32_t task, uint32_t worker)
{
    (void)worker;
    const struct batch *b = ctx;
    size_t at = task * b->chunk;
    synth_filler_fill(b->filler, synth_seed(b->seed, b->first_chunk + task), b->data + at, min_u64(b->chunk, b->bytes - at));
}

static void tell_progress(struct writing *w)
{
    uint64_t now = clock_now_ns(&w->clock);
    bool last = w->done == w->total;
    if (!isatty(STDERR_FILENO) || (!last && now - w->told < 250000000)) {
        return;
    }
    w->told = now;
    char done[24], total[24], rate[24];
    double seconds = clock_seconds_since(&w->clock, w->start), speed = seconds > 0 ? (double)w->done / seconds : 0;
    fprintf(stderr, "\r%s of %s, %s/s, %.0f s left \033[K%s", format_bytes(done, w->done), format_bytes(total, w->total),
            format_bytes(rate, (uint64_t)speed), speed > 0 ? (double)(w->total - w->done) / speed : 0, last ? "\n" : "");
}

static int append(struct writing *w, const void *data, size_t bytes, struct error *e)
{
    if (w->cancel != NULL && *w->cancel != 0) {
        return error_set(e, ERROR_INTERRUPTED, "interrupted; nothing is left behind");
    }
    int r = gguf_writer_append(w->writer, data, bytes, e);
    w->done += bytes;
    tell_progress(w);
    return r;
}

static int write_random(struct writing *w, const struct synth_tensor *t, uint64_t seed, struct error *e)
{
    struct synth_filler filler;
    synth_filler_init(&filler, t->format, t->deviation, &w->ops);
    size_t block = weight_format_info(t->format)->block_bytes;
    struct batch b = {.filler = &filler, .data = w->buffer, .seed = seed, .chunk = CHUNK / block * block};
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < t->bytes; at += b.bytes) {
        b.bytes = min_u64(b.chunk * BATCH_CHUNKS, t->bytes - at);
        uint32_t tasks = (uint32_t)ceil_div_u64(b.bytes, b.chunk);
        pool_run(w->pool, tasks, fill_chunk, &b);
        b.first_chunk += tasks;
        r = append(w, b.data, b.bytes, e);
    }
    return r;
}

static int write_tensor(struct writing *w, const struct synth_tensor *t, uint64_t seed, struct error *e)
{
    if (t->content == SYNTH_RANDOM) {
        return write_random(w, t, seed, e);
    }
    float *values = (float *)(void *)w->buffer; /* vectors are far shorter than the buffer */
    if (t->content == SYNTH_BIAS) {
        synth_router_bias(seed, w->o->zipf, values, (uint32_t)t->dims[0]);
    }
    for (uint64_t i = 0; t->content == SYNTH_ONES && i < t->dims[0]; i++) {
        values[i] = 1.0f;
    }
    return append(w, values, t->bytes, e);
}

static int write_data(struct writing *w, const struct synth_list *l, struct error *e)
{
    struct cpu_flags flags;
    struct topology *topology = malloc(sizeof(*topology));
    w->buffer = malloc((size_t)BATCH_CHUNKS * CHUNK);
    int r = topology != NULL && w->buffer != NULL ? 0 : error_nomem(e, "write buffer", (size_t)BATCH_CHUNKS * CHUNK);
    r = r < 0 ? r : topology_read(topology, e);
    if (r == 0) {
        struct pool_options po = {.workers = min_u32(max_u32(topology->cores, 1), MAX_THREADS)};
        r = pool_create(&po, &w->pool, e);
    }
    cpu_detect(&flags);
    cpu_ops_init(&w->ops, CPU_SCALAR, &flags);
    w->clock = clock_system();
    w->start = clock_now_ns(&w->clock);
    w->total = l->bytes;
    for (size_t i = 0; r == 0 && i < l->n; i++) {
        r = write_tensor(w, &l->items[i], synth_seed(w->o->seed, i), e);
    }
    pool_destroy(w->pool);
    free(w->buffer);
    free(topology);
    return r;
}

/* ---- the file ---- */

static int check_space(const char *path, uint64_t bytes, struct error *e)
{
    const char *slash = strrchr(path, '/');
    struct str folder = {0};
    str_append(&folder, slash != NULL ? path : ".", slash != NULL ? (size_t)(slash - path) + 1 : 1);
    struct statvfs v;
    bool known = !folder.failed && statvfs(folder.data, &v) == 0;
    str_deinit(&folder);
    uint64_t left = 0;
    if (!known || !mul_u64(v.f_bavail, v.f_frsize, &left) || left >= bytes) {
        return 0; /* unknown: writing will tell */
    }
    char need[24], there[24];
    return error_set(e, -ENOSPC, "%s: needs %s, the file system has %s left; take fewer layers (--moe), fewer --experts or a smaller --type",
                     path, format_bytes(need, bytes), format_bytes(there, left));
}

static int write_file(const struct options *o, const struct synth_model *m, const struct synth_list *l, const volatile int *cancel, struct error *e)
{
    struct writing w = {.o = o, .shape = &m->shape, .cancel = cancel};
    int r = o->header_only ? 0 : check_space(o->out, l->bytes, e);
    r = r < 0 ? r : gguf_writer_create(o->out, 32, &w.writer, e);
    r = r < 0 ? r : synth_meta_write(w.writer, m, e);
    for (size_t i = 0; r == 0 && i < l->n; i++) {
        r = gguf_writer_tensor(w.writer, l->items[i].name, l->items[i].format, l->items[i].dims, l->items[i].n_dims, e);
    }
    r = r < 0 ? r : gguf_writer_begin(w.writer, e);
    r = r < 0 || o->header_only ? r : write_data(&w, l, e);
    r = r < 0 ? r : gguf_writer_finish(w.writer, o->header_only, e);
    gguf_writer_destroy(w.writer);
    return r;
}

static int run(const struct options *o, const volatile int *cancel, struct error *e)
{
    struct synth_model m;
    struct synth_list l;
    int r = synth_model_find(o->shape, &o->reduction, &m, e);
    if (r == 0 && o->zipf > 0 && !m.shape.router_bias) {
        r = error_set(e, ERROR_USAGE, "--zipf: the router of shape %s has no bias to skew it with; v3, kimi-k2 and demo have", o->shape);
    }
    r = r < 0 ? r : synth_list_build(&l, &m, &o->formats, e);
    if (r < 0) {
        return r;
    }
    r = write_file(o, &m, &l, cancel, e);
    if (r == 0) {
        char size[24];
        fprintf(stderr, "%s: shape %s, %u layers, %zu tensors, %s of weights%s", o->out, o->shape, m.shape.layers, l.n,
                format_bytes(size, l.bytes), o->header_only ? " (header only)\n" : "\n");
        if (l.fallbacks > 0) {
            fprintf(stderr, "%u tensors have rows that do not fit the format asked for and took its fallback\n", l.fallbacks);
        }
    }
    synth_list_deinit(&l);
    return r;
}

int command_synth(int argc, char **argv, const volatile int *cancel)
{
    struct options o = {.reduction = {UINT32_MAX, UINT32_MAX, UINT32_MAX, false}, .formats = {FORMAT_Q4_K, FORMAT_Q8_0}, .seed = 1};
    struct error e = {0};
    int r = parse(argc, argv, &o, &e);
    if (r == 0 && o.help) {
        fputs(help_text, stdout);
        return 0;
    }
    r = r < 0 ? r : run(&o, cancel, &e);
    return arguments_finish("synth", r, &e);
}
