/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice check`: reads every byte of a checkpoint once, in file order, several large reads in flight, and reports
 * fingerprints and bad numbers. Must not know: how bad numbers are recognised (check_scan), what reads use (io/reader). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "io/reader.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/commands/arguments.h"
#include "src/commands/check_report.h"
#include "src/commands/check_stored.h"
#include "src/commands/commands.h"

enum { SLOTS = 4, SLOT_BYTES = 4 << 20, POLL_MS = 200 };

static const char help_text[] =
    "usage: sluice check -m MODEL [--json] [--against FILE.json] [--write-fingerprints] [--mtp-from PATH]\n"
    "\n"
    "Reads a whole checkpoint and verifies it: all parts there and as long as their headers say, every tensor the model\n"
    "needs with its shape, no NaN or infinity in weights, block scales or FP8 codes. Prints a fingerprint (XXH3-64) of\n"
    "each tensor and of the whole, which does not depend on how the tensors are spread over files. --against compares\n"
    "with an earlier --json output and names what changed. --write-fingerprints keeps those of a good model beside it\n"
    "(MODEL.gguf.sluice-xxh, FOLDER/model.sluice-xxh), one for each expert; check and every command that loads the model\n"
    "compare with them from then on and name what is damaged.\n"
    "Exit status: 0 all good, 1 something is wrong, 2 usage, 130 interrupted.\n"
    "\n"
    "examples:\n"
    "  sluice check -m DeepSeek-V3-Q4_K_M-00001-of-00009.gguf\n"
    "  sluice check -m DeepSeek-V3/ --json > v3.check.json\n"
    "  sluice check -m /mnt/copy/DeepSeek-V3/ --against v3.check.json\n"
    "  sluice check -m model.gguf --write-fingerprints\n";

/* One read of whole blocks of one tensor. */
struct chunk {
    size_t tensor; /* index into order */
    uint64_t start, bytes;
    bool done;
    int status;
    uint64_t failed_at; /* file offset */
};

struct pass {
    const struct container *c;
    struct check_tensor *results; /* [n_tensors], index as in c */
    uint64_t *parts;              /* of all results */
    size_t *order;                /* [n_tensors] by file, then offset */
    struct reader *reader;
    struct buffer buffer;         /* [SLOTS, SLOT_BYTES] */
    struct chunk slots[SLOTS];
    uint64_t submitted, consumed; /* chunks */
    size_t next_tensor;           /* where the next chunk comes from */
    uint64_t next_start;
    XXH3_state_t *hash, *part_hash;
    const volatile int *cancel;
    struct clock clock;
    uint64_t started_ns, shown_ns, read, total;
    bool progress;
};

static int compare_places(const void *a, const void *b, void *ctx)
{
    const struct container *c = ctx;
    const struct tensor *x = &c->tensors[*(const size_t *)a], *y = &c->tensors[*(const size_t *)b];
    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static struct scan scan_of(const struct tensor *t)
{
    struct scan s = { .format = t->format, .kind = t->format == FORMAT_NONE ? SCAN_NOTHING : SCAN_FORMAT };
    size_t n = strlen(t->name);
    bool scale = n > 10 && strcmp(t->name + n - 10, "_scale_inv") == 0;
    if (strcmp(t->type_name, "F8_E8M0") == 0) {
        s.kind = SCAN_E8M0;
    } else if (scale && (t->format == FORMAT_F32 || t->format == FORMAT_F16 || t->format == FORMAT_BF16)) {
        s.kind = SCAN_SCALE;
    }
    return s;
}

static size_t count_parts(const struct container *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        n += fingerprints_parts(c, &c->tensors[i]);
    }
    return n;
}

static int pass_init(struct pass *p, const struct container *c, const struct settings *settings, const volatile int *cancel, struct error *e)
{
    *p = (struct pass){ .c = c, .cancel = cancel, .clock = clock_system(), .progress = isatty(STDERR_FILENO) == 1 };
    size_t n = c->n_tensors;
    p->results = calloc(n + 1, sizeof(*p->results));
    p->order = calloc(n + 1, sizeof(*p->order));
    p->parts = calloc(count_parts(c) + 1, sizeof(*p->parts));
    p->hash = XXH3_createState();
    p->part_hash = XXH3_createState();
    if (p->results == NULL || p->order == NULL || p->parts == NULL || p->hash == NULL || p->part_hash == NULL) {
        return error_nomem(e, "check tables", n * (sizeof(*p->results) + sizeof(*p->order)));
    }
    uint64_t *parts = p->parts;
    for (size_t i = 0; i < n; i++) {
        p->order[i] = i;
        p->results[i].parts = parts;
        parts += fingerprints_parts(c, &c->tensors[i]);
        p->results[i].scan = scan_of(&c->tensors[i]);
        p->total += c->tensors[i].bytes;
    }
    qsort_r(p->order, n, sizeof(*p->order), compare_places, (void *)(uintptr_t)c);
    int r = buffer_init(&p->buffer, NULL, PURPOSE_STAGING, (size_t)SLOTS * SLOT_BYTES, e);
    struct reader_options options = reader_options_of(settings);
    options.depth = SLOTS;
    options.chunk = SLOT_BYTES;
    options.direct = options.drop_behind = true;
    if (r == 0) {
        r = reader_create(&options, &p->reader, e);
    }
    p->started_ns = p->shown_ns = clock_now_ns(&p->clock);
    return r;
}

static void pass_deinit(struct pass *p)
{
    reader_destroy(p->reader);
    buffer_deinit(&p->buffer);
    XXH3_freeState(p->hash);
    XXH3_freeState(p->part_hash);
    free(p->parts);
    free(p->order);
    free(p->results);
}

static uint8_t *slot_data(const struct pass *p, uint64_t chunk)
{
    return (uint8_t *)p->buffer.data + chunk % SLOTS * SLOT_BYTES;
}

/* Cuts and submits chunks while slots are free. An empty tensor is one chunk of no bytes. */
static int submit(struct pass *p, struct error *e)
{
    while (p->submitted - p->consumed < SLOTS && p->next_tensor < p->c->n_tensors) {
        size_t index = p->order[p->next_tensor];
        const struct tensor *t = &p->c->tensors[index];
        uint32_t block = scan_block_bytes(&p->results[index].scan);
        uint64_t bytes = min_u64(t->bytes - p->next_start, SLOT_BYTES / block * block);
        struct chunk *slot = &p->slots[p->submitted % SLOTS];
        *slot = (struct chunk){ .tensor = index, .start = p->next_start, .bytes = bytes, .done = bytes == 0 };
        struct read_request request = {
            .file = &p->c->files[t->file],
            .offset = t->offset + p->next_start,
            .bytes = bytes,
            .data = slot_data(p, p->submitted),
            .tag = p->submitted % SLOTS,
        };
        int r = bytes > 0 ? reader_submit(p->reader, &request) : 0;
        if (r != 0) {
            return error_set(e, r, "%s: the read of %s at offset %llu could not start: %s", request.file->path, t->name,
                             (unsigned long long)request.offset, strerror(-r));
        }
        p->submitted++;
        p->next_start += bytes;
        if (p->next_start == t->bytes) {
            p->next_tensor++;
            p->next_start = 0;
        }
    }
    return 0;
}

static void show_progress(struct pass *p)
{
    uint64_t now = clock_now_ns(&p->clock);
    if (!p->progress || now - p->shown_ns < 500000000u) {
        return;
    }
    char done[24], total[24];
    double seconds = (double)(now - p->started_ns) * 1e-9, rate = (double)p->read / seconds;
    unsigned long left = rate > 0 ? (unsigned long)((double)(p->total - p->read) / rate) : 0;
    fprintf(stderr, "\r%s of %s, %.0f MB/s, %lu:%02lu left \033[K", format_bytes(done, p->read), format_bytes(total, p->total),
            rate * 1e-6, left / 60, left % 60);
    p->shown_ns = now;
}

static int wait_for(struct pass *p, const struct chunk *slot, struct error *e)
{
    while (!slot->done && !*p->cancel) {
        struct read_result result;
        if (reader_collect(p->reader, &result, POLL_MS) == 1) {
            struct chunk *done = &p->slots[result.tag];
            done->done = true;
            done->status = result.status;
            done->failed_at = result.file_offset;
        }
    }
    if (*p->cancel) {
        return error_set(e, ERROR_INTERRUPTED, "interrupted after %llu of %llu bytes", (unsigned long long)p->read,
                         (unsigned long long)p->total);
    }
    return 0;
}

/* Of a stack: a chunk ends and begins parts. */
static void digest_parts(struct pass *p, const struct chunk *slot, const uint8_t *data)
{
    const struct tensor *t = &p->c->tensors[slot->tensor];
    uint64_t size = t->bytes / fingerprints_parts(p->c, t), end = slot->start + slot->bytes;
    for (uint64_t at = slot->start, stop; at < end; at = stop) {
        stop = min_u64(end, (at / size + 1) * size);
        if (at % size == 0) {
            XXH3_64bits_reset(p->part_hash);
        }
        XXH3_64bits_update(p->part_hash, data + (at - slot->start), (size_t)(stop - at));
        if (stop % size == 0) {
            p->results[slot->tensor].parts[at / size] = XXH3_64bits_digest(p->part_hash);
        }
    }
}

static void digest(struct pass *p, const struct chunk *slot)
{
    const struct tensor *t = &p->c->tensors[slot->tensor];
    struct check_tensor *result = &p->results[slot->tensor];
    if (slot->start == 0) {
        XXH3_64bits_reset(p->hash);
    }
    if (slot->status != 0) {
        result->read_status = slot->status;
        result->failed_at = slot->failed_at;
    } else {
        const uint8_t *data = slot_data(p, p->consumed);
        XXH3_64bits_update(p->hash, data, (size_t)slot->bytes);
        scan_bytes(&result->scan, data, (size_t)slot->bytes);
        if (fingerprints_parts(p->c, t) > 1) {
            digest_parts(p, slot, data);
        }
    }
    if (slot->start + slot->bytes == t->bytes) {
        result->fingerprint = XXH3_64bits_digest(p->hash);
        if (fingerprints_parts(p->c, t) == 1) {
            result->parts[0] = result->fingerprint;
        }
    }
    p->read += slot->bytes;
}

static int pass_run(struct pass *p, struct error *e)
{
    int r = submit(p, e);
    while (r == 0 && p->consumed < p->submitted) {
        const struct chunk *slot = &p->slots[p->consumed % SLOTS];
        r = wait_for(p, slot, e);
        if (r == 0) {
            digest(p, slot);
            p->consumed++;
            show_progress(p);
            r = submit(p, e);
        }
    }
    if (p->progress && p->total > 0) {
        fputs("\r\033[K", stderr);
    }
    return r;
}

struct request {
    struct settings settings;
    bool json, help, write;
    const char *against;
};

/* Structure first: a model that cannot be bound is a finding, its bytes are read all the same. */
static int check_model(const struct request *q, const volatile int *cancel, struct error *e)
{
    struct bind_options options = arguments_bind(&q->settings);
    struct check_report report;
    struct weights *w = NULL;
    struct container *own = NULL;
    struct error structure = { 0 };
    int r = check_report_init(&report, q->json, q->against, e);
    if (r == 0 && weights_open(&options, &w, &structure) != 0) {
        struct container_options plain = { 0 };
        check_problem(&report, "%s", structure.text);
        r = container_open(options.path, &plain, &own, e);
    }
    uint32_t n = w != NULL ? w->n_containers : 1;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct container *c = w != NULL ? w->containers[i] : own;
        struct pass pass;
        r = pass_init(&pass, c, &q->settings, cancel, e);
        if (r == 0) {
            r = pass_run(&pass, e);
        }
        if (r == 0) {
            check_add(&report, c, pass.results);
            r = q->write ? check_stored_write(&report, c, pass.results, e) : check_stored_compare(&report, c, pass.results, e);
        }
        pass_deinit(&pass);
    }
    if (r == 0) {
        r = check_finish(&report, e);
    }
    check_report_deinit(&report);
    container_close(own);
    weights_close(w);
    return r;
}

int command_check(int argc, char **argv, const volatile int *cancel)
{
    struct request q = { 0 };
    const struct argument own[] = { { "--json", &q.json, NULL }, { "--against", NULL, &q.against },
                                    { "--write-fingerprints", &q.write, NULL }, { 0 } };
    struct error e = { 0 };
    int r = settings_init(&q.settings, &e);
    if (r == 0) {
        r = arguments_read(argc, argv, own, &q.settings, &q.help, &e);
        if (r == 0 && q.help) {
            fputs(help_text, stdout);
        } else if (r == 0) {
            r = check_model(&q, cancel, &e);
        }
        settings_deinit(&q.settings);
    }
    return arguments_finish("check", r, &e);
}
