/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what one parallel loop costs: jobs of N empty tasks, of two stages with a wait between them, and of a task for each worker
 * that stays until all have come (nobody does another's work: the whole round trip).
 * usage: barrier [THREADS [TASKS [GAP_US]]]. GAP_US: serial work of the caller between two jobs. Run by hand. */
#include <stdio.h>
#include <stdlib.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/base/clock.h"
#include "src/base/thread.h"

enum { JOBS = 2000, SAMPLES = 50 };

struct job {
    _Atomic uint32_t done;
    uint32_t tasks;
};

static void empty_task(void *ctx, uint32_t task, uint32_t worker)
{
    (void)ctx;
    (void)task;
    (void)worker;
}

static void wait_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct job *j = ctx;
    (void)worker;
    if (task < j->tasks) {
        atomic_fetch_add_explicit(&j->done, 1, memory_order_release);
    } else {
        pool_wait_count(&j->done, j->tasks);
    }
}

static void meet_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct job *j = ctx;
    (void)task;
    (void)worker;
    atomic_fetch_add_explicit(&j->done, 1, memory_order_release);
    pool_wait_count(&j->done, j->tasks);
}

static void stay_busy(const struct clock *clock, uint64_t ns)
{
    for (uint64_t start = clock_now_ns(clock); clock_now_ns(clock) - start < ns;) {
        CPU_RELAX();
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds per job without the gap: minimum and median of the samples. */
static void measure(struct pool *p, const char *what, pool_fn fn, uint32_t tasks, uint32_t stages, uint64_t gap_ns)
{
    struct clock clock = clock_system();
    uint32_t count[2] = { tasks, tasks };
    double us[SAMPLES];
    for (int s = 0; s < SAMPLES; s++) {
        uint64_t total = 0;
        for (int i = 0; i < JOBS; i++) {
            struct job j = { .tasks = tasks };
            stay_busy(&clock, gap_ns);
            uint64_t start = clock_now_ns(&clock);
            pool_run_job(p, &(struct pool_job){ .fn = fn, .ctx = &j, .stages = stages, .nodes = 1, .count = count });
            total += clock_now_ns(&clock) - start;
        }
        us[s] = 1e-3 * (double)total / JOBS;
    }
    qsort(us, SAMPLES, sizeof(us[0]), by_value);
    printf("%-24s %7.2f us at least, median %7.2f, 90th percentile %7.2f\n", what, us[0], us[SAMPLES / 2], us[SAMPLES * 9 / 10]);
}

int main(int argc, char **argv)
{
    uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 2, tasks = argc > 2 ? (uint32_t)atoi(argv[2]) : threads;
    uint64_t gap = argc > 3 ? (uint64_t)atoi(argv[3]) * 1000 : 0;
    struct pool *p;
    struct error e;
    if (pool_create(&(struct pool_options){ .workers = threads }, &p, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("%u threads, %u tasks, %llu us between jobs, %d samples of %d jobs\n", threads, tasks, (unsigned long long)gap / 1000, (int)SAMPLES, (int)JOBS);
    measure(p, "empty job", empty_task, tasks, 1, gap);
    measure(p, "two stages with a wait", wait_task, tasks, 2, gap);
    measure(p, "all workers meet", meet_task, threads, 1, gap);
    pool_destroy(p);
    return 0;
}
