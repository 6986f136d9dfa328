/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the plain read bandwidth of memory with N threads, for comparison in the same run. usage: ceiling THREADS
 * Prints the best of 5 passes over 1 GiB in GB/s. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES = 1 << 30, PASSES = 5 };

struct part {
    const uint64_t *data;
    size_t n;
    uint64_t sum;
};

static void *read_part(void *arg)
{
    struct part *p = arg;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= p->n; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            s[k] += p->data[i + k];
        }
    }
    for (size_t k = 0; k < 8; k++) {
        p->sum += s[k];
    }
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > 64) {
        return 2;
    }
    void *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return 1;
    }
    madvise(data, BYTES, MADV_HUGEPAGE);
    memset(data, 1, BYTES);
    double best = 0;
    uint64_t sum = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        struct part part[64];
        pthread_t thread[64];
        double start = now();
        for (int i = 0; i < threads; i++) {
            part[i] = (struct part){(const uint64_t *)data + (size_t)i * (BYTES / 8 / (size_t)threads), BYTES / 8 / (size_t)threads, 0};
            if (pthread_create(&thread[i], NULL, read_part, &part[i]) != 0) {
                return 1;
            }
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
            sum += part[i].sum;
        }
        double rate = BYTES / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    printf("%.2f\n", best);
    return sum == 0;
}
