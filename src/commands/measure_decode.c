/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: measure_decode.h. Must not know: reports. */
#include "src/commands/measure_decode.h"

#include <stdlib.h>

#include "common/intmath.h"
#include "src/commands/bench_kernels.h"
#include "src/commands/measure.h"

enum { SAMPLES = 10, CALLS_MAX = 1 << 20 };

static const double sample_seconds = 0.02; /* longer than the bursts of a shared machine */

/* ---- what a token reads ---- */

static void add(const struct weight_ref *ref, double share, double *bytes)
{
    if (ref->rows > 0) {
        bytes[ref->format] += share * (double)ref->bytes;
    }
}

void decode_bytes(const struct weights *w, double *bytes)
{
    const struct shape *s = &w->shape;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        bytes[f] = 0;
    }
    add(&w->head, 1, bytes);
    for (uint32_t l = 0; l < s->layers; l++) {
        const struct layer_refs *layer = &w->layers[l];
        for (int role = 0; role < ROLE_COUNT; role++) {
            add(&layer->role[role], 1, bytes);
        }
        double used = layer->experts != NULL ? (double)s->experts_used / s->experts : 0;
        for (uint32_t x = 0; layer->experts != NULL && x < s->experts; x++) {
            add(&layer->experts[x].gate, used, bytes);
            add(&layer->experts[x].up, used, bytes);
            add(&layer->experts[x].down, used, bytes);
        }
    }
}

/* ---- how fast ---- */

struct decoding {
    struct rates *rates;
    struct ops ops;
    struct kernel_input input;
    struct kernel_place *place; /* [workers] */
    uint32_t workers;
    const volatile int *cancel;
    /* of the sample in progress */
    const struct kernel *kernel;
    uint64_t from, calls; /* a sample goes on where the last one stopped */
    _Atomic uint64_t next;
};

static void worker_calls(void *ctx, uint32_t worker)
{
    struct decoding *d = ctx;
    for (uint64_t i; (i = atomic_fetch_add_explicit(&d->next, 1, memory_order_relaxed)) < d->calls;) {
        d->kernel->call(d->kernel, &d->place[worker], d->from + i, false);
    }
}

static double sample(struct decoding *d)
{
    atomic_store(&d->next, 0);
    double t = rates_time(d->rates, RATES_ALL, worker_calls, d);
    d->from += d->calls;
    return t > 0 ? (double)d->calls * d->kernel->bytes / t : 0;
}

/* Bytes per second of one format: the median, as tokens see it. */
static int measure_format(struct decoding *d, enum weight_format f, double *ret, struct error *e)
{
    bool wanted[FORMAT_COUNT] = {false};
    struct kernel one; /* the first of a format is the product with one row */
    double samples[SAMPLES];
    wanted[f] = true;
    kernel_list(&d->ops, &d->input, wanted, &one, 1);
    for (uint32_t w = 0; w < d->workers; w++) {
        kernel_fill(&one, &d->place[w], &d->input);
    }
    d->kernel = &one;
    d->calls = d->workers;
    for (double rate = sample(d); rate > 0 && (double)d->calls * one.bytes / rate < sample_seconds && d->calls < CALLS_MAX; rate = sample(d)) {
        d->calls *= 2;
    }
    for (uint32_t i = 0; i < SAMPLES; i++) {
        if (*d->cancel != 0) {
            return error_set(e, ERROR_INTERRUPTED, "interrupted");
        }
        samples[i] = sample(d);
    }
    *ret = rate_of(samples, SAMPLES).median;
    return 0;
}

static int measure_formats(struct decoding *d, const struct weights *w, double *ret_gb_s, struct error *e)
{
    double bytes[FORMAT_COUNT], all = 0, seconds = 0, rate = 0;
    decode_bytes(w, bytes);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (bytes[f] > 0) {
            int r = measure_format(d, (enum weight_format)f, &rate, e);
            if (r < 0) {
                return r;
            }
            all += bytes[f];
            seconds += rate > 0 ? bytes[f] / rate : 0;
        }
    }
    *ret_gb_s = seconds > 0 ? 1e-9 * all / seconds : 0;
    return 0;
}

static int prepare(struct decoding *d, const struct machine *m, struct topology *t, struct error *e)
{
    struct cpu_flags flags;
    cpu_detect(&flags);
    cpu_ops_init(&d->ops, cpu_isa_best(&flags), &flags);
    int r = topology_read(t, e);
    r = r < 0 ? r : measure_begin(m, t, 0, cpu_isa_best(&flags), 0, d->cancel, &d->rates, e);
    r = r < 0 ? r : kernel_input_init(&d->input, e);
    d->workers = r < 0 ? 0 : rates_threads(d->rates);
    d->place = calloc(max_u32(d->workers, 1), sizeof(*d->place));
    r = r < 0 || d->place != NULL ? r : error_nomem(e, "workers", d->workers);
    for (uint32_t w = 0; r == 0 && w < d->workers; w++) {
        d->place[w].weights = rates_part(d->rates, w, &d->place[w].weight_bytes);
        d->place[w].scratch = calloc(KERNEL_SCRATCH_FLOATS, sizeof(float));
        r = d->place[w].scratch != NULL ? 0 : error_nomem(e, "scratch", KERNEL_SCRATCH_FLOATS * sizeof(float));
    }
    return r;
}

static void finish(struct decoding *d)
{
    for (uint32_t w = 0; d->place != NULL && w < d->workers; w++) {
        free(d->place[w].scratch);
    }
    free(d->place);
    kernel_input_deinit(&d->input);
    rates_destroy(d->rates);
}

int measure_decode(const struct weights *w, const volatile int *cancel, struct machine *m, struct error *e)
{
    struct decoding d = {.cancel = cancel};
    struct topology *t = malloc(sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "topology", sizeof(*t));
    }
    double found = 0;
    int r = prepare(&d, m, t, e);
    r = r < 0 ? r : measure_formats(&d, w, &found, e);
    finish(&d);
    free(t);
    m->decode_read_gb_s = found;
    return r == ERROR_DOES_NOT_FIT ? 0 : r;
}
