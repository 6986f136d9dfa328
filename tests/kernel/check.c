/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: numbers, guarded buffers, comparison, timing and reports of the kernel checks. Must not know: operations. */
#include "tests/kernel/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/exact.h"
#include "common/intmath.h"

enum { PAGE = 4096, GUARD = 256, GUARD_BYTE = 0xa5, FILL_BITS = 0x7fe5a5a5 };

/* ---- numbers ---- */

uint64_t check_random(struct check *c)
{
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t check_below(struct check *c, uint32_t n) { return (uint32_t)((check_random(c) >> 32) * n >> 32); }

bool check_one_in(struct check *c, uint32_t n) { return check_below(c, n) == 0; }

float check_float(struct check *c) { return (float)((double)(int64_t)check_random(c) * 0x1p-63); }

void check_fill_floats(struct check *c, float *x, size_t n)
{
    float scale = ldexpf(1.0f, (int)check_below(c, 12) - 6);
    for (size_t i = 0; i < n; i++) {
        x[i] = check_float(c) * scale;
    }
}

void check_fill_bytes(struct check *c, void *p, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = check_random(c);
        memcpy((uint8_t *)p + i, &word, min_u64(sizeof(word), n - i));
    }
}

static void fill_odd_block(struct check *c, float *x, size_t n)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1.fffffep127f, -0x1.fffffep127f};
    uint32_t kind = check_below(c, 6);
    float scale = ldexpf(1.0f, kind == 1 ? -101 - (int)check_below(c, 40) : kind == 4 ? 120 : -99);
    for (size_t i = 0; i < n; i++) {
        switch (kind) {
        case 0: /* zeros of both signs */
            x[i] = check_one_in(c, 2) ? 0.0f : -0.0f;
            break;
        case 2: /* every code +-127 */
            x[i] = check_one_in(c, 2) ? 1.0f : -1.0f;
            break;
        case 3: /* one odd value among ordinary ones */
            x[i] = check_float(c);
            break;
        default: /* below 2^-100, near FLT_MAX, just above 2^-100 */
            x[i] = check_float(c) * scale;
        }
    }
    if (kind == 3 && n > 0) {
        x[check_below(c, (uint32_t)n)] = odd[check_below(c, ARRAY_LEN(odd))];
    }
}

bool check_fill_activations(struct check *c, float *x, size_t n)
{
    bool ordinary = true;
    bool with_odd = check_one_in(c, 3);
    check_fill_floats(c, x, n);
    for (size_t at = 0; with_odd && at < n; at += 32) {
        if (check_one_in(c, 4)) {
            fill_odd_block(c, x + at, min_u64(32, n - at));
            ordinary = false;
        }
    }
    return ordinary;
}

/* ---- buffers ---- */

static void region_map(struct check_region *r, size_t bytes)
{
    if (r->map != NULL) {
        munmap(r->map, r->map_bytes);
    }
    r->map_bytes = align_up_u64(bytes, PAGE) + PAGE;
    r->map = mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->map == MAP_FAILED || mprotect(r->map + r->map_bytes - PAGE, PAGE, PROT_NONE) != 0) {
        perror("mmap of a test buffer");
        exit(1);
    }
}

void *check_bytes(struct check *c, size_t bytes)
{
    if (c->regions_used == CHECK_BUFFERS) {
        fprintf(stderr, "%s: more than %d buffers in one case\n", c->op, CHECK_BUFFERS);
        exit(1);
    }
    struct check_region *r = &c->regions[c->regions_used++];
    if (r->map == NULL || r->map_bytes < bytes + GUARD + PAGE) {
        region_map(r, bytes + GUARD);
    }
    r->data = r->map + r->map_bytes - PAGE - bytes;
    memset(r->data - GUARD, GUARD_BYTE, GUARD);
    return r->data;
}

float *check_floats(struct check *c, size_t n)
{
    float *x = check_bytes(c, n * sizeof(*x));
    check_fill_floats(c, x, n);
    return x;
}

float *check_output(struct check *c, size_t n)
{
    float *y = check_bytes(c, n * sizeof(*y));
    for (size_t i = 0; i < n; i++) {
        y[i] = float_from_bits(FILL_BITS);
    }
    return y;
}

static bool message(struct check *c, const char *what, const char *text)
{
    printf("FAILED %s: %s; case %u, %s; --seed %llu\n", what, text, c->number, c->shape, (unsigned long long)c->seed);
    return false;
}

