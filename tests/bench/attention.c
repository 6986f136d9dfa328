/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: attention of a decoded token over a long context beside both of its ceilings, measured in turn in the same threads:
 * float multiply-adds in registers, and reading the same cache. usage: attention THREADS [HEADS [POSITIONS [ROUNDS]]]
 * Times are processor seconds of each thread; a share is that of the median pair. Must not know: engines. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "common/intmath.h"
#include "cpu/cpu.h"

enum { LATENT = 512, ROPE = 64, WIDTH = LATENT + ROPE, GROUP = 64, SEGMENT = KV_PAGE * KV_SEGMENT_PAGES, THREADS_MAX = 64 };

struct bench {
    struct ops ops;
    struct cpu_peak peak;
    struct kv_layout layout;
    unsigned char *cache; /* [positions] rows */
    const float *q;       /* [heads, WIDTH] */
    uint32_t threads, heads, positions, rounds;
};

struct part {
    struct bench *b;
    uint32_t index;
    float *memory;   /* page and results of a group */
    double *share;   /* [rounds] of the multiply-adds that registers allow */
    double rate, peak, read; /* best: 1e9 multiply-adds a second, GB/s of the cache */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *huge(size_t bytes)
{
    size_t whole = align_up_u64(bytes, 2 << 20);
    char *p = mmap(NULL, whole + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "attention: no memory\n");
        exit(1);
    }
    p += -(uintptr_t)p & ((2 << 20) - 1);
    madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

static void attend(const struct part *p, uint32_t segment)
{
    const struct bench *b = p->b;
    const void *pages[KV_SEGMENT_PAGES];
    float *m = p->memory + KV_PAGE * WIDTH, *z = m + GROUP, *u = z + GROUP;
    for (uint32_t k = 0; k < KV_SEGMENT_PAGES; k++) {
        pages[k] = b->cache + ((size_t)segment * SEGMENT + (size_t)k * KV_PAGE) * b->layout.row_bytes;
    }
    for (uint32_t h = 0; h < b->heads; h += GROUP) {
        b->ops.attn_segment(&(struct attn_segment_args){
            .layout = b->layout, .pages = pages, .n = SEGMENT, .q_latent = b->q + (size_t)h * LATENT,
            .q_rope = b->q + (size_t)b->heads * LATENT + h * ROPE, .q_rope_stride = ROPE, .scratch = p->memory,
            .m = m, .z = z, .u = u, .scale = 0.1f, .heads = min_u32(GROUP, b->heads - h)});
    }
}

static void *run_part(void *arg)
{
    struct part *p = arg;
    const struct bench *b = p->b;
    uint32_t segments = b->positions / SEGMENT;
    double work = (double)SEGMENT * b->heads * (WIDTH + LATENT), bytes = (double)SEGMENT * (double)b->layout.row_bytes;
    cpu_float_mode_set();
    for (uint32_t r = 0; r < b->rounds; r++) {
        uint32_t segment = (p->index + r * b->threads) % segments;
        double start = now(), done = b->peak.compute[PEAK_FMA](20000) / 2, middle = now();
        double peak = 1e-9 * done / (middle - start);
        attend(p, segment);
        double rate = 1e-9 * work / (now() - middle);
        p->share[r] = rate / peak;
        p->peak = peak > p->peak ? peak : p->peak;
        p->rate = rate > p->rate ? rate : p->rate;
        segment = (segment + segments / 2) % segments; /* one that is not in cache if the context is larger than it */
        start = now();
        b->peak.read(b->cache + (size_t)segment * (size_t)bytes, (size_t)bytes / (8 * PEAK_READ_STEP) * (8 * PEAK_READ_STEP), 8);
        double read = 1e-9 * bytes / (now() - start);
        p->read = read > p->read ? read : p->read;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1, .heads = argc > 2 ? (uint32_t)atoi(argv[2]) : 128,
                      .positions = argc > 3 ? (uint32_t)atoi(argv[3]) : 32768, .rounds = argc > 4 ? (uint32_t)atoi(argv[4]) : 64};
    struct part part[THREADS_MAX] = {0};
    pthread_t thread[THREADS_MAX];
    struct cpu_flags flags;
    if (b.threads < 1 || b.threads > THREADS_MAX || b.heads < 1 || b.positions < SEGMENT || b.rounds < 1) {
        return 2;
    }
    cpu_detect(&flags);
    cpu_ops_init(&b.ops, cpu_isa_best(&flags), &flags);
    cpu_peak_init(&b.peak, cpu_isa_best(&flags), &flags);
    b.layout = (struct kv_layout){KV_F16, LATENT, ROPE, kv_row_bytes(KV_F16, LATENT, ROPE)};
    float *q = huge((size_t)b.heads * WIDTH * sizeof(float));
    b.cache = huge(b.positions * b.layout.row_bytes);
    for (size_t i = 0; i < (size_t)b.heads * WIDTH; i++) {
        q[i] = (float)(i * 7919 % 2003) * 1e-4f - 0.1f;
    }
    b.q = q;
    for (uint32_t t = 0; t < b.positions; t++) {
        float row[WIDTH];
        for (uint32_t i = 0; i < WIDTH; i++) {
            row[i] = (float)((t * 31u + i * 17u) % 1009) * 1e-3f - 0.5f;
        }
        b.ops.kv_store[KV_F16](&(struct kv_store_args){b.layout, row, row + LATENT, b.cache + t * b.layout.row_bytes});
    }
    for (uint32_t i = 0; i < b.threads; i++) {
        part[i] = (struct part){.b = &b, .index = i, .share = huge(b.rounds * sizeof(double)),
                                .memory = huge(((size_t)KV_PAGE * WIDTH + GROUP * (2 + LATENT)) * sizeof(float))};
        if (pthread_create(&thread[i], NULL, run_part, &part[i]) != 0) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < b.threads; i++) {
        pthread_join(thread[i], NULL);
        qsort(part[i].share, b.rounds, sizeof(double), by_size);
        printf("thread %u: %u heads over %u positions, %s: %5.1f %% of the multiply-adds of registers (median of %u; best quarter %.1f %%; "
               "peak %.1f G/s); reads %.2f GB/s of latents, ceiling %.1f GB/s\n",
               i, b.heads, b.positions, b.ops.isa, 100 * part[i].share[b.rounds / 2], b.rounds, 100 * part[i].share[b.rounds * 3 / 4],
               part[i].peak, part[i].rate * (double)b.layout.row_bytes / b.heads / (WIDTH + LATENT), part[i].read);
    }
    return 0;
}