/* Ends a case: guards must be whole. */
static bool release_buffers(struct check *c)
{
    bool ok = true;
    for (unsigned i = 0; i < c->regions_used; i++) {
        const uint8_t *guard = c->regions[i].data - GUARD;
        for (size_t b = 0; ok && b < GUARD; b++) {
            ok = guard[b] == GUARD_BYTE || message(c, "guard", "bytes before a buffer were written");
        }
    }
    c->regions_used = 0;
    return ok;
}

void check_deinit(struct check *c)
{
    for (unsigned i = 0; i < CHECK_BUFFERS; i++) {
        if (c->regions[i].map != NULL) {
            munmap(c->regions[i].map, c->regions[i].map_bytes);
        }
    }
}

/* ---- comparison ---- */

/* Equal bits, or two NaN that a kernel wrote. */
static bool same_float(float a, float b)
{
    uint32_t u = float_bits(a), v = float_bits(b);
    return u == v || (isnan(a) && isnan(b) && u != FILL_BITS && v != FILL_BITS);
}

bool check_same(struct check *c, const char *what, const float *expected, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!same_float(expected[i], got[i])) {
            char text[160];
            snprintf(text, sizeof(text), "element %zu of %zu is %a (%08x), expected %a (%08x)", i, n, (double)got[i],
                     float_bits(got[i]), (double)expected[i], float_bits(expected[i]));
            return message(c, what, text);
        }
    }
    return true;
}

bool check_same_bytes(struct check *c, const char *what, const void *expected, const void *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *a = expected, *b = got;
        if (a[i] != b[i]) {
            char text[96];
            snprintf(text, sizeof(text), "byte %zu of %zu is %02x, expected %02x", i, n, b[i], a[i]);
            return message(c, what, text);
        }
    }
    return true;
}

bool check_near(struct check *c, const char *what, double expected, double got, double tolerance)
{
    if (fabs(got - expected) <= tolerance) {
        return true;
    }
    char text[128];
    snprintf(text, sizeof(text), "%.9g, expected %.9g within %.3g", got, expected, tolerance);
    return message(c, what, text);
}

/* ---- running ---- */

static uint64_t hash_text(uint64_t h, const char *s)
{
    for (; *s != '\0'; s++) {
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    }
    return h;
}

bool check_wanted(const struct check *c, const char *op, const char *variant)
{
    char name[64];
    snprintf(name, sizeof(name), "%s %s", op, variant);
    return c->only == NULL || strstr(name, c->only) != NULL;
}

void check_slot(struct check *c, const char *op, const char *variant, int id, bool same, check_case *one_case)
{
    bool ok = true;
    if (!check_wanted(c, op, variant)) {
        return;
    }
    printf("%-12s %-10s %-7s ", op, variant, c->ops->isa);
    fflush(stdout); /* a kernel that crashes leaves its name */
    c->op = op;
    c->variant = variant;
    /* Every slot has its own numbers, so that a failing one can be run alone. */
    c->state = hash_text(hash_text(c->seed * 0x9e3779b97f4a7c15u, op), variant);
    for (c->number = 0; ok && c->number < c->cases; c->number++) {
        c->shape[0] = '\0';
        ok = one_case(c, id);
        ok = release_buffers(c) && ok;
    }
    c->failures += !ok;
    if (ok) {
        printf("ok, %u cases%s\n", c->number, same && c->ops != c->ref ? ", scalar function" : "");
    }
}

/* Of this thread alone: the machine may be busy. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_runs(struct check_timed timed, unsigned repeat)
{
    double start = seconds();
    for (unsigned i = 0; i < repeat; i++) {
        timed.run(timed.args);
    }
    return (seconds() - start) / repeat;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void check_bench(struct check *c, const char *op, const char *variant, struct check_timed timed)
{
    enum { SAMPLES = 9 };
    double sample[SAMPLES];
    if (!check_wanted(c, op, variant)) {
        release_buffers(c);
        return;
    }
    double once = time_runs(timed, 1);
    unsigned repeat = once > 0.004 ? 1 : (unsigned)(0.004 / (once + 1e-9)) + 1;
    for (int i = 0; i < SAMPLES; i++) {
        sample[i] = time_runs(timed, repeat);
    }
    qsort(sample, SAMPLES, sizeof(*sample), compare_doubles);
    double best = sample[0], median = sample[SAMPLES / 2];
    printf("%-12s %-20s %-7s %10.2f us  %8.3f GB/s  (median %.3f)\n", op, variant, c->ops->isa, best * 1e6,
           timed.bytes / best * 1e-9, timed.bytes / median * 1e-9);
    release_buffers(c);
}
